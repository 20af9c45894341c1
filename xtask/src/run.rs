//! Starting other programs, from the root of the repository.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A program that starts in the root of the repository.
pub(crate) fn command(program: impl AsRef<OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// The cargo that runs this.
pub(crate) fn cargo(args: &[&str]) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args)
}

/// Runs a program whose output goes to the terminal.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", line(command));
    let status = command.status().with_context(|| format!("can't start {}", line(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", line(command));
    }
    Ok(())
}

/// Runs a program and takes its standard output; its standard error goes to the terminal.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("can't start {}", line(command)))?;
    if !output.status.success() {
        bail!("`{}` ended with {}", line(command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed what is not UTF-8", line(command)))
}

/// Runs a program whose output goes to the terminal, and keeps the lines that `wanted` picks.
pub(crate) fn show_and_keep(
    command: &mut Command,
    wanted: fn(&str) -> bool,
) -> Result<Vec<String>> {
    eprintln!("$ {}", line(command));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("can't start {}", line(command)))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let kept = thread::scope(|scope| {
        let out = scope.spawn(|| keep(stdout, wanted, |text| println!("{text}")));
        let mut kept = keep(stderr, wanted, |text| eprintln!("{text}"));
        kept.extend(out.join().unwrap_or_default());
        kept
    });
    let status = child.wait()?;
    if !status.success() {
        bail!("`{}` ended with {status}", line(command));
    }
    Ok(kept)
}

fn keep(pipe: Option<impl Read>, wanted: fn(&str) -> bool, print: impl Fn(&str)) -> Vec<String> {
    let Some(pipe) = pipe else { return Vec::new() };
    let mut kept = Vec::new();
    for bytes in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&bytes);
        print(&text);
        if wanted(&text) {
            kept.push(text.trim().to_owned());
        }
    }
    kept
}

fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_lines_of_both_outputs_are_kept() {
        let wanted = |line: &str| line.starts_with("keep");
        let script = "echo keep one; echo drop; echo keep two >&2";
        let mut kept = show_and_keep(&mut command("sh", &["-c", script]), wanted).unwrap();
        kept.sort();
        assert_eq!(kept, ["keep one", "keep two"]);
    }

    #[test]
    fn a_failed_program_is_an_error_that_names_it() {
        for failed in [
            show(&mut command("false", &[])).err(),
            output(&mut command("false", &["x"])).err(),
            show_and_keep(&mut command("false", &[]), |_| true).err(),
            show(&mut command("no-such-program-here", &[])).err(),
        ] {
            let message = failed.unwrap().to_string();
            assert!(message.contains("false") || message.contains("no-such-program"), "{message}");
        }
    }
}
