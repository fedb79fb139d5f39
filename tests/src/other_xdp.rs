//! Somebody else's XDP program.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::net::if_::if_nametoindex;

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
/// `r0 = XDP_PASS; exit`
const PROGRAM: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];

/// An XDP program that passes everything on, on a link of this thread's network namespace. It goes
/// when this is dropped.
#[derive(Debug)]
pub struct OtherXdp {
    _link: OwnedFd,
}

impl OtherXdp {
    /// Attaches it.
    pub fn attach(link: &str) -> io::Result<OtherXdp> {
        let licence = c"GPL";
        // union bpf_attr for BPF_PROG_LOAD: type, number of instructions, their address, licence.
        let mut load = [0u8; 128];
        load[..4].copy_from_slice(&BPF_PROG_TYPE_XDP.to_ne_bytes());
        load[4..8].copy_from_slice(&(PROGRAM.len() as u32).to_ne_bytes());
        load[8..16].copy_from_slice(&(PROGRAM.as_ptr() as u64).to_ne_bytes());
        load[16..24].copy_from_slice(&(licence.as_ptr() as u64).to_ne_bytes());
        let program = bpf(BPF_PROG_LOAD, &load)?;
        // For BPF_LINK_CREATE: program, interface index, attach type, flags.
        let mut create = [0u8; 64];
        create[..4].copy_from_slice(&program.as_raw_fd().to_ne_bytes());
        create[4..8].copy_from_slice(&if_nametoindex(link)?.to_ne_bytes());
        create[8..12].copy_from_slice(&BPF_XDP.to_ne_bytes());
        Ok(OtherXdp {
            _link: bpf(BPF_LINK_CREATE, &create)?,
        })
    }
}

fn bpf(command: libc::c_long, attributes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the attributes, and what they point to, live through the call; the kernel takes those
    // beyond what it knows for zero, which they are.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            attributes.len(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
