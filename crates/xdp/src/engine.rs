//! Loading the program and its maps.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use aya::maps::{Map, MapError};
use aya::programs::{ProgramError, Xdp};
use aya::{EbpfError, EbpfLoader, include_bytes_aligned};
use raddle_fib::Region;
use raddle_rib::image::{Adjacency, Capacity, MAX_LINKS, Memory};

use crate::attach::Attached;
use crate::counters::{self, Counters};
use crate::mapping::{self, CLOCKS, COUNTERS, IMAGE, OUT_LINKS};
use crate::pin::{Pins, map_path};
use crate::sys::{self, MapInfo};
use crate::{Error, Result};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/raddle.o"));
const PROGRAM: &str = "raddle";
/// Lines of the verifier's log that an error shows.
const LOG_LINES: usize = 20;

/// How to load the engine.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// How much the image can hold. Fixed until the engine is loaded anew.
    pub capacity: Capacity,
}

/// The XDP engine: the program, the image's memory, and the links it is attached to.
#[derive(Debug)]
pub struct Engine {
    program: OwnedFd,
    maps: Maps,
    memory: Arc<Memory>,
    counters: Region,
    counter_slots: usize,
    pub(crate) links: Vec<Attached>,
    pub(crate) pins: Option<Pins>,
}

/// Descriptors of the maps.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) image: [OwnedFd; IMAGE.len()],
    pub(crate) counters: OwnedFd,
    pub(crate) clocks: OwnedFd,
    pub(crate) out_links: OwnedFd,
}

impl Maps {
    /// Every map with its name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &OwnedFd)> {
        let rest = [
            (COUNTERS, &self.counters),
            (CLOCKS, &self.clocks),
            (OUT_LINKS, &self.out_links),
        ];
        IMAGE.iter().copied().zip(&self.image).chain(rest)
    }
}

impl Engine {
    /// Loads the program with empty maps. Nothing is attached yet.
    ///
    /// Until the image has its magic number, the program hands every packet to the kernel.
    ///
    /// # Errors
    /// Missing privileges, an old kernel, no memory for the maps.
    pub fn load(options: &LoadOptions) -> Result<Engine> {
        Engine::load_with(&options.capacity, None)
    }

