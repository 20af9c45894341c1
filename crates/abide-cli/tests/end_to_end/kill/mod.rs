//! kill -9 at any moment: what was acknowledged is there after the restart, and what had ended is
//! as it was, byte for byte; work that was under way goes on, and is done once.

mod ledger;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use serde_json::json;
use tokio::time::Instant;

use self::ledger::{Ledger, marks_of};
use crate::common::{
    Chance, Declares, Folder, Http, Reply, Request, Server, eventually, handle, say, task,
};

/// Kills in a run, and how long all of it may take before it makes do with fewer.
const ROUNDS: u64 = 36;
const BUDGET: Duration = Duration::from_secs(35);
const FEWEST_ROUNDS: u64 = 12;
/// The variable that sets the seed.
const SEED: &str = "TEST_SEED";
const CLIENTS: u64 = 6;
/// Old handles that are looked at after each restart, besides all that had not ended.
const SAMPLE: u64 = 150;
/// Requests under way when handles are looked at.
const LOOKS: usize = 8;

/// The work leaves a mark when it starts and when it ends.
const SCRIPT: &str = r#"
echo start >> "$MARKS/$ABIDE_TASK_ID"
sleep "$1"
echo done >> "$MARKS/$ABIDE_TASK_ID"
echo "$ABIDE_TASK_ID $2"
"#;

/// Tools by name: settings, seconds of work.
const TOOLS: [(&str, &str, &str); 5] = [
    ("instant", "inline = \"0s\"\nconcurrency = 8", "0"),
    ("window", "inline = \"30ms\"\nconcurrency = 8", "0.1"),
    ("needed", "task = \"required\"\nconcurrency = 8", "0.05"),
    ("long", "inline = \"0s\"\nconcurrency = 8\nqueue = 4", "0.5"),
    ("queued", "inline = \"0s\"\nconcurrency = 1\nqueue = 30", "0.02"),
];

fn config(marks: &Path) -> String {
    let marks = marks.display();
    TOOLS
        .iter()
        .map(|(name, settings, seconds)| {
            format!(
                "[tools.{name}]\ndescription = \"d\"\n{settings}\nkill_grace = \"200ms\"\n\
                 command = [\"./work.sh\", \"{seconds}\", \"{{number}}\"]\n\
                 env = {{ MARKS = \"{marks}\" }}\n\
                 input = {{ number = {{ type = \"integer\" }} }}\n"
            )
        })
        .collect()
}

/// What all clients of a run share.
struct Run {
    ledger: Ledger,
    marks: PathBuf,
    numbers: AtomicU64,
    acks: AtomicU64,
    /// Tasks whose work was under way when a server started.
    taken_up: AtomicU64,
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_kills_at_any_moment() {
    let seed = std::env::var(SEED).ok().and_then(|text| text.parse().ok()).unwrap_or_else(any_seed);
    say(&format!("kills: seed {seed}; {SEED}={seed} chooses the same again"));
    let folder = Folder::new("", "");
    let marks = folder.path("marks");
    std::fs::create_dir(&marks).unwrap();
    folder.write("abide.toml", &format!("[server]\nlisten = \"127.0.0.1:0\"\n{}", config(&marks)));
    folder.script("work.sh", SCRIPT);
    let run = Arc::new(Run {
        ledger: Ledger::new(&folder.path("ledger.jsonl")),
        marks,
        numbers: AtomicU64::new(0),
        acks: AtomicU64::new(0),
        taken_up: AtomicU64::new(0),
    });
    let kept = KeepOnPanic(Some(folder));
    let folder = kept.0.as_ref().expect("here until the end");

    let began = Instant::now();
    let mut chance = Chance::new(seed);
    let (mut kills, mut early) = (0, 0);
    while kills < ROUNDS && (began.elapsed() < BUDGET || kills < FEWEST_ROUNDS) {
        let server = Server::spawn(&folder.config(), &[]);
        if chance.below(6) == 0 {
            // In the middle of the start, of the recovery, or of the first queued work.
            tokio::time::sleep(Duration::from_millis(chance.below(80))).await;
            early += 1;
        } else {
            one_life(&server, &run, &mut chance).await;
        }
        server.kill().await;
        kills += 1;
    }

    // Everything comes to an end now, and stays.
    let server = Server::start(&folder.config()).await;
    let all: Vec<String> = run.ledger.all().into_iter().map(|(id, _)| id).collect();
    eventually("no task stays at work", async || {
        (look_at(&run, &server.http, &all).await == all.len()).then_some(())
    })
    .await;
    server.stop().await.well();
    let server = Server::start(&folder.config()).await;
    assert_eq!(look_at(&run, &server.http, &all).await, all.len());
    server.stop().await.well();
    tell(&run, kills, early, began.elapsed());
}

/// A seed of its own for each run; the standard library has no other chance.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(SEED)
}

