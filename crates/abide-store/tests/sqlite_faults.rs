//! Disks that are full, files that can't grow, folders that can't be written: real ones.
#![cfg(target_os = "linux")]

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abide_core::{Authority, Command, Health, NewTask, Store, StoreError, Task};
use abide_store::sqlite::{OpenError, Options, SetAside, SqliteStore, backup};
use abide_store::suite::specimens::{
    FIRST, at, completed, id, json, new_task, owner, started, working,
};
use support::{child, child_folder, say};

/// Nobody, on every Linux.
const NOBODY: u32 = 65_534;

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path, Options::default())
}

/// A task with 40 KB of arguments.
fn large(number: u64) -> Task {
    let arguments = json(&format!("{{\"number\":{number},\"pad\":\"{}\"}}", "f".repeat(40_000)));
    started(NewTask { arguments, ..new_task(number, 0) }, 0)
}

async fn assert_there(store: &SqliteStore, tasks: &[Task]) {
    for task in tasks {
        let read = store.get(*task.id(), owner("alice")).await.unwrap();
        assert!(read.as_deref() == Some(task), "{} is not as it was acknowledged", task.id());
    }
}

/// Runs `scenario` in a child that has mounts of its own and a small disk at `disk` in the folder
/// it gets. Where that is not permitted it says so, loudly; `a_file_that_cannot_grow` needs no
/// permission and covers the same code.
async fn on_a_small_disk<F: Future<Output = ()>>(
    test: &str,
    size: &str,
    scenario: impl FnOnce(PathBuf) -> F,
) {
    if let Some(folder) = child_folder() {
        let disk = folder.join("disk");
        if run(&["mount", "-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], Some(&disk)) {
            say("mounted");
            scenario(disk).await;
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("disk")).unwrap();
    let exe = std::env::current_exe().unwrap();
    let wrappers: [&[&str]; 2] =
        [&["unshare", "--mount"], &["unshare", "--user", "--map-root-user", "--mount"]];
    for wrapper in wrappers {
        let Ok(output) = child(wrapper, &exe, test, folder.path()).output() else { continue };
        let said = String::from_utf8_lossy(&output.stdout);
        if said.lines().any(|line| line == "mounted") {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}\n{errors}");
            return;
        }
    }
    let mut stderr = std::io::stderr();
    let _ =
        writeln!(stderr, "\n*** {test} DID NOT RUN: mounting a tmpfs is not permitted here ***");
}

#[expect(clippy::disallowed_methods, reason = "mounting takes a program")]
fn run(words: &[&str], path: Option<&Path>) -> bool {
    let mut command = std::process::Command::new(words[0]);
    command.args(&words[1..]).args(path);
    command.status().is_ok_and(|status| status.success())
}

/// Fills what is left of the disk.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        while file.write_all(&vec![b'b'; size]).is_ok() {}
    }
}

