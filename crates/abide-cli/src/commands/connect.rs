//! `abide connect`: the lines for an MCP client's config.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::snippet::{self, Client, Reach};
use crate::config;
use crate::failure::Failure;
use crate::terminal;

/// Print what an MCP client's config has to say to reach the server of a config file
#[derive(Debug, Args)]
pub struct ConnectArgs {
    /// The config file
    file: PathBuf,
    /// The client
    #[arg(long, value_enum)]
    client: Client,
    /// Reach a server that runs already, by its URL, instead of starting one
    ///
    /// Several clients can share a server only this way: one process at a time holds the store.
    #[arg(long)]
    http: bool,
}

/// Runs `abide connect`: JSON to standard output, where to put it to standard error.
///
/// # Errors
/// [`Failure`] when the config file can't be used, or the client can't be told so.
pub fn run(args: &ConnectArgs) -> Result<(), Failure> {
    let config = config::load(&args.file)?.config;
    let file = args
        .file
        .canonicalize()
        .with_context(|| format!("can't find the absolute path of {}", args.file.display()))?;
    let program = std::env::current_exe().context("can't find out where abide itself lies")?;
    let name = config.server.name.as_str();
    let url = url(config.server.listen);
    let arguments = ["serve".to_owned(), file.to_string_lossy().into_owned(), "--stdio".to_owned()];
    let reach = if args.http {
        Reach::Http { url: &url }
    } else {
        Reach::Stdio { program: &program, arguments: &arguments }
    };
    let json = snippet::snippet(args.client, name, reach).map_err(|reason| {
        Failure::usage(reason.0).hint("leave --http out, so that the client starts the server")
    })?;

    terminal::say(snippet::place(args.client));
    terminal::data(format_args!("{json:#}"))?;
    if args.client == Client::ClaudeCode {
        terminal::hint(format_args!("or run: {}", snippet::claude_mcp_add(name, reach)));
    }
    if args.http {
        let file = snippet::shell_word(&file.to_string_lossy());
        terminal::hint(format_args!("the server has to run: abide serve {file}"));
    } else {
        terminal::hint("one process at a time holds the store; for several clients, use --http");
    }
    Ok(())
}

/// The URL under which this machine reaches a server that listens on `listen`.
#[must_use]
pub fn url(listen: SocketAddr) -> String {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}/mcp", SocketAddr::new(ip, listen.port()))
}
