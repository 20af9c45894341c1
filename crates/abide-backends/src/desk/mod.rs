//! Where commands ask and tell while they work: a socket beside the database.
//!
//! A command's environment has its address ([`ADDRESS_VARIABLE`]) and a token that is good for this
//! run only ([`TOKEN_VARIABLE`]); `abide ask` and `abide say` use them. Each connection carries one
//! request, a line of JSON, and one reply ([`Request`], [`Reply`]). The address stays the same when
//! the server is started again, and the same question under the same key is one question; so
//! whoever waits for an answer connects again and asks again, and nothing is asked twice.
//!
//! The token is an HMAC of the run's name with a key that lies beside the socket, readable by the
//! server's user only. So a server that is started again knows the tokens of commands that run, and
//! no token is stored.

mod client;
mod listener;
mod protocol;

use std::collections::HashMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_core::WorkContext;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::runner::RunName;

pub use client::{Client, ClientError};
pub use protocol::{Action, MAX_REQUEST_BYTES, Reply, Request};

/// The variable that tells a command where to ask.
pub const ADDRESS_VARIABLE: &str = "ABIDE_DESK";
/// The variable with which a command proves which run it belongs to.
pub const TOKEN_VARIABLE: &str = "ABIDE_TOKEN";

/// Bytes of the key.
const KEY_BYTES: usize = 32;

type Mark = Hmac<Sha256>;

/// The server's side of the socket.
#[derive(Clone)]
pub struct Desk(Arc<Inner>);

struct Inner {
    address: PathBuf,
    key: Mark,
    runs: Mutex<HashMap<RunName, Arc<dyn WorkContext>>>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl Desk {
    /// Opens the desk at `address`, a path that nobody else uses, and takes requests from then on.
    /// To be called in a Tokio runtime. The key lies beside it, in a file whose name ends in
    /// `.key`.
    ///
    /// # Errors
    /// That the socket or the key can't be made.
    pub fn open(address: &Path) -> io::Result<Self> {
        let key = read_key(address)?;
        let listener = bind(address)?;
        let key = Mark::new_from_slice(&key).map_err(io::Error::other)?;
        let inner = Inner { address: address.to_owned(), key, runs: Mutex::default() };
        let desk = Self(Arc::new(inner));
        listener::serve(&desk, listener)?;
        Ok(desk)
    }

    /// What a run's environment has to have.
    pub(crate) fn variables(&self, run: &RunName) -> [(String, String); 2] {
        let address = self.0.address.to_string_lossy().into_owned();
        let token = self.mark(run).finalize().into_bytes();
        let token = token.iter().map(|byte| format!("{byte:02x}")).collect();
        [(ADDRESS_VARIABLE.to_owned(), address), (TOKEN_VARIABLE.to_owned(), token)]
    }

    /// Takes requests of a run, until the guard is dropped.
    pub(crate) fn enter(&self, run: RunName, context: Arc<dyn WorkContext>) -> Entered {
        self.runs().insert(run, context);
        Entered { desk: self.clone(), run }
    }

    fn mark(&self, run: &RunName) -> Mark {
        let mut mark = self.0.key.clone();
        mark.update(run.to_string().as_bytes());
        mark
    }

    /// Whether the token is this run's. Takes as long for any token of its length.
    fn knows(&self, run: &RunName, token: &str) -> bool {
        let bytes: Option<Vec<u8>> = (token.len().is_multiple_of(2) && token.is_ascii())
            .then(|| {
                let pairs = (0..token.len()).step_by(2).map(|at| &token[at..at + 2]);
                pairs.map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
            })
            .flatten();
        bytes.is_some_and(|bytes| self.mark(run).verify_slice(&bytes).is_ok())
    }

    fn find(&self, run: &RunName) -> Option<Arc<dyn WorkContext>> {
        self.runs().get(run).cloned()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunName, Arc<dyn WorkContext>>> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run whose requests are taken.
#[derive(Debug)]
pub(crate) struct Entered {
    desk: Desk,
    run: RunName,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.desk.runs().remove(&self.run);
    }
}

/// Reads the key, or makes one.
fn read_key(address: &Path) -> io::Result<Vec<u8>> {
    let mut name = address.as_os_str().to_owned();
    name.push(".key");
    let name = PathBuf::from(name);
    match fs::read(&name) {
        Ok(key) if key.len() == KEY_BYTES => return Ok(key),
        // One that a crash left unfinished was never used.
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut key = vec![0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&name)?;
    file.write_all(&key)?;
    file.sync_all()?;
    Ok(key)
}

/// Binds the socket. One that is there already was left by a server that is gone.
fn bind(address: &Path) -> io::Result<UnixListener> {
    let short = ShortPath::of(address)?;
    match fs::remove_file(&short.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    let listener = UnixListener::bind(&short.path)?;
    fs::set_permissions(&short.path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Another name of a file, short enough for the address of a socket, as long as it lives.
struct ShortPath {
    path: PathBuf,
    _folder: fs::File,
}

impl ShortPath {
    fn of(path: &Path) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = fs::File::open(folder.unwrap_or(Path::new(".")))?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: folder })
    }
}
