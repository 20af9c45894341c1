//! The least of HTTP that the load needs: one request a connection, as the protocol's Streamable
//! HTTP has it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

const VERSION: &str = "2026-07-28";
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server listens.
#[derive(Debug, Clone)]
pub(super) struct Http {
    address: String,
}

impl Http {
    /// A server by its URL.
    pub(super) fn new(url: &str) -> Option<Self> {
        let address = url.strip_prefix("http://")?.strip_suffix("/mcp")?;
        Some(Self { address: address.to_owned() })
    }

    /// Sends one request, and hands back the JSON of its answer.
    ///
    /// # Errors
    /// The server is gone, or does not answer.
    pub(super) fn ask(&self, method: &str, name: &str, mut params: Value) -> Result<String> {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": { "name": "torture", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {
                "elicitation": {},
                "extensions": { "io.modelcontextprotocol/tasks": {} }
            },
        });
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\
             \r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: {VERSION}\r\n\
             Mcp-Method: {method}\r\nMcp-Name: {name}\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        message(&answer)
    }
}

/// The JSON-RPC message in an HTTP answer that came whole.
fn message(answer: &[u8]) -> Result<String> {
    let head_end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
    let head = String::from_utf8_lossy(&answer[..head_end]).to_ascii_lowercase();
    let body = &answer[head_end + 4..];
    let header = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::trim)
    };
    let body = match (header("content-length"), header("transfer-encoding")) {
        (Some(length), _) => {
            let length: usize = length.parse()?;
            if body.len() != length {
                bail!("{} of {length} bytes came", body.len());
            }
            body.to_owned()
        }
        (None, Some("chunked")) => unchunk(body)?,
        _ => bail!("the answer does not say how long it is"),
    };
    let body = String::from_utf8(body)?;
    if header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
        let mut data = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        let last = data.rfind(|data| !data.is_empty());
        return last.map(str::to_owned).context("a stream without a message");
    }
    Ok(body)
}

fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").context("half a chunk")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line])?.trim(), 16)?;
        rest = &rest[line + 2..];
        if size == 0 {
            return Ok(body);
        }
        let (chunk, after) = rest.split_at_checked(size).context("half a chunk")?;
        body.extend_from_slice(chunk);
        rest = after.strip_prefix(b"\r\n").context("half a chunk")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(message(plain).unwrap(), "{}");
        let stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: \
                       chunked\r\n\r\n9\r\ndata: {}\n\r\n1\r\n\n\r\n0\r\n\r\n";
        assert_eq!(message(stream).unwrap(), "{}");
        for cut in 1..plain.len() {
            assert!(message(&plain[..cut]).is_err(), "{cut}");
        }
        for cut in 1..stream.len() - 4 {
            assert!(message(&stream[..cut]).is_err(), "{cut}");
        }
    }
}
