//! How a command ends that could not do its work: exit code, message, and what to do next.

use std::io;

use crate::config::LoadError;

/// Exit codes of `abide`. Success is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 1: something went wrong while the command did its work.
    Failed = 1,
    /// 2: the command line or the config file is wrong; nothing was done.
    Usage = 2,
}

/// A command that could not do its work.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What happened, to what; may have several lines.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Whether nobody reads the output any more, so that there is nobody to tell.
    pub(crate) unread: bool,
}

impl Failure {
    /// Something went wrong.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: message.into(), hint: None, unread: false }
    }

    /// The command line or the config is wrong.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::failed(message) }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Unreadable { .. } => Self::usage(error.to_string()),
            LoadError::Wrong(problems) => Self::usage(problems.to_string())
                .hint("docs/config.md lists every key; `abide config reference` prints it"),
        }
    }
}

/// The whole chain of causes in one line.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let unread = error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        Self { unread, ..Self::failed(format!("{error:#}")) }
    }
}

/// An error of writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        anyhow::Error::from(error).into()
    }
}
