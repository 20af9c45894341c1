//! What a config says about this machine that may not be so: programs and folders that are not
//! there. They may come later, so these are warnings.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::{Config, ToolConfig};

/// Says which programs and folders of `config` are not there now.
#[must_use]
pub fn warnings(config: &Config) -> Vec<String> {
    config.tools.iter().filter_map(warning).collect()
}

fn warning(tool: &ToolConfig) -> Option<String> {
    let name = &tool.name;
    if !tool.cwd.is_dir() {
        return Some(format!("tool `{name}`: there is no folder {}", tool.cwd.display()));
    }
    // The backend has checked that braces in the program are literal ones.
    let program = tool.command.first()?.replace("{{", "{").replace("}}", "}");
    if program.contains('/') {
        let path = &tool.cwd.join(&program);
        return if !path.is_file() {
            Some(format!("tool `{name}`: there is no program {program}"))
        } else if !is_executable(path) {
            Some(format!("tool `{name}`: {program} is not executable; run chmod +x on it"))
        } else {
            None
        };
    }
    let path = tool.env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH"))?;
    let found = std::env::split_paths(&path)
        .map(|folder: PathBuf| tool.cwd.join(folder).join(&program))
        .any(|candidate| candidate.is_file() && is_executable(&candidate));
    (!found).then(|| format!("tool `{name}`: no program `{program}` is on PATH"))
}

fn is_executable(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}
