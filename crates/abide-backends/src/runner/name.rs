//! The name of a run, which is also the name of its folder.

use std::fmt;
use std::str::FromStr;

use abide_core::TaskId;

/// One attempt at a task's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunName {
    /// The task.
    pub task: TaskId,
    /// Counts from 1.
    pub attempt: u32,
}

/// The text is not the name of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a run: it has to be a task id, a dot and the number of the attempt")]
pub struct NotARunName;

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.task, self.attempt)
    }
}

impl FromStr for RunName {
    type Err = NotARunName;

    fn from_str(text: &str) -> Result<Self, NotARunName> {
        let (task, attempt) = text.split_once('.').ok_or(NotARunName)?;
        let name = Self {
            task: task.parse().map_err(|_| NotARunName)?,
            attempt: attempt.parse().map_err(|_| NotARunName)?,
        };
        // One spelling for each run: `+1` and `01` are numbers too.
        if name.to_string() == text { Ok(name) } else { Err(NotARunName) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        let id = "0".repeat(TaskId::TEXT_LEN);
        let name: RunName = format!("{id}.12").parse().unwrap();
        assert_eq!((name.attempt, name.to_string()), (12, format!("{id}.12")));
        for bad in ["", "1", &id, &format!("{id}."), &format!("{id}.01"), &format!("{id}.+1")] {
            assert_eq!(bad.parse::<RunName>(), Err(NotARunName), "{bad}");
        }
    }
}
