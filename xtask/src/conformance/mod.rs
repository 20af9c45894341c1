//! The official MCP conformance suite against the fixture server.
//!
//! The suite's own exit codes are not trusted: task scenarios are "not scored" there, warnings
//! never fail, and a dead server still gets a SUCCESS in most scenarios. What counts is what it
//! wrote down, judged in [`verdict`].

mod excused;
mod results;
mod server;
mod suite;
mod verdict;

use std::fs;

use anyhow::{Result, bail};

use crate::run::root;
use excused::Excused;
use server::Server;
use suite::Suite;

/// Options of `cargo xtask conformance`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Run only the scenarios whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Test a server that runs already, instead of the fixture server. The suite wants it on
    /// localhost.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

/// The scenarios of the Tasks extension. The suite never scores them, so they are named here.
const TASKS: &[&str] = &[
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
];

/// Installs the suite, starts the server, runs the scenarios and judges them.
///
/// # Errors
/// The suite or the server can't be had, or the verdict has a problem.
pub(crate) fn run(options: &Options) -> Result<Vec<String>> {
    let excused = Excused::load(&root().join("xtask/conformance/excused.toml"))?;
    let suite = Suite::install()?;
    let all = suite.scenarios()?;
    for name in TASKS {
        if !all.iter().any(|scenario| scenario == name) {
            bail!("the suite has no scenario {name} any more; hint: compare TASKS with its list");
        }
    }
    let wanted = |name: &str| options.filter.as_deref().is_none_or(|part| name.contains(part));
    let chosen: Vec<String> = all.iter().filter(|name| wanted(name)).cloned().collect();
    if chosen.is_empty() {
        bail!("no scenario contains {:?}; there are: {}", options.filter, all.join(", "));
    }

    let mut server = match &options.url {
        Some(url) => Server::running(url),
        None => Server::start(&suite.folder().join("server.log"))?,
    };
    let out = suite.folder().join("results");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let tasks = chosen.iter().filter(|name| TASKS.contains(&name.as_str()));
    for scenario in tasks {
        suite.run_one(server.url(), scenario, &out.join("tasks"))?;
    }
    if options.filter.is_none() {
        suite.run_required(server.url(), &out.join("required"))?;
    } else {
        for scenario in chosen.iter().filter(|name| !TASKS.contains(&name.as_str())) {
            suite.run_one(server.url(), scenario, &out.join("required"))?;
        }
    }
    let still_there = server.check();
    drop(server);
    still_there?;

    let mut tasks = results::read(&out.join("tasks"))?;
    let required = results::read(&out.join("required"))?;
    // The second run of the task scenarios is held to the same, but not counted twice.
    let mut problems = Vec::new();
    for (name, checks) in required {
        if let Some(first) = tasks.get(&name) {
            let twice = [(name.clone(), checks.clone())].into();
            problems.extend(verdict::failures(&twice, &excused));
            verdict::same_checks(&name, first, &checks, &mut problems);
        } else {
            tasks.insert(name, checks);
        }
    }
    let results = tasks;
    problems.extend(verdict::judge(&results, &chosen, &excused));
    let lines = verdict::count(&results, &excused);
    for problem in &problems {
        println!("{problem}");
    }
    for line in &lines {
        println!("{line}");
    }
    if !problems.is_empty() {
        bail!(
            "{} problems; hint: what the suite wrote is in target/conformance/results, what the \
             server wrote in target/conformance/server.log; run one scenario with `cargo xtask \
             conformance --filter NAME`",
            problems.len()
        );
    }
    Ok(lines)
}
