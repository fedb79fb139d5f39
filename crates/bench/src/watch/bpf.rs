//! Programs that drop all packets, hooked in by bpf(2): tools that do so are rare.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_NETFILTER: u32 = 32;
const BPF_NETFILTER: u32 = 45;
const BPF_TCX_INGRESS: u32 = 46;
const NFPROTO_IPV4: u32 = 2;
const NF_INET_FORWARD: u32 = 2;
const NF_DROP: u32 = 0;
/// One that no table has: the kernel refuses a program beside another hook of its own.
const PRIORITY: u32 = 7;
const TC_ACT_SHOT: u32 = 2;

/// Where a program is hooked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// What comes in by a link (tcx, Linux 6.6).
    Tcx,
    /// IPv4 that is forwarded (netfilter, Linux 6.4).
    Netfilter,
}

/// Room for `union bpf_attr` as far as these commands use it, in words of 4 bytes.
type Attributes = [u32; 32];

fn bpf(command: libc::c_long, attributes: &Attributes) -> io::Result<OwnedFd> {
    // SAFETY: the attributes live through the call and are as long as said; what they point to lives at the callers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            size_of_val(attributes),
        )
    };
    match fd {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: both commands return a descriptor that is new and ours.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
    }
}

/// The two halves of an address, in the order of this machine.
fn halves<T>(pointer: *const T) -> [u32; 2] {
    let bytes = (pointer.expose_provenance() as u64).to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
    [half(0), half(4)]
}

/// Loads a program for this hook that does nothing but drop.
pub(super) fn load(hook: Hook) -> io::Result<OwnedFd> {
    let (kind, attach_type, verdict) = match hook {
        Hook::Tcx => (BPF_PROG_TYPE_SCHED_CLS, 0, TC_ACT_SHOT),
        Hook::Netfilter => (BPF_PROG_TYPE_NETFILTER, BPF_NETFILTER, NF_DROP),
    };
    // `r0 = verdict; exit`
    let program: [u32; 4] = [0xb7, verdict, 0x95, 0];
    let license: &CStr = c"GPL";
    let mut attributes = [0; 32];
    attributes[0] = kind;
    attributes[1] = 2;
    attributes[2..4].copy_from_slice(&halves(program.as_ptr()));
    attributes[4..6].copy_from_slice(&halves(license.as_ptr()));
    // `expected_attach_type`
    attributes[17] = attach_type;
    bpf(BPF_PROG_LOAD, &attributes)
}

/// Hooks it in, on this link or in this thread's network namespace, for as long as the result lives.
pub(super) fn attach(hook: Hook, program: &OwnedFd, link: u32) -> io::Result<OwnedFd> {
    let mut attributes = [0; 32];
    attributes[0] = program.as_raw_fd().cast_unsigned();
    match hook {
        Hook::Tcx => {
            attributes[1] = link;
            attributes[2] = BPF_TCX_INGRESS;
        }
        Hook::Netfilter => {
            attributes[2] = BPF_NETFILTER;
            attributes[4..7].copy_from_slice(&[NFPROTO_IPV4, NF_INET_FORWARD, PRIORITY]);
        }
    }
    bpf(BPF_LINK_CREATE, &attributes)
}
