//! Takes the requests of commands.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::{Arc, Weak};
use std::time::Duration;

use abide_core::{AskError, InputKey, Progress};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::protocol::{Action, MAX_REQUEST_BYTES, Reply, Request};
use super::{Desk, Inner};

/// Connections at a time: each question that is waited for is one.
const MAX_CONNECTIONS: usize = 20_000;
/// How long a request may take to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// After an error that says that the system is short of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes requests until nobody has the desk any more.
pub(super) fn serve(desk: &Desk, listener: StdListener) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let desk = Arc::downgrade(&desk.0);
    tokio::spawn(async move {
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while let Ok(place) = room.clone().acquire_owned().await {
            let connection = match listener.accept().await {
                Ok((connection, _)) => connection,
                Err(error) => {
                    tracing::warn!(%error, "a command could not be listened to");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if desk.strong_count() == 0 {
                return;
            }
            let desk = desk.clone();
            tokio::spawn(async move {
                if let Err(error) = answer(&desk, connection).await {
                    tracing::debug!(%error, "a command was not answered");
                }
                drop(place);
            });
        }
    });
    Ok(())
}

async fn answer(desk: &Weak<Inner>, connection: UnixStream) -> io::Result<()> {
    let (read, mut write) = connection.into_split();
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    let max = MAX_REQUEST_BYTES as u64 + 1;
    let mut bounded = (&mut read).take(max);
    let reading = bounded.read_until(b'\n', &mut line);
    tokio::time::timeout(REQUEST_TIMEOUT, reading).await.map_err(io::Error::other)??;
    let reply = if line.last() == Some(&b'\n') {
        let Some(inner) = desk.upgrade() else { return Ok(()) };
        tokio::select! {
            reply = carry_out(Desk(inner), &line) => reply,
            // Whoever waits has gone; the question stays open.
            _ = read.read_u8() => return Ok(()),
        }
    } else {
        Reply::Refused(format!("the request has more than {MAX_REQUEST_BYTES} bytes, or no end"))
    };
    let mut line = serde_json::to_vec(&reply)?;
    line.push(b'\n');
    write.write_all(&line).await?;
    write.shutdown().await
}

async fn carry_out(desk: Desk, line: &[u8]) -> Reply {
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return Reply::Refused(format!("the request can't be read: {error}")),
    };
    // One answer for whoever may not know that there is such a run.
    let Some(run) = request.run.parse().ok().filter(|run| desk.knows(run, &request.token)) else {
        return Reply::Refused("the token is not that of this run".to_owned());
    };
    let Some(context) = desk.find(&run) else { return Reply::NotHere };
    // While it waits, the desk may go.
    drop(desk);
    let key = |text: String| InputKey::new(&text).map_err(|error| error.to_string());
    match request.action {
        Action::Say { message, percent } => {
            let total = percent.map(|_| 100.0);
            context.say(Progress { message, done: percent, total });
            Reply::Done
        }
        Action::Ask { key: name, request } => match key(name) {
            Ok(key) => match context.ask_for_others(key, request).await {
                Ok(response) => Reply::Answer(response),
                Err(AskError::Stopping) => Reply::Stopping,
                Err(error) => Reply::Refused(error.to_string()),
            },
            Err(problem) => Reply::Refused(problem),
        },
        Action::Withdraw { key: name } => match key(name) {
            Ok(key) => match context.withdraw(key).await {
                Ok(()) => Reply::Done,
                Err(AskError::Stopping) => Reply::Stopping,
                Err(error) => Reply::Refused(error.to_string()),
            },
            Err(problem) => Reply::Refused(problem),
        },
    }
}
