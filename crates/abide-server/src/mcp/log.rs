//! The logs of tasks as resources: `abide://tasks/{id}/log`, with `?from=` and `?max=` for a part.
//!
//! A log is bytes, and a resource is text. A part ends before a character that it has only the
//! beginning of, so parts that are read one after the other make the text of the whole.

use abide_core::{LogPart, LogRange, Owner, TaskId};
use abide_engine::{Engine, LogError, log_uri};
use rmcp::ErrorData;
use rmcp::model::{CacheScope, MetaObject, ReadResourceResult, ResourceContents, ResourceTemplate};
use serde_json::json;

use crate::limits::MAX_LOG_PART_BYTES;
use crate::mcp::convert;
use crate::mcp::reply::shown;

/// Where a part of a log lies, as a member of its `_meta`.
const PART: &str = "abide/part";

/// The one kind of resource that there is.
pub(crate) fn template() -> ResourceTemplate {
    let mut template = ResourceTemplate::new("abide://tasks/{id}/log{?from,max}", "log");
    template.title = Some("Log of a task".to_owned());
    template.description = Some(format!(
        "What the work of a task has printed so far. `from` is the byte to begin at; below zero, \
         it is counted from the end. `max` is a number of bytes, {MAX_LOG_PART_BYTES} at most."
    ));
    template.mime_type = Some("text/plain".to_owned());
    template
}

/// A wanted log, or a part of it.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    id: TaskId,
    range: LogRange,
    /// Whether the range was given.
    exact: bool,
}

impl Wanted {
    fn parse(uri: &str) -> Option<Self> {
        let (id, rest) = uri.strip_prefix("abide://tasks/")?.split_once('/')?;
        let id = id.parse().ok()?;
        let query = match rest.strip_prefix("log")? {
            "" => None,
            query => Some(query.strip_prefix('?')?),
        };
        let mut range = LogRange { from: 0, max: MAX_LOG_PART_BYTES };
        for part in query.into_iter().flat_map(|query| query.split('&')) {
            match part.split_once('=')? {
                ("from", from) => range.from = from.parse().ok()?,
                ("max", max) => range.max = max.parse::<usize>().ok()?.min(MAX_LOG_PART_BYTES),
                _ => return None,
            }
        }
        Some(Self { id, range, exact: query.is_some() })
    }
}

/// Reads a log, or a part of it, for its task's owner. What is unknown, somebody else's, or no
/// log at all, is told with one error.
pub(crate) async fn read(
    engine: &Engine,
    owner: &Owner,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let wanted = Wanted::parse(uri).ok_or_else(|| unknown(uri))?;
    let part = engine.log(owner, wanted.id, wanted.range).await.map_err(|error| match error {
        LogError::Unknown => unknown(uri),
        LogError::Backend(error) => convert::rpc_error(error),
        LogError::Store(error) => {
            tracing::error!(%error, task = %wanted.id, "the store failed the reading of a log");
            convert::internal("The server can't reach its database right now; try again.")
        }
    })?;
    let ended = part.ended;
    let Text { mut text, from, next, size } = Text::of(part);
    if !wanted.exact && next < size {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let uri = log_uri(&wanted.id);
        text.push_str(&format!(
            "[… {} more bytes; the next are {uri}?from={next} …]\n",
            size - next
        ));
    }
    let mut meta = MetaObject::new();
    let place = json!({ "from": from, "next": next, "size": size, "ended": ended });
    meta.insert(PART.to_owned(), place);
    let mut result = ReadResourceResult::new(vec![
        ResourceContents::text(text, uri).with_mime_type("text/plain").with_meta(meta),
    ]);
    // It grows, and it is its owner's.
    result.ttl_ms = Some(0);
    result.cache_scope = Some(CacheScope::Private);
    Ok(result)
}

/// -32602 that names the URI (core specification, resources).
pub(crate) fn unknown(uri: &str) -> ErrorData {
    let message = format!("Unknown resource: {}", shown(uri));
    ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
}

/// A part of a log as text.
#[derive(Debug, PartialEq, Eq)]
struct Text {
    text: String,
    from: u64,
    /// Where the next part begins.
    next: u64,
    size: u64,
}

impl Text {
    fn of(part: LogPart) -> Self {
        let LogPart { from, bytes, size, ended, .. } = part;
        let is_end = ended && from + bytes.len() as u64 == size;
        // What belongs to a character that began before.
        let begun = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        let begun = if from == 0 { 0 } else { begun };
        let mut end = bytes.len();
        if !is_end
            && let Some(chunk) = bytes.utf8_chunks().last()
            && !chunk.invalid().is_empty()
            && std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none())
        {
            end -= chunk.invalid().len();
        }
        let text = String::from_utf8_lossy(&bytes[begun.min(end)..end]).into_owned();
        Self { text, from: from + begun as u64, next: from + end as u64, size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_says_which_part() {
        let id = "0".repeat(TaskId::TEXT_LEN);
        let uri = |rest: &str| format!("abide://tasks/{id}/{rest}");
        let wanted =
            |rest: &str| Wanted::parse(&uri(rest)).map(|wanted| (wanted.range, wanted.exact));
        let part = |from, max| LogRange { from, max };
        assert_eq!(wanted("log"), Some((part(0, MAX_LOG_PART_BYTES), false)));
        assert_eq!(wanted("log?from=5"), Some((part(5, MAX_LOG_PART_BYTES), true)));
        assert_eq!(wanted("log?max=7&from=-9"), Some((part(-9, 7), true)));
        let most = format!("log?max={}", usize::MAX);
        assert_eq!(wanted(&most), Some((part(0, MAX_LOG_PART_BYTES), true)));
        for bad in ["", "log?", "logs", "log/x", "log?from=x", "log?from=1&", "log?a=1", "log#x"] {
            assert_eq!(wanted(bad), None, "{bad}");
        }
        assert_eq!(Wanted::parse(&format!("abide://tasks/{id}0/log")), None);
        assert_eq!(Wanted::parse("test://tasks/0/log"), None);
    }

    fn part_of(from: u64, bytes: Vec<u8>, size: u64) -> LogPart {
        LogPart { from, bytes, size, ended: true, in_result: false }
    }

    #[test]
    fn parts_make_the_text_of_the_whole() {
        let log = "a🦀ü€ \u{fffd}z".as_bytes();
        let log = [log, b"\xff\xe2\x82 \xf0\x9f"].concat();
        for max in 4..log.len() {
            let mut whole = String::new();
            let mut from = 0;
            loop {
                let end = (from + max).min(log.len());
                let size = log.len() as u64;
                let bytes = log[from..end].to_vec();
                let part = Text::of(part_of(from as u64, bytes, size));
                assert_eq!(part.from, from as u64);
                whole.push_str(&part.text);
                from = usize::try_from(part.next).unwrap();
                if part.next == size {
                    break;
                }
            }
            assert_eq!(whole, String::from_utf8_lossy(&log), "{max}");
        }
    }

    #[test]
    fn the_last_bytes_begin_with_a_character() {
        let part = part_of(3, b"\xa6\x80b".to_vec(), 6);
        assert_eq!(Text::of(part), Text { text: "b".to_owned(), from: 5, next: 6, size: 6 });
    }
}
