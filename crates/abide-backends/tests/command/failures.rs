//! A program that can't be started is an error in plain words.

use crate::harness::{call, run, spec};

#[tokio::test]
async fn a_missing_program_is_named() {
    for program in ["no-such-program-here", "./no-such-program-here", "/etc/hostname/x"] {
        call(spec(&[program]), "{}").await.complains(&[program, "not found", "operator"]);
    }
}

#[tokio::test]
async fn a_program_without_execute_permission_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("script.sh");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    let file = file.to_str().unwrap();
    call(spec(&[file]), "{}").await.complains(&[file, "permission denied", "chmod +x"]);
    let directory = directory.path().to_str().unwrap();
    call(spec(&[directory]), "{}").await.complains(&[directory, "permission denied"]);
}

#[tokio::test]
async fn a_missing_interpreter_is_told_from_a_missing_program() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("script");
    let file = file.to_str().unwrap();
    // Written by a child: a file that this process has open for writing can't be run, and
    // other tests' children would inherit it for a moment.
    run(&format!("printf '#!/no/such/interpreter\\n' > '{file}'; chmod +x '{file}'")).await;
    call(spec(&[file]), "{}").await.complains(&[file, "interpreter"]);
}

#[tokio::test]
async fn a_missing_working_directory_is_named() {
    for cwd in ["/no/such/directory", "/etc/hostname"] {
        let mut spec = spec(&["true"]);
        spec.cwd = Some(cwd.into());
        call(spec, "{}").await.complains(&[cwd, "working directory"]);
    }
}
