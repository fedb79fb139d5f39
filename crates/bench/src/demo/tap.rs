//! Seeing which link each stream takes, without being in its way.
//!
//! A packet socket in the wire namespace, at the leaf's end of each fabric link, sees what the leaf
//! sends before the shaper does. A filter in the kernel passes only data segments of the measured
//! connections, only their headers, and of those a part, so that it costs next to nothing.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeSpec;

use super::fabric::Fabric;
use super::iperf::PORT;
use raddle_exit::Failure;

/// Bytes of a frame that are looked at: Ethernet, the longest IPv4 header, TCP's ports.
const LOOKED_AT: u32 = 14 + 60 + 4;
/// How often the sockets are emptied.
const ROUND: Duration = Duration::from_millis(10);
/// Room for what comes meanwhile, in bytes of kernel memory.
const ROOM: usize = 16 << 20;

/// A data segment that the leaf sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// When, since the epoch.
    pub at: Duration,
    /// The place of the link in [`Fabric::links`].
    pub link: usize,
    /// The sender's port.
    pub port: u16,
}

/// All that was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Sightings {
    /// In the order of time on each link.
    pub seen: Vec<Seen>,
    /// Segments that passed the filter while there was no room for them.
    pub lost: u64,
}

/// Looks at the fabric's links until told to stop.
pub(super) struct Tap {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Sightings, String>>,
}

impl Tap {
    /// Starts looking at one in `every` segments (a power of two), picked at random.
    pub(super) fn start(fabric: &Fabric, every: u32) -> Result<Tap, Failure> {
        let mut devices = Vec::new();
        for link in &fabric.links {
            devices.push(fabric.lab.wire_device(link.id, link.end)?);
        }
        let filter = filter(fabric.addresses, PORT, every);
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new().name("tap".into()).spawn({
            let stop = Arc::clone(&stop);
            move || {
                let sockets = open(&devices, &filter)?;
                // Nobody waits any more only when the demo is ending.
                let _ = ready.send(());
                look(&sockets, &stop)
            }
        })?;
        // An error when the thread has ended instead: then `finish` tells why.
        let _ = is_ready.recv();
        Ok(Tap { stop, thread })
    }

    /// Stops looking.
    pub(super) fn finish(self) -> Result<Sightings, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let result = self
            .thread
            .join()
            .unwrap_or_else(|_| Err("its thread panicked".to_owned()));
        result.map_err(|why| Failure::system(format!("cannot look at the fabric's links: {why}")))
    }
}

/// A packet socket for each device (its namespace, its name). Moves the thread there for good.
fn open(
    devices: &[(String, String)],
    filter: &[libc::sock_filter],
) -> Result<Vec<OwnedFd>, String> {
    let mut sockets = Vec::new();
    for (namespace, device) in devices {
        let failed = |e: io::Error| format!("{device} in {namespace}: {e}");
        let file = File::open(format!("/run/netns/{namespace}")).map_err(failed)?;
        setns(file, CloneFlags::CLONE_NEWNET).map_err(|e| failed(e.into()))?;
        sockets.push(open_one(device, filter).map_err(failed)?);
    }
    Ok(sockets)
}

fn open_one(device: &str, filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let index = nix::net::if_::if_nametoindex(device)?;
    // No protocol yet: nothing is received before the filter is there.
    let fd = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    setsockopt(&fd, sockopt::RcvBufForce, &ROOM)?;
    setsockopt(&fd, sockopt::ReceiveTimestampns, &true)?;
    setsockopt(&fd, sockopt::RxqOvfl, &1)?;
    attach(&fd, filter)?;
    bind(&fd, index)?;
    Ok(fd)
}

