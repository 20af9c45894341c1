//! A run from its start to its removal.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use abide_backends::runner::{Exit, Found, JobSpec, StartError};
use abide_core::LogRange;

use crate::harness::{Place, env, finished, is_alive, live, script, until, whole, within};
use crate::server;

pub(crate) async fn a_job_runs_to_its_end() {
    let place = Place::new();
    assert!(matches!(place.spool.find(&place.name).unwrap(), Found::Absent));
    let run = place.start(script("echo out; echo err >&2; read line || exit 3")).await;
    let outcome = finished(&run).await;
    assert_eq!((outcome.exit, outcome.stopped), (Some(Exit::Code(3)), None));
    assert_eq!((outcome.left_behind, outcome.unkillable), (0, 0));
    assert!(outcome.started_ms > 0 && outcome.started_ms <= outcome.ended_ms);
    assert_eq!(outcome.spool_error, None);
    let output = run.output().unwrap();
    assert_eq!((whole(&output.stdout), whole(&output.stderr)), ("out\n", "err\n"));
    let all = LogRange { from: 0, max: 100 };
    assert_eq!(place.spool.read_log(&place.name, all).unwrap().unwrap().bytes.len(), 8);

    // It stays what it is, for whoever asks.
    assert_eq!(finished(&run).await, outcome);
    let Found::Finished(found) = place.spool.find(&place.name).unwrap() else { panic!() };
    assert_eq!(found, outcome);
    run.stop().await.unwrap();
    assert_eq!(place.spool.list().unwrap(), [place.name]);
}

pub(crate) async fn how_a_job_ends_is_told() {
    for (text, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 255", Exit::Code(255)),
        ("kill -KILL $$", Exit::Signal(9)),
        ("kill -SEGV $$", Exit::Signal(11)),
        // The runner's own handlers are not the job's.
        ("kill -PIPE $$", Exit::Signal(13)),
        ("kill -HUP $$", Exit::Signal(1)),
        ("kill -TERM $$", Exit::Signal(15)),
    ] {
        let (outcome, _) = Place::new().run(script(text)).await;
        assert_eq!((outcome.exit, outcome.stopped), (Some(exit), None), "{text}");
        let status = exit.status().to_string();
        let (Exit::Code(number) | Exit::Signal(number)) = exit;
        assert!(status.contains(&number.to_string()), "{status}");
    }
}

pub(crate) async fn a_job_that_cannot_be_started_says_why() {
    let place = Place::new();
    let plain = place.file("plain.sh");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let no_interpreter = place.file("no-interpreter");
    fs::write(&no_interpreter, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&no_interpreter, fs::Permissions::from_mode(0o755)).unwrap();
    let job = |program: &Path| JobSpec { argv: vec![program.display().to_string()], ..script("") };
    let check = async |job: JobSpec, is_right: fn(&StartError) -> bool, parts: &[&str]| {
        let error = within(place.spool.start(&place.name, &job, &env())).await.unwrap_err();
        assert!(is_right(&error), "{error:?}");
        for part in parts {
            assert!(error.to_string().contains(part), "{part:?} is not in {error}");
        }
        // Nothing is left of it.
        assert!(matches!(place.spool.find(&place.name).unwrap(), Found::Absent));
        assert_eq!(fs::read_dir(place.root()).unwrap().count(), 0);
    };
    let missing = |error: &StartError| matches!(error, StartError::NotFound(_));
    check(job(Path::new("no-such-program")), missing, &["no-such-program", "operator"]).await;
    check(job(Path::new("./no-such-program")), missing, &["./no-such-program"]).await;
    let denied = |error: &StartError| matches!(error, StartError::Denied(_));
    check(job(&plain), denied, &["plain.sh", "chmod +x"]).await;
    let no_script = |error: &StartError| matches!(error, StartError::NoInterpreter(_));
    check(job(&no_interpreter), no_script, &["no-interpreter", "first line"]).await;
    let nowhere = JobSpec { cwd: Some("/no/such/directory".into()), ..script("true") };
    let no_directory = |error: &StartError| matches!(error, StartError::NoDirectory(_));
    check(nowhere, no_directory, &["/no/such/directory"]).await;
    let mut long = script("true");
    long.argv.extend(vec!["x".repeat(100_000); 100]);
    check(long, |error| matches!(error, StartError::TooLong(_)), &["shorter"]).await;
}

