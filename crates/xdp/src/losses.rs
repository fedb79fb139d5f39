//! What is lost of what XDP programs have sent to links, by link.
//!
//! A redirect is a promise: the program has said where a frame goes before the driver of that link has seen it. A driver that has no room,
//! or no queue for this CPU, drops it, and most count that nowhere or under a name of their own. The kernel tells all of them the same
//! way, by tracepoints, and small programs there (`bpf/losses.bpf.c`) count it.
//!
//! They count the links of one network namespace, whatever program has redirected: the tracepoints do not say whose a frame was.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use aya::include_bytes_aligned;
use raddle_btf::{Btf, KERNEL};
use raddle_fib::Region;

use crate::engine::Engine;
use crate::error::verdict;
use crate::object::{Kind, Loaded, Plan};
use crate::{Error, NoLosses, mapping, sys};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/losses.o"));
const COUNTS: &str = "losses";
/// Words of `struct loss`: lost, aborted, error.
const WORDS: usize = 3;

/// A tracepoint that a program of the object runs at, and what it has to tell (`include/trace/events/xdp.h`; the same from
/// Linux 5.13 to 6.18).
struct Tracepoint {
    program: &'static str,
    name: &'static str,
    in_c: &'static CStr,
    tells: &'static [&'static str],
}

const DEVICE: &str = "const struct net_device *";
const PROGRAM: &str = "const struct bpf_prog *";

const TRACEPOINTS: [Tracepoint; 3] = [
    Tracepoint {
        program: "devmap_xmit",
        name: "xdp_devmap_xmit",
        in_c: c"xdp_devmap_xmit",
        tells: &[DEVICE, DEVICE, "int", "int", "int"],
    },
    Tracepoint {
        program: "redirect_err",
        name: "xdp_redirect_err",
        in_c: c"xdp_redirect_err",
        tells: &[
            DEVICE,
            PROGRAM,
            "const void *",
            "int",
            "enum bpf_map_type",
            "u32",
            "u32",
        ],
    },
    Tracepoint {
        program: "exception",
        name: "xdp_exception",
        in_c: c"xdp_exception",
        tells: &[DEVICE, PROGRAM, "u32"],
    },
];

/// What was lost of a link's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Frames that were to leave by it: its driver took fewer than it was given, or it could not be given them.
    pub lost: u64,
    /// Frames that came in by it, of which a program said something that cannot be done, or that it has failed (`XDP_ABORTED`).
    pub aborted: u64,
    /// The kernel's error of the last that was to leave; none where the driver did not take it without one.
    pub error: Option<i32>,
}

/// Counts what is lost of the links of a network namespace, until it is dropped.
#[derive(Debug)]
pub struct Losses {
    _attached: Vec<OwnedFd>,
    counts: Region,
}

impl Losses {
    /// Counts for the links of the calling thread's network namespace, and for those that an engine's frames were to leave by.
    ///
    /// Costs some 20 ms once, for the kernel's types; then 25 to 60 ns for each bundle of up to 16 frames that any program
    /// redirects on this machine, lost or not.
    ///
    /// # Errors
    /// Nothing is counted then, and the engine is as good as before: [`NoLosses`] says why. `CAP_BPF` and `CAP_PERFMON` are enough.
    ///
    /// # Minimum kernel version
    /// 5.13, with `CONFIG_DEBUG_INFO_BTF`
    pub fn attach(engine: &Engine) -> Result<Losses, NoLosses> {
        let [first, rest @ ..] = TRACEPOINTS.each_ref().map(|tracepoint| tracepoint.program);
        let plan = Plan {
            object: OBJECT,
            program: first,
            called: &rest,
            sizes: HashMap::new(),
            constants: constants(engine)?,
            existing: HashMap::new(),
            kind: Kind::Tracepoint,
        };
        let loaded = plan.load().map_err(|error| match error {
            Error::Verifier { source, log } => NoLosses::Refused(verdict(&source, &log)),
            error => NoLosses::Load(error),
        })?;
        let counts = counts(&loaded).map_err(NoLosses::Load)?;
        let programs = std::iter::once(&loaded.program).chain(&loaded.called);
        let attached = TRACEPOINTS
            .iter()
            .zip(programs)
            .map(|(tracepoint, program)| {
                let link = sys::tracepoint_open(program.as_fd(), tracepoint.in_c);
                link.map_err(|source| NoLosses::Attach(tracepoint.name, source))
            });
        Ok(Losses {
            _attached: attached.collect::<Result<_, _>>()?,
            counts,
        })
    }

