//! The real store on a real file, doing the same steps, and looked at from every side after each.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use abide_core::{Applied, Store, StoreError, Task, TaskId, Timestamp, ToolName};
use abide_store::sqlite::{OpenError, Options, SqliteStore};
use abide_store::suite::specimens::worker;
use futures::FutureExt;
use futures::future::join_all;
use proptest_state_machine::StateMachineTest;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::reference::{Answer, Call, Model};
use crate::steps::{self, Restart, Step, TaskName};

/// Above the number of tasks that there can be.
const ALL: u32 = 1_000;

pub(crate) struct Real {
    runtime: Runtime,
    folder: TempDir,
    /// How often the store has crashed; each crash leaves a file of its own.
    crashes: u32,
    /// None only while it is being restarted.
    store: Option<SqliteStore>,
}

impl StateMachineTest for Real {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        let runtime = Builder::new_current_thread().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut real = Self { runtime, folder, crashes: 0, store: None };
        real.store = Some(open(&real.file()));
        real
    }

    fn apply(mut real: Self, model: &Model, step: Step) -> Self {
        let calls = model.calls.iter().map(|(call, _)| call.clone()).collect();
        match &step {
            Step::One(_) | Step::Together(_) => {
                let answers = real.runtime.block_on(real.call_all(calls));
                for (answer, (_, due)) in answers.iter().zip(&model.calls) {
                    assert_eq!(answer, due, "the answer to: {step:?}");
                }
            }
            Step::Unheard(_) => {
                real.call_and_leave(calls);
                // The writer takes one after the other, so they are through when this is.
                real.runtime.block_on(real.store().retire(worker("nobody"))).unwrap();
            }
            Step::Clock(_) => {}
            Step::Restart(Restart::Closed) => {
                real.runtime.block_on(real.store().close());
                real.store = None;
                real.store = Some(open(&real.file()));
            }
            Step::Restart(Restart::Dropped(_)) => {
                real.call_and_leave(calls);
                real.store = None;
                real.store = Some(open(&real.file()));
            }
            Step::Restart(Restart::Crashed) => real.crash(),
        }
        real
    }

    fn check_invariants(real: &Self, model: &Model) {
        real.runtime.block_on(async {
            real.check_what_owners_see(model).await;
            real.check_queues(model).await;
            real.check_unfinished(model).await;
            real.check_orphans(model).await;
        });
    }

    fn teardown(real: Self, _: Model) {
        real.runtime.block_on(real.store().close());
    }
}

impl Real {
    fn store(&self) -> &SqliteStore {
        self.store.as_ref().expect("it is only away during a restart")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(format!("{}.db", self.crashes))
    }

    /// Takes what is in the files at this moment, with nothing closed, and goes on with that.
    fn crash(&mut self) {
        let old = self.file();
        self.crashes += 1;
        let new = self.file();
        // The log first: nothing is written now, but the log may be on its way into the database.
        fs::copy(old.with_extension("db-wal"), new.with_extension("db-wal")).unwrap();
        fs::copy(&old, &new).unwrap();
        self.store = Some(open(&new));
    }

    /// All at once, in this order.
    async fn call_all(&self, calls: Vec<Call>) -> Vec<Answer> {
        join_all(calls.into_iter().map(|call| self.call(call))).await
    }

    /// Hands the calls over, and does not wait for any answer.
    fn call_and_leave(&self, calls: Vec<Call>) {
        for call in calls {
            // One look is enough to hand it over; the answer may even be there by then.
            let _ = self.call(call).now_or_never();
        }
    }

