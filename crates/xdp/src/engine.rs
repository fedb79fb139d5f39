//! Loading the program and its maps.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use aya::include_bytes_aligned;
use raddle_fib::Region;
use raddle_image::{
    ADJACENCY_COUNTERS, Capacity, LEFT_COUNTERS, MAX_LINKS, Memory, REASON_COUNTERS,
};

use crate::attach::Attached;
use crate::counters::{self, Counter, Counters, SegmentCells, SegmentCounts, segment_stripe};
use crate::mapping::{
    self, COUNTERS, IMAGE, OUT_LINKS, PROGRAMS, SEGMENT_COUNTERS, SEGMENT_FAILURES, STATE,
};
use crate::object::{Kind, Loaded, Plan};
use crate::pin::Pins;
use crate::room::sizes;
use crate::sys;
use crate::{Error, Result};

pub(crate) static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/raddle.o"));
static SRV6_OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/raddle_srv6.o"));
const PROGRAM: &str = "raddle";
/// Programs that it calls, by their places in [`PROGRAMS`].
const CALLED: [&str; 7] = [
    "segment", "encap", "flavours", "choice", "tagged", "tunnel", "untunnel",
];

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
    counters: Arc<Region>,
    counter_slots: usize,
    segment_counters: Arc<SegmentCells>,
    called: Vec<OwnedFd>,
    pub(crate) links: Vec<Attached>,
    pub(crate) pins: Option<Pins>,
}

/// How large a loaded program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSize {
    /// Its name in the kernel.
    pub name: String,
    /// Instructions that the verifier went through, on all ways; a million is the most it does.
    pub verified: u32,
    /// Bytes of BPF instructions after the verifier's changes.
    pub translated: u32,
    /// Bytes of machine code; 0 where the kernel interprets.
    pub compiled: u32,
}

impl ProgramSize {
    fn of(program: &OwnedFd) -> Result<ProgramSize> {
        let (name, sizes) = sys::program_size(program.as_fd()).map_err(|source| {
            Error::system("BPF_OBJ_GET_INFO_BY_FD", "look at an XDP program", source)
        })?;
        let [verified, translated, compiled] = sizes;
        Ok(ProgramSize {
            name,
            verified,
            translated,
            compiled,
        })
    }
}

/// Programs for SRv6 that are to be loaded, over the maps of an engine.
pub struct Srv6Plan(Plan<'static>);

/// Programs for SRv6, loaded for an engine.
pub struct Srv6Programs(Loaded);

impl Srv6Plan {
    /// Loads them. Takes some seconds, in which the verifier reads the programs; any thread will do.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn load(self) -> Result<Srv6Programs> {
        self.0.load().map(Srv6Programs)
    }
}

/// Descriptors of the maps.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) image: [OwnedFd; IMAGE.len()],
    pub(crate) counters: OwnedFd,
    pub(crate) segment_counters: OwnedFd,
    pub(crate) segment_failures: OwnedFd,
    pub(crate) state: [OwnedFd; STATE.len()],
    pub(crate) out_links: OwnedFd,
    pub(crate) programs: OwnedFd,
}

impl Maps {
    /// More descriptors of them, by name.
    pub(crate) fn try_clone(&self) -> Result<HashMap<String, OwnedFd>> {
        let clones = self.named();
        let clones = clones.map(|(name, map)| Ok((name.to_owned(), map.try_clone()?)));
        clones
            .collect::<io::Result<_>>()
            .map_err(|source| Error::system("dup", "open the maps once more", source))
    }

    /// Every map with its name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &OwnedFd)> {
        let rest = [
            (COUNTERS, &self.counters),
            (SEGMENT_COUNTERS, &self.segment_counters),
            (SEGMENT_FAILURES, &self.segment_failures),
            (OUT_LINKS, &self.out_links),
            (PROGRAMS, &self.programs),
        ];
        let state = STATE.iter().copied().zip(&self.state);
        IMAGE
            .iter()
            .copied()
            .zip(&self.image)
            .chain(state)
            .chain(rest)
    }
}

impl Engine {
    /// Loads the program with empty maps. Nothing is attached yet.
    ///
    /// Until the image has its magic number, the program punts every packet.
    ///
    /// # Errors
    /// Missing privileges, an old kernel, no memory for the maps.
    pub fn load(options: &LoadOptions) -> Result<Engine> {
        Engine::load_with(&options.capacity, HashMap::new())
    }

    /// Has the program carry out SRv6 segments, from the next packet on. Before, the kernel gets packets
    /// for them, raddle's own SIDs included. Nothing happens where it is so already.
    ///
    /// Takes some seconds, and a few nanoseconds of every packet's: the program is exchanged for one that
    /// calls others. Links whose program reads the hash of their driver keep that one.
    ///
    /// # Errors
    /// As [`Engine::load`]; nothing has changed then, or some links have the new program, which is as good.
    pub fn load_srv6(&mut self) -> Result<()> {
        self.load_srv6_with(true)
    }

