//! Runs outlive the server that has started them, however it ends.

use std::fs;
use std::time::Duration;

use abide_backends::runner::{Exit, Found};

use crate::harness::{Place, finished, is_alive, live, open, until, whole};
use crate::server;

/// Starts a script in a server of its own, and kills the server with -9.
async fn start_and_kill_server(place: &Place, text: &str) {
    let mut server =
        server::spawn(&server::command(&place.root(), &place.name, &place.file(""), text));
    server::has_started(&mut server).await;
    server.kill().unwrap();
    server.wait().unwrap();
}

pub(crate) async fn a_run_goes_on_when_its_server_is_killed() {
    let place = Place::new();
    let text = "echo before; echo >> ran; until [ -e go ]; do sleep 0.01; done; seq 1 100000; \
                echo after >&2; exit 6";
    start_and_kill_server(&place, text).await;
    let spool = open(&place.root());
    let run = live(&spool, &place.name);
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { finished(&run).await }
    });
    fs::write(place.file("go"), "").unwrap();
    let outcome = waiting.await.unwrap();
    assert_eq!((outcome.exit, outcome.stopped), (Some(Exit::Code(6)), None));
    let output = run.output().unwrap();
    let all: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(whole(&output.stdout), format!("before\n{all}"));
    assert_eq!(whole(&output.stderr), "after\n");
    assert_eq!(fs::read_to_string(place.file("ran")).unwrap(), "\n");
}

pub(crate) async fn a_run_that_ended_meanwhile_is_found() {
    let place = Place::new();
    start_and_kill_server(&place, "until [ -e go ]; do sleep 0.01; done; echo out; exit 2").await;
    fs::write(place.file("go"), "").unwrap();
    // Nobody but the file system is asked until it has ended.
    until(|| place.in_run(&place.name, "outcome.json").exists().then_some(())).await;
    let spool = open(&place.root());
    let outcome = until(|| match spool.find(&place.name).unwrap() {
        Found::Finished(outcome) => Some(outcome),
        Found::Live(_) => None,
        other => panic!("{other:?}"),
    })
    .await;
    assert_eq!(outcome.exit, Some(Exit::Code(2)));
    assert_eq!(whole(&spool.output(&place.name).unwrap().stdout), "out\n");
}

pub(crate) async fn a_run_is_stopped_by_the_next_server() {
    let place = Place::new();
    start_and_kill_server(&place, "echo $$ > pid; sleep 1000").await;
    let job = place.pid("pid").await;
    let run = live(&open(&place.root()), &place.name);
    run.stop().await.unwrap();
    assert!(finished(&run).await.stopped.is_some());
    assert!(!is_alive(job));
}

pub(crate) async fn a_server_killed_while_it_starts_a_run_leaves_nothing_unknown() {
    let (mut alive, mut never) = (0, 0);
    for round in 0..24u64 {
        let place = Place::new();
        let command = server::command(&place.root(), &place.name, &place.file(""), "echo >> ran");
        let mut server = server::spawn(&command);
        // Into the time in which it starts the run, whose length nobody knows; no result depends
        // on it.
        tokio::time::sleep(Duration::from_micros(700 * round)).await;
        server.kill().unwrap();
        server.wait().unwrap();

        let spool = open(&place.root());
        let mut found = spool.find(&place.name).unwrap();
        if let Found::Live(run) = &found {
            // It either takes its job or finds that its server is gone.
            run.wait().await.unwrap();
            found = spool.find(&place.name).unwrap();
        }
        let ran = fs::read_to_string(place.file("ran")).unwrap_or_default();
        match found {
            Found::Finished(outcome) => {
                assert_eq!((outcome.exit, ran.as_str()), (Some(Exit::Code(0)), "\n"));
                alive += 1;
            }
            Found::Lost(lost) => {
                assert!(!lost.may_have_run() && !lost.rebooted() && ran.is_empty(), "{lost:?}");
                assert_eq!(lost.stop_leftovers().await.unwrap().found, 0);
                never += 1;
            }
            Found::Absent => {
                assert_eq!(ran, "");
                never += 1;
            }
            Found::Live(run) => panic!("{run:?}"),
        }
        spool.remove(&place.name).unwrap();
        assert_eq!(fs::read_dir(place.root()).unwrap().count(), 0, "something is left over");
        assert_eq!(fs::read_to_string(place.file("ran")).unwrap_or_default(), ran);
    }
    assert_eq!(alive + never, 24);
}
