//! What the demo prints: where everything is, and commands that work as they stand.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value as Json, json};

use super::connect::url;
use super::snippet::{Client, Reach, claude_mcp_add, shell_word, snippet};
use crate::config::StoreLocation;

/// The protocol revision that the commands speak.
const PROTOCOL_VERSION: &str = "2026-07-28";
/// The name under which clients list the demo.
const SERVER_NAME: &str = "abide-demo";

/// The demo's guide.
#[derive(Debug, Clone, Copy)]
pub(super) struct TryIt<'a> {
    /// Where the server listens.
    pub(super) address: SocketAddr,
    /// Where the tasks are.
    pub(super) database: &'a Path,
    /// Where abide itself is.
    pub(super) program: &'a Path,
    /// A config file with the same tools, if there is one.
    pub(super) config_file: Option<&'a Path>,
}

impl fmt::Display for TryIt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = url(self.address);
        let http = Reach::Http { url: &url };
        let create = curl(
            &url,
            "tools/call",
            "countdown",
            &json!({"name": "countdown", "arguments": {"seconds": 30}}),
        );
        // The shell puts the id in, where the quotes are closed for it.
        let poll = curl(&url, "tasks/get", "$TASK", &json!({"taskId": TASK}));
        let again = format!(
            "{} demo --db {} --listen {}",
            shell_word(&self.program.to_string_lossy()),
            shell_word(&self.database.to_string_lossy()),
            self.address
        );
        writeln!(f, "MCP server  {url}")?;
        writeln!(f, "Tasks in    {}", self.database.display())?;
        writeln!(f, "\nCreate a task, and keep its handle:\n")?;
        writeln!(
            f,
            "TASK=$({create} \\\n  | sed -n 's/.*\"taskId\":\"\\([^\"]*\\)\".*/\\1/p'); echo \"$TASK\""
        )?;
        writeln!(f, "\nPoll it, as often as you like:\n")?;
        writeln!(f, "{poll}; echo")?;
        writeln!(
            f,
            "\nKill this server with kill -9, start it again, and poll again: the work has gone on.\n"
        )?;
        writeln!(f, "kill -9 {}", std::process::id())?;
        writeln!(f, "{again}")?;
        writeln!(f, "\nConnect a client while the server runs.\n")?;
        writeln!(f, "Claude Code:\n\n{}", claude_mcp_add(SERVER_NAME, http))?;
        for (client, place) in
            [(Client::ClaudeCode, ".mcp.json"), (Client::Vscode, ".vscode/mcp.json")]
        {
            if let Ok(json) = snippet(client, SERVER_NAME, http) {
                writeln!(f, "\n{place}:\n\n{json}")?;
            }
        }
        match self.config_file {
            Some(file) => {
                let arguments = desktop_arguments(file);
                let stdio = Reach::Stdio { program: self.program, arguments: &arguments };
                if let Ok(json) = snippet(Client::ClaudeDesktop, SERVER_NAME, stdio) {
                    writeln!(
                        f,
                        "\nclaude_desktop_config.json (Claude Desktop starts a server of its own):\n\n{json}"
                    )?;
                }
                Ok(())
            }
            None => writeln!(
                f,
                "\nClaude Desktop starts a server of its own, from a config file of yours:\n\n\
                 {} connect --client claude-desktop FILE",
                shell_word(&self.program.to_string_lossy())
            ),
        }
    }
}

/// How Claude Desktop starts its server: with a store of its own, since the demo holds the other.
fn desktop_arguments(file: &Path) -> [String; 5] {
    let store = StoreLocation::Sqlite(file.with_file_name("claude-desktop.db"));
    [
        "serve".to_owned(),
        file.to_string_lossy().into_owned(),
        "--stdio".to_owned(),
        "--store".to_owned(),
        store.to_string(),
    ]
}

/// Stands for the task's id in a body.
const TASK: &str = "\u{0}TASK\u{0}";

/// A curl line that posts one request, with every header that the protocol wants.
fn curl(url: &str, method: &str, name: &str, params: &Json) -> String {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "curl", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": {"io.modelcontextprotocol/tasks": {}}
        },
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let marked = Json::String(TASK.to_owned()).to_string();
    let body = body.replace(&marked, "\"'\"$TASK\"'\"");
    format!(
        "curl -sS {url} \\\n  \
         -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\\n  \
         -H 'MCP-Protocol-Version: {PROTOCOL_VERSION}' -H 'Mcp-Method: {method}' \
         -H \"Mcp-Name: {name}\" \\\n  \
         -d '{body}'"
    )
}
