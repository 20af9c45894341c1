//! Where output goes: data to standard output, for programs and pipes; talk to standard error.

use std::fmt;
use std::io::{self, Write as _};

use crate::failure::Failure;

/// Writes `text` and a line break to standard output.
///
/// # Errors
/// What the system says; a closed pipe is one too.
pub fn data(text: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Says something to people. That it can't be said is no reason to fail.
pub fn say(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says what could be done next.
pub fn hint(text: impl fmt::Display) {
    say(format_args!("hint: {text}"));
}

/// Says what looks wrong.
pub fn warn(text: impl fmt::Display) {
    say(format_args!("warning: {text}"));
}

/// Says why a command could not do its work.
pub fn report(failure: &Failure) {
    if failure.unread {
        return;
    }
    for line in failure.message.lines() {
        say(format_args!("error: {line}"));
    }
    if let Some(text) = &failure.hint {
        hint(text);
    }
}