fn attach(fd: &OwnedFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, which lives through the call, and writes nothing.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

fn bind(fd: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: the structure is plain numbers, of which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    // SAFETY: the address is initialised and lives through the call, which only reads it.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

fn look(sockets: &[OwnedFd], stop: &AtomicBool) -> Result<Sightings, String> {
    let mut sightings = Sightings::default();
    let mut lost = vec![0; sockets.len()];
    loop {
        let last = stop.load(Ordering::Relaxed);
        for (link, fd) in sockets.iter().enumerate() {
            empty(fd, link, &mut sightings.seen, &mut lost[link]).map_err(|e| e.to_string())?;
        }
        if last {
            sightings.lost = lost.iter().map(|lost| u64::from(*lost)).sum();
            return Ok(sightings);
        }
        std::thread::sleep(ROUND);
    }
}

/// Takes everything that a socket has.
fn empty(fd: &OwnedFd, link: usize, seen: &mut Vec<Seen>, lost: &mut u32) -> nix::Result<()> {
    let mut frame = [0; LOOKED_AT as usize];
    let mut control = nix::cmsg_space!(TimeSpec, u32);
    loop {
        let mut parts = [IoSliceMut::new(&mut frame)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<()>(fd.as_raw_fd(), &mut parts, Some(&mut control), flags);
        let message = match message {
            Err(Errno::EAGAIN) => return Ok(()),
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let mut at = None;
        for item in message.cmsgs()? {
            match item {
                ControlMessageOwned::ScmTimestampns(time) => at = Some(Duration::from(time)),
                ControlMessageOwned::RxqOvfl(count) => *lost = count,
                _ => {}
            }
        }
        let length = message.bytes;
        if let (Some(at), Some(port)) = (at, source_port(&frame[..length])) {
            seen.push(Seen { at, link, port });
        }
    }
}

/// The source port of a frame that passed the filter.
fn source_port(frame: &[u8]) -> Option<u16> {
    let header = usize::from(frame.get(14)? & 0xf) * 4;
    let bytes = frame.get(14 + header..14 + header + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// A socket filter: IPv4, TCP, not a later fragment, between these addresses and to this port; of
/// those one in `every`.
fn filter([src, dst]: [Ipv4Addr; 2], port: u16, every: u32) -> Vec<libc::sock_filter> {
    use libc::{
        BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K,
        BPF_LD, BPF_LDX, BPF_MSH, BPF_RET, BPF_W,
    };
    // SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h: an address at which a random number is.
    const RANDOM: u32 = (-0x1000_i32 + 56).cast_unsigned();
    let load = |size, at| (BPF_LD | BPF_ABS | size, at);
    // Each line: what to load, and what to compare it with.
    let tests = [
        (vec![load(BPF_H, 12)], BPF_JEQ, 0x0800),
        (
            vec![load(BPF_B, 23)],
            BPF_JEQ,
            libc::IPPROTO_TCP.cast_unsigned(),
        ),
        (vec![load(BPF_H, 20)], BPF_JSET, 0x1fff),
        (vec![load(BPF_W, 26)], BPF_JEQ, src.to_bits()),
        (vec![load(BPF_W, 30)], BPF_JEQ, dst.to_bits()),
        (
            vec![
                (BPF_LDX | BPF_B | BPF_MSH, 14),
                (BPF_LD | BPF_H | BPF_IND, 16),
            ],
            BPF_JEQ,
            u32::from(port),
        ),
        (
            vec![load(BPF_W, RANDOM), (BPF_ALU | BPF_AND | BPF_K, every - 1)],
            BPF_JEQ,
            0,
        ),
    ];
    // Every test takes its loads and one jump; the last two instructions are the two results.
    let length = tests
        .iter()
        .map(|(loads, ..)| loads.len() + 1)
        .sum::<usize>();
    let op = |code: u32, k: u32, jt: usize, jf: usize| libc::sock_filter {
        // Programs of this length have codes, and distances, that fit.
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let mut program = Vec::with_capacity(length + 2);
    for (loads, compare, value) in tests {
        program.extend(loads.iter().map(|(code, k)| op(*code, *k, 0, 0)));
        let refuse = length - program.len();
        // A fragment's offset must not be there; everything else must be equal.
        let (jt, jf) = if compare == BPF_JSET {
            (refuse, 0)
        } else {
            (0, refuse)
        };
        program.push(op(BPF_JMP | compare | BPF_K, value, jt, jf));
    }
    program.push(op(BPF_RET | BPF_K, LOOKED_AT, 0, 0));
    program.push(op(BPF_RET | BPF_K, 0, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel's interpreter (Documentation/networking/filter.rst), for the instructions used.
    fn passes(program: &[libc::sock_filter], frame: &[u8], random: u32) -> bool {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        let load = |at: u32, size: usize| {
            let bytes = frame.get(at as usize..at as usize + size)?;
            Some(bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte)))
        };
        loop {
            let op = program[at];
            at += 1;
            let loaded = match op.code {
                0x20 if op.k == 0xffff_f038 => Some(random),
                0x20 => load(op.k, 4),
                0x28 => load(op.k, 2),
                0x30 => load(op.k, 1),
                0x48 => load(x + op.k, 2),
                _ => Some(a),
            };
            let Some(loaded) = loaded else { return false };
            a = loaded;
            let truth = match op.code {
                0x15 => a == op.k,
                0x45 => a & op.k != 0,
                0x54 => {
                    a &= op.k;
                    continue;
                }
                0xb1 => {
                    let Some(byte) = load(op.k, 1) else {
                        return false;
                    };
                    x = (byte & 0xf) * 4;
                    continue;
                }
                0x06 => return op.k != 0,
                _ => continue,
            };
            at += usize::from(if truth { op.jt } else { op.jf });
        }
    }

    fn segment(options: usize) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([
            0x08,
            0x00,
            0x45 + options as u8,
            0,
            0,
            60,
            0,
            0,
            0x40,
            0,
            64,
            6,
            0,
            0,
        ]);
        frame.extend([10, 1, 1, 2, 10, 2, 1, 2]);
        frame.extend(vec![1; 4 * options]);
        frame.extend([0x9c, 0x41, 0x14, 0x51]);
        frame
    }

    #[test]
    fn only_the_measured_segments_pass() {
        let addresses = [Ipv4Addr::new(10, 1, 1, 2), Ipv4Addr::new(10, 2, 1, 2)];
        let program = filter(addresses, 5201, 8);
        for options in [0, 2, 10] {
            let good = segment(options);
            assert!(passes(&program, &good, 16), "{options}");
            assert_eq!(source_port(&good), Some(40001));
            assert!(!passes(&program, &good, 17), "sampled");
        }
        let bad = |at: usize, value: u8| {
            let mut frame = segment(0);
            frame[at] = value;
            frame
        };
        for (at, value) in [(12, 0x86), (23, 17), (21, 1), (29, 3), (33, 1), (37, 0x52)] {
            assert!(!passes(&program, &bad(at, value), 0), "byte {at}");
        }
        assert!(!passes(&program, &segment(0)[..36], 0));
        assert_eq!(source_port(&segment(0)[..35]), None);
    }
}
