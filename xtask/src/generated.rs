//! Checked-in files that are printed by the program itself, kept in step with it.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::run::{cargo, output, root};

/// A command of `abide` and the file that holds what it prints.
const GENERATED: &[(&[&str], &str)] = &[
    (&["config", "schema"], "docs/config.schema.json"),
    (&["config", "reference"], "docs/config.md"),
    (&["help-markdown"], "docs/cli.md"),
];

fn print(args: &[&str]) -> Result<String> {
    output(cargo(&["run", "--quiet", "--package", "abide-cli", "--"]).args(args))
}

/// Compares each file with what its command prints now.
///
/// # Errors
/// A file is missing or differs; prints the difference.
pub(crate) fn check() -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for (args, file) in GENERATED {
        let now = print(args)?;
        match fs::read_to_string(root().join(file)) {
            Ok(kept) if kept == now => println!("{file} is up to date"),
            Ok(kept) => {
                println!("{file} differs from `abide {}`:\n{}", args.join(" "), diff(&kept, &now));
                stale.push(*file);
            }
            Err(error) => {
                println!("{file}: {error}");
                stale.push(*file);
            }
        }
    }
    if !stale.is_empty() {
        bail!("not up to date: {}; hint: run `cargo xtask generate`", stale.join(", "));
    }
    Ok(Vec::new())
}

/// Writes each file anew.
///
/// # Errors
/// A command failed or a file can't be written.
pub(crate) fn generate() -> Result<()> {
    for (args, file) in GENERATED {
        let path = root().join(file);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, print(args)?).with_context(|| format!("can't write {file}"))?;
        println!("wrote {file}");
    }
    Ok(())
}

/// Lines of a difference that are shown at most.
const MAX_DIFF_LINES: usize = 60;

/// The lines from the first to the last that differ.
fn diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b);
    let tail = tail.count();
    let removed = old[head..old.len() - tail].iter().map(|line| format!("-{line}"));
    let added = new[head..new.len() - tail].iter().map(|line| format!("+{line}"));
    let mut lines = vec![format!("@@ line {}", head + 1)];
    lines.extend(removed.chain(added));
    if lines.len() == 1 {
        lines.push("only line ends differ".to_owned());
    }
    if lines.len() > MAX_DIFF_LINES {
        let more = lines.len() - MAX_DIFF_LINES;
        lines.truncate(MAX_DIFF_LINES);
        lines.push(format!("… {more} lines more"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_shows_what_changed_and_where() {
        for (old, new, expected) in [
            ("a\nb\nc\n", "a\nx\nc\n", "@@ line 2\n-b\n+x"),
            ("a\n", "a\nb\n", "@@ line 2\n+b"),
            ("a\na\n", "a\n", "@@ line 2\n-a"),
            ("a\n", "a", "@@ line 2\nonly line ends differ"),
        ] {
            assert_eq!(diff(old, new), expected);
        }
        let long = diff("", &"x\n".repeat(100));
        assert!(long.ends_with("… 41 lines more"), "{long}");
    }
}
