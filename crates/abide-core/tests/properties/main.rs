//! What holds for a task whatever happens to it, in whatever order, on whatever clock.

mod checks;
#[path = "../common/mod.rs"]
mod common;
mod records;
mod steps;

use abide_core::{Record, Task};
use common::{at, next};
use proptest::prelude::*;
use steps::Step;

fn check_round_trip(task: &Task) {
    let record = Record::from(task);
    let read = Task::try_from(record.clone()).expect("what was written can be read");
    assert_eq!(&read, task);
    assert_eq!(Record::from(&read), record);
}

/// Runs the steps and hands every task on the way to `visit`.
fn run(created: Task, steps: &[Step], mut visit: impl FnMut(&Task)) -> Task {
    let mut task = created;
    let mut now = task.created_at();
    visit(&task);
    for step in steps {
        now = at(now.as_millis().saturating_add(step.jump_ms));
        let command = steps::command(&task, step);
        let result = task.apply(command.clone(), now);
        checks::check_step(&task, &command, now, &result);
        task = next(&task, &result);
        visit(&task);
    }
    task
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn no_sequence_of_commands_breaks_a_rule(
        created in steps::created(),
        steps in prop::collection::vec(steps::step(), 0..40),
    ) {
        assert_eq!(created.version(), 1);
        assert_ne!(created.ttl_ms(), Some(0), "the wire allows no zero");
        run(created, &steps, check_round_trip);
    }
}
