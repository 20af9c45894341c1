//! What a job prints is kept, within its limits.

use abide_core::LogRange;

use crate::harness::{Place, finished, memory, script, until, whole};

pub(crate) async fn output_is_complete_and_in_order() {
    // More than a pipe holds, on both at once, while nobody waits.
    let text = "seq 1 20000; seq 1 20000 >&2; seq 20001 40000; seq 20001 40000 >&2";
    let (outcome, output) = Place::new().run(script(text)).await;
    let all: String = (1..=40_000).map(|number| format!("{number}\n")).collect();
    assert!(whole(&output.stdout) == all && whole(&output.stderr) == all);
    assert_eq!(outcome.stdout.total, all.len() as u64);
    assert_eq!(outcome.log.kept, 2 * all.len() as u64);
}

pub(crate) async fn long_output_keeps_its_beginning_and_its_end() {
    // seq prints 588895 bytes; the limit is odd, at the size of the output, and far below it.
    for (max, is_whole) in [(1025, false), (588_894, false), (588_895, true), (600_000, true)] {
        let mut job = script("seq 1 100000");
        job.max_output_bytes = max;
        let (outcome, output) = Place::new().run(job).await;
        let captured = output.stdout;
        assert_eq!((outcome.stdout.total, captured.total, captured.lost), (588_895, 588_895, 0));
        assert!(captured.head.starts_with(b"1\n2\n3\n"));
        if is_whole {
            assert!(whole(&captured).ends_with("99999\n100000\n"));
        } else {
            let tail = captured.tail.unwrap();
            assert_eq!((captured.head.len(), tail.len()), (max / 2, max - max / 2));
            assert!(tail.ends_with(b"99999\n100000\n"));
        }
    }
}

pub(crate) async fn a_gigabyte_costs_little() {
    let place = Place::new();
    let text = "printf begin; head -c 1000000000 /dev/zero; printf end; echo > done; sleep 1000";
    let run = place.start(script(text)).await;
    until(|| place.file("done").exists().then_some(())).await;
    let runner = place.runner(&place.name);
    let peak = memory(runner, "VmHWM");
    assert!(peak < 20_000, "{peak} kB at the peak");
    run.stop().await.unwrap();
    let outcome = finished(&run).await;
    assert_eq!(outcome.stdout.total, 1_000_000_008);
    let output = run.output().unwrap().stdout;
    assert!(output.head.starts_with(b"begin\0") && output.tail.unwrap().ends_with(b"\0end"));
    assert!(outcome.log.cut && outcome.log.kept == 16 * 1024 * 1024);
    let files = std::fs::read_dir(place.in_run(&place.name, "")).unwrap();
    let on_disk: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk < 16 * 1024 * 1024 + 1024 * 1024 + 512 * 1024 + 8192, "{on_disk} bytes");
}

pub(crate) async fn the_log_has_both_streams_and_ends_in_words() {
    // Each line is there before the next is written.
    let text = "wait_for() { until grep -q \"$1\" \"$LOG\"; do sleep 0.01; done; }
                echo one; wait_for one; echo two >&2; wait_for two; printf 'thr\\303\\251\\303\\251'";
    for (limit, expected) in [
        (100, "one\ntwo\nthréé"),
        (15, "one\ntwo\nthréé"),
        // In the middle of a character, and between two.
        (
            14,
            "one\ntwo\nthré\n[… the log ends here, at its limit of 14 bytes; the command went on …]\n",
        ),
        (
            13,
            "one\ntwo\nthré\n[… the log ends here, at its limit of 13 bytes; the command went on …]\n",
        ),
    ] {
        let place = Place::new();
        let log = place.in_run(&place.name, "log");
        let mut job = script(&text.replace("$LOG", &log.display().to_string()));
        job.max_log_bytes = limit;
        let (outcome, _) = place.run(job).await;
        let all = LogRange { from: 0, max: 1000 };
        let log = place.spool.read_log(&place.name, all).unwrap().unwrap();
        assert_eq!(String::from_utf8(log.bytes).unwrap(), expected);
        assert_eq!((log.from, log.size, log.ended), (0, expected.len() as u64, true));
        let part = |from, max| {
            let part = place.spool.read_log(&place.name, LogRange { from, max }).unwrap().unwrap();
            (part.from, part.bytes)
        };
        let size = expected.len() as u64;
        assert_eq!(part(4, 3), (4, b"two".to_vec()));
        assert_eq!(part(-1, 5), (size - 1, expected.as_bytes()[expected.len() - 1..].to_vec()));
        assert_eq!(part(i64::MIN, 3), (0, b"one".to_vec()));
        assert_eq!(part(i64::MAX, 3), (size, Vec::new()));
        assert_eq!(outcome.log.cut, limit < 15);
    }
}

pub(crate) async fn output_can_be_read_while_the_job_runs() {
    let place = Place::new();
    let mut job = script("seq 1 100000; echo > done; sleep 1000");
    job.max_output_bytes = 2048;
    let run = place.start(job).await;
    until(|| place.file("done").exists().then_some(())).await;
    let output = until(|| {
        let stdout = run.output().unwrap().stdout;
        stdout.tail.as_ref().is_some_and(|tail| tail.ends_with(b"100000\n")).then_some(stdout)
    })
    .await;
    assert_eq!((output.total, output.lost, output.tail.unwrap().len()), (588_895, 0, 1024));
    run.stop().await.unwrap();
    finished(&run).await;
}

pub(crate) async fn what_a_child_still_writes_is_kept() {
    // As with `> >(tee log)`: the job exits while a child still has something to write.
    let text = "(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; sleep 0.1; echo late) & exit 5";
    let (outcome, output) = Place::new().run(script(text)).await;
    assert_eq!(whole(&output.stdout), "late\n");
    assert_eq!(outcome.exit, Some(abide_backends::runner::Exit::Code(5)));
}