/// One server's life: what former ones have acknowledged is looked at, then clients are at work
/// until the moment of the kill.
async fn one_life(server: &Server, run: &Arc<Run>, chance: &mut Chance) {
    let http = Http::new(&server.logs.url().await);
    let (old, open): (Vec<_>, Vec<_>) =
        run.ledger.all().into_iter().partition(|(_, entry)| entry.terminal.is_some());
    let sample = (0..SAMPLE).filter_map(|_| chance.pick(&old));
    let ids: Vec<String> = open.iter().chain(sample).map(|(id, _)| id.clone()).collect();
    let under_way = open.iter().filter(|(id, _)| marks_of(id, &run.marks) == (1, 0)).count();
    run.taken_up.fetch_add(under_way as u64, Ordering::Relaxed);
    look_at(run, &http, &ids).await;

    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = Client {
                http: http.clone(),
                run: run.clone(),
                chance: chance.fork(),
                mine: Vec::new(),
            };
            tokio::spawn(client.work())
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(chance.below(450))).await;
    // The kill comes while the clients are at work; they notice by themselves.
    crate::common::signal_process(server.pid(), rustix::process::Signal::KILL);
    for client in clients {
        client.await.expect("a client finds what it was promised");
    }
}

/// Polls these handles; gives how many tasks have ended.
async fn look_at(run: &Arc<Run>, http: &Http, ids: &[String]) -> usize {
    stream::iter(ids)
        .map(|id| async move { run.ledger.polled(id, &http.get_text(id).await, &run.marks) })
        .buffer_unordered(LOOKS)
        .filter(|ended| std::future::ready(*ended))
        .count()
        .await
}

/// Somebody who calls, polls, cancels and updates until the server is gone.
struct Client {
    http: Http,
    run: Arc<Run>,
    chance: Chance,
    mine: Vec<String>,
}

impl Client {
    async fn work(mut self) {
        while self.one_step().await.is_some() {}
    }

    /// None when the server is gone.
    async fn one_step(&mut self) -> Option<()> {
        let choice = self.chance.below(10);
        let id = self.chance.pick(&self.mine).cloned();
        let Some(id) = id.filter(|_| choice >= 5) else { return self.create().await };
        match choice {
            5 | 6 => {
                self.run.ledger.cancelling(&id);
                self.acknowledged("tasks/cancel", &task(&id)).await?;
                self.run.ledger.cancelled(&id);
            }
            7 => {
                let mut params = task(&id);
                params["inputResponses"] = json!({ "never asked": { "action": "accept" } });
                self.acknowledged("tasks/update", &params).await?;
                self.run.ledger.updated(&id);
            }
            _ => {
                let reply = self.send("tasks/get", &task(&id)).await?;
                self.run.ledger.polled(&id, &reply.text, &self.run.marks);
            }
        }
        Some(())
    }

    async fn create(&mut self) -> Option<()> {
        let (tool, ..) = *self.chance.pick(&TOOLS)?;
        let number = self.run.numbers.fetch_add(1, Ordering::Relaxed);
        let params = Declares::Tasks.call(tool, &json!({ "number": number }));
        let answer = self.send("tools/call", &params).await?.json();
        if answer["result"]["resultType"] == "task" {
            let id = handle(&answer);
            self.run.ledger.created(&id, tool, number);
            self.mine.push(id);
        } else {
            // Done within the window, or every slot taken and the queue full.
            assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        }
        Some(())
    }

    async fn acknowledged(&self, method: &str, params: &serde_json::Value) -> Option<()> {
        let reply = self.send(method, params).await?;
        assert_eq!(reply.json()["result"], json!({ "resultType": "complete" }), "{reply:?}");
        self.run.acks.fetch_add(1, Ordering::Relaxed);
        Some(())
    }

    /// None when the connection broke off: the server was killed, and acknowledged nothing.
    async fn send(&self, method: &str, params: &serde_json::Value) -> Option<Reply> {
        self.http.try_send(Request::new(method, params)).await.ok()
    }
}

/// Says what happened, and that it was what is being tested.
fn tell(run: &Run, kills: u64, early: u64, took: Duration) {
    let all = run.ledger.all();
    let count = |status: &str| {
        let part = format!("\"status\":\"{status}\"");
        all.iter().filter(|(_, entry)| has(entry.terminal.as_deref(), &part)).count()
    };
    let cancels = all.iter().filter(|(_, entry)| entry.cancel_acknowledged).count();
    let (completed, cancelled) = (count("completed"), count("cancelled"));
    let taken_up = run.taken_up.load(Ordering::Relaxed);
    say(&format!(
        "kills: {kills} rounds, {kills} kills ({early} of them during the start), {} handles: \
         {completed} completed, {cancelled} cancelled; work under way was taken up {taken_up} \
         times; {cancels} cancels of tasks at work and {} requests acknowledged; \
         {} ms",
        all.len(),
        run.acks.load(Ordering::Relaxed),
        took.as_millis(),
    ));
    for tool in TOOLS.map(|(name, ..)| name) {
        assert!(all.iter().any(|(_, entry)| entry.tool == tool), "no task of {tool}");
    }
    assert!(completed > 0 && cancelled > 0 && taken_up > 0, "the run was too tame");
}

fn has(text: Option<&str>, part: &str) -> bool {
    text.is_some_and(|text| text.contains(part))
}

/// Leaves the database and the ledger to be looked at when something was found.
struct KeepOnPanic(Option<Folder>);

impl Drop for KeepOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(folder) = self.0.take()
        {
            say(&format!("kills: the database and the ledger are in {}", folder.keep().display()));
        }
    }
}
