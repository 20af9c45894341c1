//! `abide serve`: a config file becomes an MCP server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use abide_server::{serve_http, serve_stdio};
use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::config::load;
use super::connect::url;
use crate::config::{Config, StoreLocation, parse_address, parse_store};
use crate::env;
use crate::failure::Failure;
use crate::wiring;

/// Serve the tools of a config file over HTTP, or over standard input and output
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The config file
    file: PathBuf,
    /// Talk over standard input and output instead of HTTP, and end when the input ends
    #[arg(long)]
    stdio: bool,
    /// Where HTTP is served, instead of the config's `listen`; port 0 for any free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = env::LISTEN.name,
        hide_env_values = true,
        value_parser = flag(parse_address)
    )]
    listen: Option<SocketAddr>,
    /// Where tasks are stored, instead of the config's `store`: `sqlite:PATH`
    #[arg(
        long,
        value_name = "STORE",
        env = env::STORE.name,
        hide_env_values = true,
        value_parser = flag(parse_store)
    )]
    store: Option<StoreLocation>,
}

/// Where requests come from.
#[derive(Debug)]
pub enum Transport {
    /// A listening socket.
    Http(TcpListener),
    /// Standard input and output.
    Stdio,
}

/// Makes a clap parser of one whose errors follow the name of a key.
pub(super) fn flag<T>(
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| parse(text).map_err(|reason| format!("it {reason}"))
}

/// Runs `abide serve` until it is told to stop.
///
/// # Errors
/// [`Failure`] when the config file can't be used, or the server can't start.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let mut config = load(&args.file)?;
    if let Some(listen) = args.listen {
        config.server.listen = listen;
    }
    if let Some(store) = &args.store {
        let here = std::env::current_dir().context("can't find the current folder")?;
        config.server.store = store.clone().within(&here);
    }
    run_async(async {
        let transport = if args.stdio {
            Transport::Stdio
        } else {
            Transport::Http(bind(config.server.listen).await?)
        };
        run_server(&config, transport, stop_signals()?, || ()).await
    })
}

/// Runs a server's future to its end on a runtime of its own.
pub(super) fn run_async<F>(server: F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("can't start the async runtime")?;
    let ended = runtime.block_on(server);
    // A pending read of standard input can't be cancelled, and must not hold up the end.
    runtime.shutdown_background();
    ended
}

async fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::failed(format!("can't listen on {listen}: the port is in use")).hint(
                "stop the other process, or choose another port with --listen; port 0 takes any \
                 free one",
            )
        }
        std::io::ErrorKind::PermissionDenied => {
            Failure::failed(format!("can't listen on {listen}: {error}"))
                .hint("ports below 1024 are privileged; choose another with --listen")
        }
        _ => Failure::failed(format!("can't listen on {listen}: {error}")),
    })
}

/// How far a server has been told to stop.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop {
    /// Cancelled by the first signal: take no more, finish what is under way.
    gently: CancellationToken,
    /// Cancelled by the second signal: stop what is under way.
    now: CancellationToken,
}

/// Listens for SIGTERM, SIGINT and SIGHUP. A third signal ends the process at once.
pub(super) fn stop_signals() -> Result<Stop, Failure> {
    let mut terminate = signal(SignalKind::terminate()).context("can't wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("can't wait for SIGINT")?;
    // The terminal was closed.
    let mut hangup = signal(SignalKind::hangup()).context("can't wait for SIGHUP")?;
    let stop = Stop::default();
    let stopping = stop.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                _ = hangup.recv() => "SIGHUP",
            }
        };
        let which = next().await;
        tracing::info!("{which}: finishing what is under way; a second signal stops it");
        stopping.gently.cancel();
        let which = next().await;
        tracing::warn!("{which} again: stopping all work; a third signal ends the process at once");
        stopping.now.cancel();
        let which = next().await;
        tracing::error!("{which} once more: ending at once; commands may be left running");
        std::process::exit(1);
    });
    Ok(stop)
}

/// Serves `config` until told to stop or, over standard input, the input ends. `ready` is called
/// when everything that can fail at the start has not.
pub(super) async fn run_server(
    config: &Config,
    transport: Transport,
    stop: Stop,
    ready: impl FnOnce(),
) -> Result<(), Failure> {
    let server = wiring::assemble(config).await?;
    let engine = server.engine().clone();
    if let Transport::Http(listener) = &transport {
        let address = listener.local_addr().context("can't find the port")?;
        tracing::info!(url = url(address), store = %config.server.store, "serving");
        if !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "everybody who reaches this address can call the tools and see all tasks"
            );
        }
    }
    ready();

    // The transport may end by itself, when its client goes; that stops the engine too.
    let ended = CancellationToken::new();
    let serve = async {
        let _ended = ended.clone().drop_guard();
        match transport {
            Transport::Http(listener) => serve_http(server, listener, stop.gently.clone()).await,
            Transport::Stdio => {
                let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
                serve_stdio(server, input, output, stop.gently.clone()).await
            }
        }
    };
    let drain = async {
        tokio::select! {
            () = stop.gently.cancelled() => {}
            () = ended.cancelled() => {}
        }
        tokio::select! {
            remaining = engine.drain(config.server.shutdown_grace) => remaining,
            () = stop.now.cancelled() => engine.drain(Duration::ZERO).await,
        }
    };
    let (served, remaining) = tokio::join!(serve, drain);
    engine.close().await;
    if remaining.running > 0 {
        tracing::error!(running = remaining.running, "some work could not be stopped");
    }
    served.context("the transport failed")?;
    Ok(())
}
