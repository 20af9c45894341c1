//! Judging what the suite wrote down.

use std::collections::BTreeMap;

use super::TASKS;
use super::excused::Excused;
use super::results::{Check, Results, Status};

/// A check that the suite adds to every scenario and that passes without a server, since it counts
/// the suite's own messages too.
const WIRE_CHECK: &str = "wire-schema-valid";
/// A scenario in which the suite has nothing to say yet: one check, skipped.
const EMPTY_SCENARIO: &str = "tasks-status-notifications";

/// Everything that is wrong with the results of a run of `scenarios`.
pub(super) fn judge(results: &Results, scenarios: &[String], excused: &Excused) -> Vec<String> {
    let mut problems = failures(results, excused);
    for scenario in scenarios {
        match results.get(scenario) {
            None => problems.push(format!(
                "{scenario}: did not run; the suite left no checks, only its log in the results"
            )),
            Some(checks) => problems.extend(evidence(scenario, checks, excused)),
        }
    }
    problems.extend(stale(results, scenarios, excused));
    problems
}

/// Failures and warnings that nothing excuses.
pub(super) fn failures(results: &Results, excused: &Excused) -> Vec<String> {
    let mut problems = Vec::new();
    for (scenario, checks) in results {
        for check in checks.iter().filter(|check| check.status.is_bad()) {
            if !excused.covers(scenario, &check.id) {
                problems.push(describe(scenario, check));
            }
        }
    }
    problems
}

fn describe(scenario: &str, check: &Check) -> String {
    let Check { id, description, status, error } = check;
    let error = error.as_deref().unwrap_or("the suite gives no message");
    format!("{scenario}:{id}: {}: {description}\n    {error}", status.word())
}

/// A scenario proves something only if a check passed that needs an answer of the server.
fn evidence(scenario: &str, checks: &[Check], excused: &Excused) -> Option<String> {
    let proven =
        checks.iter().any(|check| check.status == Status::Success && check.id != WIRE_CHECK);
    let whole = excused.entries.iter().any(|entry| entry.parts() == (scenario, None));
    let empty = scenario == EMPTY_SCENARIO
        && checks.len() == 1
        && checks.iter().all(|check| check.status == Status::Skipped);
    (!proven && !whole && !empty)
        .then(|| format!("{scenario}: no check passed that needs an answer, so it proves nothing"))
}

/// Excuses that are not needed any more, or never were.
fn stale(results: &Results, scenarios: &[String], excused: &Excused) -> Vec<String> {
    let whole_run = TASKS.iter().all(|name| scenarios.iter().any(|s| s == name));
    let mut problems = Vec::new();
    for entry in &excused.entries {
        let (scenario, _) = entry.parts();
        let Some(checks) = results.get(scenario) else {
            // A run of some scenarios says nothing about the others.
            if whole_run {
                problems.push(format!("{}: excused, but there is no such scenario", entry.name()));
            }
            continue;
        };
        if !checks.iter().any(|check| check.status.is_bad() && entry.covers(scenario, &check.id)) {
            problems.push(format!(
                "{}: excused, but it passes; hint: take it out of xtask/conformance/excused.toml",
                entry.name()
            ));
        }
    }
    problems
}

/// Two runs of one scenario make the same checks.
pub(super) fn same_checks(
    scenario: &str,
    one: &[Check],
    other: &[Check],
    problems: &mut Vec<String>,
) {
    let ids = |checks: &[Check]| {
        let mut ids: Vec<_> = checks.iter().map(|check| check.id.clone()).collect();
        ids.sort();
        ids
    };
    if ids(one) != ids(other) {
        problems.push(format!("{scenario}: made other checks when run a second time"));
    }
}

/// The counts, in all and for the task scenarios.
pub(super) fn count(results: &Results, excused: &Excused) -> Vec<String> {
    let line = |what, results: &mut dyn Iterator<Item = _>| line(what, results, excused);
    let mut lines = vec![line("conformance", &mut results.iter())];
    let tasks = || results.iter().filter(|(name, _)| TASKS.contains(&name.as_str()));
    if tasks().next().is_some() {
        lines.push(line("of these, tasks", &mut tasks()));
    }
    lines
}

