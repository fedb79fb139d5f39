//! BPF programs that netlink does not tell of.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Error;
use super::hooks::{Hooked, Place};
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

const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_LINK_GET_FD_BY_ID: libc::c_long = 30;
const BPF_LINK_GET_NEXT_ID: libc::c_long = 31;
const BPF_LINK_TYPE_NETFILTER: u32 = 10;
/// `NFPROTO_IPV4`.
const IPV4: u32 = 2;

/// Links of BPF by their ids, which are not given twice: the netfilter hook that one is on, if it is on one of those that forwarded
/// packets pass.
pub type KnownLinks = BTreeMap<u32, Option<Hooked>>;

/// Netfilter programs that are attached as links (`BPF_LINK_TYPE_NETFILTER`), of all network namespaces: the kernel does not say of
/// which one is. `known` keeps what one call need not ask the kernel again. None where it may not be asked.
///
/// # Minimum kernel version
/// 6.4; older ones have none.
///
/// # Errors
/// [`Error::Io`] for anything but a refusal.
pub fn netfilter(known: &mut KnownLinks) -> Result<Option<Vec<Hooked>>, Error> {
    let what = "list BPF links";
    let mut now = KnownLinks::new();
    let mut last = 0;
    loop {
        // start_id, next_id, open_flags
        let mut next = [last, 0, 0];
        match call(BPF_LINK_GET_NEXT_ID, &mut next) {
            Ok(_) => last = next[1],
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOENT) => break,
                // No bpf(2), none of its links.
                Some(libc::EINVAL | libc::ENOSYS) => return Ok(Some(Vec::new())),
                Some(libc::EPERM | libc::EACCES) => return Ok(None),
                _ => return Err(Error::io(what, e)),
            },
        }
        let link = match known.get(&last) {
            Some(known) => known.clone(),
            None => match hooked(last) {
                // Not attached yet: it is asked about again.
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => continue,
                link => link.map_err(|e| Error::io(what, e))?,
            },
        };
        now.insert(last, link);
    }
    *known = now;
    Ok(Some(known.values().flatten().cloned().collect()))
}

fn hooked(id: u32) -> io::Result<Option<Hooked>> {
    let fd = match call(BPF_LINK_GET_FD_BY_ID, &mut [id, 0, 0]) {
        // SAFETY: the descriptor was just made and is nobody else's.
        Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
        // It went meanwhile.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(e) => return Err(e),
    };
    // struct bpf_link_info: type, id, program, padding; of netfilter family, hook, priority, flags.
    let mut info = [0u32; 32];
    let address = info.as_mut_ptr().expose_provenance() as u64;
    let (low, high) = (address as u32, (address >> 32) as u32);
    let halves = match cfg!(target_endian = "little") {
        true => [low, high],
        false => [high, low],
    };
    let fd_number = fd.as_raw_fd() as u32;
    let mut ask = [fd_number, size_of_val(&info) as u32, halves[0], halves[1]];
    call(BPF_OBJ_GET_INFO_BY_FD, &mut ask)?;
    let [kind, _, program, _, family, hook, ..] = info;
    let place = Place::from_number(hook).filter(|_| kind == BPF_LINK_TYPE_NETFILTER);
    Ok(place.map(|place| Hooked {
        families: [family == IPV4, family != IPV4],
        place,
        function: format!("BPF program {program}"),
        is_bpf: true,
    }))
}

/// `bpf(2)` with attributes as words.
fn call(command: libc::c_long, attributes: &mut [u32]) -> io::Result<libc::c_int> {
    // SAFETY: the attributes, and what they point to, live through the call, and the size passed is theirs.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(attributes),
        )
    };
    match result {
        0.. => Ok(result as libc::c_int),
        _ => Err(io::Error::last_os_error()),
    }
}
