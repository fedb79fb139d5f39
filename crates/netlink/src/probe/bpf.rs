//! BPF programs that netlink does not tell of.

use std::fs::File;
use std::os::fd::AsRawFd;

use super::Error;
use super::tc::Direction;

const BPF_PROG_QUERY: libc::c_long = 16;
const BPF_FLOW_DISSECTOR: u32 = 17;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
/// Programs that one query tells of; the kernel allows 64 on a tcx hook.
const MOST: usize = 64;

/// `union bpf_attr` for `BPF_PROG_QUERY`.
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    padding: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// The tcx programs on one side of a link of this thread's namespace, in the order they run.
///
/// # Minimum kernel version
/// 6.6; older ones have no tcx, so there is none.
///
/// # Errors
/// [`Error::Denied`] without `CAP_NET_ADMIN`.
pub fn tcx(index: u32, direction: Direction) -> Result<Vec<u32>, Error> {
    let attach_type = match direction {
        Direction::Ingress => BPF_TCX_INGRESS,
        Direction::Egress => BPF_TCX_EGRESS,
    };
    query(index, attach_type, "list tcx programs")
}

/// The flow dissector program that the namespace (or the first namespace, which goes before) has:
/// with one, the kernel takes the fields of multipath hash policies 1 and 2 from it.
///
/// # Errors
/// [`Error::Denied`] without `CAP_NET_ADMIN`.
///
/// # Minimum kernel version
/// 4.20; older ones have none.
pub fn flow_dissector() -> Result<Option<u32>, Error> {
    let what = "ask for a BPF flow dissector";
    for place in ["/proc/thread-self/ns/net", "/proc/1/ns/net"] {
        let namespace = match File::open(place) {
            Ok(file) => file,
            // The first process may be hidden from us, and then it is not the first namespace's.
            Err(_) if place.starts_with("/proc/1/") => continue,
            Err(e) => return Err(Error::io(what, e)),
        };
        let programs = query(namespace.as_raw_fd() as u32, BPF_FLOW_DISSECTOR, what)?;
        if let Some(id) = programs.first() {
            return Ok(Some(*id));
        }
    }
    Ok(None)
}

fn query(target: u32, attach_type: u32, what: &'static str) -> Result<Vec<u32>, Error> {
    let mut ids = [0u32; MOST];
    let mut attributes = Query {
        target,
        attach_type,
        prog_ids: ids.as_mut_ptr().expose_provenance() as u64,
        prog_cnt: MOST as u32,
        ..Query::default()
    };
    // SAFETY: both the attributes and the `prog_cnt` ids that they point to live through the
    // call, and the size passed is that of the attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_QUERY,
            &raw mut attributes,
            size_of::<Query>(),
        )
    };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            // No such attach type in this kernel, nothing attached ever, no bpf(2), no such link.
            Some(libc::EINVAL | libc::ENOENT | libc::ENOSYS | libc::ENODEV) => Ok(Vec::new()),
            _ => Err(Error::io(what, error)),
        };
    }
    let count = (attributes.prog_cnt as usize).min(MOST);
    Ok(ids[..count].to_vec())
}
