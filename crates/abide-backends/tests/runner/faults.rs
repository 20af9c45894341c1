//! Disks that are full, files that can't grow, folders that disappear.

use std::fs;
use std::process::Command;

use abide_backends::runner::{Exit, StartError};

use crate::alone::is_alone;
use crate::harness::{
    Place, env, finished, fresh_name, is_alive, live, open, script, until, within,
};

/// More output than the spool has room for, to its end.
const TALK: &str = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 9";

#[expect(clippy::disallowed_methods, reason = "mounting takes a program")]
fn mount_tmpfs(at: &std::path::Path) {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"]).arg(at);
    assert!(mount.status().unwrap().success());
}

pub(crate) async fn a_full_disk_loses_output_but_not_the_outcome() {
    let launchers: [&[&str]; 2] =
        [&["unshare", "--mount"], &["unshare", "--user", "--map-root-user", "--mount"]];
    if !is_alone("faults::a_full_disk_loses_output_but_not_the_outcome", &launchers) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    mount_tmpfs(directory.path());
    let (first, second) = (fresh_name(), fresh_name());
    let spool = open(&directory.path().join("spool"));
    let run = within(spool.start(&first, &script(TALK), &env())).await.unwrap();
    let outcome = finished(&run).await;
    assert_eq!(outcome.exit, Some(Exit::Code(9)));
    let error = outcome.spool_error.unwrap();
    assert!(error.contains("No space left"), "{error}");
    for (sizes, captured) in [
        (outcome.stdout, run.output().unwrap().stdout),
        (outcome.stderr, run.output().unwrap().stderr),
    ] {
        assert_eq!(
            (sizes.total, captured.total, captured.lost),
            (3_000_000, 3_000_000, sizes.lost)
        );
        assert!(sizes.lost > 2_000_000 && captured.tail.is_some());
    }
    assert!(outcome.log.lost > 5_000_000);

    // Nothing is started whose output could not be kept at all.
    let error = within(spool.start(&second, &script("true"), &env())).await.unwrap_err();
    assert!(matches!(&error, StartError::Spool(why) if why.contains("No space")), "{error}");
    assert_eq!(spool.list().unwrap(), [first]);
    spool.remove(&first).unwrap();
    let run = within(spool.start(&second, &script("true"), &env())).await.unwrap();
    assert_eq!(finished(&run).await.spool_error, None);
}

pub(crate) async fn a_limit_on_files_loses_output_but_not_the_outcome() {
    // In blocks of 512 bytes.
    let launcher = ["sh", "-c", "ulimit -f 128 && exec \"$0\" \"$@\""];
    if !is_alone("faults::a_limit_on_files_loses_output_but_not_the_outcome", &[&launcher]) {
        return;
    }
    let place = Place::new();
    let (outcome, output) = place.run(script(TALK)).await;
    assert_eq!(outcome.exit, Some(Exit::Code(9)));
    assert!(outcome.spool_error.unwrap().contains("too large"));
    assert_eq!((outcome.stdout.total, outcome.stdout.lost), (3_000_000, 3_000_000 - 65_536));
    assert_eq!((output.stdout.head.len(), output.stdout.tail), (65_536, Some(Vec::new())));
    assert_eq!((outcome.log.kept, outcome.log.lost), (65_536, 6_000_000 - 65_536));
}

pub(crate) async fn the_outcome_is_written_as_soon_as_it_can_be() {
    let place = Place::new();
    let run = place.start(script("until [ -e go ]; do sleep 0.01; done")).await;
    // In the way, so that no attempt can succeed.
    let outcome = place.in_run(&place.name, "outcome.json");
    fs::create_dir_all(outcome.join("in the way")).unwrap();
    fs::write(place.file("go"), "").unwrap();
    let runner = place.runner(&place.name);
    // At its second attempt it makes a new draft.
    let draft = place.in_run(&place.name, "outcome.draft");
    let has_json = || fs::read_to_string(&draft).is_ok_and(|text| text.starts_with("{\"version\""));
    until(|| has_json().then_some(())).await;
    fs::remove_file(&draft).unwrap();
    until(|| has_json().then_some(())).await;
    assert!(is_alive(runner));
    live(&place.spool, &place.name);
    fs::remove_dir_all(&outcome).unwrap();
    assert_eq!(finished(&run).await.exit, Some(Exit::Code(0)));
}

pub(crate) async fn a_runner_whose_folder_is_removed_goes_away() {
    let place = Place::new();
    let run = place.start(script("until [ -e go ]; do sleep 0.01; done")).await;
    let runner = place.runner(&place.name);
    fs::remove_dir_all(place.in_run(&place.name, "")).unwrap();
    fs::write(place.file("go"), "").unwrap();
    assert!(within(run.wait()).await.is_err());
    assert!(!is_alive(runner));
}
