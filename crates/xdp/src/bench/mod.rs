//! Pieces to measure forwarding with: a traffic generator, counting sinks, and forwarders to
//! compare with.
//!
//! One [`Bench`] serves several network namespaces: maps belong to nobody, and what names a device
//! ([`Bench::attach`], the ports, [`Bench::send`]) acts in the namespace of the calling thread.
//! The generator sends from the calling CPU, and a veth's receiver runs there too, so a pinned
//! thread measures one core.

mod template;
mod traffic;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use aya::maps::{Map, MapError};
use aya::programs::{ProgramError, Xdp};
use aya::{EbpfError, EbpfLoader, include_bytes_aligned};
use raddle_fib::Region;

pub use template::{Template, TooLong};
pub use traffic::Traffic;

use crate::attach::{AttachedMode, create_link};
use crate::counters::possible_cpus;
use crate::engine::{Engine, small};
use crate::mapping;
use crate::object::chain;
use crate::sys;
use crate::{Error, Result};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bench.o"));
/// `SINKS` of `bpf/bench.h`.
const SINKS: usize = 256;
/// `MAX_PORTS` of `bpf/bench.bpf.c`, less one.
const LAST_PORT: u32 = 16383;
/// Words of `struct position`.
const POSITION: usize = 8;
/// Frames in a round of the generator; the kernel's own default.
const BATCH: u32 = 64;

/// A program to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// Counts and drops.
    Sink,
    /// Passes everything on; a veth's peer can send to a device that has it.
    Pass,
    /// Fails on every frame (`XDP_ABORTED`).
    Abort,
    /// Redirects everything to the bare port, without looking.
    Redirect,
    /// Forwards as xdp-forward does, by the kernel's `bpf_fib_lookup()`.
    FibLookup,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Sink => "sink",
            Program::Pass => "pass",
            Program::Abort => "aborts",
            Program::Redirect => "redirect",
            Program::FibLookup => "fib_lookup",
        }
    }
}

/// A program on a link; taken off when dropped.
#[derive(Debug)]
pub struct Attachment {
    _link: OwnedFd,
}

/// The benchmark's programs, loaded.
#[derive(Debug)]
pub struct Bench {
    programs: HashMap<String, OwnedFd>,
    maps: HashMap<String, OwnedFd>,
    traffic: Region,
    long_traffic: Region,
    destinations: Region,
    positions: Region,
    sunk: Region,
    bare_spread: Region,
}

impl Bench {
    /// Loads the programs, with room for this many destinations.
    ///
    /// # Errors
    /// As [`Engine::load`].
    ///
    /// # Minimum kernel version
    /// 5.18, for live frames.
    pub fn load(destinations: usize) -> Result<Bench> {
        let cpus = possible_cpus().map_err(|source| Error::System {
            call: "reading the CPUs",
            source,
        })?;
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("destinations", small(destinations.max(1))?);
        loader.map_max_entries("positions", small(cpus)?);
        loader.map_max_entries("sunk", small(cpus * SINKS)?);
        let mut ebpf = loader.load(OBJECT).map_err(load_error)?;
        let mut programs = HashMap::new();
        for (name, program) in ebpf.programs_mut() {
            if let Ok(program) = <&mut Xdp>::try_from(program) {
                program.load().map_err(program_error)?;
                let fd = duplicate(program.fd().map_err(program_error)?.as_fd())?;
                programs.insert(name.to_owned(), fd);
            }
        }
        let mut maps = HashMap::new();
        for (name, map) in ebpf.maps() {
            if let Map::Array(data) | Map::DevMap(data) | Map::ProgramArray(data) = map {
                maps.insert(name.to_owned(), duplicate(data.fd().as_fd())?);
            }
        }
        let region = |name: &str| {
            mapping::region(lookup(&maps, name)?).map_err(|source| Error::Map {
                name: name.to_owned(),
                source,
            })
        };
        Ok(Bench {
            traffic: region("traffic")?,
            long_traffic: region("long_traffic")?,
            destinations: region("destinations")?,
            positions: region("positions")?,
            sunk: region("sunk")?,
            bare_spread: region("bare_spread")?,
            programs,
            maps,
        })
    }

    /// Attaches a program to a link of this namespace.
    ///
    /// # Errors
    /// As [`Engine::attach`].
    pub fn attach(&self, program: Program, index: u32, mode: AttachedMode) -> Result<Attachment> {
        let link = create_link(self.program(program.name())?, index, mode)?;
        Ok(Attachment { _link: link })
    }