pub(crate) async fn a_run_is_started_once() {
    let place = Place::new();
    let run = place.start(script("echo >> ran; while ! [ -e go ]; do sleep 0.01; done")).await;
    for done in [false, true] {
        let again = place.spool.start(&place.name, &script("echo >> ran"), &env()).await;
        assert!(
            matches!(again, Err(StartError::Exists(found)) if found == place.name),
            "{again:?}"
        );
        if !done {
            fs::write(place.file("go"), "").unwrap();
            finished(&run).await;
        }
    }
    assert_eq!(fs::read_to_string(place.file("ran")).unwrap(), "\n");
    // The first one is untouched.
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 1);
    assert!(matches!(place.spool.find(&place.name).unwrap(), Found::Finished(_)));
}

pub(crate) async fn a_run_is_removed_only_when_it_is_over() {
    let place = Place::new();
    let run = place.start(script("sleep 1000")).await;
    let error = place.spool.remove(&place.name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    live(&place.spool, &place.name);
    run.stop().await.unwrap();
    finished(&run).await;
    place.spool.remove(&place.name).unwrap();
    place.spool.remove(&place.name).unwrap();
    assert!(matches!(place.spool.find(&place.name).unwrap(), Found::Absent));
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 0);
    assert_eq!(run.wait().await.unwrap_err().kind(), ErrorKind::NotFound);
}

pub(crate) async fn a_runner_is_alone() {
    let place = Place::new();
    let run = place.start(script("echo $$ > pid; sleep 1000")).await;
    let (job, runner) = (place.pid("pid").await, place.runner(&place.name));
    // pid (name) state ppid pgrp session tty_nr …
    let stat = |pid: i32| -> Vec<i64> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(1).take(4);
        fields.map(|field| field.parse().unwrap()).collect()
    };
    let (runner_id, job_id) = (i64::from(runner), i64::from(job));
    let own = i64::from(std::process::id());
    assert_eq!(stat(runner), [own, runner_id, runner_id, 0]);
    assert_eq!(stat(job), [runner_id, job_id, runner_id, 0]);
    assert_eq!(fs::read_to_string(format!("/proc/{runner}/comm")).unwrap(), "abide-runner\n");
    assert_eq!(fs::read(format!("/proc/{runner}/environ")).unwrap(), b"");
    // It leaves the folder that it was started in once the job runs.
    until(|| {
        let cwd = fs::read_link(format!("/proc/{runner}/cwd")).unwrap();
        (cwd == Path::new("/")).then_some(())
    })
    .await;
    assert_eq!(fs::read_dir(format!("/proc/{runner}/task")).unwrap().count(), 1);
    let job_env = fs::read_to_string(format!("/proc/{job}/environ")).unwrap();
    assert!(job_env.contains(&format!("ABIDE_RUN={}\0", place.name)), "{job_env}");

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.root()), 0o700);
    let folder = place.in_run(&place.name, "");
    assert_eq!(mode(&folder), 0o700);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    run.stop().await.unwrap();
    finished(&run).await;
    // Reaped, though nobody has to wait for it.
    until(|| (!Path::new(&format!("/proc/{runner}")).exists()).then_some(())).await;
    assert!(!is_alive(job));
}

pub(crate) async fn a_runner_keeps_nothing_open_that_its_server_inherited() {
    let place = Place::new();
    let kept = place.file("kept");
    let directory = place.file("");
    let text = "readlink /proc/$$/fd/* > fds; echo $$ > pid; sleep 1000";
    let mut line = ["sh", "-c", "exec 7>\"$0\"; exec \"$@\""].map(Into::into).to_vec();
    line.push(kept.clone().into_os_string());
    line.extend(server::command(&place.root(), &place.name, &directory, text));
    let mut server = server::spawn(&line);
    server::has_started(&mut server).await;
    place.pid("pid").await;

    let open_in = |pid: i32| -> Vec<String> {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let links = entries.map(|entry| fs::read_link(entry.unwrap().path()).unwrap());
        links.map(|link| link.display().to_string()).collect()
    };
    let kept = kept.display().to_string();
    assert!(open_in(i32::try_from(server.id()).unwrap()).contains(&kept), "it is not inherited");
    let runner = open_in(place.runner(&place.name));
    let spool = place.root().display().to_string();
    for link in &runner {
        let own = link.starts_with(&spool) || link == "/dev/null";
        assert!(own || link.starts_with("socket:") || link.starts_with("pipe:"), "{link}");
    }
    // Two pairs for signals and two pipes.
    assert!(runner.iter().filter(|link| link.contains(":[")).count() <= 7, "{runner:?}");
    let job = fs::read_to_string(place.file("fds")).unwrap();
    assert!(job.lines().count() <= 4 && !job.contains(&kept) && !job.contains("socket"), "{job}");

    server.kill().unwrap();
    server.wait().unwrap();
    let run = live(&place.spool, &place.name);
    run.stop().await.unwrap();
    finished(&run).await;
}
