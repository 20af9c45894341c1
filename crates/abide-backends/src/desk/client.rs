//! A command's side of the socket.

use std::env;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::protocol::{Action, Reply, Request};
use super::{ADDRESS_VARIABLE, ShortPath, TOKEN_VARIABLE};
use crate::runner::RUN_VARIABLE;

/// The run that this process belongs to.
#[derive(Clone)]
pub struct Client {
    address: PathBuf,
    run: String,
    token: String,
}

/// Why there was no reply.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// This process was not started by a command tool.
    #[error(
        "the variable {0} is not set; this works inside a command that `abide serve` has started"
    )]
    NotInside(&'static str),
    /// The server is not there, or went away; it may come back.
    #[error("the server is not there: {0}")]
    Gone(#[from] io::Error),
}

impl Client {
    /// The run that this process's environment names.
    ///
    /// # Errors
    /// [`ClientError::NotInside`].
    pub fn from_env() -> Result<Self, ClientError> {
        let read = |name| env::var(name).map_err(|_| ClientError::NotInside(name));
        Ok(Self {
            address: PathBuf::from(read(ADDRESS_VARIABLE)?),
            run: read(RUN_VARIABLE)?,
            token: read(TOKEN_VARIABLE)?,
        })
    }

    /// Sends one request and waits for the reply, at most for `patience` if there is one.
    ///
    /// # Errors
    /// [`ClientError::Gone`]; of kind [`io::ErrorKind::WouldBlock`] when the patience has run out.
    pub fn send(&self, action: &Action, patience: Option<Duration>) -> Result<Reply, ClientError> {
        let mut stream = UnixStream::connect(&ShortPath::of(&self.address)?.path)?;
        stream.set_read_timeout(patience)?;
        let request =
            Request { run: self.run.clone(), token: self.token.clone(), action: action.clone() };
        let mut line = serde_json::to_vec(&request).map_err(io::Error::from)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply)?;
        if !reply.ends_with('\n') {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(serde_json::from_str(&reply).map_err(io::Error::from)?)
    }
}
