//! Asks before the work of another backend begins.
//!
//! The question is an input request of the task, under the key [`KEY`], with one yes-or-no field. It
//! may wait for days, without a process and without one of the tool's slots, and outlives the
//! server: asked again, the same question is one question.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{
    AskError, Backend, BoxFuture, InputKey, LogPart, LogRange, Outcome, Prepare, Prepared,
    Progress, RawJson, RpcError, TaskId, Work, WorkContext, limits,
};
use serde_json::{Map, Value, json};

/// The key of the question.
pub const KEY: &str = "approve";

/// The field of the answer's content: true to go on.
const FIELD: &str = "approve";

/// Bytes of a message after its placeholders are filled; longer ones are cut.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// What a declined task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnDecline {
    /// `completed`, with a result that says so and `isError`.
    Error,
    /// `cancelled`.
    Cancel,
}

/// A message with placeholders for arguments: `Deploy build {build} to {env}?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Argument(String),
}

/// A message can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A brace has no partner, or nothing stands between two.
    #[error(
        "a brace without its partner; write `{{name}}` for an input, `{{{{` and `}}}}` for braces"
    )]
    Braces,
    /// There is no such input.
    #[error("there is no input named `{0}`")]
    UnknownInput(String),
}

impl Message {
    /// Reads a message; its placeholders have to be `properties` of the tool's input schema.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn parse(text: &str, input_schema: &Value) -> Result<Self, MessageError> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = match (brace, rest.split_once('}')) {
                ("{", Some((name, after))) if !name.is_empty() && !name.contains('{') => {
                    (name, after)
                }
                _ => return Err(MessageError::Braces),
            };
            if input_schema["properties"].get(name).is_none() {
                return Err(MessageError::UnknownInput(name.to_owned()));
            }
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
            pieces.push(Piece::Argument(name.to_owned()));
            rest = after;
        }
        literal.push_str(rest);
        pieces.push(Piece::Text(literal));
        Ok(Self(pieces))
    }

    /// The message for these arguments. What is absent is empty; strings go in as they are, other
    /// values as JSON.
    fn fill(&self, arguments: &RawJson) -> String {
        let arguments: Map<String, Value> = arguments.to().unwrap_or_default();
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Argument(name) => match arguments.get(name) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
            },
        };
        let message: String = self.0.iter().map(piece).collect();
        limits::bounded(&message, MAX_MESSAGE_BYTES)
    }
}

/// A [`Backend`] whose work begins when somebody has approved it.
#[derive(Clone)]
pub struct Approved<B> {
    inner: B,
    question: Arc<Question>,
}

#[derive(Debug)]
struct Question {
    message: Message,
    on_decline: OnDecline,
}

impl<B: Backend> Approved<B> {
    /// Puts a question before the work of `inner`.
    pub fn new(inner: B, message: Message, on_decline: OnDecline) -> Self {
        Self { inner, question: Arc::new(Question { message, on_decline }) }
    }
}

impl Question {
    /// Waits for the approval; else how the work ends instead.
    async fn ask(&self, work: &Work, context: &dyn WorkContext) -> Result<(), Outcome> {
        let internal = |problem: String| {
            tracing::error!(task = %work.task_id, tool = %work.tool, problem, "can't ask for approval");
            Outcome::Failed(RpcError::internal(
                "approval_not_asked",
                "The work was not begun, because nobody could be asked to approve it.",
            ))
        };
        let request = json!({
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": self.message.fill(&work.arguments),
                "requestedSchema": {
                    "type": "object",
                    "properties": { FIELD: { "type": "boolean", "title": "Approve" } },
                    "required": [FIELD],
                },
            },
        });
        let request = RawJson::from_value(&request).map_err(|error| internal(error.to_string()))?;
        let key = InputKey::new(KEY).map_err(|error| internal(error.to_string()))?;
        let response = match context.ask_for_others(key, request).await {
            Ok(response) => response,
            Err(AskError::Stopping) => return Err(Outcome::Stopped),
            Err(error) => return Err(internal(error.to_string())),
        };
        let response: Value = response.to().map_err(|error| internal(error.to_string()))?;
        // Only an explicit yes goes on.
        if response["action"] == "accept" && response["content"][FIELD] == true {
            let message = Some("Approved; waits for its turn.".to_owned());
            context.say(Progress { message, ..Progress::default() });
            return context.slot().await.ok_or(Outcome::Stopped);
        }
        tracing::info!(task = %work.task_id, tool = %work.tool, "declined");
        Err(match self.on_decline {
            OnDecline::Cancel => Outcome::Declined,
            OnDecline::Error => {
                let text = "Declined: the work was not begun.";
                let result = json!({
                    "content": [{ "type": "text", "text": text }],
                    "isError": true,
                });
                match RawJson::from_value(&result) {
                    Ok(result) => Outcome::Completed(result),
                    Err(error) => internal(error.to_string()),
                }
            }
        })
    }
}

impl<B: Backend + Clone> Backend for Approved<B> {
    fn prepare(&self, call: Prepare) -> BoxFuture<'_, Result<Prepared, RpcError>> {
        self.inner.prepare(call)
    }

    fn run(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        let this = self.clone();
        Box::pin(async move {
            match this.question.ask(&work, &*context).await {
                Ok(()) => this.inner.run(work, context).await,
                Err(instead) => instead,
            }
        })
    }

    fn grace(&self) -> Duration {
        self.inner.grace()
    }

    fn asks_first(&self) -> bool {
        true
    }

    fn begun(&self, work: &Work) -> bool {
        self.inner.begun(work)
    }

    fn outlives(&self) -> bool {
        self.inner.outlives()
    }

    fn resume(&self, work: Work, context: Arc<dyn WorkContext>) -> BoxFuture<'static, Outcome> {
        if self.inner.begun(&work) {
            self.inner.resume(work, context)
        } else {
            self.run(work, context)
        }
    }

    fn discard(&self, work: Work) -> BoxFuture<'static, Option<Outcome>> {
        self.inner.discard(work)
    }

    fn log(
        &self,
        task: TaskId,
        attempt: u32,
        range: LogRange,
    ) -> BoxFuture<'static, Result<Option<LogPart>, RpcError>> {
        self.inner.log(task, attempt, range)
    }

    fn forget(&self, tasks: Vec<TaskId>) {
        self.inner.forget(tasks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_placeholders() {
        let schema = json!({ "properties": { "env": {}, "build": {}, "n": {} } });
        let fill = |text: &str| {
            let arguments = r#"{"env":"{prod}","build":12345678901234567890,"n":null}"#;
            let message = Message::parse(text, &schema)?;
            Ok::<_, MessageError>(message.fill(&RawJson::parse(arguments).unwrap()))
        };
        for (text, filled) in [
            ("Sure?", "Sure?"),
            ("Deploy {build} to {env}?", "Deploy 12345678901234567890 to {prod}?"),
            ("{{env}} {n}{env}", "{env} {prod}"),
            ("", ""),
        ] {
            assert_eq!(fill(text).as_deref(), Ok(filled));
        }
        assert_eq!(fill("{evn}"), Err(MessageError::UnknownInput("evn".to_owned())));
        for bad in ["{", "}", "{}", "a}b", "{env", "{a{b}}"] {
            assert_eq!(fill(bad), Err(MessageError::Braces), "{bad}");
        }
    }
}