    /// As [`Engine::load_srv6`], with programs that have no code to count segments: to measure what that
    /// costs.
    ///
    /// # Errors
    /// As [`Engine::load_srv6`].
    pub fn load_srv6_uncounted(&mut self) -> Result<()> {
        self.load_srv6_with(false)
    }

    /// Whether the program carries out SRv6 segments.
    pub fn has_srv6(&self) -> bool {
        !self.called.is_empty()
    }

    fn load_srv6_with(&mut self, counting: bool) -> Result<()> {
        if self.has_srv6() {
            return Ok(());
        }
        let programs = self.srv6_with(counting)?.load()?;
        self.use_srv6(programs)
    }

    /// What [`Engine::load_srv6`] loads, to be loaded elsewhere: the engine can be used meanwhile.
    ///
    /// # Errors
    /// When there are no more descriptors to be had.
    pub fn srv6(&self) -> Result<Srv6Plan> {
        self.srv6_with(true)
    }

    fn srv6_with(&self, counting: bool) -> Result<Srv6Plan> {
        let mut plan = plan(SRV6_OBJECT, &self.memory.capacity(), self.maps.try_clone()?)?;
        plan.called = &CALLED;
        plan.constants.push(("counting", counting.into()));
        Ok(Srv6Plan(plan))
    }

    /// Has links carry out SRv6 with these programs, which must have been loaded for this engine; the rest of
    /// [`Engine::load_srv6`]. Takes some milliseconds.
    ///
    /// # Errors
    /// As [`Engine::load_srv6`].
    pub fn use_srv6(&mut self, programs: Srv6Programs) -> Result<()> {
        let Srv6Programs(loaded) = programs;
        for (place, program) in (0..).zip(&loaded.called) {
            let value = program.as_raw_fd().to_ne_bytes();
            sys::map_update(self.maps.programs.as_fd(), place, &value).map_err(|source| {
                Error::system("BPF_MAP_UPDATE_ELEM", "install an XDP program", source)
            })?;
        }
        self.program = loaded.program;
        self.called = loaded.called;
        for link in self.links.iter().filter(|link| !link.rx_hash) {
            sys::link_update(link.link.as_fd(), self.program.as_fd()).map_err(|source| {
                Error::system("BPF_LINK_UPDATE", "exchange an XDP program", source)
            })?;
        }
        Ok(())
    }

    /// Loads the program; over existing maps, where there are any.
    pub(crate) fn load_with(
        capacity: &Capacity,
        existing: HashMap<String, OwnedFd>,
    ) -> Result<Engine> {
        let mut loaded = plan(OBJECT, capacity, existing)?.load()?;
        let mut take = |name: &str| {
            let map = loaded.maps.remove(name);
            map.ok_or_else(|| Error::Object(format!("it has no map `{name}`")))
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
            segment_counters: take(SEGMENT_COUNTERS)?,
            segment_failures: take(SEGMENT_FAILURES)?,
            state: [
                take(STATE[0])?,
                take(STATE[1])?,
                take(STATE[2])?,
                take(STATE[3])?,
            ],
            out_links: take(OUT_LINKS)?,
            programs: take(PROGRAMS)?,
        };
        let memory = Arc::new(mapping::memory(&maps.image)?);
        let region = |name: &str, map: &OwnedFd| {
            mapping::region(map.as_fd()).map_err(|source| Error::Map {
                name: name.to_owned(),
                source,
            })
        };
        let counters = region(COUNTERS, &maps.counters)?;
        let carried = region(SEGMENT_COUNTERS, &maps.segment_counters)?;
        let failed = region(SEGMENT_FAILURES, &maps.segment_failures)?;
        let segment_counters = SegmentCells::new(capacity.segments, carried, failed);
        Ok(Engine {
            program: loaded.program,
            maps,
            memory,
            counters: Arc::new(counters),
            counter_slots: counters::slots(capacity.adjacencies),
            segment_counters: Arc::new(segment_counters),
            called: loaded.called,
            links: Vec::new(),
            pins: None,
        })
    }

    /// The image's memory: what is stored here, the program reads.
    pub fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// Lets packets go out through a link of this network namespace. Adjacencies to links that are
    /// not allowed punt their packets.
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

    /// Takes back all that [`Engine::set_out_link`] allowed, also by an earlier process: what is to go out is punted. Costs some
    /// milliseconds.
    pub fn clear_out_links(&self) {
        clear_out_links(self.maps.out_links.as_fd());
    }

    /// Reads all counters. Costs a few microseconds a CPU; stops nobody.
    pub fn counters(&self) -> Counters {
        Counters::read(&self.counters, self.counter_slots)
    }

