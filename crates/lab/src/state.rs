//! The files of a lab: `/run/raddle/lab/NAME/`.
//!
//! ```text
//! lock             held while the lab is built or removed
//! lab.json         the name, the stage and the topology
//! nodes/NODE/frr   configuration, logs and sockets of the node's daemons; /run/frr in the node
//! nodes/NODE/run   /run/raddle in the node
//! nodes/NODE/bpf   a BPF file system; /sys/fs/bpf in the node
//! ```

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    mount::{MntFlags, MsFlags, mount, umount2},
};
use serde::{Deserialize, Serialize};

use crate::{LabError, Topology, names};

const BASE: &str = "/run/raddle/lab";

/// How far a lab has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Being built (or removed) at this moment.
    Building,
    /// Standing.
    Ready,
    /// Left behind by a process that was killed while building; `down` removes it.
    Broken,
}

/// A line of `raddle lab list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabSummary {
    /// The name.
    pub name: String,
    /// How far it has come.
    pub stage: Stage,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of links.
    pub links: usize,
}

/// What `lab.json` holds.
#[derive(Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) name: String,
    pub(crate) stage: Stage,
    pub(crate) topology: Topology,
}

/// The right to build or remove a lab; others get [`LabError::Busy`] meanwhile. The kernel takes it
/// back when the process dies.
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its Drop")] Flock<File>);

pub(crate) fn dir(lab: &str) -> PathBuf {
    Path::new(BASE).join(lab)
}

pub(crate) fn node_dir(lab: &str, node: &str) -> PathBuf {
    dir(lab).join("nodes").join(node)
}

/// Makes the directory of a new lab and takes its lock.
pub(crate) fn create(lab: &str) -> Result<Lock, LabError> {
    let failed = |what: &str| LabError::io(format!("cannot make {what}"));
    make_dir(Path::new(BASE)).map_err(failed(BASE))?;
    let dir = dir(lab);
    // Of two that want the name at once, one finds the directory there.
    match fs::create_dir(&dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(LabError::NameInUse(lab.to_owned()));
        }
        other => other
            .and_then(|()| fs::set_permissions(&dir, Permissions::from_mode(0o755)))
            .map_err(failed(&dir.display().to_string()))?,
    }
    make_dir(&dir.join("nodes")).map_err(failed("the directory of the nodes"))?;
    lock(lab)
}

/// Takes the lock of a lab whose directory exists.
pub(crate) fn lock(lab: &str) -> Result<Lock, LabError> {
    let file = File::create(dir(lab).join("lock"))
        .map_err(LabError::io(format!("cannot lock the lab `{lab}`")))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => Ok(Lock(held)),
        Err((_, Errno::EWOULDBLOCK)) => Err(LabError::Busy(lab.to_owned())),
        Err((_, errno)) => Err(LabError::io(format!("cannot lock the lab `{lab}`"))(
            errno.into(),
        )),
    }
}

/// Writes `lab.json`, replacing it in one step.
pub(crate) fn save(saved: &Saved) -> Result<(), LabError> {
    let failed = || LabError::io(format!("cannot save the state of the lab `{}`", saved.name));
    let dir = dir(&saved.name);
    let json = serde_json::to_vec_pretty(saved).map_err(|e| failed()(e.into()))?;
    let fresh = dir.join("lab.json.new");
    fs::write(&fresh, json).map_err(failed())?;
    fs::rename(&fresh, dir.join("lab.json")).map_err(failed())
}

/// Reads `lab.json`.
pub(crate) fn load(lab: &str) -> Result<Saved, LabError> {
    let path = dir(lab).join("lab.json");
    let json = match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && dir(lab).exists() => {
            return Err(LabError::Unfinished(lab.to_owned()));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(LabError::NoSuchLab(lab.to_owned()));
        }
        other => other.map_err(LabError::io(format!("cannot read {}", path.display())))?,
    };
    serde_json::from_slice(&json).map_err(|e| LabError::State {
        path,
        reason: e.to_string(),
    })
}

/// The names of all labs, sorted: those with files, and those of which only namespaces are left.
pub(crate) fn names() -> Vec<String> {
    let files = fs::read_dir(BASE).into_iter().flatten().flatten();
    let mut names: Vec<_> = files
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.extend(crate::netns::names().iter().filter_map(|ns| {
        let (lab, _) = ns.strip_prefix("rdl-")?.rsplit_once('-')?;
        Some(lab.to_owned())
    }));
    names.retain(|name| names::check_lab(name).is_ok());
    names.sort_unstable();
    names.dedup();
    names
}

/// A summary of one lab.
pub(crate) fn summary(lab: &str) -> LabSummary {
    let saved = load(lab).ok();
    let finished = saved.as_ref().is_some_and(|s| s.stage == Stage::Ready);
    let locked = dir(lab).exists() && matches!(lock(lab), Err(LabError::Busy(_)));
    let stage = match (locked, finished) {
        (true, _) => Stage::Building,
        (false, true) => Stage::Ready,
        (false, false) => Stage::Broken,
    };
    let topology = saved.map(|s| s.topology);
    LabSummary {
        name: lab.to_owned(),
        stage,
        nodes: topology.as_ref().map_or(0, |t| t.nodes().len()),
        links: topology.as_ref().map_or(0, |t| t.links().len()),
    }
}

/// Makes the directories of a node, and mounts its BPF file system.
pub(crate) fn create_node(lab: &str, node: &str) -> Result<(), LabError> {
    let dir = node_dir(lab, node);
    for part in ["frr", "run", "bpf"] {
        let path = dir.join(part);
        make_dir(&path).map_err(LabError::io(format!("cannot make {}", path.display())))?;
    }
    let none = None::<&str>;
    mount(
        Some("bpf"),
        &dir.join("bpf"),
        Some("bpf"),
        MsFlags::empty(),
        none,
    )
    .map_err(|errno| {
        LabError::io(format!("cannot mount a BPF file system for {node}"))(errno.into())
    })
}

/// Removes everything; nothing there is no error.
pub(crate) fn remove(lab: &str) -> io::Result<()> {
    let dir = dir(lab);
    for node in fs::read_dir(dir.join("nodes"))
        .into_iter()
        .flatten()
        .flatten()
    {
        match umount2(&node.path().join("bpf"), MntFlags::MNT_DETACH) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // The parents go with the last lab, unless something else lives in them.
    let _ = fs::remove_dir(BASE);
    Ok(())
}

/// Makes a directory and its parents, readable for FRR's user whatever the umask says.
fn make_dir(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.exists());
    parent.map_or(Ok(()), make_dir)?;
    match fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755))),
    }
}