/// Writes until the database takes no more, checks that nothing was half done and nothing
/// acknowledged is missing, lets `relieve` make room, and checks that all goes on.
async fn fill_up_and_go_on(path: &Path, problem: &str, relieve: impl FnOnce()) {
    let store = Arc::new(open(path).unwrap());
    let small = working(1_000_000, 0);
    store.create(small.clone(), None).await.unwrap();
    let mut acknowledged = vec![];
    let mut number = 0;
    let error = loop {
        let task = large(number);
        match store.create(task.clone(), None).await {
            Ok(_) => acknowledged.push(task),
            Err(error) => break error,
        }
        number += 1;
        assert!(number < 10_000, "the disk is never full");
    };
    let unavailable = |error: &StoreError| matches!(error, StoreError::Unavailable { problem: said } if said == problem);
    assert!(unavailable(&error), "{error}");
    assert_eq!(store.health(), Health::Failing { problem: problem.to_owned() });
    assert!(store.get(id(number, 0), owner("alice")).await.unwrap().is_none());

    // A result that does not fit: the task stays at work.
    let result = format!("\"{}\"", "r".repeat(4_000_000));
    let complete = || Command::Complete { fence: FIRST, result: json(&result) };
    let answer = store.apply(*small.id(), Authority::Engine, complete(), at(1)).await;
    assert!(answer.as_ref().is_err_and(unavailable), "{answer:?}");
    assert_there(&store, std::slice::from_ref(&small)).await;

    // Many at once: each of them happens or does not, and says which.
    let calls: Vec<_> = (1..50)
        .map(|more| {
            let (store, task) = (Arc::clone(&store), large(number + more));
            tokio::spawn(async move { (store.create(task.clone(), None).await, task) })
        })
        .collect();
    let mut refused = Vec::new();
    for call in calls {
        match call.await.unwrap() {
            (Ok(_), task) => acknowledged.push(task),
            (Err(error), task) => {
                assert!(unavailable(&error), "{error}");
                refused.push(task);
            }
        }
    }
    assert!(!refused.is_empty());
    for task in &refused {
        assert!(store.get(*task.id(), owner("alice")).await.unwrap().is_none());
    }
    assert_there(&store, &acknowledged).await;

    relieve();
    let recovered = async {
        while store.health() != Health::Ok {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), recovered).await.expect("health comes back");
    store.apply(*small.id(), Authority::Engine, complete(), at(1)).await.unwrap();
    acknowledged.push(completed(&small, &result, 1));
    for task in refused.drain(..5) {
        store.create(task.clone(), None).await.unwrap();
        acknowledged.push(task);
    }
    assert_there(&store, &acknowledged).await;
    store.close().await;
    // A failure that the kernel has told nobody of yet is told once, to whoever syncs the file next:
    // the database, its log and their folder.
    let mut told = 0;
    let store = loop {
        match open(path) {
            Err(OpenError::Sqlite { .. }) if told < 3 => told += 1,
            opened => break opened.unwrap(),
        }
    };
    assert_there(&store, &acknowledged).await;
    for task in refused {
        assert!(store.get(*task.id(), owner("alice")).await.unwrap().is_none());
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full() {
    on_a_small_disk("a_disk_that_is_full", "24m", async |disk: PathBuf| {
        let ballast = disk.join("ballast");
        fs::write(&ballast, vec![b'b'; 20 << 20]).unwrap();
        let relieve = || fs::remove_file(&ballast).unwrap();
        fill_up_and_go_on(&disk.join("abide.db"), "the disk is full", relieve).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_grow() {
    if let Some(folder) = child_folder() {
        let relieve = || {
            use rustix::process::{Resource, getrlimit, setrlimit};
            let mut limit = getrlimit(Resource::Fsize);
            limit.current = limit.maximum;
            setrlimit(Resource::Fsize, limit).unwrap();
        };
        let problem = "reading or writing the database failed";
        fill_up_and_go_on(&folder.join("abide.db"), problem, relieve).await;
        return say("done");
    }
    let folder = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    // Without the trap the signal would end the process before the write could fail.
    let script = r#"trap "" XFSZ; ulimit -S -f 2048; exec "$0" "$@""#;
    let output = child(&["sh", "-c", script], &exe, "a_file_that_cannot_grow", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("done"), "{said}\n{errors}");
}

/// A disk that is full already at the opening: a clear word, and no harm.
#[tokio::test]
async fn opening_on_a_full_disk() {
    on_a_small_disk("opening_on_a_full_disk", "2m", async |disk: PathBuf| {
        let (new, old) = (disk.join("new.db"), disk.join("old.db"));
        let store = open(&old).unwrap();
        let task = working(1, 0);
        store.create(task.clone(), None).await.unwrap();
        store.close().await;
        let ballast = disk.join("ballast");
        fill(&ballast);
        let before = fs::read(&old).unwrap();
        for path in [&new, &old] {
            let error = open(path).expect_err("there is no room");
            assert!(matches!(error, OpenError::DiskFull { .. }), "{error:?}");
            let message = error.to_string();
            assert!(message.contains(path.to_str().unwrap()), "{message}");
            assert!(message.contains("free some space"), "{message}");
        }
        assert_eq!(fs::read(&old).unwrap(), before);
        fs::remove_file(&ballast).unwrap();
        open(&new).unwrap().close().await;
        let store = open(&old).unwrap();
        assert_there(&store, &[task]).await;
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_disk_that_is_read_only() {
    on_a_small_disk("a_disk_that_is_read_only", "2m", async |disk: PathBuf| {
        let path = disk.join("abide.db");
        open(&path).unwrap().close().await;
        assert!(run(&["mount", "-o", "remount,ro"], Some(&disk)));
        for path in [&path, &disk.join("new.db")] {
            let error = open(path).expect_err("it can't be written");
            assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            assert!(error.to_string().contains("read-only"), "{error}");
        }
        assert!(run(&["mount", "-o", "remount,rw"], Some(&disk)));
        open(&path).unwrap().close().await;
    })
    .await;
}

/// As a user who owns none of it.
#[tokio::test]
async fn files_and_folders_of_somebody_else() {
    if let Some(folder) = child_folder() {
        // The folder, the mode and the file that is named, in this order of what is tried.
        for (path, named) in [
            ("closed/abide.db", "closed/abide.db"),
            ("sealed/abide.db", "sealed/abide.db.lock"),
            ("shared/abide.db", "shared/abide.db"),
            ("shared/readable.db", "shared/readable.db"),
        ] {
            let error = open(&folder.join(path)).expect_err("it is somebody else's");
            assert!(matches!(error, OpenError::Denied { .. }), "{path}: {error:?}");
            let message = error.to_string();
            assert!(message.contains(folder.join(named).to_str().unwrap()), "{message}");
            assert!(message.contains("no permission"), "{message}");
        }
        return say("done");
    }
    let folder = tempfile::tempdir().unwrap();
    let set_mode = |name: &str, mode| {
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["closed", "sealed", "shared"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    for name in ["shared/abide.db", "shared/readable.db"] {
        open(&folder.path().join(name)).unwrap().close().await;
        fs::remove_file(folder.path().join(format!("{name}.lock"))).unwrap();
    }
    set_mode("shared/abide.db", 0o000);
    set_mode("shared/readable.db", 0o444);
    set_mode("shared", 0o777);
    set_mode("sealed", 0o555);
    set_mode("closed", 0o000);
    set_mode("", 0o755);

    // Root may do everything, so the child becomes nobody, who must be able to run it.
    let mut exe = std::env::current_exe().unwrap();
    let root = rustix::process::geteuid().is_root();
    if root {
        let copy = folder.path().join("test");
        fs::copy(&exe, &copy).unwrap();
        exe = copy;
    }
    let mut command = child(&[], &exe, "files_and_folders_of_somebody_else", folder.path());
    if root {
        command.uid(NOBODY).gid(NOBODY);
        chown(folder.path(), Some(0), Some(0)).unwrap();
    }
    let output = command.current_dir("/").output().unwrap();
    for name in ["closed", "sealed"] {
        set_mode(name, 0o755);
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("done"), "{said}\n{errors}");
}

/// Nothing can take the place of a damaged database on a disk that is full or read-only, so it stays
/// where it is.
#[tokio::test]
async fn damage_where_nothing_can_be_written() {
    on_a_small_disk("damage_where_nothing_can_be_written", "2m", async |disk: PathBuf| {
        let path = disk.join("abide.db");
        open(&path).unwrap().close().await;
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - 4096;
        bytes[end..].fill(0xa5);
        fs::write(&path, &bytes).unwrap();
        let files = || {
            let entries = fs::read_dir(&disk).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
            // On a full disk SQLite does not get to removing them.
            let empty = |name: &str| fs::metadata(disk.join(name)).unwrap().len() == 0;
            names.retain(|name| !(name.ends_with("-shm") || name.ends_with("-wal") && empty(name)));
            names.sort();
            names
        };
        let anew = || {
            let damaged = SetAside { now: at(0), companions: &[] };
            SqliteStore::open_or_set_aside(&path, Options::default(), damaged)
        };

        fill(&disk.join("ballast"));
        let error = anew().expect_err("there is no room for another");
        assert!(matches!(error, OpenError::DiskFull { .. }), "{error:?}");
        assert_eq!(files(), ["abide.db", "abide.db.lock", "ballast"]);
        assert!(run(&["mount", "-o", "remount,ro"], Some(&disk)));
        let error = anew().expect_err("nothing can be written");
        assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
        assert_eq!(files(), ["abide.db", "abide.db.lock", "ballast"]);
        assert_eq!(fs::read(&path).unwrap(), bytes);

        assert!(run(&["mount", "-o", "remount,rw"], Some(&disk)));
        fs::remove_file(disk.join("ballast")).unwrap();
        anew().unwrap().close().await;
        assert_eq!(files().len(), 3, "{:?}", files());
    })
    .await;
}

/// A backup that finds no room leaves no file, neither of its own name nor of another.
#[tokio::test]
async fn a_backup_onto_a_full_disk() {
    on_a_small_disk("a_backup_onto_a_full_disk", "2m", async |disk: PathBuf| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        let store = open(&path).unwrap();
        for number in 0..60 {
            store.create(large(number), None).await.unwrap();
        }
        let to = disk.join("copy.db");
        let Err(error) = backup(&path, &to) else { panic!("2.4 MB do not fit into 2 MB") };
        assert_eq!(error.to_string(), OpenError::DiskFull { path: to }.to_string());
        assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
        assert_eq!(store.health(), Health::Ok);
        store.close().await;
    })
    .await;
}

/// A device that fails: a file system on a loop device whose own file finds no space, so that syncs
/// end in real input/output errors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_fails() {
    on_a_small_disk("a_device_that_fails", "64m", async |disk: PathBuf| {
        let (image, device) = (disk.join("image"), disk.join("device"));
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir(&device).unwrap();
        let image = image.to_str().unwrap();
        let mounted = run(&["mkfs.ext2", "-q", image], None)
            && run(&["mount", "-o", "loop,errors=continue", image], Some(&device));
        if !mounted {
            return say(
                "*** a_device_that_fails DID NOT RUN: no loop device may be mounted here ***",
            );
        }
        let ballast = disk.join("ballast");
        fs::write(&ballast, vec![b'b'; 54 << 20]).unwrap();
        let relieve = || fs::remove_file(&ballast).unwrap();
        let problem = "reading or writing the database failed";
        fill_up_and_go_on(&device.join("abide.db"), problem, relieve).await;
        assert!(run(&["umount"], Some(&device)));
    })
    .await;
}
