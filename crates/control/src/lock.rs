//! One daemon for each network namespace.

use std::fs::{File, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{DIRECTORY, Error, default_path};

/// The right to be the daemon of a network namespace. The kernel takes it back when the process dies;
/// the file goes when this is dropped.
#[derive(Debug)]
pub struct Lock {
    /// Open as long as the lock is held.
    _file: File,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is still locked: who has opened it meanwhile finds that it is not current.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Sees to it that there is one daemon only in a network namespace, wherever its socket is: two
/// would take each other's pinned programs away, and write to one image. Removes what daemons that were killed have left.
///
/// # Errors
/// A daemon runs, or the lock's file cannot be made.
pub fn lock() -> Result<Lock, Error> {
    let lock = lock_at(&default_path().with_extension("lock"))?;
    sweep(&lock);
    Ok(lock)
}

/// The lock of the network namespace whose daemon, socket and kept programs have this name, such as `net-4026531840`. None
/// where a daemon runs.
pub fn lock_of(name: &str) -> Option<Lock> {
    let path = Path::new(DIRECTORY).join(name).with_extension("lock");
    try_lock_at(&path).ok().flatten()
}

/// Removes what daemons that were killed have left, in this and in other namespaces.
pub(crate) fn sweep(ours: &Lock) {
    let folder = ours.path.parent().and_then(|d| std::fs::read_dir(d).ok());
    for path in folder.into_iter().flatten().flatten().map(|e| e.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_lock = name.is_some_and(|n| n.starts_with("net-") && n.ends_with(".lock"));
        if !is_lock || path == ours.path {
            continue;
        }
        if let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
            && is_current(&file, &path)
        {
            let _ = std::fs::remove_file(path.with_extension("sock"));
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// How often a lock is tried: another daemon that starts looks for a moment whether it is held.
const TRIES: u32 = 5;

pub(crate) fn lock_at(path: &Path) -> Result<Lock, Error> {
    for _ in 1..TRIES {
        match try_lock_at(path) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(failure) => return Err(failure),
        }
    }
    try_lock_at(path)?.ok_or_else(|| runs_already(path))
}

/// Whether a file is still the one that others find under this name.
fn is_current(file: &File, path: &Path) -> bool {
    let ours = file.metadata().map(|ours| ours.ino()).ok();
    ours.is_some() && ours == std::fs::metadata(path).map(|found| found.ino()).ok()
}

/// None where somebody else holds it, or removed it meanwhile.
fn try_lock_at(path: &Path) -> Result<Option<Lock>, Error> {
    let failed = |source: std::io::Error| Error::Lock {
        path: path.to_owned(),
        source,
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let file = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) if !is_current(&file, path) => Ok(None),
        Ok(()) => Ok(Some(Lock {
            _file: file,
            path: path.to_owned(),
        })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(failed(e)),
    }
}

fn runs_already(lock: &Path) -> Error {
    Error::RunsAlready {
        lock: lock.to_owned(),
    }
}

/// Whether nobody holds the lock now, which is not taken.
pub(crate) fn check_lock(path: &Path) -> Result<(), Error> {
    // Who may not open it may not attach either, which has been said by then.
    let held = File::open(path)
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)));
    if held {
        Err(runs_already(path))
    } else {
        Ok(())
    }
}
