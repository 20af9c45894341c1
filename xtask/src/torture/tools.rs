//! The tools that are called: commands in a config, and what `torture_server` brings.

use std::path::Path;

use super::verify::MAX_ATTEMPTS;

/// What a tool promises about its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A command that is taken up again.
    Reattach,
    /// A command that fails with its server.
    Fail,
    /// A command that is done again.
    Rerun,
    /// A command that takes longer than it may.
    Late,
    /// A handler that asks for a number.
    Asks,
    /// A handler whose claims are taken over.
    TakenOver,
}

/// A tool, and how its arguments are chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What a command does besides; empty for a handler.
    pub(super) how: &'static str,
    /// For how many milliseconds it works at most; none if it never ends.
    pub(super) millis: Option<u64>,
    /// Of a command: its part of the config.
    settings: &'static str,
}

impl Tool {
    pub(super) const fn is_handler(&self) -> bool {
        self.how.is_empty()
    }

    pub(super) const fn is_endless(&self) -> bool {
        self.millis.is_none()
    }

    /// Whether a command asks for a number.
    pub(super) fn asks(&self) -> bool {
        self.how == "ask"
    }
}

/// What a command does: it leaves marks, works, and perhaps behaves badly. Marks are appended in
/// one write each; they need no sync, since only processes die here, never the machine.
pub(super) const JOB: &str = r#"#!/bin/sh
echo "start $$ $TOOL" >> "$MARKS/$ABIDE_TASK_ID"
case "$2" in
    detach) setsid sleep 1000 & ;;
    deaf) trap '' TERM ;;
    ask)
        attempt=${ABIDE_RUN##*.}
        # What an earlier attempt was answered counts; a question of one that died was taken back.
        for by in $(seq "$attempt"); do
            number=$(abide ask "Which number?" --integer --key "number-$by") && break
        done
        [ -n "$number" ] || exit 9
        echo "answer $attempt number-$by $number" >> "$MARKS/$ABIDE_TASK_ID" ;;
esac
sleep "$1"
echo "did the work of $ABIDE_TASK_ID"
echo done >> "$MARKS/$ABIDE_TASK_ID"
"#;

const fn tool(
    name: &'static str,
    kind: Kind,
    how: &'static str,
    millis: Option<u64>,
    settings: &'static str,
) -> Tool {
    Tool { name, kind, settings, how, millis }
}

/// Tasks are promised for the sum of both: so long that an end is looked at often, and so short that
/// a long run sees them expire and does not gather all its runs.
const KEEP: &str = "timeout = \"60s\"\nkeep = \"45s\"\n";

pub(super) const COMMANDS: &[Tool] = &[
    tool("quick", Kind::Reattach, "plain", Some(30), "concurrency = 6"),
    tool("window", Kind::Reattach, "plain", Some(200), "inline = \"100ms\"\nconcurrency = 6"),
    tool("long", Kind::Reattach, "plain", Some(900), "keep = \"24h\"\nconcurrency = 6"),
    tool("single", Kind::Reattach, "plain", Some(60), "concurrency = 1\nqueue = 20"),
    tool("detach", Kind::Reattach, "detach", Some(200), "keep = \"24h\""),
    tool("deaf", Kind::Reattach, "deaf", Some(400), ""),
    tool("fails", Kind::Fail, "plain", Some(400), "on_restart = \"fail\""),
    tool("again", Kind::Rerun, "plain", Some(400), "on_restart = \"rerun\""),
    tool("brief", Kind::Reattach, "plain", Some(50), "keep = \"500ms\"\ntimeout = \"6s\""),
    tool("asking", Kind::Reattach, "ask", Some(100), "keep = \"24h\"\nconcurrency = 6"),
    tool("asking_again", Kind::Rerun, "ask", Some(100), "keep = \"24h\"\non_restart = \"rerun\""),
    tool("late", Kind::Late, "plain", Some(900), "keep = \"24h\"\ntimeout = \"150ms\""),
    tool("endless", Kind::Reattach, "plain", None, "keep = \"24h\"\nconcurrency = 4\nqueue = 4"),
    tool(
        "endless_again",
        Kind::Rerun,
        "deaf",
        None,
        "keep = \"24h\"\non_restart = \"rerun\"\nqueue = 4",
    ),
];

pub(super) const ASKS: &[Tool] = &[tool("asks", Kind::Asks, "", Some(0), "")];
pub(super) const TAKEN_OVER: &[Tool] = &[tool("works", Kind::TakenOver, "", Some(900), "")];

/// What the command of this name promises.
pub(super) fn kind_of(command: &str) -> Option<Kind> {
    COMMANDS.iter().find(|tool| tool.name == command).map(|tool| tool.kind)
}

/// The config that offers the commands.
pub(super) fn config(marks: &Path) -> String {
    let mut config = "[server]\nlisten = \"127.0.0.1:0\"\nshutdown_grace = \"300ms\"\n".to_owned();
    for Tool { name, kind, settings, .. } in COMMANDS {
        let inline = if settings.contains("inline") { "" } else { "inline = \"0s\"\n" };
        let keep = if settings.contains("keep") { "" } else { KEEP };
        let attempts = match kind {
            Kind::Rerun => format!("max_attempts = {MAX_ATTEMPTS}\n"),
            _ => String::new(),
        };
        config.push_str(&format!(
            "[tools.{name}]\ndescription = \"d\"\n{settings}\n{inline}{keep}{attempts}\
             kill_grace = \"200ms\"\n\
             command = [\"sh\", \"./job.sh\", \"{{seconds}}\", \"{{how}}\"]\n\
             env = {{ MARKS = {marks:?}, TOOL = {name:?} }}\n\
             input = {{ seconds = {{ type = \"string\" }}, how = {{ type = \"string\" }} }}\n"
        ));
    }
    config
}
