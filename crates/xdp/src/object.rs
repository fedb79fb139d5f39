//! Loading the engine's object: what a general loader does, with data sections of any size.
//!
//! The image's memory is a set of data sections (`.bss.NAME` in the object): the program reaches
//! those by address, with a bounds check and no look-up. A loader takes such sections as large as
//! the object declares them; here each becomes a map as large as the capacity asks for, shared
//! with this process (`BPF_F_MMAPABLE`), or an existing map. Parsing and relocation are aya's.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya_obj::{EbpfSectionKind, Map, Object};

use crate::rx_hash::DeviceBound;
use crate::sys::{self, BPF_F_MMAPABLE, BPF_F_RDONLY_PROG, MapSpec};
use crate::{Error, Result};

const SECTION: &str = ".bss.";
/// Lines of the verifier's log that an error shows.
const LOG_LINES: usize = 20;
const BPF_MAP_TYPE_ARRAY: u32 = 2;

/// A loaded program with those that it calls, and its maps, by their names.
pub(crate) struct Loaded {
    pub(crate) program: OwnedFd,
    pub(crate) called: Vec<OwnedFd>,
    pub(crate) maps: HashMap<String, OwnedFd>,
}

/// What its programs are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// They run on frames: on those of one device, if they are bound to it.
    Xdp(Option<DeviceBound>),
    /// They run at raw tracepoints.
    Tracepoint,
}

/// What an object is loaded with.
pub(crate) struct Plan<'a> {
    pub(crate) object: &'a [u8],
    pub(crate) program: &'a str,
    /// More programs of the same object: those that it goes on with (tail calls), or that belong to it.
    pub(crate) called: &'a [&'a str],
    /// Bytes of each data section, by its name without `.bss.`.
    pub(crate) sizes: HashMap<&'static str, u32>,
    /// Values of the program's constants.
    pub(crate) constants: Vec<(&'static str, u32)>,
    /// Maps to use instead of new ones.
    pub(crate) existing: HashMap<String, OwnedFd>,
    pub(crate) kind: Kind,
}

impl Plan<'_> {
    /// Makes the maps and loads the programs over them.
    pub(crate) fn load(self) -> Result<Loaded> {
        let mut object = Object::parse(self.object).map_err(object_error)?;
        let constants: Vec<(&str, [u8; 4])> = self
            .constants
            .iter()
            .map(|&(name, value)| (name, value.to_ne_bytes()))
            .collect();
        let patches = constants
            .iter()
            .map(|(name, value)| (*name, (&value[..], true)));
        object
            .patch_map_data(patches.collect())
            .map_err(object_error)?;
        let mut maps = Vec::new();
        let mut existing = self.existing;
        for (name, map) in std::mem::take(&mut object.maps) {
            let short = name.strip_prefix(SECTION).unwrap_or(&name).to_owned();
            let fd = match existing.remove(&short) {
                Some(fd) => fd,
                None => create(&short, &map, &self.sizes)?,
            };
            maps.push((name, short, fd, map));
        }
        let text = object.functions.keys().map(|key| key.0).collect();
        let by_name = maps
            .iter()
            .map(|(name, _, fd, map)| (name.as_str(), fd.as_raw_fd(), map));
        object.relocate_maps(by_name, &text).map_err(object_error)?;
        object.relocate_calls(&text).map_err(object_error)?;
        if let Kind::Xdp(Some(bound)) = self.kind {
            for function in object.functions.values_mut() {
                bound.call_kernel(&mut function.instructions);
            }
        }
        let program = load_program(&object, self.program, self.kind)?;
        let called = self.called.iter();
        let called = called.map(|name| load_program(&object, name, self.kind));
        let called = called.collect::<Result<_>>()?;
        let maps = maps
            .into_iter()
            .map(|(_, short, fd, _)| (short, fd))
            .collect();
        Ok(Loaded {
            program,
            called,
            maps,
        })
    }
}

fn create(name: &str, map: &Map, sizes: &HashMap<&'static str, u32>) -> Result<OwnedFd> {
    let error = |source: io::Error| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::NotPermitted {
            action: "create BPF maps",
        },
        _ => Error::Map {
            name: name.to_owned(),
            source,
        },
    };
    let (value_size, map_flags) = match map.section_kind() {
        EbpfSectionKind::Bss => {
            let size = sizes.get(name).copied();
            let size = size.ok_or_else(|| Error::Object(format!("`{name}` has no size")))?;
            (size, BPF_F_MMAPABLE)
        }
        EbpfSectionKind::Rodata => (map.value_size(), BPF_F_RDONLY_PROG),
        _ => (map.value_size(), map.map_flags()),
    };
    let data = map.section_kind() != EbpfSectionKind::BtfMaps;
    let fd = sys::map_create(&MapSpec {
        name,
        kind: if data {
            BPF_MAP_TYPE_ARRAY
        } else {
            map.map_type()
        },
        value_size,
        max_entries: if data { 1 } else { map.max_entries() },
        flags: map_flags,
    })
    .map_err(error)?;
    if map.section_kind() == EbpfSectionKind::Rodata {
        // Frozen, so that the verifier takes the constants for what they are.
        sys::map_update(fd.as_fd(), 0, map.data()).map_err(error)?;
        sys::map_freeze(fd.as_fd()).map_err(error)?;
    }
    Ok(fd)
}

fn load_program(object: &Object, name: &str, kind: Kind) -> Result<OwnedFd> {
    let missing = || Error::Object(format!("it has no program `{name}`"));
    let program = object.programs.get(name).ok_or_else(missing)?;
    let function = object
        .functions
        .get(&program.function_key())
        .ok_or_else(missing)?;
    let (instructions, license) = (&function.instructions, &program.license);
    let load = |log: &mut [u8]| match kind {
        Kind::Xdp(bound) => {
            let device = bound.map(|bound| bound.index);
            sys::xdp_load(name, instructions, license, device, log)
        }
        Kind::Tracepoint => sys::tracepoint_load(name, instructions, license, log),
    };
    let source = match load(&mut []) {
        Ok(fd) => return Ok(fd),
        Err(source) => source,
    };
    if source.raw_os_error() == Some(libc::EPERM) {
        return Err(Error::NotPermitted {
            action: "load BPF programs",
        });
    }
    // Once more, for the reasons.
    let mut log = vec![0; 16 << 20];
    match load(&mut log) {
        Ok(fd) => Ok(fd),
        Err(source) => Err(Error::Verifier {
            source,
            log: tail(&log),
        }),
    }
}

fn tail(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn object_error(error: impl std::error::Error) -> Error {
    Error::Object(chain(&error))
}

/// An error with everything that caused it, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_end_at_their_end() {
        assert_eq!(tail(b"one\ntwo\0\0\0"), "one\ntwo");
        let many = "line\n".repeat(100);
        assert_eq!(tail(many.as_bytes()).lines().count(), LOG_LINES);
    }
}
