//! What else in the kernel would have touched a forwarded packet.
//!
//! XDP forwards before netfilter, traffic control and xfrm see a packet, and past the queueing
//! discipline of the link it leaves by. Whoever attaches must know what is there. Each module
//! here asks the kernel one question and returns plain facts; what follows from them is decided
//! elsewhere.
//!
//! * [`nft`]: base chains of nftables (iptables-nft is the same thing);
//! * [`iptables`]: the built-in chains of legacy iptables and ip6tables;
//! * [`ebtables`]: those of legacy ebtables;
//! * [`conntrack`]: what turns on connection tracking, wherever it stands;
//! * [`ipvs`]: virtual services;
//! * [`hooks`]: whatever else is hooked into netfilter;
//! * [`tc`]: queueing disciplines and filters;
//! * [`bpf`]: tcx programs, and a flow dissector in BPF, which changes multipath hashes;
//! * [`xfrm`]: IPsec policies;
//! * [`ethtool`]: offloads, and changing them;
//! * [`bond`]: in which order members joined a bond, which is not about what is passed by;
//! * [`tun`]: taps that pass on what virtual machines leave unfinished;
//! * [`namespace`]: other network namespaces, for the far ends of veth pairs;
//! * [`seg6`]: settings of SRv6 that are neither routes nor in `/proc/sys`;
//! * [`sockets`]: connected sockets, to see how evenly they lie on paths.
//!
//! All of it is about the calling thread's network namespace and needs `CAP_NET_ADMIN` in it.
//! What the kernel was built without is not there, so it answers "none"; what may not be asked is
//! an [`Error`], never "none".
//!
//! **Not looked for**, because nothing tells it cheaply or per namespace: flowtables (a rule that feeds them is found), XDP's own siblings in a NIC (flower offload, `ethtool -N`), and
//! packet taps (`AF_PACKET`), which see less but lose nothing.

pub mod bond;
pub mod bpf;
pub mod conntrack;
pub mod ebtables;
pub mod ethtool;
pub mod hooks;
pub mod iptables;
pub mod ipvs;
pub mod namespace;
pub mod nft;
pub mod seg6;
pub mod sockets;
mod talk;
pub mod tc;
pub mod tun;
pub mod xfrm;

use std::io;

use crate::codec::{DecodeError, EncodeError, KernelError};

/// Why the kernel could not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not privileged.
    #[error(
        "may not {what}: {source}; this needs CAP_NET_ADMIN in the network namespace \
         (run it as root)"
    )]
    Denied {
        /// What was to be done.
        what: &'static str,
        /// Why it was not.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// Why it was not.
        source: io::Error,
    },
    /// The kernel refused a netlink request.
    #[error("the kernel refused to {what}: {error}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// Its answer.
        error: KernelError,
    },
    /// An answer makes no sense to us, so it cannot be taken as "none".
    #[error("cannot {what}: the kernel's answer cannot be decoded: {source}")]
    Decode {
        /// What was asked for.
        what: &'static str,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A request cannot be written (a name is too long).
    #[error("the request cannot be written: {0}")]
    Encode(#[from] EncodeError),
}

impl Error {
    /// An error of a system call, told apart by whether privilege was missing.
    pub(crate) fn io(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::Denied { what, source },
            _ => Error::Io { what, source },
        }
    }

    /// A refusal, told apart likewise.
    pub(crate) fn refused(what: &'static str, error: KernelError) -> Self {
        match error.errno {
            libc::EPERM | libc::EACCES => {
                let source = io::Error::from_raw_os_error(error.errno);
                Error::Denied { what, source }
            }
            _ => Error::Refused { what, error },
        }
    }

    /// The `errno` behind it.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Denied { source, .. } | Error::Io { source, .. } => source.raw_os_error(),
            Error::Refused { error, .. } => Some(error.errno),
            Error::Decode { .. } | Error::Encode(_) => None,
        }
    }
}

/// Whether a kernel module is loaded, or part of the kernel. Asking for what is in one that is not would load it.
fn has_module(name: &str) -> Result<bool, Error> {
    let loaded = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    if loaded.lines().any(|l| l.split(' ').next() == Some(name)) {
        return Ok(true);
    }
    let release = nix::sys::utsname::uname().map(|u| u.release().to_string_lossy().into_owned());
    let list = format!(
        "/lib/modules/{}/modules.builtin",
        release.unwrap_or_default()
    );
    let file = format!("/{name}.ko");
    match std::fs::read_to_string(list) {
        Ok(list) => Ok(list.lines().any(|line| line.ends_with(&file))),
        // A kernel without a list of its own was built without modules.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(Error::io("read which modules are part of the kernel", e)),
    }
}

/// Feeds `bytes` to every decoder of this module, as the kernel's answer to each question, and
/// returns how many facts came out of it.
///
/// This is the entry point for fuzzing: any bytes will do.
pub fn decode_any(bytes: &[u8]) -> usize {
    let mut facts = 0;
    for message in crate::codec::Messages::new(bytes).flatten() {
        facts += usize::from(matches!(nft::decode_table(&message), Ok(Some(_))));
        facts += usize::from(matches!(nft::decode_chain(&message), Ok(Some(_))));
        facts += usize::from(matches!(nft::decode_rule(&message), Ok(Some(_))));
        facts += usize::from(matches!(nft::decode_object(&message), Ok(Some(_))));
        facts += usize::from(matches!(nft::decode_set(&message), Ok(Some(_))));
        facts += usize::from(matches!(nft::decode_program(&message), Ok(Some(_))));
        facts += usize::from(matches!(nft::decode_contents(&message), Ok(Some(_))));
        facts += usize::from(matches!(nft::decode_elements(&message), Ok(Some(_))));
        facts += usize::from(matches!(nft::decode_generation(&message), Ok(Some(_))));
        facts += usize::from(matches!(hooks::decode_hook(&message), Ok(Some(_))));
        facts += usize::from(matches!(tc::decode_qdisc(&message), Ok(Some(_))));
        facts += usize::from(matches!(tc::decode_filter(&message), Ok(Some(_))));
        facts += usize::from(matches!(tun::decode_tun(&message), Ok(Some(_))));
        facts += usize::from(matches!(xfrm::decode_policy(&message), Ok(Some(_))));
        facts += usize::from(matches!(namespace::decode_id(&message), Ok(Some(_))));
        facts += usize::from(matches!(seg6::decode_family(&message), Ok(Some(_))));
        facts += usize::from(matches!(seg6::decode_source(&message), Ok(Some(_))));
        facts += usize::from(matches!(seg6::decode_key(&message), Ok(Some(_))));
    }
    for family in [iptables::Family::Ipv4, iptables::Family::Ipv6] {
        facts += iptables::decode(family, "filter", bytes).map_or(0, |table| table.chains.len());
    }
    facts += ebtables::decode("filter", bytes).map_or(0, |chains| chains.len());
    facts + ipvs::services(&String::from_utf8_lossy(bytes))
}