    /// What each CPU has counted of the segment with this number; nothing where there is none. Costs a
    /// few cache lines for each CPU; stops nobody.
    pub fn segment_counts(&self, number: u32) -> impl Iterator<Item = SegmentCounts> + '_ {
        self.segment_counters.read(number)
    }

    /// Forgets what was counted of the segment with this number. For a number that is given to
    /// something else: packets that are under way may still count what it was before, so a [`crate::grace()`]
    /// must be over since the image has shown it last.
    pub fn clear_segment_counters(&self, number: u32) {
        self.segment_counters.clear(number);
    }

    /// The same as a function that needs no engine at hand, for `Rib::on_new_segment`.
    pub fn segment_counter_clearer(&self) -> impl Fn(u32) + Send + Sync + use<> {
        let counters = Arc::clone(&self.segment_counters);
        move |number| counters.clear(number)
    }

    /// Sets the counters of an adjacency to 0 and says what they were, for `Rib::on_passed_on`. As with
    /// [`Engine::clear_segment_counters`], a [`crate::grace()`] must be over since the image has shown it last.
    pub fn adjacency_counter_taker(&self) -> impl Fn(u32) -> Counter + Send + Sync + use<> {
        let (counters, slots) = (Arc::clone(&self.counters), self.counter_slots);
        move |number| counters::take_out(&counters, slots, ADJACENCY_COUNTERS + number as usize)
    }

    /// What has been counted by the adjacency with this number, for `Rib::on_renamed`.
    pub fn adjacency_counter_reader(&self) -> impl Fn(u32) -> Counter + Send + Sync + use<> {
        let (counters, slots) = (Arc::clone(&self.counters), self.counter_slots);
        move |number| counters::read_one(&counters, slots, ADJACENCY_COUNTERS + number as usize)
    }

    /// Sets what was received on the link with this counter slot, and left to the kernel, to 0, for `Rib::on_slot_passed_on`. As
    /// with [`Engine::clear_segment_counters`], a [`crate::grace()`] must be over since the image has shown it last.
    pub fn link_counter_clearer(&self) -> impl Fn(u32) + Send + Sync + use<> {
        let (counters, slots) = (Arc::clone(&self.counters), self.counter_slots);
        move |slot| {
            for counter in [REASON_COUNTERS, LEFT_COUNTERS] {
                counters::take_out(&counters, slots, counter + slot as usize);
            }
        }
    }

    /// Sets the counters of all reasons, links and adjacencies to 0: whom numbers counted for, only that daemon knew that
    /// gave them out, and shares are of what one daemon has seen. To be called where no program counts by numbers, after
    /// [`Memory::reset`]; a packet that is being counted for a reason meanwhile may be lost to it.
    pub fn clear_counters(&self) {
        for counter in 0..self.counter_slots {
            counters::take_out(&self.counters, self.counter_slots, counter);
        }
    }

    /// How large the loaded programs are, the main one first.
    ///
    /// # Errors
    /// Only when the system call is refused.
    pub fn sizes(&self) -> Result<Vec<ProgramSize>> {
        let programs = std::iter::once(&self.program).chain(&self.called);
        programs.map(ProgramSize::of).collect()
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

/// How to load a variant of the program for a capacity; over existing maps, where there are any.
pub(crate) fn plan(
    object: &'static [u8],
    capacity: &Capacity,
    existing: HashMap<String, OwnedFd>,
) -> Result<Plan<'static>> {
    let cpus = counters::possible_cpus().map_err(|source| Error::System {
        call: "reading the CPUs",
        source,
    })?;
    let counter_slots = counters::slots(capacity.adjacencies);
    let segment_stripe = segment_stripe(capacity.segments);
    Ok(Plan {
        object,
        program: PROGRAM,
        called: &[],
        sizes: sizes(capacity, cpus)?,
        constants: vec![
            ("nodes4_len", small(capacity.nodes4)?),
            ("leaves4_len", small(capacity.leaves4.next_multiple_of(4))?),
            ("words6_len", small(capacity.words6)?),
            ("groups_len", small(capacity.groups)?),
            ("members_len", small(capacity.members)?),
            ("adjacencies_len", small(capacity.adjacencies)?),
            ("segments_len", small(capacity.segments)?),
            ("templates_len", small(capacity.templates)?),
            ("segment_counters_len", small(segment_stripe * cpus)?),
            ("segment_stripe", small(segment_stripe)?),
            ("counter_slots", small(counter_slots)?),
            ("counters_len", small(counter_slots * cpus)?),
            ("cpus", small(cpus)?),
        ],
        existing,
        kind: Kind::Xdp(None),
    })
}

pub(crate) fn small(entries: usize) -> Result<u32> {
    u32::try_from(entries).map_err(|_| Error::Map {
        name: format!("with {entries} entries"),
        source: io::Error::from_raw_os_error(libc::E2BIG),
    })
}

/// Empties a map of out-links.
pub(crate) fn clear_out_links(map: BorrowedFd<'_>) {
    for index in 0..MAX_LINKS as u32 {
        // Most are not there.
        let _ = sys::map_delete(map, index);
    }
}

impl Drop for Engine {
    /// What is not pinned is detached, one link after the other: nothing goes out by bonds any more before the first is (their driver
    /// looks after its members only while a program is on the bond).
    fn drop(&mut self) {
        if self.pins.is_none() && !self.links.is_empty() {
            self.clear_out_links();
        }
    }
}
