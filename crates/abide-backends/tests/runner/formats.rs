//! Files that other versions of abide have written, and will read.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use abide_backends::runner::{Exit, Found, RunName, Stopped};
use serde_json::Value;

use crate::harness::{Place, finished, script};

fn fixture(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runner/fixtures/v1").join(file)
}

/// A spool with the fixture in it.
fn place() -> (Place, RunName) {
    let place = Place::new();
    let name = place.name;
    fs::create_dir(place.in_run(&name, "")).unwrap();
    for entry in fs::read_dir(fixture("")).unwrap() {
        let entry = entry.unwrap();
        let to = place.in_run(&name, entry.file_name().to_str().unwrap());
        fs::copy(entry.path(), to).unwrap();
    }
    (place, name)
}

/// The file with something changed.
fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

pub(crate) async fn runs_of_other_versions_are_read() {
    let (place, name) = place();
    let Found::Finished(outcome) = place.spool.find(&name).unwrap() else { panic!() };
    assert_eq!(outcome.exit, Some(Exit::Signal(15)));
    assert_eq!(outcome.stopped, Some(Stopped { killed: true }));
    assert_eq!((outcome.started_ms, outcome.ended_ms), (1_785_283_200_000, 1_785_283_200_250));
    assert_eq!((outcome.left_behind, outcome.unkillable), (0, 0));
    assert_eq!((outcome.stdout.total, outcome.stdout.lost), (200_000, 0));
    assert_eq!(outcome.spool_error.as_deref(), Some("No space left on device (os error 28)"));
    let output = place.spool.output(&name).unwrap();
    assert_eq!(output.stdout.head, b"beginning");
    assert_eq!(output.stdout.tail.as_deref(), Some(b"is the end".as_slice()));
    assert_eq!((output.stderr.head.as_slice(), output.stderr.lost), (b"err\n".as_slice(), 5));

    // A later version adds to the files what this one does not know.
    for file in ["outcome.json", "job.json"] {
        change(&place.in_run(&name, file), |value| value["later"] = serde_json::json!({"a": [1]}));
    }
    let Found::Finished(same) = place.spool.find(&name).unwrap() else { panic!() };
    assert_eq!(same, outcome);
    assert_eq!(place.spool.output(&name).unwrap(), output);

    // What this version would misread it does not read.
    let file = place.in_run(&name, "outcome.json");
    change(&file, |value| value["version"] = 2.into());
    let error = place.spool.find(&name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("newer version"), "{error}");
    fs::write(&file, "{").unwrap();
    assert_eq!(place.spool.find(&name).unwrap_err().kind(), ErrorKind::InvalidData);
}

pub(crate) async fn what_is_written_is_what_the_fixture_has() {
    let place = Place::new();
    let run = place.start(script("true")).await;
    finished(&run).await;
    for file in ["outcome.json", "job.json"] {
        let keys = |path: &Path| -> BTreeSet<String> {
            let value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            assert_eq!(value["version"], 1);
            value.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(&place.in_run(&place.name, file)), keys(&fixture(file)), "{file}");
    }
    let words = |path: &Path| -> Vec<String> {
        let lock = fs::read_to_string(path).unwrap();
        let words = lock.lines().map(|line| line.split(' ').next().unwrap().to_owned());
        words.filter(|word| word != "cgroup").collect()
    };
    assert_eq!(words(&place.in_run(&place.name, "lock")), words(&fixture("lock")));
}
