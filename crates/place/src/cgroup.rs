//! Cgroups of version 2, on which the programs run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;

use crate::Error;

/// Where the hierarchy is mounted if nobody else has: `ip netns exec` mounts a `/sys` without it.
const PLACE: &str = "/run/raddle/cgroup2";

/// Where the hierarchy is mounted; it is mounted where it is not.
///
/// # Errors
/// [`Error::NoCgroups`].
pub fn mount() -> Result<PathBuf, Error> {
    let path = "/proc/self/mounts";
    let mounts = fs::read_to_string(path).map_err(|source| Error::Setting { path, source })?;
    if let Some(point) = mounted(&mounts) {
        return Ok(point);
    }
    fs::create_dir_all(PLACE).map_err(Error::NoCgroups)?;
    let (none, kind) = (None::<&str>, Some("cgroup2"));
    let mounted = nix::mount::mount(kind, PLACE, kind, MsFlags::empty(), none);
    mounted.map_err(|errno| Error::NoCgroups(errno.into()))?;
    Ok(PLACE.into())
}

/// The first mount of it; the last words of a line are octal for what would be white.
fn mounted(mounts: &str) -> Option<PathBuf> {
    let points = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (point, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(point.replace("\\040", " ")))
    });
    points.min_by_key(|point| point.as_os_str().len())
}

/// The cgroup of this process, below [`mount`].
///
/// # Errors
/// [`Error::NoCgroups`], or what cannot be read.
pub fn own() -> Result<PathBuf, Error> {
    let path = "/proc/self/cgroup";
    let text = fs::read_to_string(path).map_err(|source| Error::Setting { path, source })?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let unsaid = || Error::Cgroup {
        what: "find this process's cgroup in",
        path: path.into(),
        source: std::io::ErrorKind::NotFound.into(),
    };
    Ok(mount()?.join(own.ok_or_else(unsaid)?))
}

/// Opens the cgroup of this name: a path below the hierarchy, as systemd names them, or the whole path.
///
/// # Errors
/// There is none, or no hierarchy.
pub fn open(name: &Path) -> Result<File, Error> {
    let mount = mount()?;
    let path = match name.starts_with(&mount) {
        true => name.to_owned(),
        false => mount.join(name.strip_prefix("/").unwrap_or(name)),
    };
    let is_one = path.join("cgroup.procs");
    fs::metadata(&is_one).map_err(|source| Error::Cgroup {
        what: "find the cgroup",
        path: path.clone(),
        source,
    })?;
    File::open(&path).map_err(|source| Error::Cgroup {
        what: "open the cgroup",
        path,
        source,
    })
}

/// A cgroup of its own for one program, taken away when dropped.
#[derive(Debug)]
pub struct Own {
    path: PathBuf,
    before: PathBuf,
}

impl Own {
    /// Makes one below that of this process, and moves this process into it: what it starts from now on is there.
    ///
    /// # Errors
    /// It cannot be made or entered.
    pub fn enter() -> Result<Own, Error> {
        let before = own()?;
        let path = before.join(format!("raddle-place-{}", std::process::id()));
        fs::create_dir(&path).map_err(|source| Error::Cgroup {
            what: "make the cgroup",
            path: path.clone(),
            source,
        })?;
        let own = Own { path, before };
        enter(&own.path)?;
        Ok(own)
    }

    /// Opens it.
    ///
    /// # Errors
    /// Somebody has taken it away.
    pub fn open(&self) -> Result<File, Error> {
        open(&self.path)
    }

    /// Moves this process back to where it was; what it has started stays.
    ///
    /// # Errors
    /// That cannot be entered any more.
    pub fn leave(&self) -> Result<(), Error> {
        enter(&self.before)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // What the program has left running in the background stays in it, and then so does the cgroup.
        let _ = self.leave();
        let _ = fs::remove_dir(&self.path);
    }
}

fn enter(cgroup: &Path) -> Result<(), Error> {
    let path = cgroup.join("cgroup.procs");
    fs::write(&path, "0").map_err(|source| Error::Cgroup {
        what: "enter the cgroup by",
        path,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_where_it_is_mounted() {
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let path = |text: &str| mounted(text).map(|path| path.display().to_string());
        assert_eq!(path(hybrid).as_deref(), Some("/sys/fs/cgroup/unified"));
        let two =
            "none /var/lib/x\\040y/cg cgroup2 rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(path(two).as_deref(), Some("/sys/fs/cgroup"));
        assert_eq!(
            path("none /a\\040b cgroup2 rw 0 0").as_deref(),
            Some("/a b")
        );
        assert_eq!(path("cgroup2 cgroup2\n"), None);
    }
}
