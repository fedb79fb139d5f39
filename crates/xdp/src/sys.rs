//! The bpf(2) commands that need finer answers than the loader library gives.
//!
//! Attributes are laid out as in `union bpf_attr` (`include/uapi/linux/bpf.h`); what a command does
//! not use stays zero, as the kernel demands.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya_obj::generated::bpf_insn;

const BPF_MAP_CREATE: i64 = 0;
const BPF_MAP_UPDATE_ELEM: i64 = 2;
const BPF_MAP_DELETE_ELEM: i64 = 3;
const BPF_PROG_LOAD: i64 = 5;
const BPF_OBJ_PIN: i64 = 6;
const BPF_OBJ_GET: i64 = 7;
const BPF_PROG_TEST_RUN: i64 = 10;
const BPF_PROG_GET_FD_BY_ID: i64 = 13;
const BPF_OBJ_GET_INFO_BY_FD: i64 = 15;
const BPF_RAW_TRACEPOINT_OPEN: i64 = 17;
const BPF_MAP_FREEZE: i64 = 22;
const BPF_LINK_CREATE: i64 = 28;
const BPF_LINK_UPDATE: i64 = 29;

/// How often a program is loaded before the verifier's being interrupted counts as an error.
const LOAD_ATTEMPTS: u32 = 10;

