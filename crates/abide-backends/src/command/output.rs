//! What is kept of a command's output, made into text.

use crate::runner;

/// What is kept of a stream.
#[derive(Debug)]
pub(super) struct Captured {
    /// The whole, or its first part.
    head: Vec<u8>,
    /// The last part, if something between the two was left out.
    tail: Option<Vec<u8>>,
    /// Bytes of the whole.
    pub(super) total: u64,
}

/// A stream as text, with a marker where something was left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    head: String,
    tail: String,
    /// Bytes between head and tail; if none are, the tail is empty.
    left_out: u64,
}

impl From<runner::Captured> for Captured {
    fn from(captured: runner::Captured) -> Self {
        let runner::Captured { head, tail, total, lost: _ } = captured;
        Self { head, tail, total }
    }
}

impl Captured {
    /// The whole stream, if nothing was left out.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.tail.is_none().then_some(self.head.as_slice())
    }

    /// The stream as text. Bytes that are not UTF-8 become U+FFFD; a character at the edge of
    /// what was left out is left out whole.
    pub(super) fn into_text(self) -> Text {
        let repaired = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let Some(tail) = self.tail else {
            return Text { head: repaired(&self.head), ..Text::default() };
        };
        let head = &self.head[..self.head.len() - cut_character(&self.head)];
        let begun = tail.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
        let tail = &tail[begun..];
        let left_out = self.total - (head.len() + tail.len()) as u64;
        Text { head: repaired(head), tail: repaired(tail), left_out }
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Bytes at the end that are the beginning of a longer character.
fn cut_character(bytes: &[u8]) -> usize {
    let last = &bytes[bytes.len().saturating_sub(3)..];
    let Some(start) = last.iter().rposition(|byte| !is_continuation(*byte)) else { return 0 };
    let needed = match last[start] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    let there = last.len() - start;
    if there < needed { there } else { 0 }
}

impl Text {
    /// A text with nothing left out.
    pub(super) fn whole(text: &str) -> Self {
        Self { head: text.to_owned(), ..Self::default() }
    }

    /// Whether the command printed nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty() && self.left_out == 0
    }

    /// Bytes as a JSON string, without the quotes.
    pub(super) fn json_len(&self) -> usize {
        let len = |text: &str| text.chars().map(json_char_len).sum::<usize>();
        len(&self.head) + len(&self.tail) + if self.left_out > 0 { MARKER_BYTES } else { 0 }
    }

    /// Leaves out more of the middle until [`Text::json_len`] is at most `max`.
    pub(super) fn shrink(&mut self, max: usize) {
        if self.json_len() <= max {
            return;
        }
        let half = max.saturating_sub(MARKER_BYTES) / 2;
        let end = if self.left_out == 0 { &self.head } else { &self.tail };
        let before = if self.left_out == 0 { end.len() } else { self.head.len() + end.len() };
        let tail = end[kept(end.char_indices().rev(), half, end.len())..].to_owned();

        let mut head_end = 0;
        let mut length = 0;
        for (at, c) in self.head.char_indices() {
            length += json_char_len(c);
            if length > half {
                break;
            }
            head_end = at + c.len_utf8();
        }
        self.head.truncate(head_end);
        self.left_out += (before - self.head.len() - tail.len()) as u64;
        self.tail = tail;
    }

    /// The text with its marker.
    pub(super) fn into_string(self) -> String {
        let Self { mut head, tail, left_out } = self;
        if left_out == 0 {
            return head;
        }
        if !head.is_empty() && !head.ends_with('\n') {
            head.push('\n');
        }
        head.push_str(&format!("[… {left_out} bytes left out …]"));
        if !tail.starts_with(['\n', '\r']) {
            head.push('\n');
        }
        head + &tail
    }
}

/// More than the marker takes as JSON: its words, 20 digits, two escaped line breaks.
const MARKER_BYTES: usize = 64;

/// Where the last characters begin that have at most `max` bytes as JSON.
fn kept(from_the_end: impl Iterator<Item = (usize, char)>, max: usize, end: usize) -> usize {
    let mut length = 0;
    let mut start = end;
    for (at, c) in from_the_end {
        length += json_char_len(c);
        if length > max {
            break;
        }
        start = at;
    }
    start
}

/// Bytes of a character in a JSON string as `serde_json` writes it.
const fn json_char_len(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests;
