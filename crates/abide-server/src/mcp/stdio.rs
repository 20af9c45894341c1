//! Standard input and output: one JSON-RPC message a line, the same lanes as HTTP.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use abide_core::Owner;
use rmcp::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, duplex,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits;
use crate::mcp::envelope::{self, Message};
use crate::mcp::opening::Opening;
use crate::mcp::reply::Fault;
use crate::mcp::surface::{Surface, Via};
use crate::server::Server;

/// Bytes on their way between the lanes.
const PIPE_BYTES: usize = 64 * 1024;
/// Answers that wait for standard output to take them.
const OUTPUT_LINES: usize = 64;

/// Serves one client until `input` ends or `stop` is cancelled. Answers that are under way then
/// have [`Settings::shutdown_grace`](crate::Settings::shutdown_grace) to go out.
///
/// # Errors
/// What reading or writing says.
pub async fn serve_stdio<R, W>(
    server: Server,
    input: R,
    output: W,
    stop: CancellationToken,
) -> std::io::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let grace = server.settings.shutdown_grace;
    let engine = server.engine().clone();
    let (lines, queue) = mpsc::channel(OUTPUT_LINES);
    let writer = tokio::spawn(write_lines(output, queue));
    let (ours, theirs) = duplex(PIPE_BYTES);
    let (from_rmcp, to_rmcp) = tokio::io::split(ours);
    let waiting = Arc::new(Outstanding::default());
    let pump = tokio::spawn(pump(server.clone(), from_rmcp, lines.clone(), waiting.clone()));
    let rmcp = tokio::spawn(serve_rmcp(server.clone(), theirs));

    let mut session = Session {
        server,
        to_rmcp,
        lines,
        waiting: waiting.clone(),
        surface: TaskTracker::new(),
        opening: Opening::default(),
    };
    let read = tokio::select! {
        read = session.read(BufReader::new(input)) => read,
        () = stop.cancelled() => Ok(()),
    };

    // Calls that wait for their answer get it; then the lanes are closed in turn.
    session.surface.close();
    let drained = async {
        session.surface.wait().await;
        waiting.none_left().await;
    };
    // Those of work that the engine stops too.
    let enough = async {
        tokio::time::sleep(grace).await;
        engine.drained().await;
    };
    tokio::pin!(drained);
    let in_time = tokio::select! {
        biased;
        () = &mut drained => true,
        () = enough => false,
    };
    if !in_time {
        let _ = tokio::time::timeout(limits::LINGER, drained).await;
    }
    let Session { mut to_rmcp, lines, .. } = session;
    let _ = to_rmcp.shutdown().await;
    drop((to_rmcp, lines));
    for lane in [rmcp, pump] {
        let abort = lane.abort_handle();
        if tokio::time::timeout(limits::LINGER, lane).await.is_err() {
            abort.abort();
        }
    }
    let written = tokio::time::timeout(limits::LINGER, writer).await;
    read?;
    written.map_or(Ok(()), |joined| joined.unwrap_or(Ok(())))
}

async fn serve_rmcp(server: Server, pipe: DuplexStream) {
    let (read, write) = tokio::io::split(pipe);
    // Longer lines would be dropped without an answer; ours are bounded already.
    let transport = AsyncRwTransport::new_server(read, write)
        .with_max_line_length(server.settings.max_body_bytes.saturating_add(1));
    match server.handler.serve(transport).await {
        Ok(running) => {
            let _ = running.waiting().await;
        }
        // A client that leaves before it said anything rmcp knows is no failure.
        Err(error) => tracing::debug!(%error, "no MCP session was opened"),
    }
}

struct Session {
    server: Server,
    to_rmcp: tokio::io::WriteHalf<DuplexStream>,
    lines: mpsc::Sender<String>,
    waiting: Arc<Outstanding>,
    surface: TaskTracker,
    opening: Opening,
}

impl Session {
    async fn read<R: AsyncRead + Unpin>(&mut self, mut input: BufReader<R>) -> std::io::Result<()> {
        let max = self.server.settings.max_body_bytes;
        let mut line = Vec::new();
        loop {
            match read_line(&mut input, &mut line, max).await? {
                Line::End => return Ok(()),
                Line::TooLong => self.say(Fault::too_large(max).to_json("null")).await,
                Line::Whole if line.trim_ascii().is_empty() => {}
                Line::Whole => self.take(line.trim_ascii()).await?,
            }
        }
    }

