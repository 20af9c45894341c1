//! The SQLite store keeps what every store promises.

use std::sync::Arc;

use abide_core::{BoxFuture, Store};
use abide_store::sqlite::{Options, SqliteStore};
use abide_store::suite::{Database, Factory, run_all};
use tempfile::TempDir;

struct Files(Options);

struct OneFile {
    folder: TempDir,
    options: Options,
}

impl Factory for Files {
    fn fresh(&self) -> BoxFuture<'_, Box<dyn Database>> {
        let folder = tempfile::tempdir().unwrap();
        let database: Box<dyn Database> = Box::new(OneFile { folder, options: self.0 });
        Box::pin(async { database })
    }
}

impl Database for OneFile {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let store: Arc<dyn Store> = Arc::new(
            SqliteStore::open(&self.folder.path().join("abide.db"), self.options).unwrap(),
        );
        Box::pin(async { store })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_the_usual_options() {
    run_all(&Files(Options::default())).await;
}

/// Every queue and batch as small as it gets, and a checkpoint after each commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_the_smallest_options() {
    let options = Options { readers: 0, queue: 0, batch: 0, batch_bytes: 0, checkpoint_pages: 0 };
    run_all(&Files(options)).await;
}

/// On one thread, as an embedder might run it.
#[tokio::test(flavor = "current_thread")]
async fn on_a_single_threaded_runtime() {
    run_all(&Files(Options::default())).await;
}
