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
    ["ip", "tc"]
        .into_iter()
        .try_for_each(|tool| find(tool).map(drop))?;
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

/// The path of one of iproute2's programs.
pub(crate) fn find(program: &'static str) -> Result<PathBuf, LabError> {
    // `su` gives root a user's PATH, without the directories for root's programs.
    let path = env::var_os("PATH").unwrap_or_default();
    let rest = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(rest)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
        .ok_or(LabError::MissingTool {
            program,
            purpose: "to set up links",
            install: "apt-get install iproute2",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_cure() {
        let error = find("no-such-program").unwrap_err().to_string();
        assert!(error.contains("no-such-program"), "{error}");
        assert!(error.contains("apt-get install iproute2"), "{error}");
    }
}
