//! The runner itself, from its first line to its last.

mod redact;
mod report;
mod stream;
mod supervise;
mod tree;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};

use rustix::process::Pid;

use super::cgroup::Cgroup;
use super::folder::{Folder, JOB};
use super::job::{JobFile, MAX_ENV_BYTES};
use super::outcome::RunOutcome;
use super::proc::Identity;
use super::start::Ack;
use super::{RUN_VARIABLE, clock, lock};
use report::Draft;
use stream::Spooled;
use supervise::Signals;
use tree::Tree;

pub use redact::SMALLEST_SECRET_BYTES;
pub use supervise::{LEFTOVERS_AFTER_KILL, PIPES_AFTER_EXIT};

/// The runner's name where processes are listed.
const NAME: &std::ffi::CStr = c"abide-runner";

/// Is the runner of one run, from the start of the job to its outcome. To be called first thing
/// in a process that the server has started as its [`Program`](super::Program) says; `args` is
/// what follows the program's own arguments: the run's folder.
///
/// Closes every descriptor but the first three, so nothing may be open yet.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    close_inherited();
    let mut args = args.into_iter();
    let (Some(folder), None) = (args.next(), args.next()) else {
        return complain("it takes one argument, the folder of a run");
    };
    let (lock, server) = match take_over() {
        Ok(handles) => handles,
        Err(error) => return complain(&format!("it was not started by abide: {error}")),
    };
    match Runner::prepare(Path::new(&folder), lock, &server) {
        Ok(runner) => runner.run(server),
        Err(error) => {
            tell(&server, &Ack::Spool { error: error.to_string() });
            ExitCode::FAILURE
        }
    }
}

/// Says why there is nothing to do; to people, since only they can start it like this.
#[expect(clippy::print_stderr, reason = "the runner has no log")]
fn complain(what: &str) -> ExitCode {
    eprintln!("abide's runner is started by `abide serve` only: {what}");
    ExitCode::FAILURE
}

/// Closes what the server has inherited itself without knowing: it would stay open as long as the
/// job runs.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // That of the directory is closed already.
        let _ = nix::unistd::close(fd);
    }
}

/// Takes what the server has put in the place of standard input and output: the lock, which is
/// held, and the way to speak to the server. Nothing that is started from here gets these.
fn take_over() -> io::Result<(File, UnixStream)> {
    let lock: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let server: OwnedFd = io::stdout().as_fd().try_clone_to_owned()?;
    let server = UnixStream::from(server);
    server.peer_addr()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok((lock.into(), server))
}

/// Tells the server; it may be gone.
fn tell(mut server: &UnixStream, ack: &Ack) {
    if let Ok(line) = serde_json::to_vec(ack) {
        let _ = server.write_all(&line);
    }
}

/// What has to be there before the job is started.
struct Runner {
    name: OsString,
    own: Identity,
    folder: Folder,
    lock: File,
    job: JobFile,
    env: Vec<(OsString, OsString)>,
    signals: Signals,
    spooled: Spooled,
    draft: Draft,
}

impl Runner {
    fn prepare(path: &Path, mut lock: File, server: &UnixStream) -> io::Result<Self> {
        // Before anything can be listed under it.
        rustix::thread::set_name(NAME)?;
        rustix::process::setsid()?;
        rustix::process::set_child_subreaper(Pid::from_raw(1))?;
        let folder = Folder::open(path)?;
        let gone = || io::Error::other("the run's folder is not as the server has left it");
        let job: JobFile = folder.read_json(JOB)?.ok_or_else(gone)?;
        let env = receive_env(server)?;
        let signals = Signals::listen()?;
        let own = i32::try_from(std::process::id()).ok().and_then(Identity::of);
        let own = own.ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        lock::say_runner(&mut lock, own)?;
        let spooled = Spooled::create(&folder, &job, &env)?;
        let draft = Draft::reserve(&folder)?;
        let name = path.file_name().unwrap_or_default().to_owned();
        Ok(Self { name, own, folder, lock, job, env, signals, spooled, draft })
    }

