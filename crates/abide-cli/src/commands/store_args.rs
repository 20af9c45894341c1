//! Which database a command looks into.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::config::load;
use super::serve::flag;
use crate::config::{StoreLocation, parse_store};
use crate::env;
use crate::failure::Failure;

/// The flags that name a database.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// The database: `sqlite:PATH`, instead of the config's; without both, `sqlite:abide.db` in the
    /// current folder
    #[arg(
        long,
        value_name = "STORE",
        env = env::STORE.name,
        hide_env_values = true,
        value_parser = flag(parse_store)
    )]
    store: Option<StoreLocation>,
    /// The config file whose database it is
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl StoreArgs {
    /// The database that is meant; its path is absolute.
    ///
    /// # Errors
    /// [`Failure`] when the config file can't be used.
    pub fn location(&self) -> Result<StoreLocation, Failure> {
        let store = match (&self.store, &self.config) {
            (Some(store), _) => store.clone(),
            (None, Some(file)) => load(file)?.server.store,
            (None, None) => StoreLocation::Sqlite(PathBuf::from("abide.db")),
        };
        let here = std::env::current_dir().context("can't find the current folder")?;
        Ok(store.within(&here))
    }
}
