//! Logs tell what happened, and never show a value.

use std::io::Write;
use std::sync::{Arc, Mutex};

use abide_core::TaskId;

use crate::harness::{Context, Place, finished, spec, start_as, task_id};

#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Everything that is logged, down to traces, while a call runs.
fn log_of(task: TaskId, argv: &[&str], arguments: &str) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        finished(runtime.block_on(start_as(task, spec(argv), arguments, &Context::new())));
    });
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn values_stay_out_of_the_log() {
    for (argv, value, said) in [
        (&["echo", "{a}"] as &[&str], "hunter2", "command ended"),
        (&["sh", "-c", "echo \"$1\"; exit 3", "sh", "{a}"], "hunter2", "exit status: 3"),
        (&["no-such-program", "{a}"], "hunter2", "not found"),
        (&["echo", "{a}"], "-hunter2", "arguments refused"),
    ] {
        let task = task_id();
        let log = log_of(task, argv, &format!(r#"{{"a":"{value}"}}"#));
        assert!(log.contains(said) && log.contains(task.as_str()), "{log}");
        assert!(!log.contains("hunter2"), "{log}");
    }
}

#[test]
fn variables_show_their_names_only() {
    let mut spec = spec(&["x"]);
    spec.env.insert("TOKEN".to_owned(), "hunter2".to_owned());
    spec.secrets.insert("KEY".to_owned(), "hunter2".to_owned());
    let shown = format!("{:?}", Place::new().backend(spec));
    assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
}
