//! What goes over the desk's socket: one line of JSON each way.

use abide_core::RawJson;
use serde::{Deserialize, Serialize};

/// Bytes of a request, and of a reply: an input request or response with room for its frame.
pub const MAX_REQUEST_BYTES: usize = abide_core::limits::MAX_INPUT_BYTES + 16 * 1024;

/// A request of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The name of the run: task id, a dot, the number of the attempt.
    pub run: String,
    /// Its token.
    pub token: String,
    /// What is wanted.
    pub action: Action,
}

/// What a command may want.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Ask, and wait for the response.
    Ask {
        /// The name of the question.
        key: String,
        /// A JSON object with `method` and `params`.
        request: RawJson,
    },
    /// Take a question back.
    Withdraw {
        /// The name of the question.
        key: String,
    },
    /// Say how far the work is.
    Say {
        /// A sentence for people.
        message: Option<String>,
        /// How much of a hundred is done.
        percent: Option<f64>,
    },
}

/// What a command is answered with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The response to a question, as the client sent it.
    Answer(RawJson),
    /// It is done.
    Done,
    /// The work is being stopped, so nobody will answer.
    Stopping,
    /// The server does not know this run, or not yet: ask again in a moment.
    NotHere,
    /// It can't be done; says why.
    Refused(String),
}
