//! Netfilter programs of BPF. In a program of its own: where the kernel does not say of which network namespace one is, it counts for
//! all, those of other tests among them.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[allow(dead_code, reason = "other tests use more of it")]
mod net;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use raddle_preflight::{Beneath, Known, Way, look};

use net::{index, namespace, run};

const LINKS: [&str; 4] = ["eth0", "eth1", "lan0", "lan1"];

fn links() -> BTreeMap<u32, String> {
    LINKS.map(|name| (index(name), name.to_owned())).into()
}

/// A netfilter program of BPF that accepts all, on a hook of IPv4; it goes when this is dropped.
fn bpf_on_hook(hook: u32) -> std::io::Result<OwnedFd> {
    const LOAD: libc::c_long = 5;
    const LINK: libc::c_long = 28;
    const NETFILTER_PROGRAM: u32 = 32;
    const NETFILTER_ATTACH: u32 = 45;
    // r0 = NF_ACCEPT; exit
    let program = [0x0000_0001_0000_00b7u64, 0x95];
    let licence = c"GPL";
    let bpf = |command: libc::c_long, attributes: &[u8]| {
        // SAFETY: the attributes, and what they point to, live through the call; those that it does not know are zero.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                attributes.as_ptr(),
                attributes.len(),
            )
        };
        match libc::c_int::try_from(fd) {
            // SAFETY: the descriptor was just made and is nobody else's.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    let mut load = [0u8; 128];
    let mut put = |at: usize, bytes: &[u8]| load[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &NETFILTER_PROGRAM.to_ne_bytes());
    put(4, &(program.len() as u32).to_ne_bytes());
    put(
        8,
        &(program.as_ptr().expose_provenance() as u64).to_ne_bytes(),
    );
    put(
        16,
        &(licence.as_ptr().expose_provenance() as u64).to_ne_bytes(),
    );
    put(68, &NETFILTER_ATTACH.to_ne_bytes());
    let program = bpf(LOAD, &load)?;
    // Program, target, attach type, flags; family, hook, priority, flags.
    let words = [
        program.as_raw_fd() as u32,
        0,
        NETFILTER_ATTACH,
        0,
        2,
        hook,
        7,
        0,
    ];
    let mut link = [0u8; 64];
    for (at, word) in words.into_iter().enumerate() {
        link[4 * at..4 * at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    bpf(LINK, &link)
}

#[test]
fn programs_of_bpf_on_a_hook_close_its_family() {
    namespace("bpf-hook", |_| {
        for link in LINKS {
            run(&format!(
                "ip link add {link} type veth peer name {link}-far"
            ));
        }
        let links = links();
        let mut known = Known::default();
        let mut closed = || {
            let found = look(
                Way::of(&links, &Beneath::new()),
                Way::of(&links, &Beneath::new()),
                &mut known,
            )
            .unwrap();
            let count = |family: &raddle_rib::firewall::Guarded| family.pairs.len();
            let rule = found.why.first().map(|why| why.rule.clone());
            ([count(&found.firewall.v4), count(&found.firewall.v6)], rule)
        };
        assert_eq!(closed(), ([0, 0], None));
        // NF_INET_FORWARD, NF_INET_LOCAL_IN
        let forward = match bpf_on_hook(2) {
            Ok(link) => link,
            Err(e) => {
                return eprintln!("skipped: this kernel has no netfilter programs of BPF: {e}");
            }
        };
        let (pairs, rule) = closed();
        assert_eq!(pairs, [16, 0]);
        let rule = rule.unwrap();
        // By the kernel's list of hooks, or by that of BPF links.
        eprintln!("{rule}");
        assert!(
            rule.starts_with("netfilter hook ") && rule.ends_with(" at forward"),
            "{rule}"
        );
        drop(forward);
        let _input = bpf_on_hook(1).unwrap();
        assert_eq!(closed(), ([0, 0], None));
    });
}
