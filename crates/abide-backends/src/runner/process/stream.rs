//! What a job prints, on its way to the disk. Nothing here fails after the start: what can't be
//! written is counted, so that a full disk never holds up the job.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};

use crate::runner::folder::{Folder, LOG, STDERR, STDOUT};
use crate::runner::job::JobFile;
use crate::runner::outcome::{LogSizes, RunOutcome, StreamSizes};
use crate::runner::output::{segment_bytes, segment_name};

use super::redact::{Redactor, Secrets};

/// One of the job's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Stdout,
    Stderr,
}

/// All that is kept of the output.
pub(super) struct Spooled {
    secrets: Option<Secrets>,
    streams: [(Redactor, Stream); 2],
    log: Log,
    first_error: Option<String>,
}

impl Spooled {
    pub(super) fn create(
        folder: &Folder,
        job: &JobFile,
        env: &[(OsString, OsString)],
    ) -> io::Result<Self> {
        let stream = |name| -> io::Result<_> {
            Ok((Redactor::default(), Stream::create(folder, name, job.parts())?))
        };
        Ok(Self {
            secrets: Secrets::of(&job.secrets, env),
            streams: [stream(STDOUT)?, stream(STDERR)?],
            log: Log {
                file: folder.create(LOG)?,
                limit: job.max_log_bytes,
                sizes: LogSizes::default(),
                ends_line: true,
            },
            first_error: None,
        })
    }

    /// Takes what has been read.
    pub(super) fn push(&mut self, folder: &Folder, which: Which, bytes: &[u8]) {
        let (redactor, _) = &mut self.streams[which as usize];
        let bytes = redactor.push(self.secrets.as_ref(), bytes);
        self.keep(folder, which, &bytes);
    }

    /// Makes everything last through a power cut, and puts the sizes into the outcome.
    pub(super) fn finish(&mut self, folder: &Folder, outcome: &mut RunOutcome) {
        for which in [Which::Stdout, Which::Stderr] {
            let rest = self.streams[which as usize].0.finish(self.secrets.as_ref());
            self.keep(folder, which, &rest);
        }
        let [(_, stdout), (_, stderr)] = &self.streams;
        for synced in [stdout.sync(folder), stderr.sync(folder), self.log.file.sync_data()] {
            if let Err(error) = synced {
                self.first_error.get_or_insert_with(|| error.to_string());
            }
        }
        outcome.stdout = stdout.sizes;
        outcome.stderr = stderr.sizes;
        outcome.log = self.log.sizes;
        outcome.spool_error = self.first_error.clone();
    }

    /// Notes an error of the spool; the first is the one that counts.
    pub(super) fn note(&mut self, error: &io::Error) {
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    fn keep(&mut self, folder: &Folder, which: Which, bytes: &[u8]) {
        let (_, stream) = &mut self.streams[which as usize];
        for written in [stream.push(folder, bytes), self.log.push(bytes)] {
            if let Err(error) = written {
                self.note(&error);
            }
        }
    }
}

/// The first and the last part of an endless stream.
struct Stream {
    name: &'static str,
    head: File,
    /// Bytes that still fit into the first part.
    head_room: u64,
    segment_bytes: u64,
    segment: Option<Segment>,
    sizes: StreamSizes,
}

/// The newest segment of the last part.
struct Segment {
    number: u64,
    file: File,
    room: u64,
}

impl Stream {
    fn create(folder: &Folder, name: &'static str, (first, last): (u64, u64)) -> io::Result<Self> {
        Ok(Self {
            name,
            head: folder.create(name)?,
            head_room: first,
            segment_bytes: segment_bytes(last),
            segment: None,
            sizes: StreamSizes::default(),
        })
    }

    fn push(&mut self, folder: &Folder, bytes: &[u8]) -> io::Result<()> {
        self.sizes.total += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Err(error) = self.push_some(folder, &mut rest) {
                self.sizes.lost += rest.len() as u64;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes what fits into one file, and takes it away from `bytes`.
    fn push_some(&mut self, folder: &Folder, bytes: &mut &[u8]) -> io::Result<()> {
        if self.head_room > 0 {
            return write_some(&mut self.head, &mut self.head_room, bytes);
        }
        let next = match &mut self.segment {
            Some(segment) if segment.room > 0 => {
                return write_some(&mut segment.file, &mut segment.room, bytes);
            }
            Some(segment) => segment.number + 1,
            None => 0,
        };
        // The one before last is no longer needed, and its room may be.
        if let Some(old) = next.checked_sub(2) {
            match folder.remove(&segment_name(self.name, old)) {
                // Removed before something else failed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        let file = folder.create(&segment_name(self.name, next))?;
        self.segment = Some(Segment { number: next, file, room: self.segment_bytes });
        Ok(())
    }

    fn sync(&self, folder: &Folder) -> io::Result<()> {
        self.head.sync_data()?;
        let Some(segment) = &self.segment else { return Ok(()) };
        segment.file.sync_data()?;
        if let Some(before) = segment.number.checked_sub(1) {
            folder.file(&segment_name(self.name, before))?.sync_data()?;
        }
        Ok(())
    }
}

/// Both streams as they come, up to a limit.
struct Log {
    file: File,
    limit: u64,
    sizes: LogSizes,
    /// Whether what is written ends with a line break.
    ends_line: bool,
}

impl Log {
    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.sizes.cut || bytes.is_empty() {
            return Ok(());
        }
        let room = self.limit - self.sizes.kept - self.sizes.lost;
        let fits = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        let mut kept = &bytes[..fits];
        if fits < bytes.len() {
            self.sizes.cut = true;
            // A character is not cut in two.
            if let Some(last) = kept.utf8_chunks().last() {
                kept = &kept[..kept.len() - last.invalid().len()];
            }
        }
        self.ends_line = kept.last().map_or(self.ends_line, |byte| *byte == b'\n');

        let mut rest = kept;
        let written = self.write(&mut rest);
        self.sizes.kept += (kept.len() - rest.len()) as u64;
        self.sizes.lost += rest.len() as u64;
        written?;
        if self.sizes.cut {
            let line_break = if self.ends_line { "" } else { "\n" };
            let limit = self.limit;
            let mark = format!(
                "{line_break}[… the log ends here, at its limit of {limit} bytes; the command \
                 went on …]\n"
            );
            self.write(&mut mark.as_bytes())?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        let mut room = u64::MAX;
        while !bytes.is_empty() {
            write_some(&mut self.file, &mut room, bytes)?;
        }
        Ok(())
    }
}

/// Writes as much as there is room for, at the end of the file, and takes it away from both.
fn write_some(file: &mut File, room: &mut u64, bytes: &mut &[u8]) -> io::Result<()> {
    let fits = usize::try_from(*room).map_or(bytes.len(), |room| room.min(bytes.len()));
    match file.write(&bytes[..fits]) {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(written) => {
            *room -= written as u64;
            *bytes = &bytes[written..];
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error),
    }
}
