//! What no tracked file may say: hosts of package registries and paths of somebody's machine.

use super::{File, Finding};

/// Hosts that only package managers should know. In parts, so that this list is not found itself.
const HOSTS: &[&str] = &[
    concat!("registry.npm", "js.org"),
    concat!("registry.yarn", "pkg.com"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("files.python", "hosted.org"),
    concat!("py", "pi.org/simple"),
    concat!("proxy.gol", "ang.org"),
    concat!("deb.deb", "ian.org"),
    concat!("archive.ubu", "ntu.com"),
];

/// Beginnings of absolute paths that are good on one machine only.
const PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// The one source that packages come from, as cargo writes it into the lock file.
const CRATES_IO: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in file.lines() {
        for host in HOSTS.iter().filter(|host| line.contains(**host)) {
            let hint = "leave it to the settings of the machine";
            findings.push(Finding::new(file, number, format!("names the registry {host}"), hint));
        }
        for path in PATHS.iter().filter(|path| has_path(line, path)) {
            let hint = "use a path inside the repository, or a temporary directory";
            let what = format!("names a path under {path}");
            findings.push(Finding::new(file, number, what, hint));
        }
        let foreign = if file.is("Cargo.lock") {
            line.starts_with("source = ") && line != CRATES_IO
        } else {
            file.is("package-lock.json") && line.trim().starts_with("\"resolved\": \"")
        };
        if foreign {
            let what = format!("locks a package to a place: {}", line.trim());
            let hint = "use published packages, and leave hosts out of the lock file \
                        (npm: omit-lockfile-registry-resolved)";
            findings.push(Finding::new(file, number, what, hint));
        }
    }
    findings
}

/// Whether an absolute path in the line begins with `path`.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~/}>*]".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{file, said};
    use super::*;

    #[test]
    fn hosts_and_paths_are_found() {
        for host in HOSTS {
            let found = said(check(&file("a.md", &format!("\nfrom https://{host}/x\n"))));
            assert_eq!(found, [format!("a.md:2: names the registry {host}")]);
        }
        for path in PATHS {
            let found = said(check(&file("a.toml", &format!("cwd = \"{path}x\""))));
            assert_eq!(found, [format!("a.toml:1: names a path under {path}")]);
            let relative = format!("src{path}x ..{path}y ~{path}z $HOME{path}");
            assert_eq!(said(check(&file("a.toml", &relative))), [""; 0]);
        }
    }

    #[test]
    fn lock_files_name_no_place() {
        let git = concat!("source = \"gi", "t+https://example.com/x\"");
        let lock = format!("{CRATES_IO}\n{git}\n");
        assert_eq!(
            said(check(&file("Cargo.lock", &lock))),
            [format!("Cargo.lock:2: locks a package to a place: {git}")]
        );
        let npm = "  \"resolved\": \"https://example.com/a.tgz\",\n  \"resolved\": false\n";
        assert_eq!(said(check(&file("x/package-lock.json", npm))).len(), 1);
    }
}