    /// Lets the FIB look-up program send out through a link of this namespace.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`].
    pub fn set_port(&self, index: u32) -> Result<()> {
        self.set_devmap("ports", index, index)
    }

    /// Where the bare redirect sends: everything to the first link, or to both by turns when a
    /// forwarder that it is compared with uses both. Sending through two links costs more.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`].
    pub fn set_bare_ports(&self, first: u32, second: Option<u32>) -> Result<()> {
        self.set_devmap("ports", 0, first)?;
        self.set_devmap("ports", LAST_PORT, second.unwrap_or(first))?;
        let spread = u64::from(second.is_some());
        self.bare_spread.words()[0].store(spread, Ordering::Release);
        Ok(())
    }

    /// Where the generator sends everything.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`].
    pub fn set_source_port(&self, index: u32) -> Result<()> {
        self.set_devmap("source_port", 0, index)
    }

    fn set_devmap(&self, map: &str, key: u32, index: u32) -> Result<()> {
        // struct bpf_devmap_val: the index, and no program.
        let mut value = [0; 8];
        value[..4].copy_from_slice(&index.to_ne_bytes());
        sys::map_update(lookup(&self.maps, map)?, key, &value).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::EINVAL | libc::ENODEV) => Error::NoSuchLink { index },
                _ => Error::system("BPF_MAP_UPDATE_ELEM", "set a port", source),
            }
        })
    }

    /// Chooses what is generated from now on; destinations beyond the room for them are left out.
    pub fn set_traffic(&self, traffic: &Traffic) {
        self.set_destinations(traffic.destination_words());
        for (word, value) in self.traffic.words().iter().zip(traffic.words()) {
            word.store(value, Ordering::Release);
        }
    }

    /// Chooses what [`Bench::send_template`] sends from now on; destinations beyond the room for them
    /// are left out.
    pub fn set_template(&self, template: &Template) {
        self.set_destinations(template.destination_words());
        for (word, value) in self.long_traffic.words().iter().zip(template.words()) {
            word.store(value, Ordering::Release);
        }
    }

    fn set_destinations(&self, list: impl Iterator<Item = [u64; 2]>) {
        let pairs = self.destinations.words().chunks_exact(2);
        let room = pairs.len();
        let mut count = 0;
        for (pair, [high, low]) in pairs.zip(list) {
            pair[0].store(high, Ordering::Relaxed);
            pair[1].store(low, Ordering::Relaxed);
            count += 1;
        }
        // A list that ends before the room does is repeated, so that the generator can go round.
        let words = self.destinations.words();
        for at in (count..room).take_while(|_| count != 0) {
            for half in 0..2 {
                let word = words[(at - count) * 2 + half].load(Ordering::Relaxed);
                words[at * 2 + half].store(word, Ordering::Relaxed);
            }
        }
    }

    /// Sends this many frames out of the source port, as fast as it goes, from this CPU; returns
    /// how long that took. `any_link` is a link of this namespace, which the kernel wants to know.
    ///
    /// Each call costs milliseconds of its own: send a million or more.
    ///
    /// # Errors
    /// Where the kernel refuses live frames.
    pub fn send(&self, any_link: u32, packets: u32) -> Result<Duration> {
        self.send_from("generator", &[0; traffic::LEN], any_link, packets)
    }

    /// As [`Bench::send`], of frames like the template, which has to be the one that was set last.
    ///
    /// # Errors
    /// As [`Bench::send`].
    pub fn send_template(
        &self,
        template: &Template,
        any_link: u32,
        packets: u32,
    ) -> Result<Duration> {
        let frame = vec![0; template.len()];
        self.send_from("long_generator", &frame, any_link, packets)
    }

    fn send_from(
        &self,
        generator: &str,
        frame: &[u8],
        any_link: u32,
        packets: u32,
    ) -> Result<Duration> {
        let run = sys::test_run(&mut sys::TestRun {
            program: self.program(generator)?,
            frame,
            out: &mut [],
            ingress: any_link,
            repeat: packets,
            live_batch: Some(BATCH),
        });
        let duration = run.map_err(test_run_error)?.duration;
        Ok(Duration::from_nanos(
            u64::from(duration) * u64::from(packets),
        ))
    }

    /// Packets that the sink on the link with this index has counted.
    pub fn sunk(&self, index: u32) -> u64 {
        let stripes = self.sunk.words().chunks_exact(SINKS * POSITION);
        let at = index as usize % SINKS * POSITION;
        stripes
            .map(|stripe| stripe[at].load(Ordering::Relaxed))
            .sum()
    }

    /// Mean nanoseconds that writing a packet and running the engine's program on it take, in
    /// this CPU's kernel; with no engine, writing it and a program that only passes it on.
    /// Whole nanoseconds, as the kernel reports it.
    ///
    /// # Errors
    /// As [`Engine::test_run`].
    pub fn time(&self, engine: Option<&Engine>, ingress: u32, repeat: u32) -> Result<u32> {
        let program = match engine {
            Some(engine) => engine.program().as_fd(),
            None => self.program("pass")?,
        };
        self.time_program(program, ingress, repeat)
    }

    /// As [`Bench::time`], for one of the benchmark's own programs.
    ///
    /// # Errors
    /// As [`Engine::test_run`].
    pub fn time_own(&self, program: Program, ingress: u32, repeat: u32) -> Result<u32> {
        self.time_program(self.program(program.name())?, ingress, repeat)
    }

    /// As [`Bench::time`], for a frame of at least 144 bytes of which the program may change the first
    /// 144, take off what it likes or put headers in front: it is put back before each run. The bytes
    /// behind its packet, if any, must not be more than Ethernet's minimum asks for.
    ///
    /// # Errors
    /// As [`Engine::test_run`].
    pub fn time_frame(
        &self,
        engine: Option<&Engine>,
        frame: &[u8],
        ingress: u32,
        repeat: u32,
    ) -> Result<u32> {
        let original = mapping::region(lookup(&self.maps, "original")?);
        let original = original.map_err(|source| Error::Map {
            name: "original".to_owned(),
            source,
        })?;
        original.words()[0].store(frame.len() as u64, Ordering::Relaxed);
        let words = frame.as_chunks::<8>().0;
        for (cell, word) in original.words()[8..].iter().zip(words) {
            cell.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        let program = match engine {
            Some(engine) => engine.program().as_fd(),
            None => self.program("pass")?,
        };
        self.time_after("restore_and_call", program, frame, ingress, repeat)
    }

    fn time_program(&self, program: BorrowedFd<'_>, ingress: u32, repeat: u32) -> Result<u32> {
        let frame = [0; traffic::LEN];
        self.time_after("generate_and_call", program, &frame, ingress, repeat)
    }

    fn time_after(
        &self,
        first: &str,
        program: BorrowedFd<'_>,
        frame: &[u8],
        ingress: u32,
        repeat: u32,
    ) -> Result<u32> {
        use std::os::fd::AsRawFd;
        let fd = program.as_raw_fd().to_ne_bytes();
        sys::map_update(lookup(&self.maps, "target")?, 0, &fd)
            .map_err(|source| Error::system("BPF_MAP_UPDATE_ELEM", "chain programs", source))?;
        let run = sys::test_run(&mut sys::TestRun {
            program: self.program(first)?,
            frame,
            out: &mut [],
            ingress,
            repeat,
            live_batch: None,
        });
        Ok(run.map_err(test_run_error)?.duration)
    }

    /// Starts the traffic from its beginning.
    pub fn rewind(&self) {
        for word in self.positions.words() {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn program(&self, name: &str) -> Result<BorrowedFd<'_>> {
        lookup(&self.programs, name)
    }
}

fn lookup<'a>(fds: &'a HashMap<String, OwnedFd>, name: &str) -> Result<BorrowedFd<'a>> {
    fds.get(name)
        .map(AsFd::as_fd)
        .ok_or_else(|| Error::Object(format!("the benchmark's object has no `{name}`")))
}

fn test_run_error(source: std::io::Error) -> Error {
    Error::system("BPF_PROG_TEST_RUN", "run an XDP program", source)
}

fn duplicate(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|source| Error::System {
        call: "fcntl(F_DUPFD_CLOEXEC)",
        source,
    })
}

fn load_error(error: EbpfError) -> Error {
    match error {
        EbpfError::MapError(MapError::CreateError { name, io_error }) => {
            match io_error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => Error::NotPermitted {
                    action: "create BPF maps",
                },
                _ => Error::Map {
                    name,
                    source: io_error,
                },
            }
        }
        EbpfError::ProgramError(error) => program_error(error),
        other => Error::Object(chain(&other)),
    }
}

fn program_error(error: ProgramError) -> Error {
    match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => match io_error.raw_os_error() {
            Some(libc::EPERM) => Error::NotPermitted {
                action: "load the XDP program",
            },
            _ => Error::Verifier {
                source: io_error,
                log: verifier_log.to_string(),
            },
        },
        other => Error::Object(chain(&other)),
    }
}