    /// Loads the program; over the maps pinned in `pins`, where that is given.
    pub(crate) fn load_with(capacity: &Capacity, pins: Option<&Path>) -> Result<Engine> {
        let cpus = counters::possible_cpus().map_err(|source| Error::System {
            call: "reading the CPUs",
            source,
        })?;
        let counter_slots = counters::slots(capacity.adjacencies);
        let slots_constant = small(counter_slots)?;
        let mut loader = EbpfLoader::new();
        loader.override_global("counter_slots", &slots_constant, true);
        for (name, entries) in entries(capacity, cpus) {
            loader.map_max_entries(name, small(entries)?);
        }
        if let Some(folder) = pins {
            let names = IMAGE.into_iter().chain([COUNTERS, CLOCKS, OUT_LINKS]);
            for name in names {
                loader.map_pin_path(name, map_path(folder, name));
            }
        }
        let mut ebpf = loader.load(OBJECT).map_err(load_error)?;
        let program: &mut Xdp = ebpf
            .program_mut(PROGRAM)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| Error::Object(format!("it has no XDP program `{PROGRAM}`")))?;
        program.load().map_err(program_error)?;
        let program = duplicate(program.fd().map_err(program_error)?.as_fd())?;
        let mut named = HashMap::new();
        for (name, map) in ebpf.maps() {
            if let Map::Array(data) | Map::DevMap(data) = map {
                named.insert(name, duplicate(data.fd().as_fd())?);
            }
        }
        let mut take = |name: &str| {
            named
                .remove(name)
                .ok_or_else(|| Error::Object(format!("it has no map `{name}`")))
        };
        let mut image = Vec::with_capacity(IMAGE.len());
        for name in IMAGE {
            image.push(take(name)?);
        }
        let maps = Maps {
            image: image
                .try_into()
                .map_err(|_| Error::Object("the image's maps are not complete".to_owned()))?,
            counters: take(COUNTERS)?,
            clocks: take(CLOCKS)?,
            out_links: take(OUT_LINKS)?,
        };
        let memory = Arc::new(mapping::memory(&maps.image)?);
        let counters = mapping::region(maps.counters.as_fd()).map_err(|source| Error::Map {
            name: COUNTERS.to_owned(),
            source,
        })?;
        Ok(Engine {
            program,
            maps,
            memory,
            counters,
            counter_slots,
            links: Vec::new(),
            pins: None,
        })
    }

    /// The image's memory: what is stored here, the program reads.
    pub fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// Lets packets go out through a link of this network namespace. Adjacencies to links that are
    /// not allowed hand their packets to the kernel.
    ///
    /// The kernel takes a device off by itself when it goes away.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], [`Error::LinkIndex`].
    pub fn set_out_link(&self, index: u32) -> Result<()> {
        // struct bpf_devmap_val: the index, and no program to run on the way out.
        let mut value = [0u8; 8];
        value[..4].copy_from_slice(&index.to_ne_bytes());
        sys::map_update(self.maps.out_links.as_fd(), index, &value).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::EINVAL | libc::ENODEV) => Error::NoSuchLink { index },
                Some(libc::E2BIG) => Error::LinkIndex {
                    index,
                    limit: MAX_LINKS,
                },
                _ => Error::system("BPF_MAP_UPDATE_ELEM", "allow an out-link", source),
            }
        })
    }

    /// Takes back what [`Engine::set_out_link`] allowed; fine when it was not allowed.
    ///
    /// # Errors
    /// Only when the system call is refused.
    pub fn remove_out_link(&self, index: u32) -> Result<()> {
        match sys::map_delete(self.maps.out_links.as_fd(), index) {
            Err(source) if !matches!(source.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
                Err(Error::system(
                    "BPF_MAP_DELETE_ELEM",
                    "take back an out-link",
                    source,
                ))
            }
            _ => Ok(()),
        }
    }

    /// Reads all counters. Costs a few microseconds a CPU; stops nobody.
    pub fn counters(&self) -> Counters {
        Counters::read(&self.counters, self.counter_slots)
    }

    pub(crate) fn program(&self) -> &OwnedFd {
        &self.program
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    pub(crate) fn counter_region(&self) -> &Region {
        &self.counters
    }

    pub(crate) fn counter_slots(&self) -> usize {
        self.counter_slots
    }
}

/// Maps whose size depends on the capacity, with their number of elements.
fn entries(capacity: &Capacity, cpus: usize) -> [(&'static str, usize); 8] {
    [
        ("nodes4", capacity.nodes4),
        ("leaves4", capacity.leaves4.div_ceil(4)),
        ("words6", capacity.words6),
        ("groups", capacity.groups),
        ("members", capacity.members),
        ("adjacencies", capacity.adjacencies),
        (COUNTERS, counters::slots(capacity.adjacencies) * cpus),
        (CLOCKS, cpus),
    ]
    .map(|(name, entries)| (name, entries.max(1)))
}

/// The capacity of existing maps, given how to ask for one by name.
pub(crate) fn capacity_of(ask: impl Fn(&str) -> Result<MapInfo>) -> Result<Capacity> {
    let entries = |name: &str| ask(name).map(|info| info.max_entries as usize);
    Ok(Capacity {
        nodes4: entries("nodes4")?,
        leaves4: entries("leaves4")? * 4,
        words6: entries("words6")?,
        groups: entries("groups")?,
        members: entries("members")?,
        adjacencies: entries("adjacencies")?,
    })
}

const _: () = assert!(size_of::<Adjacency>() == 64);

pub(crate) fn small(entries: usize) -> Result<u32> {
    u32::try_from(entries).map_err(|_| Error::Map {
        name: format!("with {entries} entries"),
        source: io::Error::from_raw_os_error(libc::E2BIG),
    })
}

pub(crate) fn duplicate(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|source| Error::System {
        call: "fcntl(F_DUPFD_CLOEXEC)",
        source,
    })
}

pub(crate) fn load_error(error: EbpfError) -> Error {
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

pub(crate) fn program_error(error: ProgramError) -> Error {
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
                log: tail(&verifier_log.to_string()),
            },
        },
        other => Error::Object(chain(&other)),
    }
}

/// An error with everything that caused it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