    async fn take(&mut self, line: &[u8]) -> std::io::Result<()> {
        let message = match envelope::read(line) {
            Ok(message) => message,
            Err((fault, id)) => {
                self.say(fault.to_json(id.as_deref().unwrap_or("null"))).await;
                return Ok(());
            }
        };
        if message.id.is_some() && message.method.as_deref().is_some_and(Surface::takes) {
            let (server, lines, line) = (self.server.clone(), self.lines.clone(), line.to_owned());
            let via = Via::Stdio { older: self.opening == Opening::Older };
            // A slow answer must not hold up the next request.
            self.surface.spawn(async move {
                let Ok(message) = envelope::read(&line) else { return };
                let owner: Owner = server.caller();
                let answered = server.surface.answer(&message, &owner, via).await;
                let _ = lines.send(server.settings.envelope.wrap(answered.message)).await;
            });
            return Ok(());
        }
        let typed = match envelope::typed(line) {
            Ok(typed) => typed,
            Err(fault) => {
                self.say(fault.to_json(message.id.unwrap_or("null"))).await;
                return Ok(());
            }
        };
        if !self.opening.lets_pass(&typed) {
            tracing::debug!(method = message.method, "came before the session was opened");
            return Ok(());
        }
        self.waiting.note(&message);
        self.to_rmcp.write_all(line).await?;
        self.to_rmcp.write_all(b"\n").await
    }

    async fn say(&self, line: String) {
        // The writer is gone only when standard output is; reading then ends by itself.
        let _ = self.lines.send(line).await;
    }
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads one line of at most `max` bytes; of a longer one, the rest is skipped. A last line needs
/// no line break.
async fn read_line<R: AsyncRead + Unpin>(
    input: &mut BufReader<R>,
    line: &mut Vec<u8>,
    max: usize,
) -> std::io::Result<Line> {
    line.clear();
    let mut too_long = false;
    loop {
        let available = input.fill_buf().await?;
        if available.is_empty() {
            return Ok(match (too_long, line.is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::End,
                (false, false) => Line::Whole,
            });
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if line.len() + part.len() > max {
            too_long = true;
            line.clear();
        }
        if !too_long {
            line.extend_from_slice(part);
        }
        let consumed = end.map_or(available.len(), |end| end + 1);
        input.consume(consumed);
        if end.is_some() {
            return Ok(if too_long { Line::TooLong } else { Line::Whole });
        }
    }
}

/// Writes each answer as one line, at once.
async fn write_lines<W: AsyncWrite + Unpin>(
    mut output: W,
    mut queue: mpsc::Receiver<String>,
) -> std::io::Result<()> {
    while let Some(mut line) = queue.recv().await {
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

/// Passes on what rmcp says.
async fn pump(
    server: Server,
    from_rmcp: tokio::io::ReadHalf<DuplexStream>,
    lines: mpsc::Sender<String>,
    waiting: Arc<Outstanding>,
) {
    let mut from_rmcp = BufReader::new(from_rmcp).lines();
    while let Ok(Some(line)) = from_rmcp.next_line().await {
        let answered = envelope::answered_id(&line).map(str::to_owned);
        if lines.send(server.settings.envelope.wrap(line)).await.is_err() {
            return;
        }
        if let Some(id) = answered {
            waiting.answered(&id);
        }
    }
}

/// The requests that rmcp has not answered yet.
#[derive(Default)]
struct Outstanding {
    ids: Mutex<HashSet<String>>,
    changed: tokio::sync::Notify,
}

impl Outstanding {
    fn note(&self, message: &Message<'_>) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, default, rename = "requestId")]
            request_id: Option<&'a RawValue>,
        }

        match (message.method.as_deref(), message.id) {
            (Some(_), Some(id)) => {
                self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(as_rmcp_writes(id));
            }
            // A cancelled request gets no answer.
            (Some("notifications/cancelled"), None) => {
                let cancelled = message
                    .params
                    .and_then(|raw| serde_json::from_str::<Cancelled<'_>>(raw.get()).ok())
                    .and_then(|params| params.request_id);
                if let Some(id) = cancelled {
                    self.answered(id.get());
                }
            }
            _ => {}
        }
    }

    fn answered(&self, id: &str) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(&as_rmcp_writes(id));
        self.changed.notify_waiters();
    }

    async fn none_left(&self) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.ids.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                return;
            }
            changed.await;
        }
    }
}

/// An id in the one form that rmcp writes it in, whatever escapes it came with.
fn as_rmcp_writes(id: &str) -> String {
    id.parse::<i64>().map(|number| number.to_string()).unwrap_or_else(|_| {
        serde_json::from_str::<String>(id)
            .map_or_else(|_| id.to_owned(), |text| serde_json::Value::from(text).to_string())
    })
}