    /// Starts the job, sees it to its end, and writes down how that was.
    fn run(mut self, server: UnixStream) -> ExitCode {
        let mut outcome = RunOutcome::empty(clock::now_ms());
        if self.signals.asked_to_stop() {
            outcome.stopped = Some(super::Stopped { killed: false });
            tell(&server, &Ack::Started);
        } else {
            let (child, tree) = match self.start() {
                Ok(started) => started,
                Err(ack) => {
                    tell(&server, &ack);
                    return ExitCode::FAILURE;
                }
            };
            #[cfg(feature = "torture")]
            abide_torture::point("runner-started");
            tell(&server, &Ack::Started);
            drop(server);
            // The directory in which the server was started is not ours to keep in use.
            let _ = rustix::process::chdir("/");
            supervise::supervise(
                &mut outcome,
                &mut self.spooled,
                &self.folder,
                &self.signals,
                self.job.kill_grace(),
                tree,
                child,
            );
        }
        outcome.ended_ms = clock::now_ms();
        self.spooled.finish(&self.folder, &mut outcome);
        #[cfg(feature = "torture")]
        abide_torture::point("runner-outcome");
        report::write(&self.folder, self.draft, &outcome);
        #[cfg(feature = "torture")]
        abide_torture::point("runner-written");
        // Only now the lock goes, with the process.
        drop(self.lock);
        ExitCode::SUCCESS
    }

    /// Starts the job's first process, or says why that can't be done.
    fn start(&mut self) -> Result<(Child, Tree), Ack> {
        let spool = |error: io::Error| Ack::Spool { error: error.to_string() };
        let cgroup = if self.job.cgroup {
            Cgroup::enter(&format!("abide-{}", self.name.display()))
        } else {
            None
        };
        let (cgroup, home) = cgroup.unzip();
        let said = lock::say_starting(&mut self.lock, cgroup.as_ref().map(Cgroup::dir));
        let started = said.map_err(spool).and_then(|()| self.spawn());
        let is_home = home.is_some_and(|home| home.return_to().is_ok());
        let child = match started {
            Ok(child) => child,
            Err(ack) => {
                cgroup.inspect(Cgroup::remove);
                return Err(ack);
            }
        };
        // Nobody needs them any more, and there may be many of us.
        self.env = Vec::new();
        self.job.argv = Vec::new();
        let pid = i32::try_from(child.id()).unwrap_or(0);
        if let Some(identity) = Identity::of(pid)
            && let Err(error) = lock::say_job(&mut self.lock, identity)
        {
            // Then it is recognised by its environment only.
            self.spooled.note(&error);
        }
        // A runner that could not leave must not kill what is in there at once.
        Ok((child, Tree::new(self.own, pid, cgroup.filter(|_| is_home))))
    }

    #[expect(clippy::disallowed_methods, reason = "this is where children are started")]
    fn spawn(&self) -> Result<Child, Ack> {
        let program = self.job.argv.first().map_or("", String::as_str);
        let mut command = std::process::Command::new(program);
        command
            .args(self.job.argv.iter().skip(1))
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env(RUN_VARIABLE, &self.name)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(cwd) = &self.job.cwd {
            command.current_dir(cwd);
        }
        command
            .spawn()
            .map_err(|error| Ack::Exec { errno: error.raw_os_error(), error: error.to_string() })
    }
}

/// Receives the job's environment: `NAME=value`, each with a NUL behind it, and one more NUL at
/// the end, without which the server was killed while it wrote.
fn receive_env(server: &UnixStream) -> io::Result<Vec<(OsString, OsString)>> {
    let mut bytes = Vec::new();
    server.take(MAX_ENV_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let cut =
        || io::Error::new(io::ErrorKind::UnexpectedEof, "the environment came without its end");
    let entries = bytes.strip_suffix(b"\0").ok_or_else(cut)?;
    if entries.last().is_some_and(|byte| *byte != 0) {
        return Err(cut());
    }
    let entry = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let text = |bytes| OsStr::from_bytes(bytes).to_owned();
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    };
    Ok(entries.split(|byte| *byte == 0).filter_map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_without_its_end_is_refused() {
        let receive = |bytes: &[u8]| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (&ours).write_all(bytes).unwrap();
            drop(ours);
            receive_env(&theirs).ok()
        };
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        assert_eq!(receive(b"\0"), Some(Vec::new()));
        let both = vec![pair("A", "1=2\n"), pair("B", "")];
        assert_eq!(receive(b"A=1=2\n\0B=\0\0"), Some(both));
        // A server that is killed while it writes may stop anywhere.
        for cut in [&b""[..], b"A", b"A=1", b"A=1\0", b"A=1\0B=", b"A=1\0B=\0"] {
            assert_eq!(receive(cut), None, "{cut:?}");
        }
    }
}
