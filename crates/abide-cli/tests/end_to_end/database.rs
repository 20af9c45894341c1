//! Databases that can't be used: the server does not start, says why in words, and leaves the
//! file as it is.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::common::{
    Declares, Ended, Folder, Server, abide, ended, handle, mount, on_a_small_disk, plain, text,
};

const TOOLS: &str = r#"
[tools.hello]
description = "d"
command = ["echo", "hello"]
inline = "0s"
"#;

/// Starts a server that can't start.
async fn refused(config: &Path, store: &Path) -> Ended {
    let store = format!("sqlite:{}", store.display());
    let mut command = abide(["serve"]);
    command.arg(config).args(["--store", &store]);
    let ended = ended(command).await;
    assert_eq!(ended.status.code(), Some(1), "{}", ended.logs);
    ended
}

/// Starts a server on a database, and makes it work.
async fn works(config: &Path, store: &Path) -> (Server, String) {
    let store = format!("sqlite:{}", store.display());
    let server = Server::start_with(config, &["--store", &store]).await;
    let id = handle(&server.http.call(Declares::Tasks, "hello", &json!({})).await);
    assert_eq!(text(&server.http.end_of(&id).await["result"]), "hello\n");
    (server, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_usable_database_is_left_as_it_is() {
    let folder = Folder::new("", TOOLS);
    let (server, _) = works(&folder.config(), &folder.database()).await;
    server.stop().await.well();
    let whole = fs::read(folder.database()).unwrap();
    assert!(whole.starts_with(b"SQLite format 3\0"));

    // Every page but the first is torn; the header still looks right.
    let mut torn = whole.clone();
    for byte in &mut torn[4096..] {
        *byte = !*byte;
    }
    fs::write(folder.path("torn.db"), &torn).unwrap();
    let mut first_page = whole.clone();
    first_page[100..200].fill(0xa5);
    fs::write(folder.path("first-page.db"), &first_page).unwrap();
    folder.write("notes.db", &"These are my notes, and no database. ".repeat(300));
    fs::create_dir(folder.path("a-folder.db")).unwrap();
    for (name, says) in [
        ("torn.db", "is damaged"),
        ("first-page.db", "is damaged"),
        ("notes.db", "is not a SQLite database; it was left as it is"),
        ("a-folder.db", "is not a file"),
        ("none/x.db", "does not exist; create it"),
    ] {
        let before = fs::read(folder.path(name)).ok();
        let Ended { logs, .. } = refused(&folder.config(), &folder.path(name)).await;
        assert!(logs.contains(says) && logs.contains("error: "), "{name}: {logs}");
        let named = name.trim_end_matches("/x.db");
        assert!(logs.contains(folder.path(named).to_str().unwrap()), "{name}: {logs}");
        assert!(fs::read(folder.path(name)).ok() == before, "{name} was changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_kept_out_by_name_and_disturbs_nobody() {
    let folder = Folder::new("", TOOLS);
    let (first, id) = works(&folder.config(), &folder.database()).await;
    let Ended { logs, .. } = refused(&folder.config(), &folder.database()).await;
    let holder = format!("is in use by another abide (process {})", first.pid());
    assert!(logs.contains(&holder), "{logs}");
    assert_eq!(first.http.get(&id).await["status"], "completed");
    let answer = first.http.call(Declares::Nothing, "hello", &json!({})).await;
    assert_eq!(text(plain(&answer)), "hello\n");
    first.stop().await.well();
    let (second, _) = works(&folder.config(), &folder.database()).await;
    assert_eq!(second.http.get(&id).await["status"], "completed");
    second.stop().await.well();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_can_only_be_read() {
    let test = "database::a_database_that_can_only_be_read";
    on_a_small_disk(test, "4m", async |disk| {
        let folder = Folder::new("", TOOLS);
        let database = disk.join("abide.db");
        let (server, id) = works(&folder.config(), &database).await;
        server.stop().await.well();
        assert!(mount(&["-o", "remount,ro"], &disk));
        for name in ["abide.db", "new.db"] {
            let Ended { logs, .. } = refused(&folder.config(), &disk.join(name)).await;
            assert!(logs.contains("is read-only; abide must be able to write"), "{logs}");
        }
        assert!(mount(&["-o", "remount,rw"], &disk));
        let (server, _) = works(&folder.config(), &database).await;
        assert_eq!(server.http.get(&id).await["status"], "completed");
        server.stop().await.well();
    })
    .await;
}
