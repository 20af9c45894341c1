//! A client for HTTP that sends exactly what a test says.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::{Declares, VERSION, eventually, is_terminal, request, task, within};

/// Requests to one server.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    url: String,
    client: reqwest::Client,
}

/// A request that is about to go out.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
}

/// An answer, read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) text: String,
}

/// A name as `Mcp-Name` carries it.
fn header_text(text: &str) -> String {
    if !text.is_empty() && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(text))
    }
}

impl Request {
    /// A well-formed request: all headers that the revision asks for.
    pub(crate) fn new(method: &str, params: &Value) -> Self {
        let name = match method {
            "resources/read" => "uri",
            method if method.starts_with("tasks/") => "taskId",
            _ => "name",
        };
        let name = params[name].as_str().map(header_text);
        Self::bytes(request(1, method, params)).named(method, name.as_deref())
    }

    /// Any body, with the media types of the transport and nothing else.
    pub(crate) fn bytes(body: impl Into<Vec<u8>>) -> Self {
        Self { headers: Vec::new(), body: body.into() }
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
    }

    /// The same headers with another body.
    pub(crate) fn with_body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// The headers of the revision.
    pub(crate) fn named(self, method: &str, name: Option<&str>) -> Self {
        let request = self.header("mcp-protocol-version", VERSION).header("mcp-method", method);
        match name {
            Some(name) => request.header("mcp-name", name),
            None => request,
        }
    }

    /// One header more.
    pub(crate) fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name, value.as_ref().to_owned()));
        self
    }

    /// Without a header.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self
    }
}

impl Reply {
    /// The JSON of the answer.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Http {
    pub(crate) fn new(url: &str) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { url: url.to_owned(), client }
    }

    /// Sends a request and reads the answer whole; an error if the server is gone before.
    pub(crate) async fn try_send(&self, request: Request) -> reqwest::Result<Reply> {
        within("an answer", async {
            let mut builder = self.client.post(&self.url).body(request.body);
            for (name, value) in request.headers {
                builder = builder.header(name, value);
            }
            let response = builder.send().await?;
            Ok(Reply { status: response.status().as_u16(), text: response.text().await? })
        })
        .await
    }

    pub(crate) async fn send(&self, request: Request) -> Reply {
        self.try_send(request).await.expect("an answer")
    }

    /// What `GET /health` says: the status, and the JSON.
    pub(crate) async fn health(&self) -> (u16, Value) {
        let url = format!("{}/health", self.url.trim_end_matches("/mcp"));
        within("an answer", async {
            let response = self.client.get(url).send().await.expect("an answer");
            (response.status().as_u16(), response.json().await.expect("JSON"))
        })
        .await
    }

    /// Sends a well-formed request.
    pub(crate) async fn ask(&self, method: &str, params: &Value) -> Value {
        self.send(Request::new(method, params)).await.json()
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, declares: Declares, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &declares.call(tool, arguments)).await
    }

    /// Calls a tool in the background.
    pub(crate) fn start_call(
        &self,
        declares: Declares,
        tool: &str,
        arguments: &Value,
    ) -> tokio::task::JoinHandle<reqwest::Result<Reply>> {
        let (http, params) = (self.clone(), declares.call(tool, arguments));
        tokio::spawn(async move { http.try_send(Request::new("tools/call", &params)).await })
    }

    /// The bytes of `tasks/get`.
    pub(crate) async fn get_text(&self, id: &str) -> String {
        self.send(Request::new("tasks/get", &task(id))).await.text
    }

    /// The task as `tasks/get` has it.
    pub(crate) async fn get(&self, id: &str) -> Value {
        let answer = self.ask("tasks/get", &task(id)).await;
        assert_eq!(answer["result"]["taskId"], id, "{answer}");
        answer["result"].clone()
    }

    /// Polls until the task has a terminal status.
    pub(crate) async fn end_of(&self, id: &str) -> Value {
        eventually("the task ends", async || {
            let task = self.get(id).await;
            task["status"].as_str().is_some_and(is_terminal).then_some(task)
        })
        .await
    }
}
