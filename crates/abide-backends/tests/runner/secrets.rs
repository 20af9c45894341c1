//! The environment's values go to the job and nowhere else.

use std::fs;

use crate::harness::{Place, env, finished, script, until, within};

pub(crate) async fn values_of_the_environment_reach_no_disk() {
    let place = Place::new();
    let values = [("TOKEN", "hunter2-hunter2"), ("KEY", "line1\nline2"), ("OTHER", "not-printed")];
    let mut env = env();
    env.extend(values.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let text =
        "printf 'a%sb' \"$TOKEN\"; printf hunter2-; sleep 0.05; echo hunter2; echo \"$KEY\" >&2
                [ ${#OTHER} = 11 ] && echo right; echo > done; sleep 1000";
    let mut job = script(text);
    job.secrets = ["TOKEN", "KEY", "OTHER", "ABSENT"].map(str::to_owned).into();
    job.cwd = Some(place.file(""));
    let run = within(place.spool.start(&place.name, &job, &env)).await.unwrap();
    until(|| place.file("done").exists().then_some(())).await;
    let runner = place.runner(&place.name);
    let seen =
        ["cmdline", "environ"].map(|file| fs::read(format!("/proc/{runner}/{file}")).unwrap());
    run.stop().await.unwrap();
    finished(&run).await;

    let files = fs::read_dir(place.in_run(&place.name, "")).unwrap();
    let mut files: Vec<Vec<u8>> =
        files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(files.len() > 5);
    files.extend(seen);
    for (name, value) in values {
        let found =
            |bytes: &Vec<u8>| bytes.windows(value.len()).any(|part| part == value.as_bytes());
        assert!(!files.iter().any(found), "the value of {name} is in a file");
    }
    let output = run.output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout.head).unwrap(),
        "a[redacted TOKEN]b[redacted TOKEN]\nright\n"
    );
    assert_eq!(output.stderr.head, b"[redacted KEY]\n");
}
