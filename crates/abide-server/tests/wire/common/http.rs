//! A client for HTTP that sends exactly what a test says.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{PATIENCE, VERSION, request, within};

/// Requests to one server.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pub(crate) address: SocketAddr,
    client: reqwest::Client,
}

/// A request that is about to go out.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// An answer, read whole.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// A name as `Mcp-Name` carries it.
pub(crate) fn header_text(text: &str) -> String {
    if !text.is_empty() && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(text))
    }
}

impl Request {
    /// A well-formed request: all headers that the revision asks for.
    pub(crate) fn new(method: &str, params: &Value) -> Self {
        Self::with_id(&json!(1), method, params)
    }

    pub(crate) fn with_id(id: &Value, method: &str, params: &Value) -> Self {
        let mut plain = Self::bytes(request(id, method, params))
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", method);
        let name = if method.starts_with("tasks/") { "taskId" } else { "name" };
        if let Some(name) = params[name].as_str() {
            plain = plain.header("mcp-name", &header_text(name));
        }
        plain
    }

    /// Any body, with the media types of the transport and nothing else.
    pub(crate) fn bytes(body: impl Into<Vec<u8>>) -> Self {
        Self { headers: Vec::new(), body: body.into() }
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
    }

    /// One header more; it may be there already.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    /// A header with another value.
    pub(crate) fn replace(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }
}

impl Reply {
    /// The JSON of the answer; the last message of a stream.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.message())
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", self.status, self.text))
    }

    /// The text of the answer; the last message of a stream.
    pub(crate) fn message(&self) -> String {
        if self.is_stream() { self.events().pop().unwrap_or_default() } else { self.text.clone() }
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.headers
            .get("content-type")
            .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
    }

    /// The messages of a stream.
    pub(crate) fn events(&self) -> Vec<String> {
        events(&self.text)
    }
}

/// The messages in the text of a stream.
pub(crate) fn events(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|data| data.trim_start().to_owned())
        .filter(|data| !data.is_empty())
        .collect()
}

impl Http {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, client: reqwest::Client::builder().no_proxy().build().expect("a client") }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    fn build(&self, request: Request) -> reqwest::RequestBuilder {
        let mut builder = self.client.post(self.url()).body(request.body);
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        builder
    }

    /// Sends a request and reads the answer whole.
    pub(crate) async fn send(&self, request: Request) -> Reply {
        within("an answer", async {
            let response = self.build(request).send().await.expect("an answer");
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let text = response.text().await.expect("a body");
            Reply { status, headers, text }
        })
        .await
    }

    /// Sends a well-formed request.
    pub(crate) async fn ask(&self, method: &str, params: &Value) -> Reply {
        self.send(Request::new(method, params)).await
    }

    /// Sends a request by another HTTP method, without a body.
    pub(crate) async fn method(&self, method: &str, headers: &[(&str, &str)]) -> Reply {
        let method = method.parse::<reqwest::Method>().expect("a method");
        let mut builder = self.client.request(method, self.url());
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let response = within("an answer", builder.send()).await.expect("an answer");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = within("a body", response.text()).await.expect("a body");
        Reply { status, headers, text }
    }

    /// Sends a request in the background; dropping the handle drops the connection.
    pub(crate) fn start(&self, request: Request) -> Started {
        let http = self.clone();
        Started(tokio::spawn(async move { http.send(request).await }))
    }

    /// Opens a stream and reads it message by message.
    pub(crate) async fn stream(&self, request: Request) -> EventStream {
        let response = within("an answer", self.build(request).send()).await.expect("an answer");
        let status = response.status().as_u16();
        assert_eq!(status, 200);
        EventStream { chunks: response.bytes_stream().boxed(), buffer: String::new() }
    }
}

/// A request under way.
pub(crate) struct Started(tokio::task::JoinHandle<Reply>);

impl Started {
    pub(crate) async fn reply(mut self) -> Reply {
        within("an answer", &mut self.0).await.expect("no panic")
    }

    /// Breaks the connection off.
    pub(crate) async fn break_off(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A stream that is being read. Dropping it breaks the connection off.
pub(crate) struct EventStream {
    chunks: futures::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    buffer: String,
}

impl EventStream {
    /// The next message; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.find("\n\n") {
                let event: String = self.buffer.drain(..end + 2).collect();
                if let Some(data) = events(&event).pop() {
                    return Some(serde_json::from_str(&data).expect("JSON"));
                }
                continue;
            }
            let chunk = within("an event", self.chunks.next()).await?.expect("a chunk");
            self.buffer.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    }
}

/// Sends bytes as they are over a connection of their own, and reads until it is closed.
pub(crate) async fn raw_exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(bytes).await.expect("sent");
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE.min(Duration::from_secs(30)), stream.read_to_end(&mut answer))
        .await
        .expect("the connection is closed")
        .expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}
