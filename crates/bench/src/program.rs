//! Which `raddle` is measured and shown.

use std::path::{Path, PathBuf};
use std::process::Command;

use raddle_exit::Failure;
use serde_json::Value;

/// Its name.
const NAME: &str = "raddle";

/// The `raddle` that stands beside this program, as both are built; else the one that a shell would find.
pub(crate) fn raddle() -> Result<PathBuf, Failure> {
    let this = std::env::current_exe()
        .map_err(|e| Failure::system(format!("cannot find this program's own file: {e}")))?;
    find(&this, &std::env::var_os("PATH").unwrap_or_default()).ok_or_else(|| {
        Failure::system(format!(
            "there is no raddle beside {} nor on PATH; build both: cargo build --release -p raddle -p raddle-bench",
            this.display()
        ))
    })
}

fn find(this: &Path, path: &std::ffi::OsStr) -> Option<PathBuf> {
    let beside = this.parent().map(Path::to_owned);
    let folders = beside.into_iter().chain(std::env::split_paths(path));
    let mut files = folders.map(|folder| folder.join(NAME));
    files.find(|file| file.is_file())
}

/// What a command of it prints as JSON.
///
/// # Errors
/// It cannot be run, or says something else: then with what it complains of.
pub(crate) fn json(command: &mut Command) -> Result<Value, Failure> {
    let output = command.output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Failure::system(format!("{command:?} failed: {complaint}"))
    })
}

/// How the user can call it: by its name where a shell finds it, else by its file, from here.
pub(crate) fn called(file: &Path) -> String {
    if on_path(NAME) {
        return NAME.to_owned();
    }
    let here = std::env::current_dir().unwrap_or_default();
    let file = file.strip_prefix(here).unwrap_or(file);
    file.display().to_string()
}

/// Whether a shell finds a program.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_beside_comes_first() {
        let folder = |with: bool| {
            let folder = tempfile::tempdir().unwrap();
            if with {
                std::fs::write(folder.path().join(NAME), "").unwrap();
            }
            folder
        };
        let (with, other, without) = (folder(true), folder(true), folder(false));
        let found = |this: &Path, path: &Path| find(&this.join("raddle-bench"), path.as_os_str());
        let file = |folder: &Path| Some(folder.join(NAME));
        let (with, other, without) = (with.path(), other.path(), without.path());
        assert_eq!(found(with, other), file(with));
        assert_eq!(found(without, other), file(other));
        assert_eq!(found(without, without), None);
    }
}