fn line<'a>(
    what: &str,
    results: &mut dyn Iterator<Item = (&'a String, &'a Vec<Check>)>,
    excused: &Excused,
) -> String {
    let mut scenarios = 0;
    let mut excuses = 0;
    let mut counts: BTreeMap<Status, usize> = BTreeMap::new();
    for (scenario, checks) in results {
        scenarios += 1;
        for check in checks {
            if check.status.is_bad() && excused.covers(scenario, &check.id) {
                excuses += 1;
            }
            *counts.entry(check.status).or_default() += 1;
        }
    }
    let parts: Vec<_> = Status::ALL
        .iter()
        .filter_map(|status| Some(format!("{} {}", counts.get(status)?, status.word())))
        .collect();
    let total: usize = counts.values().sum();
    let mut line = format!("{what}: {scenarios} scenarios, {total} checks: {}", parts.join(", "));
    if excuses > 0 {
        line.push_str(&format!(" ({excuses} excused)"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(scenarios: &[(&str, &[(&str, Status)])]) -> Results {
        let check = |(id, status): &(&str, Status)| Check {
            id: (*id).to_owned(),
            description: "should hold".to_owned(),
            status: *status,
            error: (*status == Status::Failure).then(|| "it does not".to_owned()),
        };
        let one = |(name, checks): &(&str, &[(&str, Status)])| {
            ((*name).to_owned(), checks.iter().map(check).collect())
        };
        scenarios.iter().map(one).collect()
    }

    fn excused(entries: &[&str]) -> Excused {
        let entry = |what: &&str| format!("[[excused]]\nwhat = \"{what}\"\nreason = \"r\"\n");
        Excused::read(&entries.iter().map(entry).collect::<String>()).unwrap()
    }

    #[track_caller]
    fn check(scenarios: &[(&str, &[(&str, Status)])], excuses: &[&str], expected: &[&str]) {
        let names: Vec<_> = scenarios.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(judge(&results(scenarios), &names, &excused(excuses)), expected);
    }

    use Status::{Failure, Info, Skipped, Success, Warning};

    #[test]
    fn failures_and_warnings_count_unless_excused() {
        let run: &[(&str, &[(&str, Status)])] =
            &[("a", &[("x", Success), ("y", Failure), ("z", Warning), ("i", Info)])];
        let y = "a:y: FAILURE: should hold\n    it does not";
        let z = "a:z: WARNING: should hold\n    the suite gives no message";
        check(run, &[], &[y, z]);
        check(run, &["a:y"], &[z]);
        check(run, &["a:y", "a:z"], &[]);
        check(run, &["a"], &[]);
    }

    #[test]
    fn an_excuse_that_is_not_needed_is_a_problem() {
        let hint = "hint: take it out of xtask/conformance/excused.toml";
        let run: &[(&str, &[(&str, Status)])] = &[("a", &[("x", Success), ("y", Skipped)])];
        for name in ["a", "a:x", "a:y", "a:other"] {
            check(run, &[name], &[&format!("{name}: excused, but it passes; {hint}")]);
        }
        // Only a whole run can say that a scenario does not exist.
        check(run, &["b"], &[]);
        let whole: Vec<(&str, &[(&str, Status)])> =
            TASKS.iter().map(|name| (*name, &[("x", Success)][..])).collect();
        check(&whole, &["b"], &["b: excused, but there is no such scenario"]);
    }

    #[test]
    fn a_dead_server_proves_nothing() {
        let nothing =
            |name| format!("{name}: no check passed that needs an answer, so it proves nothing");
        check(&[("a", &[("wire-schema-valid", Success), ("y", Info)])], &[], &[&nothing("a")]);
        check(&[("a", &[])], &[], &[&nothing("a")]);
        check(&[("a", &[("y", Skipped)])], &[], &[&nothing("a")]);
        check(&[(EMPTY_SCENARIO, &[(EMPTY_SCENARIO, Skipped)])], &[], &[]);
        check(&[("a", &[("wire-schema-valid", Success), ("y", Success)])], &[], &[]);
    }

    #[test]
    fn a_scenario_that_left_nothing_is_a_problem() {
        let problems = judge(&Results::new(), &["a".to_owned()], &excused(&[]));
        assert_eq!(
            problems,
            ["a: did not run; the suite left no checks, only its log in the results"]
        );
    }

    #[test]
    fn a_second_run_makes_the_same_checks() {
        let runs = results(&[("a", &[("x", Success)]), ("b", &[("y", Success)])]);
        let mut problems = Vec::new();
        same_checks("a", &runs["a"], &runs["a"], &mut problems);
        assert!(problems.is_empty());
        same_checks("a", &runs["a"], &runs["b"], &mut problems);
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn counts_are_by_status_and_for_tasks() {
        let run = results(&[
            ("caching", &[("x", Success), ("y", Warning)]),
            ("tasks-lifecycle", &[("x", Success), ("y", Success)]),
        ]);
        assert_eq!(
            count(&run, &excused(&["caching"])),
            [
                "conformance: 2 scenarios, 4 checks: 3 SUCCESS, 1 WARNING (1 excused)",
                "of these, tasks: 1 scenarios, 2 checks: 2 SUCCESS",
            ]
        );
    }
}
