//! The one way a task changes: (task, command, now) → (task, effects), or a refusal.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::{Command, Effect, Refusal, Transition};
use crate::error::RpcError;
use crate::id::{Fence, InputKey, WorkerId};
use crate::json::RawJson;
use crate::limits;
use crate::state::{Outstanding, Settled, SettledAs, State, WhyStopping};
use crate::task::{OnRestart, Task, queue_message};
use crate::time::Timestamp;

impl Task {
    /// Applies `command` at `now`.
    ///
    /// # Errors
    /// A [`Refusal`], which leaves the task as it was.
    pub fn apply(&self, command: Command, now: Timestamp) -> Result<Transition, Refusal> {
        match command {
            Command::Answer { responses } => self.answer(responses, now),
            Command::Cancel => Ok(self.cancel(now)),
            Command::Claim { worker } => {
                if !matches!(self.state, State::Queued) {
                    return Err(Refusal::NotQueued);
                }
                let mut next = self.clone();
                next.begin(worker, now);
                let deadline = next.deadline();
                Ok(next.changed(now, vec![Effect::Start, Effect::Deadline(deadline)]))
            }
            Command::Position { ahead } => {
                if !matches!(self.state, State::Queued) {
                    return Err(Refusal::NotQueued);
                }
                Ok(self.with_message(queue_message(ahead), now))
            }
            Command::Extend => Ok(self.extend(now)),
            Command::Say { fence, message } => {
                self.check(fence)?;
                Ok(self.with_message(limits::bounded_message(&message), now))
            }
            Command::Ask { fence, key, request } => {
                self.check(fence)?;
                self.ask(key, request, now)
            }
            Command::Withdraw { fence, key } => {
                self.check(fence)?;
                Ok(self.settle(vec![(key, SettledAs::Withdrawn)], Vec::new(), now))
            }
            Command::Complete { fence, result } => {
                self.check(fence)?;
                bounded("the result", result.len(), limits::MAX_RESULT_BYTES)?;
                Ok(self.end(State::Completed { result }, None, now))
            }
            Command::Fail { fence, error } => {
                self.check(fence)?;
                let message = limits::bounded_message(&error.message);
                Ok(self.end(State::Failed { error }, Some(message), now))
            }
            Command::Begin { fence } => {
                self.check(fence)?;
                Ok(self.begin_now(now))
            }
            Command::TakeOver { from, worker } => {
                self.check(from)?;
                Ok(self.take_over(worker, now))
            }
            Command::Requeue { fence, error } => {
                self.check(fence)?;
                self.requeue(error, now)
            }
            Command::Stopped { fence } => {
                self.check(fence)?;
                self.stopped(now)
            }
            Command::TimeUp { fence } => {
                self.check(fence)?;
                Ok(match &self.state {
                    State::Working { deadline: Some(deadline), .. } if *deadline <= now => {
                        let message = "Took longer than its timeout; being stopped.".to_owned();
                        self.stop(WhyStopping::Timeout, message, now)
                    }
                    _ => Transition::Unchanged { effects: Vec::new() },
                })
            }
        }
    }

    /// Refuses what comes for an ended task, or from a worker that is not the task's any more.
    fn check(&self, held: Fence) -> Result<(), Refusal> {
        if self.status().is_terminal() {
            return Err(Refusal::Ended(self.status()));
        }
        let stale = held != self.fence && !cfg!(feature = "broken-fencing");
        if stale || self.state.worker().is_none() {
            return Err(Refusal::StaleFence { held, current: self.fence });
        }
        Ok(())
    }

    fn answer(
        &self,
        responses: Vec<(InputKey, RawJson)>,
        now: Timestamp,
    ) -> Result<Transition, Refusal> {
        let mut open: BTreeSet<&InputKey> = match &self.state {
            State::InputRequired { outstanding, .. } => outstanding.as_map().keys().collect(),
            _ => BTreeSet::new(),
        };
        let mut settled = Vec::new();
        let mut effects = Vec::new();
        let mut ignored = Vec::new();
        for (key, response) in responses {
            // Of two responses under one key the first counts; then the key is not open any more.
            if open.remove(&key) {
                bounded("an input response", response.len(), limits::MAX_INPUT_BYTES)?;
                effects.push(Effect::Deliver(key.clone(), response.clone()));
                settled.push((key, SettledAs::Answered(response)));
            } else {
                ignored.push(key);
            }
        }
        if !ignored.is_empty() {
            effects.push(Effect::Ignored(ignored));
        }
        Ok(self.settle(settled, effects, now))
    }

