//! What is kept of a run's output, read back from its folder, at any time of its life.

use std::io;

use super::folder::{Folder, STDERR, STDOUT};
use super::job::JobFile;
use super::outcome::{RunOutcome, StreamSizes};

/// The least that a segment of the last part has, so that small limits don't mean many files.
const SMALLEST_SEGMENT_BYTES: u64 = 64 * 1024;

/// How often segments are looked for that a living runner may just be replacing.
const LOOKS: u32 = 100;

/// Both streams of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
}

/// What is kept of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The whole, or its first part.
    pub head: Vec<u8>,
    /// The last part, if something between the two was left out or lost.
    pub tail: Option<Vec<u8>>,
    /// Bytes of the whole.
    pub total: u64,
    /// How many of these could not be written to the spool. Where they are missing is unknown.
    pub lost: u64,
}

/// Bytes of a segment, when the last part of a stream has this many. Two segments are kept, so
/// one of them is always whole.
pub(super) fn segment_bytes(last: u64) -> u64 {
    last.max(SMALLEST_SEGMENT_BYTES)
}

/// The name of a segment.
pub(super) fn segment_name(stream: &str, number: u64) -> String {
    format!("{stream}.{number}")
}

/// Reads both streams. Without an outcome their sizes are what the files say.
pub(super) fn read(
    folder: &Folder,
    job: &JobFile,
    outcome: Option<&RunOutcome>,
) -> io::Result<Output> {
    let (_, last) = job.parts();
    Ok(Output {
        stdout: read_stream(folder, STDOUT, last, outcome.map(|outcome| outcome.stdout))?,
        stderr: read_stream(folder, STDERR, last, outcome.map(|outcome| outcome.stderr))?,
    })
}

fn read_stream(
    folder: &Folder,
    name: &str,
    last: u64,
    sizes: Option<StreamSizes>,
) -> io::Result<Captured> {
    let mut head = folder.read(name)?.unwrap_or_default();
    let mut looks = 0;
    let (mut tail, behind_head) = loop {
        looks += 1;
        if let Some(segments) = read_segments(folder, name, segment_bytes(last), looks < LOOKS)? {
            break segments;
        }
    };
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    tail.drain(..tail.len().saturating_sub(last));

    let written = head.len() as u64 + behind_head;
    let sizes = sizes.unwrap_or(StreamSizes { total: written, lost: 0 });
    let is_whole = sizes.lost == 0 && behind_head == tail.len() as u64;
    let tail = if is_whole {
        head.append(&mut tail);
        None
    } else {
        Some(tail)
    };
    Ok(Captured { head, tail, total: sizes.total, lost: sizes.lost })
}

/// The last two segments, and how many bytes all segments ever had. None if a living runner has
/// removed one meanwhile; a segment that is missing for good is a gap, unless `whole` is wanted.
fn read_segments(
    folder: &Folder,
    stream: &str,
    segment_bytes: u64,
    whole: bool,
) -> io::Result<Option<(Vec<u8>, u64)>> {
    let number = |name: String| name.strip_prefix(stream)?.strip_prefix('.')?.parse().ok();
    let Some(newest) = folder.names()?.into_iter().filter_map(number).max() else {
        return Ok(Some((Vec::new(), 0)));
    };
    let mut bytes = Vec::new();
    if let Some(before) = u64::checked_sub(newest, 1) {
        match folder.read(&segment_name(stream, before))? {
            Some(segment) => bytes = segment,
            None if whole => return Ok(None),
            None => {}
        }
    }
    let segment = match folder.read(&segment_name(stream, newest))? {
        Some(segment) => segment,
        None if whole => return Ok(None),
        None => Vec::new(),
    };
    let all = newest * segment_bytes + segment.len() as u64;
    bytes.extend(segment);
    Ok(Some((bytes, all)))
}