    /// What has been lost so far, by interface index: of the links that have lost anything. An index that has another link now goes on
    /// from what the last one has lost. Costs some 20 microseconds; stops nobody.
    pub fn read(&self) -> impl Iterator<Item = (u32, Loss)> + '_ {
        let words = self.counts.words().chunks_exact(WORDS);
        (0..).zip(words).filter_map(|(index, words)| {
            let [lost, aborted] = [0, 1].map(|at: usize| words[at].load(Ordering::Relaxed));
            let error = words[2].load(Ordering::Relaxed) as i32;
            let loss = Loss {
                lost,
                aborted,
                error: (error != 0).then_some(error),
            };
            (lost > 0 || aborted > 0).then_some((index, loss))
        })
    }
}

/// The memory that the programs count in.
fn counts(loaded: &Loaded) -> Result<Region, Error> {
    let missing = || Error::Object(format!("it has no map `{COUNTS}`"));
    let map = loaded.maps.get(COUNTS).ok_or_else(missing)?;
    mapping::region(map.as_fd()).map_err(|source| Error::Map {
        name: COUNTS.to_owned(),
        source,
    })
}

/// What the programs have to know.
fn constants(engine: &Engine) -> Result<Vec<(&'static str, u32)>, NoLosses> {
    let bytes = std::fs::read(KERNEL).map_err(|error| NoLosses::Btf(error.to_string()))?;
    let senseless = || NoLosses::Btf("it makes no sense".to_owned());
    let btf = Btf::parse(&bytes).ok_or_else(senseless)?;
    check(&btf)?;
    let mut constants = places(&btf).ok_or_else(senseless)?;
    let namespace = std::fs::metadata("/proc/thread-self/ns/net");
    let namespace = namespace.map_err(NoLosses::Namespace)?.ino();
    let out_links = sys::map_id(engine.maps().out_links.as_fd()).map_err(|source| {
        let call = "BPF_OBJ_GET_INFO_BY_FD";
        NoLosses::Load(Error::system(call, "look at a BPF map", source))
    })?;
    // The kernel's inode numbers of namespaces have 32 bits.
    constants.extend([("namespace", namespace as u32), ("out_links", out_links)]);
    Ok(constants)
}

/// Whether the tracepoints tell what the programs go by.
fn check(btf: &Btf<'_>) -> Result<(), NoLosses> {
    for tracepoint in &TRACEPOINTS {
        let tells = btf.tracepoint(tracepoint.name);
        if tells.is_none_or(|tells| tells != tracepoint.tells) {
            return Err(NoLosses::Tracepoint(tracepoint.name));
        }
    }
    Ok(())
}

/// Where the programs find a device's index and network namespace, as constants of theirs.
fn places(btf: &Btf<'_>) -> Option<Vec<(&'static str, u32)>> {
    let index = btf.member("net_device", "ifindex")?;
    let net = btf.inner(btf.member("net_device", "nd_net")?, "net")?;
    let inode = btf.inner(btf.member("net", "ns")?, "inum")?;
    Some(vec![
        ("ifindex_at", index.offset),
        ("net_at", net.offset),
        ("inode_at", inode.offset),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_tells_something_else_is_refused() {
        // Magic number, version and flags, length of the header; no types; strings of one byte.
        let words: [u32; 6] = [0x0001_eb9f, 24, 0, 0, 0, 1];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.push(0);
        let btf = Btf::parse(&bytes).unwrap();
        let refused = check(&btf).unwrap_err().to_string();
        assert!(refused.contains("tracepoint xdp_devmap_xmit"), "{refused}");
        assert!(places(&btf).is_none());
    }

    #[test]
    fn each_program_is_in_the_object() {
        let object = aya_obj::Object::parse(OBJECT).unwrap();
        for tracepoint in &TRACEPOINTS {
            assert!(object.programs.contains_key(tracepoint.program));
            assert_eq!(tracepoint.in_c.to_str(), Ok(tracepoint.name));
        }
    }
}
