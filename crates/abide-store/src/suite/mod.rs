//! What every store promises, as tests that any implementation can be put through.
//!
//! A store passes [`run_all`] with a [`Factory`] of its own. The cases know nothing of the
//! database under it; they use [`abide_core::Store`] only.

mod changes;
mod concurrency;
mod deletion;
mod leases;
mod lifecycle;
mod queue;
mod reading;
pub mod specimens;

use std::any::Any;
use std::sync::Arc;

use abide_core::{BoxFuture, Store};

/// Makes databases for cases.
pub trait Factory: Send + Sync {
    /// A new, empty database.
    fn fresh(&self) -> BoxFuture<'_, Box<dyn Database>>;
}

/// One database. What is closed can be opened again, with everything that was in it.
pub trait Database: Send + Sync {
    /// Opens the database. A case closes a store before it opens the next one.
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>>;
}

/// One promise.
pub struct Case {
    /// The promise in words, as the name of a function.
    pub name: &'static str,
    run: fn(Box<dyn Database>) -> BoxFuture<'static, ()>,
}

impl Case {
    /// Puts a database to the test. Panics when it breaks the promise.
    pub async fn run(&self, database: Box<dyn Database>) {
        (self.run)(database).await;
    }
}

/// Lists cases by module and function, which is the case's name too.
macro_rules! cases {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($(Case {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: |database| Box::pin($module::$name(database)),
        }),+),+]
    };
}

/// All of them.
pub const CASES: &[Case] = cases! {
    reading:
        every_state_comes_back_as_it_was,
        bytes_come_back_as_they_were,
        large_payloads_come_back_whole,
        an_unknown_task_is_none,
        another_owners_task_is_none,
        a_write_is_seen_by_the_next_read,
        unfinished_tasks_come_in_pages;
    changes:
        a_change_is_on_disk_when_it_is_answered,
        a_refusal_leaves_the_task_as_it_was,
        a_stale_fence_is_refused,
        a_terminal_task_never_changes,
        another_owner_changes_nothing,
        an_unknown_task_is_not_found,
        a_taken_id_is_refused,
        a_whole_life_survives_restarts;
    queue:
        the_limit_holds_when_many_come_at_once,
        the_limit_counts_one_tools_queued_tasks_only,
        the_oldest_is_claimed_first,
        each_task_is_claimed_once,
        queued_lists_oldest_first;
    deletion:
        only_ended_and_expired_tasks_are_deleted,
        deletion_is_bounded,
        promises_that_run_out_are_named,
        nothing_is_swept_twice;
    concurrency:
        no_change_is_lost,
        creates_and_changes_mix,
        a_dropped_call_happens_wholly_or_not_at_all;
    leases:
        a_claim_holds_while_its_worker_lives,
        orphans_are_claimed_tasks,
        a_task_is_taken_over_once,
        work_is_requeued_as_often_as_it_may;
    lifecycle:
        a_new_store_is_healthy_and_empty,
        a_closed_store_turns_calls_away,
        closing_finishes_what_was_accepted,
        closing_twice_is_fine;
};

/// Runs every case on a database of its own.
///
/// # Panics
/// After the last case, if any of them failed, with all their names.
pub async fn run_all(factory: &dyn Factory) {
    let mut broken = Vec::new();
    for case in CASES {
        let database = factory.fresh().await;
        if let Err(error) = tokio::spawn((case.run)(database)).await {
            let reason = match error.try_into_panic() {
                Ok(panic) => panic_text(panic.as_ref()).to_owned(),
                Err(error) => error.to_string(),
            };
            broken.push(format!("{}: {reason}", case.name));
        }
    }
    assert!(broken.is_empty(), "the store breaks its contract:\n{}", broken.join("\n"));
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it panicked")
}