    async fn call(&self, call: Call) -> Answer {
        let store = self.store();
        let applied = |applied: Applied| {
            let Applied { task, effects, changed } = applied;
            Answer::Applied { task: Task::clone(&task), effects, changed }
        };
        let answer: Result<Answer, StoreError> = match call {
            Call::Create(task, limit) => {
                let created = store.create(task, limit).await;
                created.map(|task| Answer::Created(Task::clone(&task)))
            }
            Call::Apply(id, authority, command, now) => {
                store.apply(id, authority, command, now).await.map(applied)
            }
            Call::ClaimNext(tool, worker, now) => {
                let claimed = store.claim_next(tool, worker, now).await;
                claimed.map(|claimed| claimed.map_or(Answer::Nothing, applied))
            }
            Call::Heartbeat(worker, until) => {
                store.heartbeat(worker, until).await.map(|()| Answer::Nothing)
            }
            Call::Retire(worker) => store.retire(worker).await.map(|()| Answer::Nothing),
            Call::Sweep { now, horizon, limit } => {
                store.sweep(now, horizon, limit).await.map(Answer::swept)
            }
        };
        answer.unwrap_or_else(|error| Answer::error(&error))
    }

    /// Every task as each owner sees it, and which ids are tasks at all.
    async fn check_what_owners_see(&self, model: &Model) {
        let names = model.ids.keys().copied().chain([TaskName::NEVER]);
        let ids: Vec<TaskId> = names.clone().map(|name| model.id(name)).collect();
        let looks = names.flat_map(|name| steps::owners().map(|owner| (name, owner)));
        join_all(looks.map(|(name, owner)| async move {
            let id = model.id(name);
            let seen = self.store().get(id, owner.clone()).await.unwrap();
            assert_eq!(seen.as_deref(), model.seen_by(&owner, id), "{name:?} seen by {owner}");
        }))
        .await;
        let there = self.store().existing(ids.clone()).await.unwrap();
        let due = ids.iter().filter(|id| model.tasks.contains_key(id));
        assert_eq!(model.names(&there), model.names(due), "the tasks that exist");
    }

    async fn check_queues(&self, model: &Model) {
        for tool in steps::tools() {
            self.check_queue(model, tool).await;
        }
    }

    async fn check_queue(&self, model: &Model, tool: ToolName) {
        let due = model.queued(&tool);
        for limit in [1, ALL] {
            let queued = self.store().queued(tool.clone(), limit).await.unwrap();
            let due = due.iter().take(limit as usize);
            assert_eq!(model.names(&queued), model.names(due), "the queue of {tool}, {limit}");
        }
    }

    /// Whole, and in pages of two.
    async fn check_unfinished(&self, model: &Model) {
        let all = self.store().unfinished(None, ALL).await.unwrap();
        let all: Vec<&Task> = all.iter().map(|task| &**task).collect();
        assert_eq!(all, model.unfinished(), "the tasks that have not ended");
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = self.store().unfinished(after, 2).await.unwrap();
            let Some(last) = page.last() else { break };
            assert!(page.len() <= 2);
            after = Some(*last.id());
            paged.extend(page.iter().map(|task| *task.id()));
        }
        let due = model.unfinished();
        let due = due.iter().map(|task| task.id());
        assert_eq!(model.names(&paged), model.names(due), "the same in pages");
    }

    /// Now, and in the last moment of each lease and the first one after it.
    async fn check_orphans(&self, model: &Model) {
        let ends = model.leases.values();
        let edges = ends.flat_map(|end| [Timestamp::from_millis(end.as_millis() - 1), *end]);
        for moment in edges.chain([model.now]) {
            let orphans = self.store().orphans(moment, ALL).await.unwrap();
            let orphans: Vec<&Task> = orphans.iter().map(|task| &**task).collect();
            assert_eq!(orphans, model.orphans(moment), "tasks without a worker at {moment}");
        }
        let first = self.store().orphans(model.now, 1).await.unwrap();
        let first = first.first().map(|task| *task.id());
        let due = model.orphans(model.now).first().map(|task| *task.id());
        assert_eq!(first, due, "the first task without a worker");
    }
}

/// Opens the file as soon as whoever had it before has let go of it.
fn open(file: &std::path::Path) -> SqliteStore {
    // Small batches and a checkpoint after a few pages, so that short lives see both.
    let options = Options { batch: 3, checkpoint_pages: 8, ..Options::default() };
    loop {
        match SqliteStore::open(file, options) {
            Ok(store) => return store,
            Err(OpenError::Locked { .. }) => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
}
