//! Placing connections: programs that give sockets their source ports when they connect.

use std::collections::HashMap;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aya::include_bytes_aligned;
use raddle_fib::Region;
use raddle_image::{Capacity, Memory, Placed, Placing, placing};

use crate::engine::{ProgramSize, plan, small};
use crate::mapping::{self, IMAGE};
use crate::object::Kind;
use crate::sys;
use crate::{Error, Result};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/place.o"));

const PLACING: &str = "placing";
const LOCAL_WAYS: &str = "local_ways";
const LOCAL_SOURCES: &str = "local_sources";
const LOADS: &str = "loads";
const LATEST: &str = "latest";
const OUTCOMES: &str = "outcomes";
/// The programs.
const HOOKS: [&str; 3] = ["connect4", "connect6", "released"];

/// The programs that place connections, with an image of their own.
#[derive(Debug)]
pub struct Placer {
    programs: Vec<OwnedFd>,
    memory: Arc<Memory>,
    placing: Region,
    loads: Region,
    outcomes: Region,
    attached: Vec<OwnedFd>,
}

impl Placer {
    /// Loads the programs with an empty image of this capacity: they place nothing before there is one. Nothing is attached yet.
    ///
    /// # Errors
    /// Missing privileges, an old kernel, no memory for the maps.
    ///
    /// # Minimum kernel version
    /// 6.1
    pub fn load(capacity: &Capacity) -> Result<Placer> {
        let mut plan = plan(OBJECT, capacity, HashMap::new())?;
        let [first, rest @ ..] = &HOOKS;
        (plan.program, plan.called, plan.kind) = (first, rest, Kind::Cgroup);
        let sizes = [
            (PLACING, Placing::SIZE),
            (LOCAL_WAYS, capacity.groups * 8),
            (LOCAL_SOURCES, capacity.adjacencies * 8),
            (LOADS, placing::LOADS as usize * 4),
            (LATEST, placing::LOADS as usize * 4),
            (OUTCOMES, placing::OUTCOMES as usize * 8),
        ];
        for (name, bytes) in sizes {
            plan.sizes.insert(name, small(bytes)?);
        }
        let loaded = plan.load()?;
        let mut maps = loaded.maps;
        let mut take = |name: &str| {
            let map = maps.remove(name);
            map.ok_or_else(|| Error::Object(format!("it has no map `{name}`")))
        };
        let image: Vec<OwnedFd> = IMAGE.iter().map(|name| take(name)).collect::<Result<_>>()?;
        let image = image
            .try_into()
            .map_err(|_| Error::Object("the image's maps are not complete".to_owned()))?;
        let mut region = |name: &str| {
            mapping::region(take(name)?.as_fd()).map_err(|source| Error::Map {
                name: name.to_owned(),
                source,
            })
        };
        let memory = Memory {
            local_ways: region(LOCAL_WAYS)?,
            local_sources: region(LOCAL_SOURCES)?,
            ..mapping::memory(&image)?
        };
        let [placing, loads, outcomes] = [region(PLACING)?, region(LOADS)?, region(OUTCOMES)?];
        Ok(Placer {
            programs: std::iter::once(loaded.program)
                .chain(loaded.called)
                .collect(),
            memory: Arc::new(memory),
            placing,
            loads,
            outcomes,
            attached: Vec::new(),
        })
    }

    /// The image's memory: what is stored here, the programs read.
    pub fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// Tells which sockets are placed, and which ports they may take. Takes effect at once; while it is written, some connections may not be
    /// placed.
    pub fn set(&self, placing: &Placing) {
        const NETNS: usize = offset_of!(Placing, netns) / 8;
        const RANGE: usize = offset_of!(Placing, low) / 8;
        const ALLOWED: usize = offset_of!(Placing, allowed) / 8;
        let words = self.placing.words();
        words[NETNS].store(0, Ordering::Release);
        // Both halves at once, so that no port beyond the last one is tried.
        let range = u64::from(placing.low) | u64::from(placing.span) << 32;
        words[RANGE].store(range, Ordering::Release);
        for (word, allowed) in words[ALLOWED..].iter().zip(placing.allowed) {
            word.store(allowed, Ordering::Release);
        }
        words[NETNS].store(placing.netns, Ordering::Release);
    }

    /// Has the programs run for sockets of a cgroup (version 2) and those below it, beside what others have attached there, until this is
    /// dropped.
    ///
    /// # Errors
    /// Missing privileges; another program of an old kind is attached that allows none beside it.
    ///
    /// # Minimum kernel version
    /// 5.9
    pub fn attach(&mut self, cgroup: BorrowedFd<'_>) -> Result<()> {
        for (program, name) in self.programs.iter().zip(HOOKS) {
            let link = sys::cgroup_attach(program.as_fd(), cgroup, attach_type(name));
            let link = link.map_err(|source| match source.raw_os_error() {
                Some(libc::EPERM) => Error::NotPermitted {
                    action: "attach BPF programs to the cgroup",
                },
                _ => Error::system("BPF_LINK_CREATE", "attach to the cgroup", source),
            })?;
            self.attached.push(link);
        }
        Ok(())
    }

    /// How large the programs are.
    ///
    /// # Errors
    /// Only when the system call is refused.
    pub fn sizes(&self) -> Result<Vec<ProgramSize>> {
        self.programs.iter().map(ProgramSize::of).collect()
    }

    /// What has become of connections since the programs were loaded.
    pub fn outcomes(&self) -> Vec<(Placed, u64)> {
        let counts = self.outcomes.words().iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        Placed::ALL.into_iter().zip(counts).collect()
    }

    /// How many live connections are counted. Reads all cells.
    pub fn live(&self) -> u64 {
        let cells = self.loads.words().iter();
        let cells = cells.map(|word| word.load(Ordering::Relaxed));
        cells
            .map(|word| (word & u64::from(u32::MAX)) + (word >> 32))
            .sum()
    }
}

const BPF_CGROUP_INET4_CONNECT: u32 = 10;
const BPF_CGROUP_INET6_CONNECT: u32 = 11;
const BPF_CGROUP_INET_SOCK_RELEASE: u32 = 34;

/// Where a program is attached.
fn attach_type(name: &str) -> u32 {
    match name {
        "connect4" => BPF_CGROUP_INET4_CONNECT,
        "connect6" => BPF_CGROUP_INET6_CONNECT,
        _ => BPF_CGROUP_INET_SOCK_RELEASE,
    }
}

/// The cookie of the calling thread's network namespace (`SO_NETNS_COOKIE`), which no other has while the machine runs.
///
/// # Errors
/// The kernel is too old, or there is no descriptor left.
///
/// # Minimum kernel version
/// 5.14
pub fn netns_cookie() -> io::Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `cookie`, which has as many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            std::ptr::from_mut(&mut cookie).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How a program of this name is loaded: its type and where it will be attached.
pub(crate) fn program_type(name: &str) -> (u32, u32) {
    const BPF_PROG_TYPE_CGROUP_SOCK: u32 = 9;
    const BPF_PROG_TYPE_CGROUP_SOCK_ADDR: u32 = 18;
    match attach_type(name) {
        BPF_CGROUP_INET_SOCK_RELEASE => (BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_RELEASE),
        at => (BPF_PROG_TYPE_CGROUP_SOCK_ADDR, at),
    }
}
