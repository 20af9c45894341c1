//! What an MCP client's config has to say to reach a server of ours.

use std::path::Path;

use clap::ValueEnum;
use serde_json::{Value as Json, json};

/// An MCP client whose config we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Client {
    /// Claude Code (`.mcp.json`)
    ClaudeCode,
    /// Claude Desktop (`claude_desktop_config.json`)
    ClaudeDesktop,
    /// Cursor (`.cursor/mcp.json`)
    Cursor,
    /// VS Code (`.vscode/mcp.json`)
    Vscode,
    /// The form that most other clients read
    Json,
}

/// How a client reaches the server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach<'a> {
    /// By starting it: the program and its arguments.
    Stdio {
        /// The absolute path of `abide`.
        program: &'a Path,
        /// What comes after it.
        arguments: &'a [String],
    },
    /// By an address.
    Http {
        /// With `/mcp` at its end.
        url: &'a str,
    },
}

/// The client can't do it this way; in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsupported(pub(super) &'static str);

/// The JSON for the config of `client`, with the server under `name`.
///
/// # Errors
/// [`Unsupported`] when the client's config has no way to say it.
pub(super) fn snippet(client: Client, name: &str, reach: Reach<'_>) -> Result<Json, Unsupported> {
    let server = match (client, reach) {
        (Client::ClaudeDesktop, Reach::Http { .. }) => {
            return Err(Unsupported(
                "Claude Desktop's config file knows only servers that it starts itself",
            ));
        }
        (Client::Vscode | Client::ClaudeCode, Reach::Stdio { program, arguments }) => {
            json!({"type": "stdio", "command": program.to_string_lossy(), "args": arguments})
        }
        (_, Reach::Stdio { program, arguments }) => {
            json!({"command": program.to_string_lossy(), "args": arguments})
        }
        (Client::Cursor, Reach::Http { url }) => json!({"url": url}),
        (_, Reach::Http { url }) => json!({"type": "http", "url": url}),
    };
    let table = if client == Client::Vscode { "servers" } else { "mcpServers" };
    Ok(json!({table: {name: server}}))
}

/// Where the snippet belongs, for people.
#[must_use]
pub(super) fn place(client: Client) -> &'static str {
    match client {
        Client::ClaudeCode => "put this into .mcp.json in the root of your project",
        Client::ClaudeDesktop => {
            "put this into claude_desktop_config.json (Settings, Developer, Edit Config), and \
             restart Claude Desktop"
        }
        Client::Cursor => "put this into .cursor/mcp.json of your project, or ~/.cursor/mcp.json",
        Client::Vscode => "put this into .vscode/mcp.json of your workspace",
        Client::Json => "put this where your client keeps its MCP servers",
    }
}

/// The shell command that adds the server to Claude Code.
#[must_use]
pub(super) fn claude_mcp_add(name: &str, reach: Reach<'_>) -> String {
    let name = shell_word(name);
    match reach {
        Reach::Http { url } => {
            format!("claude mcp add --transport http {name} {}", shell_word(url))
        }
        Reach::Stdio { program, arguments } => {
            let program = program.to_string_lossy();
            let words: Vec<String> = std::iter::once(program.as_ref())
                .chain(arguments.iter().map(String::as_str))
                .map(shell_word)
                .collect();
            format!("claude mcp add {name} -- {}", words.join(" "))
        }
    }
}

/// `text` as one word of a POSIX shell.
#[must_use]
pub(super) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_gets_its_own_form() {
        let arguments = ["serve".to_owned(), "/a b.toml".to_owned(), "--stdio".to_owned()];
        let stdio = Reach::Stdio { program: Path::new("/bin/abide"), arguments: &arguments };
        let http = Reach::Http { url: "http://127.0.0.1:1/mcp" };
        let args = r#""args":["serve","/a b.toml","--stdio"]"#;
        for (client, reach, expected) in [
            (
                Client::ClaudeCode,
                stdio,
                format!(
                    r#"{{"mcpServers":{{"n":{{"type":"stdio","command":"/bin/abide",{args}}}}}}}"#
                ),
            ),
            (
                Client::ClaudeDesktop,
                stdio,
                format!(r#"{{"mcpServers":{{"n":{{"command":"/bin/abide",{args}}}}}}}"#),
            ),
            (
                Client::Vscode,
                stdio,
                format!(
                    r#"{{"servers":{{"n":{{"type":"stdio","command":"/bin/abide",{args}}}}}}}"#
                ),
            ),
            (
                Client::Cursor,
                http,
                r#"{"mcpServers":{"n":{"url":"http://127.0.0.1:1/mcp"}}}"#.to_owned(),
            ),
            (
                Client::Vscode,
                http,
                r#"{"servers":{"n":{"type":"http","url":"http://127.0.0.1:1/mcp"}}}"#.to_owned(),
            ),
        ] {
            assert_eq!(snippet(client, "n", reach).unwrap().to_string(), expected);
        }
        assert!(snippet(Client::ClaudeDesktop, "n", http).is_err());
        assert_eq!(
            claude_mcp_add("my server", stdio),
            "claude mcp add 'my server' -- /bin/abide serve '/a b.toml' --stdio"
        );
    }

    #[test]
    fn shell_words() {
        for (text, word) in [("a/b-c", "a/b-c"), ("", "''"), ("it's", r"'it'\''s'"), ("$x", "'$x'")]
        {
            assert_eq!(shell_word(text), word);
        }
    }
}
