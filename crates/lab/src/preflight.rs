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

use crate::{LabError, Topology, batch::Batch, topology::Feature};

/// Where distributions put FRR's daemons.
const FRR_HOMES: [&str; 3] = ["/usr/lib/frr", "/usr/libexec/frr", "/usr/sbin"];

/// Checks privileges, namespaces, installed programs, and what the kernel can make.
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
    try_out(&topology.features())
}

/// Makes a device of each kind in a namespace that goes again at once, which also has the kernel load
/// its module, where it is installed.
fn try_out(features: &[&Feature]) -> Result<(), LabError> {
    if features.is_empty() {
        return Ok(());
    }
    let attempt = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| LabError::NoNamespaces(errno.into()))?;
        // What this thread starts is in its namespace.
        let mut lower = Batch::new("ip", None);
        lower.add("link add lower type veth peer name far");
        lower.run("trying veths out")?;
        let refused = features.iter().filter_map(|feature| {
            let mut batch = Batch::new("ip", None);
            batch.add(feature.probe);
            let error = batch.run("trying a device out").err()?;
            Some((*feature, error))
        });
        lacking(refused.collect())
    };
    thread::scope(|scope| scope.spawn(attempt).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The error for what the kernel refuses to make, all in one, if there is any.
fn lacking(refused: Vec<(&Feature, LabError)>) -> Result<(), LabError> {
    let (missing, mut errors): (Vec<&Feature>, Vec<LabError>) = refused.into_iter().unzip();
    let Some(first) = errors.pop() else {
        return Ok(());
    };
    let LabError::Command { stderr, .. } = first else {
        return Err(first);
    };
    let list = |word: fn(&Feature) -> &str, between: &str| {
        let words: Vec<&str> = missing.iter().map(|feature| word(feature)).collect();
        words.join(between)
    };
    Err(LabError::NoDevices {
        what: list(|feature| feature.plural, " and no "),
        reason: stderr,
        modules: list(|feature| feature.module, " "),
        options: list(|feature| feature.config, " and "),
    })
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
    use crate::Clos;

    #[test]
    fn all_that_the_kernel_lacks_is_named_with_its_cure() {
        let fabric = Clos {
            vlan: Some(10),
            bond: true,
            ..Clos::default()
        };
        let refusal = || LabError::Command {
            what: String::new(),
            command: String::new(),
            stderr: "Error: Unknown device type.".into(),
        };
        let features = fabric.topology().unwrap().features();
        let refused = features.iter().map(|feature| (*feature, refusal()));
        let error = lacking(refused.collect()).unwrap_err().to_string();
        assert!(error.contains("no bonds and no VLANs"), "{error}");
        assert!(error.contains("modprobe -a bonding 8021q"), "{error}");
        assert!(error.contains("CONFIG_BONDING and CONFIG_VLAN_8021Q"));
        assert!(lacking(Vec::new()).is_ok());
    }

    #[test]
    fn a_missing_program_is_named_with_its_cure() {
        let error = find("no-such-program").unwrap_err().to_string();
        assert!(error.contains("no-such-program"), "{error}");
        assert!(error.contains("apt-get install iproute2"), "{error}");
    }
}