/// `BPF_XDP`, the attach type.
const BPF_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE`: run behind the driver, on socket buffers.
pub(crate) const XDP_FLAGS_SKB_MODE: u32 = 2;
/// `XDP_FLAGS_DRV_MODE`: run in the driver.
pub(crate) const XDP_FLAGS_DRV_MODE: u32 = 4;

/// Room for `union bpf_attr` as far as these commands use it.
type Attr = [u64; 12];

fn bpf(command: i64, attr: &mut Attr) -> io::Result<i32> {
    // SAFETY: `attr` is initialised and as long as the size given with it; pointers inside it are
    // the business of the callers below.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of::<Attr>()) };
    match result {
        ..0 => Err(io::Error::last_os_error()),
        // Descriptors and zero only, both fit.
        value => Ok(value as i32),
    }
}

fn bpf_fd(command: i64, attr: &mut Attr) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: these commands return a descriptor that is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn fd_word(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// `BPF_F_RDONLY_PROG`: programs only read it.
pub(crate) const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// `BPF_F_MMAPABLE`: processes can map it.
pub(crate) const BPF_F_MMAPABLE: u32 = 1 << 10;
/// `BPF_OBJ_NAME_LEN`, with the terminating zero.
const NAME_LEN: usize = 16;

/// What map to make. Keys are 4 bytes long.
pub(crate) struct MapSpec<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
}

/// A name as two words: cut to length, with what the kernel refuses left out.
fn name_words(name: &str) -> [u64; 2] {
    let mut words = [0; 2];
    let allowed = name
        .bytes()
        .filter(|&byte| byte.is_ascii_alphanumeric() || byte == b'_');
    for (i, byte) in allowed.take(NAME_LEN - 1).enumerate() {
        words[i / 8] |= u64::from(byte) << (8 * (i % 8));
    }
    words
}

/// Makes a map.
///
/// # Minimum kernel version
/// 6.0 for arrays with elements above 4 MiB
pub(crate) fn map_create(spec: &MapSpec<'_>) -> io::Result<OwnedFd> {
    let [name0, name1] = name_words(spec.name);
    let mut attr = Attr::default();
    attr[0] = pair(spec.kind, 4);
    attr[1] = pair(spec.value_size, spec.max_entries);
    attr[2] = pair(spec.flags, 0);
    // inner_map_fd and numa_node come before the name: it starts at byte 28.
    attr[3] = name0 << 32;
    attr[4] = name0 >> 32 | name1 << 32;
    attr[5] = name1 >> 32;
    bpf_fd(BPF_MAP_CREATE, &mut attr)
}

/// Lets no process write to a map's elements any more.
pub(crate) fn map_freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = Attr::default();
    attr[0] = u64::from(fd_word(map));
    bpf(BPF_MAP_FREEZE, &mut attr).map(drop)
}

/// `BPF_PROG_TYPE_XDP`.
const BPF_PROG_TYPE_XDP: u32 = 6;
/// `BPF_PROG_TYPE_RAW_TRACEPOINT`.
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
/// `BPF_F_XDP_HAS_FRAGS`: the program takes frames of several buffers.
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// `BPF_F_XDP_DEV_BOUND_ONLY`: the program runs on one device only, and may ask its driver.
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;

/// The attributes of a program to load, of any type; the verifier's log goes to `log`, where that is not empty.
fn program_attr(
    kind: u32,
    name: &str,
    instructions: &[bpf_insn],
    license: &CStr,
    log: &mut [u8],
) -> Attr {
    let mut attr = Attr::default();
    attr[0] = pair(kind, instructions.len() as u32);
    attr[1] = instructions.as_ptr().addr() as u64;
    attr[2] = license.as_ptr().addr() as u64;
    if !log.is_empty() {
        // Level, size and buffer.
        attr[3] = pair(1, log.len() as u32);
        attr[4] = log.as_mut_ptr().addr() as u64;
    }
    [attr[6], attr[7]] = name_words(name);
    attr
}

/// Loads a program.
fn program_load(attr: &mut Attr) -> io::Result<OwnedFd> {
    // The verifier gives up at any signal, also at one that only stops the process for a moment.
    let mut result = bpf_fd(BPF_PROG_LOAD, attr);
    for _ in 1..LOAD_ATTEMPTS {
        match &result {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                result = bpf_fd(BPF_PROG_LOAD, attr);
            }
            _ => break,
        }
    }
    result
}

/// Loads an XDP program for frames of several buffers; the verifier's log goes to `log`, where
/// that is not empty. With a `device`, an interface index of this network namespace, the program is
/// bound to it.
///
/// # Minimum kernel version
/// 5.18; 6.3 with a device
pub(crate) fn xdp_load(
    name: &str,
    instructions: &[bpf_insn],
    license: &CStr,
    device: Option<u32>,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let mut attr = program_attr(BPF_PROG_TYPE_XDP, name, instructions, license, log);
    let bound = device.map_or(0, |_| BPF_F_XDP_DEV_BOUND_ONLY);
    attr[5] = pair(0, BPF_F_XDP_HAS_FRAGS | bound);
    // prog_ifindex, expected_attach_type.
    attr[8] = pair(device.unwrap_or(0), BPF_XDP);
    program_load(&mut attr)
}

/// Loads a program for a raw tracepoint, as [`xdp_load`] does.
///
/// # Minimum kernel version
/// 4.17
pub(crate) fn tracepoint_load(
    name: &str,
    instructions: &[bpf_insn],
    license: &CStr,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let kind = BPF_PROG_TYPE_RAW_TRACEPOINT;
    program_load(&mut program_attr(kind, name, instructions, license, log))
}

/// Runs a program at a raw tracepoint, for as long as the descriptor lives.
pub(crate) fn tracepoint_open(program: BorrowedFd<'_>, tracepoint: &CStr) -> io::Result<OwnedFd> {
    let mut attr = Attr::default();
    attr[0] = tracepoint.as_ptr().addr() as u64;
    attr[1] = u64::from(fd_word(program));
    bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &mut attr)
}

/// Writes an element of a map with 4-byte keys.
pub(crate) fn map_update(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    let mut attr = Attr::default();
    attr[0] = u64::from(fd_word(map));
    attr[1] = std::ptr::from_ref(&key).addr() as u64;
    attr[2] = value.as_ptr().addr() as u64;
    bpf(BPF_MAP_UPDATE_ELEM, &mut attr).map(drop)
}

/// Deletes an element of a map with 4-byte keys.
pub(crate) fn map_delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let mut attr = Attr::default();
    attr[0] = u64::from(fd_word(map));
    attr[1] = std::ptr::from_ref(&key).addr() as u64;
    bpf(BPF_MAP_DELETE_ELEM, &mut attr).map(drop)
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// Pins an object to a path on a bpffs.
pub(crate) fn obj_pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    let mut attr = Attr::default();
    attr[0] = path.as_ptr().addr() as u64;
    attr[1] = u64::from(fd_word(fd));
    bpf(BPF_OBJ_PIN, &mut attr).map(drop)
}

/// Opens a pinned object.
pub(crate) fn obj_get(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    let mut attr = Attr::default();
    attr[0] = path.as_ptr().addr() as u64;
    bpf_fd(BPF_OBJ_GET, &mut attr)
}

/// Attaches an XDP program to a link, for as long as the descriptor lives.
///
/// # Minimum kernel version
/// 5.9
pub(crate) fn link_create(program: BorrowedFd<'_>, index: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attr = Attr::default();
    attr[0] = pair(fd_word(program), index);
    attr[1] = pair(BPF_XDP, flags);
    bpf_fd(BPF_LINK_CREATE, &mut attr)
}

/// Replaces the program of a link; packets see the old one or the new one.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = Attr::default();
    attr[0] = pair(fd_word(link), fd_word(program));
    bpf(BPF_LINK_UPDATE, &mut attr).map(drop)
}

fn info<const N: usize>(fd: BorrowedFd<'_>) -> io::Result<[u8; N]> {
    let mut info = [0u8; N];
    let mut attr = Attr::default();
    attr[0] = pair(fd_word(fd), N as u32);
    attr[1] = info.as_mut_ptr().addr() as u64;
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

/// Size and number of a map's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapInfo {
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
}

/// `struct bpf_map_info`: type, id, key_size, value_size, max_entries.
pub(crate) fn map_info(fd: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let info = info::<24>(fd)?;
    Ok(MapInfo {
        value_size: u32_at(&info, 12),
        max_entries: u32_at(&info, 16),
    })
}

/// The number of a map, which no other has while it lives: the second word of `struct bpf_map_info`.
pub(crate) fn map_id(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(u32_at(&info::<8>(fd)?, 4))
}

/// Interface index in `struct bpf_link_info` of an XDP link; 0 when the device is gone.
pub(crate) fn link_index(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // type, id, prog_id, padding, then the union: ifindex.
    Ok(u32_at(&info::<32>(fd)?, 16))
}

/// Name of the program with this id.
pub(crate) fn program_name(id: u32) -> io::Result<String> {
    let mut attr = Attr::default();
    attr[0] = u64::from(id);
    let fd = bpf_fd(BPF_PROG_GET_FD_BY_ID, &mut attr)?;
    // `struct bpf_prog_info`: the name's 16 bytes are at 64.
    let info = info::<80>(std::os::fd::AsFd::as_fd(&fd))?;
    let name = &info[64..80];
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Name and size of a program in `struct bpf_prog_info`: the lengths are at 16 and 20, the name is at 64, what the
/// verifier went through at 216.
pub(crate) fn program_size(fd: BorrowedFd<'_>) -> io::Result<(String, [u32; 3])> {
    let info = info::<224>(fd)?;
    let name = &info[64..80];
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    let name = String::from_utf8_lossy(&name[..end]).into_owned();
    Ok((
        name,
        [u32_at(&info, 216), u32_at(&info, 20), u32_at(&info, 16)],
    ))
}

/// What `BPF_PROG_TEST_RUN` is asked.
pub(crate) struct TestRun<'a> {
    pub(crate) program: BorrowedFd<'a>,
    pub(crate) frame: &'a [u8],
    /// Where the frame is written afterwards; empty when nobody wants it.
    pub(crate) out: &'a mut [u8],
    pub(crate) ingress: u32,
    pub(crate) repeat: u32,
    /// `BPF_F_TEST_XDP_LIVE_FRAMES` and a batch size, or neither.
    pub(crate) live_batch: Option<u32>,
}

/// What it answered.
pub(crate) struct TestRunResult {
    /// `XDP_*`.
    pub(crate) action: u32,
    /// Bytes of `out` that hold the frame.
    pub(crate) out_len: usize,
    /// Mean nanoseconds a run.
    pub(crate) duration: u32,
}

const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 2;

/// Runs an XDP program on a frame (`bpf_prog_test_run_xdp`).
///
/// # Minimum kernel version
/// 5.15 for the ingress interface, 5.18 for live frames.
pub(crate) fn test_run(run: &mut TestRun<'_>) -> io::Result<TestRunResult> {
    // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let mut context = [0, run.frame.len() as u32, 0, run.ingress, 0, 0u32];
    let mut attr = Attr::default();
    attr[0] = u64::from(fd_word(run.program));
    attr[1] = pair(run.frame.len() as u32, run.out.len() as u32);
    attr[2] = run.frame.as_ptr().addr() as u64;
    if !run.out.is_empty() {
        attr[3] = run.out.as_mut_ptr().addr() as u64;
    }
    attr[4] = pair(run.repeat, 0);
    attr[5] = u64::from(size_of_val(&context) as u32);
    attr[6] = context.as_mut_ptr().addr() as u64;
    if let Some(batch) = run.live_batch {
        attr[8] = pair(BPF_F_TEST_XDP_LIVE_FRAMES, 0);
        attr[9] = u64::from(batch);
    }
    bpf(BPF_PROG_TEST_RUN, &mut attr)?;
    Ok(TestRunResult {
        action: (attr[0] >> 32) as u32,
        out_len: (attr[1] >> 32) as usize,
        duration: (attr[4] >> 32) as u32,
    })
}
