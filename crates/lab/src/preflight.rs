//! What a lab needs of the machine, checked before anything is touched.

use std::{
    env,
    path::{Path, PathBuf},
    thread,
};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::{User, geteuid},
};

use crate::{LabError, Topology};

/// Where distributions put FRR's daemons.
const FRR_HOMES: [&str; 3] = ["/usr/lib/frr", "/usr/libexec/frr", "/usr/sbin"];

/// Checks privileges, namespaces and installed programs.
pub(crate) fn check(topology: &Topology) -> Result<(), LabError> {
    root()?;
    thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET))
        .join()
        .unwrap_or(Err(nix::errno::Errno::EPERM))
        .map_err(|errno| LabError::NoNamespaces(errno.into()))?;
    for tool in ["ip", "tc"] {
        let purpose = "to set up links";
        let install = "apt-get install iproute2";
        find(tool).ok_or(LabError::MissingTool {
            program: tool,
            purpose,
            install,
        })?;
    }
    if topology.needs_frr() {
        frr_home()?;
    }
    Ok(())
}

/// An error unless we are root.
pub(crate) fn root() -> Result<(), LabError> {
    if geteuid().is_root() {
        Ok(())
    } else {
        Err(LabError::NotRoot)
    }
}

/// The directory that holds zebra and bgpd.
pub(crate) fn frr_home() -> Result<PathBuf, LabError> {
    let missing = |program| LabError::MissingTool {
        program,
        purpose: "for BGP",
        install: "apt-get install frr",
    };
    let user = User::from_name("frr").ok().flatten();
    user.ok_or_else(|| missing("FRR (the user frr)"))?;
    FRR_HOMES
        .iter()
        .map(Path::new)
        .find(|home| home.join("zebra").exists() && home.join("bgpd").exists())
        .map(Path::to_owned)
        .ok_or_else(|| missing("FRR (zebra and bgpd)"))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}
