//! The file in which a seed that has been found is kept until the machine starts again.
//!
//! It is for its owner alone, and is not believed: what it says has to predict the kernel before it is used.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use raddle_select::Seed;

use crate::find::{FindError, is_right};

/// Why there is no seed from a file, or none in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// There is no place for it.
    #[error(
        "there is no place to keep the hash key: none of XDG_RUNTIME_DIR, XDG_CACHE_HOME and HOME is set to an absolute path"
    )]
    NoPlace,
    /// Somebody else could have written or could read it.
    #[error("{path} is not used: {why}; remove it", path = path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It cannot be read or written.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What it says cannot be proven.
    #[error("the hash key that is kept cannot be proven: {0}")]
    Unproven(#[from] FindError),
}

/// First line of the file.
const FORMAT: &str = "raddle hash key 1";
/// The longest file that is read.
const MOST: u64 = 256;

/// Where the key of this user is kept: `raddle/hash-key` in the first of `$XDG_RUNTIME_DIR`, `$XDG_CACHE_HOME` and
/// `$HOME/.cache` that is named.
///
/// # Errors
/// [`CacheError::NoPlace`].
pub fn path() -> Result<PathBuf, CacheError> {
    place(|name| std::env::var_os(name).map(PathBuf::from)).ok_or(CacheError::NoPlace)
}

/// A relative path is none, as the XDG specification has it.
fn place(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    let base = absolute("XDG_RUNTIME_DIR")
        .or_else(|| absolute("XDG_CACHE_HOME"))
        .or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("raddle").join("hash-key"))
}

/// The seed that is kept and proves right; none where none is kept, it is of an earlier boot, or it proves wrong.
///
/// # Errors
/// [`CacheError`]: the file is not the user's alone, or there is no way to prove what it says.
pub fn recall() -> Result<Option<Seed>, CacheError> {
    let Some(seed) = read(&path()?, &boot()?)? else {
        return Ok(None);
    };
    Ok(is_right(seed)?.then_some(seed))
}

/// Keeps a seed for this boot, and says where.
///
/// # Errors
/// [`CacheError::NoPlace`], [`CacheError::Io`].
pub fn keep(seed: Seed) -> Result<PathBuf, CacheError> {
    let path = path()?;
    write(&path, &boot()?, seed)?;
    Ok(path)
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> CacheError + 'a {
    move |source| CacheError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

/// What tells one boot of the machine from another.
fn boot() -> Result<String, CacheError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(failed("read", path))?;
    Ok(text.trim().to_owned())
}

/// 1. A file that is not there, or of another boot, has no seed; nor has one whose form is another one.
/// 2. One that is no plain file, is somebody else's, or may be used by others is refused, whatever it says.
fn read(path: &Path, boot: &str) -> Result<Option<Seed>, CacheError> {
    // Neither a link to somewhere else nor a pipe that never ends.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed("open", path)(e)),
    };
    let metadata = file.metadata().map_err(failed("look at", path))?;
    let refused = |why| {
        let path = path.to_owned();
        Err(CacheError::Refused { path, why })
    };
    if !metadata.is_file() {
        return refused("it is no plain file");
    }
    if metadata.uid() != geteuid().as_raw() {
        return refused("it belongs to somebody else");
    }
    if metadata.mode() & 0o077 != 0 {
        return refused("others than its owner may read or write it");
    }
    let mut text = String::new();
    match file.take(MOST).read_to_string(&mut text) {
        Ok(_) => Ok(parse(&text, boot)),
        // No text.
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(e) => Err(failed("read", path)(e)),
    }
}

fn parse(text: &str, boot: &str) -> Option<Seed> {
    let mut lines = text.lines();
    let is_ours = lines.next()? == FORMAT && lines.next()? == boot;
    let number = is_ours.then(|| lines.next())??;
    Seed::new(u32::from_str_radix(number, 16).ok()?)
}

/// Writes another file and puts it in the place of this one, so that nobody reads half of it.
fn write(path: &Path, boot: &str, seed: Seed) -> Result<(), CacheError> {
    if let Some(directory) = path.parent() {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(directory);
        made.map_err(failed("make the directory", directory))?;
    }
    let other = path.with_extension(format!("new-{}", std::process::id()));
    let open = || {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&other)
    };
    let put = |mut file: File| {
        writeln!(file, "{FORMAT}\n{boot}\n{:08x}", seed.get())?;
        file.sync_all()?;
        fs::rename(&other, path)
    };
    let done = open().and_then(put);
    done.map_err(|e| {
        let _ = fs::remove_file(&other);
        failed("write", path)(e)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn seed() -> Seed {
        Seed::new(0x1234_5678).unwrap()
    }

    #[test]
    fn the_runtime_directory_comes_first() {
        let of = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(variable, _)| *variable == name);
            place(|name| find(name).map(|(_, path)| PathBuf::from(path)))
        };
        let (run, cache, home) = (
            ("XDG_RUNTIME_DIR", "/run/user/1"),
            ("XDG_CACHE_HOME", "/c"),
            ("HOME", "/home/a"),
        );
        let is = |set: &[(&str, &str)], path| assert_eq!(of(set), Some(PathBuf::from(path)));
        is(&[run, cache, home], "/run/user/1/raddle/hash-key");
        is(&[cache, home], "/c/raddle/hash-key");
        is(&[home], "/home/a/.cache/raddle/hash-key");
        is(
            &[("XDG_RUNTIME_DIR", "x"), home],
            "/home/a/.cache/raddle/hash-key",
        );
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn what_is_kept_is_there_for_this_boot() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("raddle/hash-key");
        assert_eq!(read(&path, "a").unwrap(), None);
        write(&path, "a", seed()).unwrap();
        write(&path, "a", seed()).unwrap();
        assert_eq!(read(&path, "a").unwrap(), Some(seed()));
        assert_eq!(read(&path, "b").unwrap(), None);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        // Nothing else is left.
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_could_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hash-key");
        write(&path, "a", seed()).unwrap();
        for mode in [0o640, 0o604, 0o602, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&path, "a").unwrap_err();
            assert!(matches!(error, CacheError::Refused { .. }), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read(&link, "a").is_err());
        assert!(read(directory.path(), "a").is_err());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            let error = read(&path, "a").unwrap_err();
            assert!(error.to_string().contains("somebody else"), "{error}");
        }
    }

    #[test]
    fn what_is_not_of_this_form_is_no_seed() {
        let wrong = [
            "",
            "\0",
            "raddle hash key 1",
            "raddle hash key 1\na",
            "raddle hash key 1\na\n",
            "raddle hash key 1\na\n0",
            "raddle hash key 1\na\n100000000",
            "raddle hash key 1\na\nx",
            "raddle hash key 2\na\n1",
        ];
        for text in wrong {
            assert_eq!(parse(text, "a"), None, "{text:?}");
        }
        assert_eq!(parse("raddle hash key 1\na\n12345678\n", "a"), Some(seed()));
    }
}
