//! Network namespaces: entering them, running programs in them, ending what runs in them.

use std::{
    ffi::CString,
    fs::{self, File},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::LabError;

/// Where `ip netns` keeps its handles.
const HANDLES: &str = "/run/netns";
/// How long programs may take to end by themselves after SIGTERM.
const PATIENCE: Duration = Duration::from_millis(1500);

pub(crate) fn handle(netns: &str) -> PathBuf {
    Path::new(HANDLES).join(netns)
}

/// The names of all namespaces known to `ip netns`.
pub(crate) fn names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(HANDLES) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .collect()
}

/// Runs a function on a thread inside a namespace.
///
/// Sockets made by it belong to the namespace for good; `/proc/sys/net` and `/proc/thread-self/net`
/// are the namespace's; `/sys` is not.
pub(crate) fn within<T: Send>(
    netns: &str,
    function: impl FnOnce() -> T + Send,
) -> Result<T, LabError> {
    let path = handle(netns);
    let enter = || LabError::io(format!("cannot enter the namespace {netns}"));
    let file = File::open(path).map_err(enter())?;
    let run = move || match setns(file, CloneFlags::CLONE_NEWNET) {
        Ok(()) => Ok(function()),
        Err(errno) => Err(io::Error::from(errno)),
    };
    match thread::scope(|s| s.spawn(run).join()) {
        Ok(result) => result.map_err(enter()),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Directories that a program in a node sees in place of the machine's.
pub(crate) struct View {
    /// (the node's own directory, the path at which it appears)
    pub(crate) binds: Vec<(PathBuf, &'static str)>,
}

/// A command that will run in a namespace, with a `/sys` of that namespace and the view's directories.
///
/// As `ip netns exec`, but what it mounts over `/sys` still has a BPF file system.
pub(crate) fn command(netns: &str, program: &str, view: View) -> Result<Command, LabError> {
    let c_string = |path: &Path| {
        CString::new(path.as_os_str().as_bytes())
            .map_err(|e| LabError::io(format!("cannot use the path {}", path.display()))(e.into()))
    };
    let netns_file = File::open(handle(netns))
        .map_err(LabError::io(format!("cannot enter the namespace {netns}")))?;
    let binds = view
        .binds
        .iter()
        .map(|(from, to)| Ok((c_string(from)?, c_string(Path::new(to))?)))
        .collect::<Result<Vec<_>, LabError>>()?;
    let enter = move || {
        setns(&netns_file, CloneFlags::CLONE_NEWNET)?;
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&std::ffi::CStr>;
        // What is mounted in the program's view must not appear in the machine's.
        mount(none, c"/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)?;
        match umount2(c"/sys", MntFlags::MNT_DETACH) {
            // In a container, /sys may be part of another mount.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
        mount(
            Some(c"sysfs"),
            c"/sys",
            Some(c"sysfs"),
            MsFlags::empty(),
            none,
        )?;
        for (from, to) in &binds {
            mount(
                Some(from.as_c_str()),
                to.as_c_str(),
                none,
                MsFlags::MS_BIND,
                none,
            )?;
        }
        Ok(())
    };
    let mut command = Command::new(program);
    // SAFETY: `enter` runs between fork and exec: it makes system calls only, on memory prepared
    // above, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(enter) };
    Ok(command)
}

/// The lab and the node whose namespace is that of this process, by the names with this prefix.
pub(crate) fn own(prefix: &str) -> Option<(String, String)> {
    let own = identity(Path::new("/proc/self/ns/net"))?;
    names().iter().find_map(|name| {
        let (lab, node) = name.strip_prefix(prefix)?.rsplit_once('-')?;
        (identity(&handle(name)) == Some(own)).then(|| (lab.to_owned(), node.to_owned()))
    })
}

/// The processes whose namespace this is.
pub(crate) fn pids(netns: &str) -> Vec<Pid> {
    let Some(wanted) = identity(&handle(netns)) else {
        return Vec::new();
    };
    if identity(Path::new("/proc/self/ns/net")) == Some(wanted) {
        // Not a namespace of its own: a handle whose mount is gone, or our own.
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid| identity(Path::new(&format!("/proc/{pid}/ns/net"))) == Some(wanted))
        .map(Pid::from_raw)
        .collect()
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Ends every process in these namespaces: SIGTERM, then SIGKILL to those that stay.
///
/// Returns those that are still there after that.
pub(crate) fn end_processes(namespaces: &[String]) -> Vec<Pid> {
    let own = Pid::this();
    let mut leaving: Vec<Pid> = Vec::new();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let start = Instant::now();
        let mut told: Vec<Pid> = Vec::new();
        while start.elapsed() < PATIENCE {
            let mut inside: Vec<Pid> = namespaces.iter().flat_map(|n| pids(n)).collect();
            inside.retain(|pid| *pid != own);
            for &pid in inside.iter().filter(|p| !told.contains(p)) {
                // It may have ended since it was listed; then there is nothing to do.
                let _ = kill(pid, signal);
            }
            // A process leaves its namespace before it has ended.
            leaving.retain(|pid| !inside.contains(pid) && is_running(*pid));
            leaving.extend(&inside);
            told.extend(inside);
            if leaving.is_empty() {
                return leaving;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    leaving
}

/// Whether a process exists and is more than an entry that its parent has yet to collect.
fn is_running(pid: Pid) -> bool {
    // "PID (name) state ...": the name may hold anything, also a parenthesis.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Removes a namespace's handle. The kernel frees the namespace, and every device in it, when the last
/// process or socket in it is gone.
pub(crate) fn delete(netns: &str) -> io::Result<()> {
    let path = handle(netns);
    match umount2(&path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
