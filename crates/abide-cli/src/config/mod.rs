//! The config file: from TOML to values that are checked, complete and absolute.
//!
//! [`keys`] lists every key once; [`reader`] walks a file along that list, and [`schema`] and
//! [`reference`] write it down for editors and people. All problems of a file are reported at
//! once, each with its place.

mod headers;
mod input;
mod key;
mod keys;
pub mod limits;
pub mod lookup;
mod problem;
mod reader;
pub mod reference;
pub mod schema;
mod schema_check;
mod server;
mod tool;
mod value;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use problem::{Collector, Source};
use reader::Fields;

pub use problem::{Problem, Problems};
pub use server::{Envelope, ServerConfig};
pub use tool::{Annotations, Approve, ToolConfig};
pub use value::{StoreLocation, human_size, parse_address, parse_flag_duration, parse_store};

/// A config file, checked and with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`.
    pub server: ServerConfig,
    /// `[tools.NAME]` in the order of the file.
    pub tools: Vec<ToolConfig>,
}

/// A config and what looks wrong with it, but is allowed.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The config.
    pub config: Config,
    /// What is probably not meant.
    pub warnings: Vec<Problem>,
}

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file can't be read.
    #[error("can't read {}: {reason}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says, or which limit it exceeds.
        reason: String,
    },
    /// The file can be read, but not used.
    #[error(transparent)]
    Wrong(#[from] Problems),
}

/// Reads the config file at `path`, and the schema files that it names.
///
/// # Errors
/// [`LoadError`], with all the problems of the file at once.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let unreadable = |reason: String| LoadError::Unreadable { file: path.to_owned(), reason };
    let text = read_text(path, limits::MAX_FILE_BYTES).map_err(&unreadable)?;
    let absolute = std::path::absolute(path).map_err(|error| unreadable(error.to_string()))?;
    let folder = absolute.parent().ok_or_else(|| unreadable("it is a folder".to_owned()))?;
    Ok(parse(&text, path, folder)?)
}

/// Reads a config from `text`. `file` is its name in messages; relative paths in it start at
/// `folder`, which is absolute.
///
/// # Errors
/// [`Problems`]: all that is wrong with it.
pub fn parse(text: &str, file: &Path, folder: &Path) -> Result<Loaded, Problems> {
    let mut problems = Collector::new(Source { file, text });
    let (document, mistakes) = DeTable::parse_recoverable(text);
    for mistake in &mistakes {
        let at = mistake.span().map_or(0, |span| span.start);
        problems.error(at, format!("not TOML: {}", mistake.message()));
    }
    // What the parser made of a file with mistakes would only give further, spurious ones.
    let config = if mistakes.is_empty() {
        let root = reader::read(&keys::ROOT, document.get_ref(), &mut problems);
        config(&root, folder, &mut problems)
    } else {
        None
    };
    let warnings = problems.finish()?;
    let config = config.expect("a part is missing only if there is a problem");
    Ok(Loaded { config, warnings })
}

fn config(root: &Fields, folder: &Path, problems: &mut Collector<'_>) -> Option<Config> {
    let tables: Vec<(String, Fields)> = root.get("tools").unwrap_or_default();
    if tables.is_empty() && problems.is_clean() {
        problems.error(root.at("tools"), "[tools] is empty: add a table [tools.NAME]");
    }
    if tables.len() > limits::MAX_TOOLS {
        let (most, have) = (limits::MAX_TOOLS, tables.len());
        problems.error(root.at("tools"), format!("there are {have} tools; at most {most} can be"));
    }
    let tools: Vec<_> = tables
        .iter()
        .map(|(name, fields)| tool::assemble(name, fields, folder, problems))
        .collect();
    let server = server::assemble(&root.get("server")?, folder, problems)?;
    Some(Config { server, tools: tools.into_iter().collect::<Option<_>>()? })
}

/// Reads a text file of at most `max` bytes.
fn read_text(path: &Path, max: u64) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > max {
        return Err(format!("it is larger than {}", human_size(max)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("it is not UTF-8 (line {line})")
    })
}
