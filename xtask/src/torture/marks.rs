//! What work leaves behind outside of its server: a file a task, a line for each thing it has done.

use std::fmt;
use std::fs;
use std::path::Path;

/// An answer that has come to work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) attempt: u64,
    pub(super) key: String,
    pub(super) number: u64,
}

/// The marks of one task.
#[derive(Debug, Default)]
pub(super) struct Marks {
    lines: Vec<String>,
    /// A command says which tool it is.
    pub(super) tool: Option<String>,
    /// One for each time that it has begun: the process of a command, the attempt of a handler.
    pub(super) starts: Vec<u64>,
    pub(super) dones: usize,
    pub(super) answers: Vec<Answer>,
}

impl Marks {
    /// A task's marks; none if it has not begun.
    pub(super) fn of(folder: &Path, id: &str) -> Self {
        Self::parse(&fs::read_to_string(folder.join(id)).unwrap_or_default())
    }

    /// All tasks' marks.
    pub(super) fn all(folder: &Path) -> impl Iterator<Item = (String, Self)> {
        fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|file| {
            let text = fs::read_to_string(file.path()).ok()?;
            Some((file.file_name().into_string().ok()?, Self::parse(&text)))
        })
    }

    fn parse(text: &str) -> Self {
        let mut marks = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some("start") => {
                    marks.starts.extend(words.next().and_then(|word| word.parse::<u64>().ok()));
                    marks.tool = words.next().map(str::to_owned);
                }
                Some("done") => marks.dones += 1,
                Some("answer") => marks.answers.extend(answer(words)),
                _ => {}
            }
            marks.lines.push(line.to_owned());
        }
        marks
    }
}

fn answer<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Answer> {
    let attempt = words.next()?.parse().ok()?;
    let key = words.next()?.to_owned();
    Some(Answer { attempt, key, number: words.next()?.parse().ok()? })
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the marks {:?}", self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read() {
        let marks = Marks::parse("start 71 quick\ndone\nstart 72 quick\n");
        assert_eq!((marks.starts.as_slice(), marks.dones), (&[71, 72][..], 1));
        assert_eq!(marks.tool.as_deref(), Some("quick"));
        let marks = Marks::parse("start 2\nanswer 2 number-1 17\n");
        assert_eq!((marks.starts.as_slice(), marks.tool), (&[2][..], None));
        assert_eq!(marks.answers, [Answer { attempt: 2, key: "number-1".into(), number: 17 }]);
    }
}
