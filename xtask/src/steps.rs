//! Everything that CI runs, step by step, with a table of what it took.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::run::{cargo, show, show_and_keep};
use crate::tools::{CC, CLIPPY, CURL, GIT, NPM, RUSTFMT, Tool, has_nextest};
use crate::{conformance, examples, generated, tidy, torture};

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only this step; may be given more than once.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Print the steps and stop.
    #[arg(long)]
    list: bool,
    /// Run the other steps too after one has failed.
    #[arg(long)]
    keep_going: bool,
}

struct Step {
    name: &'static str,
    about: &'static str,
    needs: &'static [Tool],
    /// Does it, and hands back the lines that sum it up.
    run: fn() -> Result<Vec<String>>,
}

const STEPS: &[Step] = &[
    Step { name: "tidy", about: "the house rules", needs: &[GIT], run: tidy::run },
    Step { name: "fmt", about: "formatting of the Rust code", needs: &[RUSTFMT], run: fmt },
    Step { name: "clippy", about: "lints, warnings refused", needs: &[CLIPPY, CC], run: clippy },
    Step { name: "build", about: "the binaries", needs: &[CC], run: build },
    Step {
        name: "tests",
        about: "unit, integration and doc tests",
        needs: &[CC, CURL],
        run: tests,
    },
    Step {
        name: "generated",
        about: "checked-in references against the code",
        needs: &[CC],
        run: generated::check,
    },
    Step {
        name: "conformance",
        about: "the official MCP suite against the fixture server",
        needs: &[CC, NPM],
        run: || conformance::run(&conformance::Options::default()),
    },
    Step {
        name: "torture",
        about: "a short run of kills under load",
        needs: &[CC],
        run: short_torture,
    },
    Step { name: "examples", about: "the example configs", needs: &[CC], run: examples::check },
];

fn fmt() -> Result<Vec<String>> {
    show(&mut cargo(&["fmt", "--all", "--check"]))?;
    Ok(Vec::new())
}

fn clippy() -> Result<Vec<String>> {
    show(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    Ok(Vec::new())
}

fn build() -> Result<Vec<String>> {
    show(&mut cargo(&["build", "--workspace", "--bins"]))?;
    Ok(Vec::new())
}

fn tests() -> Result<Vec<String>> {
    let runner: &[&str] = if has_nextest() { &["nextest", "run"] } else { &["test", "--tests"] };
    let mut closing =
        show_and_keep(cargo(runner).arg("--workspace").arg("--no-fail-fast"), is_closing)?;
    closing.extend(show_and_keep(&mut cargo(&["test", "--doc", "--workspace"]), is_closing)?);
    Ok(closing)
}

fn short_torture() -> Result<Vec<String>> {
    // Only builds for the torture run have the disk that forgets.
    let disk = ["test", "-p", "abide-store", "--lib", "--features", "torture", "power_cut"];
    let mut closing = show_and_keep(&mut cargo(&disk), is_closing)?;
    closing.extend(torture::run(&torture::Options::short())?);
    Ok(closing)
}

/// Whether a test runner sums up in this line; runs without any test are left out.
fn is_closing(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("Summary [")
        || (line.starts_with("test result:") && !line.contains(" 0 passed; 0 failed; 0 ignored"))
}

/// Runs the chosen steps and prints the table.
///
/// # Errors
/// A step failed, or there is no step of a name.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        for step in STEPS {
            println!("{:<12} {}", step.name, step.about);
        }
        return Ok(());
    }
    if let Some(name) = options.only.iter().find(|name| STEPS.iter().all(|s| s.name != **name)) {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        bail!("there is no step `{name}`; hint: the steps are {}", names.join(", "));
    }
    let chosen = STEPS
        .iter()
        .filter(|step| options.only.is_empty() || options.only.iter().any(|n| n == step.name));
    let mut rows = Vec::new();
    let mut failed: Vec<&str> = Vec::new();
    for step in chosen {
        if !failed.is_empty() && !options.keep_going {
            rows.push(Row { name: step.name, result: "not run", took: None, closing: Vec::new() });
            continue;
        }
        println!("\n== {}: {}", step.name, step.about);
        let began = Instant::now();
        let done = step.needs.iter().try_for_each(Tool::require).and_then(|()| (step.run)());
        let took = Some(began.elapsed());
        match done {
            Ok(closing) => rows.push(Row { name: step.name, result: "ok", took, closing }),
            Err(error) => {
                println!("{} failed: {error:#}", step.name);
                failed.push(step.name);
                rows.push(Row { name: step.name, result: "FAILED", took, closing: Vec::new() });
            }
        }
    }
    println!("\n== summary\n{}", table(&rows));
    if !failed.is_empty() {
        bail!(
            "failed: {}; hint: run one step again with `cargo xtask test --only {}`",
            failed.join(", "),
            failed[0]
        );
    }
    Ok(())
}

struct Row {
    name: &'static str,
    result: &'static str,
    took: Option<Duration>,
    closing: Vec<String>,
}

fn table(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    for Row { name, result, took, closing } in rows {
        let took = took.map_or_else(String::new, |took| format!("{:.1}s", took.as_secs_f64()));
        lines.push(format!("{name:<12} {result:<8} {took:>8}").trim_end().to_owned());
        lines.extend(closing.iter().map(|line| format!("             {line}")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_results_times_and_closing_lines() {
        let took = Some(Duration::from_millis(1_250));
        let closing = vec!["Summary [1.2s] 3 tests run: 3 passed".to_owned()];
        let rows = [
            Row { name: "tests", result: "ok", took, closing },
            Row { name: "examples", result: "not run", took: None, closing: Vec::new() },
        ];
        assert_eq!(
            table(&rows),
            "tests        ok           1.2s\n             Summary [1.2s] 3 tests run: 3 passed\n\
             examples     not run"
        );
    }

    #[test]
    fn closing_lines_are_recognised() {
        for (line, closing) in [
            ("     Summary [   1.234s] 12 tests run: 12 passed, 0 skipped", true),
            ("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured", true),
            ("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured", false),
            ("test summary ... ok", false),
        ] {
            assert_eq!(is_closing(line), closing, "{line}");
        }
    }

    #[test]
    fn steps_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
    }
}