    fn cancel(&self, now: Timestamp) -> Transition {
        match &self.state {
            State::Queued => {
                self.end(State::Cancelled, Some("Cancelled before it started.".to_owned()), now)
            }
            State::Working { .. } | State::InputRequired { .. } => {
                self.stop(WhyStopping::Cancel, "Cancelled; being stopped.".to_owned(), now)
            }
            State::Stopping { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled => Transition::Unchanged { effects: Vec::new() },
        }
    }

    fn stop(&self, why: WhyStopping, message: String, now: Timestamp) -> Transition {
        let mut next = self.clone();
        next.withdraw_all();
        let Some(worker) = next.state.worker().cloned() else {
            return Transition::Unchanged { effects: Vec::new() };
        };
        next.state = State::Stopping { worker, why, since: now };
        next.status_message = Some(message);
        next.promise(now);
        next.changed(now, vec![Effect::Stop(why), Effect::Deadline(None)])
    }

    /// The clock of working work begins again at zero.
    fn begin_now(&self, now: Timestamp) -> Transition {
        let mut next = self.clone();
        let State::Working { deadline, .. } = &mut next.state else {
            return Transition::Unchanged { effects: Vec::new() };
        };
        let fresh = self.policy.timeout_ms.map(|timeout| now.plus_millis(timeout));
        if *deadline == fresh {
            return Transition::Unchanged { effects: Vec::new() };
        }
        *deadline = fresh;
        next.promise(fresh.unwrap_or(now));
        next.changed(now, vec![Effect::Deadline(fresh)])
    }

    /// The same work under another worker: only the claim changes.
    fn take_over(&self, by: WorkerId, now: Timestamp) -> Transition {
        let mut next = self.clone();
        next.fence = next.fence.next();
        match &mut next.state {
            State::Working { worker, .. }
            | State::InputRequired { worker, .. }
            | State::Stopping { worker, .. } => *worker = by,
            _ => {}
        }
        next.changed(now, Vec::new())
    }

    fn requeue(&self, error: RpcError, now: Timestamp) -> Result<Transition, Refusal> {
        if matches!(self.state, State::Stopping { .. }) {
            return Err(Refusal::Stopping);
        }
        let max = match self.policy.on_restart {
            OnRestart::Rerun { max_attempts } => max_attempts,
            OnRestart::Reattach | OnRestart::Fail => 0,
        };
        if self.attempts >= max {
            let message = limits::bounded_message(&error.message);
            return Ok(self.end(State::Failed { error }, Some(message), now));
        }
        let mut next = self.clone();
        next.withdraw_all();
        next.state = State::Queued;
        next.status_message = Some(format!(
            "Interrupted; queued to run again (attempt {} of {max}).",
            self.attempts.saturating_add(1)
        ));
        next.promise(now);
        Ok(next.changed(now, vec![Effect::Deadline(None), Effect::Requeued]))
    }

    fn stopped(&self, now: Timestamp) -> Result<Transition, Refusal> {
        let State::Stopping { why, .. } = &self.state else {
            return Err(Refusal::NotStopping);
        };
        Ok(match why {
            WhyStopping::Cancel => self.end(State::Cancelled, Some("Cancelled.".to_owned()), now),
            WhyStopping::Timeout => {
                let limit = self.policy.timeout_ms.unwrap_or_default();
                let message = format!(
                    "The work took longer than its timeout of {} and was stopped.",
                    human_millis(limit)
                );
                let error = RpcError::internal("timeout", message.clone());
                self.end(State::Failed { error }, Some(message), now)
            }
        })
    }

    fn ask(&self, key: InputKey, request: RawJson, now: Timestamp) -> Result<Transition, Refusal> {
        bounded("an input request", request.len(), limits::MAX_INPUT_BYTES)?;
        if let (State::Working { .. } | State::InputRequired { .. }, Some(settled)) =
            (&self.state, self.settled.get(&key))
            && let SettledAs::Answered(response) = &settled.by
            && settled.request == request
        {
            // An earlier attempt asked the same, and has its answer.
            let deliver = Effect::Deliver(key, response.clone());
            return Ok(Transition::Unchanged { effects: vec![deliver] });
        }
        let mut next = self.clone();
        let open = match &next.state {
            State::InputRequired { outstanding, .. } => outstanding.as_map().len(),
            _ => 0,
        };
        if let State::InputRequired { outstanding, .. } = &next.state
            && outstanding.as_map().get(&key) == Some(&request)
        {
            // Somebody waits for the answer already; now one more does.
            return Ok(Transition::Unchanged { effects: Vec::new() });
        }
        let used = next.settled.contains_key(&key)
            || matches!(&next.state, State::InputRequired { outstanding, .. }
                if outstanding.as_map().contains_key(&key));
        if used {
            return Err(Refusal::KeyUsed(key));
        }
        if next.settled.len() + open >= limits::MAX_INPUTS_PER_TASK {
            return Err(Refusal::TooManyInputs);
        }
        next.state = match next.state {
            State::Working { worker, deadline } => State::InputRequired {
                worker,
                outstanding: Outstanding::one(key, request),
                time_left_ms: deadline.map(|deadline| deadline.millis_since(now)),
            },
            State::InputRequired { worker, mut outstanding, time_left_ms } => {
                outstanding.insert(key, request);
                State::InputRequired { worker, outstanding, time_left_ms }
            }
            _ => return Err(Refusal::Stopping),
        };
        Ok(next.changed(now, vec![Effect::Deadline(None)]))
    }

    /// Closes open requests; when none is left, the work and its clock go on.
    fn settle(
        &self,
        closing: Vec<(InputKey, SettledAs)>,
        mut effects: Vec<Effect>,
        now: Timestamp,
    ) -> Transition {
        let State::InputRequired { worker, outstanding, time_left_ms } = &self.state else {
            return Transition::Unchanged { effects };
        };
        let mut open = outstanding.as_map().clone();
        let mut settled = self.settled.clone();
        for (key, by) in closing {
            if let Some(request) = open.remove(&key) {
                settled.insert(key, Settled { request, by });
            }
        }
        if open.len() == outstanding.as_map().len() {
            return Transition::Unchanged { effects };
        }
        let mut next = self.clone();
        next.settled = settled;
        let worker = worker.clone();
        next.state = match Outstanding::from_map(open) {
            Some(outstanding) => {
                State::InputRequired { worker, outstanding, time_left_ms: *time_left_ms }
            }
            None => {
                let deadline = time_left_ms.map(|left| now.plus_millis(left));
                next.promise(deadline.unwrap_or(now));
                effects.push(Effect::Deadline(deadline));
                State::Working { worker, deadline }
            }
        };
        next.changed(now, effects)
    }

    fn extend(&self, now: Timestamp) -> Transition {
        let mut next = self.clone();
        if !self.status().is_terminal() {
            let more = self.policy.timeout_ms.unwrap_or(0).max(1);
            next.promise(now.plus_millis(more));
        }
        if next.ttl_ms == self.ttl_ms {
            return Transition::Unchanged { effects: Vec::new() };
        }
        next.changed(now, Vec::new())
    }

    fn with_message(&self, message: String, now: Timestamp) -> Transition {
        if self.status_message.as_deref() == Some(&message) {
            return Transition::Unchanged { effects: Vec::new() };
        }
        let mut next = self.clone();
        next.status_message = Some(message);
        next.changed(now, Vec::new())
    }

    fn end(&self, state: State, message: Option<String>, now: Timestamp) -> Transition {
        let mut next = self.clone();
        next.withdraw_all();
        next.state = state;
        next.status_message = message;
        // A clock that went back must not make the retention begin before the task ended.
        next.promise(now.max(self.last_updated_at));
        let status = next.status();
        next.changed(now, vec![Effect::Deadline(None), Effect::Ended(status)])
    }

    fn withdraw_all(&mut self) {
        if let State::InputRequired { outstanding, .. } = &self.state {
            let open: BTreeMap<_, _> = outstanding.as_map().clone();
            self.settled.extend(
                open.into_iter()
                    .map(|(key, request)| (key, Settled { request, by: SettledAs::Withdrawn })),
            );
        }
    }

    /// Stamps a change. Time on a task never runs backwards, whatever the clock does.
    fn changed(mut self, now: Timestamp, effects: Vec<Effect>) -> Transition {
        self.version += 1;
        self.last_updated_at = self.last_updated_at.max(now);
        Transition::Changed { task: Box::new(self), effects }
    }
}

fn bounded(what: &'static str, size: usize, max: usize) -> Result<(), Refusal> {
    if size > max { Err(Refusal::TooLarge { what, size, max }) } else { Ok(()) }
}

/// A duration as people write it: `2h`, `90s`, `1500ms`.
fn human_millis(millis: u64) -> String {
    match millis {
        0 => "0s".to_owned(),
        m if m % 3_600_000 == 0 => format!("{}h", m / 3_600_000),
        m if m % 60_000 == 0 => format!("{}m", m / 60_000),
        m if m % 1_000 == 0 => format!("{}s", m / 1_000),
        m => format!("{m}ms"),
    }
}
