//! `abide demo`: a server with the quickstart's tools, and what to try with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;

use super::serve::{Transport, flag, run_async, run_server, stop_signals};
use super::try_it::TryIt;
use crate::config::{self, Config, StoreLocation, parse_address};
use crate::env;
use crate::failure::Failure;
use crate::terminal;

/// The tools of the demo.
const QUICKSTART: &str = include_str!("../../../../examples/quickstart.toml");
/// What the demo calls the file in messages and in its own folder.
const QUICKSTART_NAME: &str = "quickstart.toml";
/// The database in the demo's own folder.
const DATABASE_NAME: &str = "abide.db";

/// Start a server with example tools, and say what to try with it
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Where HTTP is served; if the port is in use, a free one is taken
    #[arg(
        long,
        value_name = "ADDRESS",
        env = env::LISTEN.name,
        hide_env_values = true,
        default_value = "127.0.0.1:8720",
        value_parser = flag(parse_address)
    )]
    listen: SocketAddr,
    /// The database file of an earlier demo, or a new one; without it, one in a new folder under
    /// the system's folder for temporary files
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
}

/// Runs `abide demo` until it is told to stop.
///
/// # Errors
/// [`Failure`] when the server can't start.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    let database = match &args.db {
        Some(path) => std::path::absolute(path)
            .with_context(|| format!("can't find the absolute path of {}", path.display()))?,
        None => new_folder()?.join(DATABASE_NAME),
    };
    let folder = database.parent().filter(|folder| folder.is_dir()).ok_or_else(|| {
        Failure::failed(format!("the folder of {} is not there", database.display()))
    })?;
    let mut config = quickstart(folder)?;
    config.server.store = StoreLocation::Sqlite(database.clone());

    run_async(async {
        let listener = bind(args.listen).await?;
        let address = listener.local_addr().context("can't find the port")?;
        let program = std::env::current_exe().context("can't find out where abide itself lies")?;
        let config_file = folder.join(QUICKSTART_NAME);
        let guide = TryIt {
            address,
            database: &database,
            program: &program,
            config_file: config_file.is_file().then_some(config_file.as_path()),
        };
        // A server whose guide nobody reads serves all the same.
        let ready = || drop(terminal::data(guide.to_string().trim_end()));
        run_server(&config, Transport::Http(listener), stop_signals()?, ready).await
    })
}

/// A new folder that stays, so that a killed demo can be taken up again. It has the config file in
/// it, for clients that start a server themselves.
fn new_folder() -> Result<PathBuf, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("abide-demo-")
        .tempdir()
        .context("can't make a folder for temporary files")?;
    let folder = folder.keep();
    std::fs::write(folder.join(QUICKSTART_NAME), QUICKSTART)
        .with_context(|| format!("can't write into {}", folder.display()))?;
    Ok(folder)
}

fn quickstart(folder: &Path) -> Result<Config, Failure> {
    let loaded =
        config::parse(QUICKSTART, Path::new(QUICKSTART_NAME), folder).map_err(|problems| {
            Failure::failed(format!("abide's own quickstart is wrong: {problems}"))
        })?;
    Ok(loaded.config)
}

/// Listens on `wanted`, or on any free port if that one is in use.
async fn bind(wanted: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = match TcpListener::bind(wanted).await {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            terminal::say(format_args!("{wanted} is in use, so the demo takes a free port"));
            TcpListener::bind(SocketAddr::new(wanted.ip(), 0)).await
        }
        other => other,
    };
    bound.map_err(|error| Failure::failed(format!("can't listen on {wanted}: {error}")))
}
