//! Gates that tools wait at, and what tests see of those who wait.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::within;

/// What happened at one gate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Gate {
    /// Calls that came.
    started: usize,
    /// Calls that may pass.
    passes: usize,
    /// Calls that were dropped while they waited.
    dropped: usize,
    /// What calls left here.
    notes: Vec<String>,
}

/// Gates by name. Clones are the same gates.
#[derive(Debug, Clone)]
pub(crate) struct Gates(Arc<watch::Sender<HashMap<String, Gate>>>);

impl Gates {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(HashMap::new())))
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Gate)) {
        self.0.send_modify(|gates| change(gates.entry(name.to_owned()).or_default()));
    }

    async fn wait(&self, what: &str, name: &str, mut holds: impl FnMut(&Gate) -> bool) {
        let mut gates = self.0.subscribe();
        within(&format!("{what} at gate {name}"), async {
            let _ =
                gates.wait_for(|gates| holds(gates.get(name).unwrap_or(&Gate::default()))).await;
        })
        .await;
    }

    /// A tool comes to a gate and waits until one pass is there for it.
    pub(crate) async fn enter(&self, name: &str) {
        let mut number = 0;
        self.change(name, |gate| {
            gate.started += 1;
            number = gate.started;
        });
        let mut leaving = Leaving(Some((self.clone(), name.to_owned())));
        let mut gates = self.0.subscribe();
        let _ = gates.wait_for(|gates| gates[name].passes >= number).await;
        leaving.0 = None;
    }

    /// A tool leaves something for the test.
    pub(crate) fn note(&self, name: &str, note: String) {
        self.change(name, |gate| gate.notes.push(note));
    }

    /// Lets one more call pass, the oldest first.
    pub(crate) fn open(&self, name: &str) {
        self.change(name, |gate| gate.passes += 1);
    }

    /// Waits until `count` calls have come.
    pub(crate) async fn started(&self, name: &str, count: usize) {
        self.wait(&format!("{count} calls"), name, |gate| gate.started >= count).await;
    }

    /// Waits until `count` calls were dropped while they waited.
    pub(crate) async fn dropped(&self, name: &str, count: usize) {
        self.wait(&format!("{count} drops"), name, |gate| gate.dropped >= count).await;
    }

    /// How many calls have come so far.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.0.borrow().get(name).map_or(0, |gate| gate.started)
    }

    /// How many calls were dropped so far.
    pub(crate) fn drops(&self, name: &str) -> usize {
        self.0.borrow().get(name).map_or(0, |gate| gate.dropped)
    }

    /// What calls left so far.
    pub(crate) fn notes(&self, name: &str) -> Vec<String> {
        self.0.borrow().get(name).map_or_else(Vec::new, |gate| gate.notes.clone())
    }
}

struct Leaving(Option<(Gates, String)>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some((gates, name)) = self.0.take() {
            gates.change(&name, |gate| gate.dropped += 1);
        }
    }
}
