//! Pins on a bpffs: the program goes on while no daemon runs.
//!
//! A folder of pins holds the maps by their names in `maps/` and, in `links/`, one pin for each link that has
//! the program, named by interface index and mode. The program itself is not pinned: the links hold
//! it, and whoever recovers brings its own and exchanges it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{FsType, statfs};
use raddle_image::Capacity;

use crate::attach::{Attached, AttachedMode};
use crate::counters::possible_cpus;
use crate::engine::{Engine, clear_out_links};
use crate::mapping::{
    COUNTERS, IMAGE, OUT_LINKS, PROGRAMS, SEGMENT_COUNTERS, SEGMENT_FAILURES, STATE,
};
use crate::room::{capacity_of, sizes};
use crate::sys;
use crate::{Error, Result};

/// `BPF_FS_MAGIC`.
const BPF_FS_MAGIC: FsType = FsType(0xcafe_4a11);
/// Where distributions mount the bpffs.
const BPF_FS: &str = "/sys/fs/bpf";

/// A folder of pins.
#[derive(Debug)]
pub(crate) struct Pins {
    folder: PathBuf,
}

/// Where a map is pinned.
pub(crate) fn map_path(folder: &Path, name: &str) -> PathBuf {
    folder.join("maps").join(name)
}

impl Pins {
    fn map_path(&self, name: &str) -> PathBuf {
        map_path(&self.folder, name)
    }

    fn link_path(&self, index: u32, mode: AttachedMode) -> PathBuf {
        self.folder.join("links").join(format!("{index}-{mode}"))
    }

    pub(crate) fn pin_link(&self, index: u32, mode: AttachedMode, link: &OwnedFd) -> Result<()> {
        let path = self.link_path(index, mode);
        sys::obj_pin(link.as_fd(), &path).map_err(pin_error("pin an XDP link to", &path))
    }

    pub(crate) fn unpin_link(&self, index: u32) -> Result<()> {
        for mode in [AttachedMode::Native, AttachedMode::Generic] {
            remove(&self.link_path(index, mode))?;
        }
        Ok(())
    }
}

impl Engine {
    /// Pins the maps and links under `folder`, so that the program goes on forwarding when this
    /// process ends, until the image's deadline passes. Links attached later are pinned too.
    ///
    /// `folder` must be on a bpffs; one is mounted at `/sys/fs/bpf` if that is where the folder is
    /// and none is there. It must not hold pins already.
    ///
    /// # Errors
    /// After an error nothing is pinned.
    pub fn pin(&mut self, folder: &Path) -> Result<()> {
        let pins = Pins {
            folder: folder.to_owned(),
        };
        prepare(folder)?;
        for (name, _) in self.maps().named() {
            let path = pins.map_path(name);
            if path.exists() {
                let source = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(pin_error("pin a map to", &path)(source));
            }
        }
        if let Err(error) = self.pin_into(&pins) {
            self.remove_pins(&pins)?;
            return Err(error);
        }
        self.pins = Some(pins);
        Ok(())
    }

    /// Whether the program outlives this process.
    pub fn is_pinned(&self) -> bool {
        self.pins.is_some()
    }

    /// Empties the out-links that are pinned under `folder`, if any are: what the programs there would send is punted from now on. To be
    /// done before their links are removed one after the other.
    pub fn clear_pinned_out_links(folder: &Path) {
        if let Ok(map) = sys::obj_get(&map_path(folder, OUT_LINKS)) {
            clear_out_links(map.as_fd());
        }
    }

    /// Removes the pins: from now on links end with this process again.
    ///
    /// # Errors
    /// Where a pin cannot be removed; those before it are gone.
    pub fn unpin(&mut self) -> Result<()> {
        match self.pins.take() {
            Some(pins) => self.remove_pins(&pins),
            None => Ok(()),
        }
    }

    /// Takes over what an earlier process pinned under `folder`: its maps with the image in them,
    /// and its links, whose program is exchanged for this version's without a gap. None where
    /// nothing is pinned.
    ///
    /// Pins of links whose device has gone are removed.
    ///
    /// # Errors
    /// [`Error::Incompatible`] when the maps do not fit this version.
    pub fn recover(folder: &Path) -> Result<Option<Engine>> {
        if !map_path(folder, IMAGE[0]).exists() {
            return Ok(None);
        }
        let mut maps = HashMap::new();
        for name in every_map() {
            let path = map_path(folder, name);
            let map = sys::obj_get(&path).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => Error::Incompatible {
                    path: folder.to_owned(),
                    why: format!("there is no map `{name}`"),
                },
                _ => pin_error("open the pinned map", &path)(source),
            })?;
            maps.insert(name.to_owned(), map);
        }
        let bytes = |name: &str| pinned_bytes(folder, &maps, name);
        let capacity = capacity_of(bytes)?;
        check_sizes(folder, &capacity, bytes)?;
        let mut engine = Engine::load_with(&capacity, maps)?;
        engine.check_magic(folder)?;
        let memory = engine.memory();
        if memory.has_segments() {
            engine.load_srv6()?;
        } else if memory.has_steps() {
            // Without them tagged frames are punted, and whoever wants them tries again.
            let _ = engine.load_srv6();
        }
        let pins = Pins {
            folder: folder.to_owned(),
        };
        let links = folder.join("links");
        let entries = fs::read_dir(&links).map_err(pin_error("read", &links))?;
        for entry in entries {
            let path = entry.map_err(pin_error("read", &links))?.path();
            if let Some(attached) = recover_link(&engine, &path)? {
                engine.links.push(attached);
            }
        }
        engine.pins = Some(pins);
        Ok(Some(engine))
    }

    fn check_magic(&self, folder: &Path) -> Result<()> {
        let magic = self.memory().config().magic;
        if magic != 0 && magic != raddle_image::MAGIC {
            return Err(Error::Incompatible {
                path: folder.to_owned(),
                why: format!("the image's magic number is {magic:#x}"),
            });
        }
        Ok(())
    }

    fn pin_into(&self, pins: &Pins) -> Result<()> {
        for (name, map) in self.maps().named() {
            let path = pins.map_path(name);
            sys::obj_pin(map.as_fd(), &path).map_err(pin_error("pin a map to", &path))?;
        }
        for attached in &self.links {
            pins.pin_link(attached.index, attached.mode, &attached.link)?;
        }
        Ok(())
    }

    fn remove_pins(&self, pins: &Pins) -> Result<()> {
        for attached in &self.links {
            pins.unpin_link(attached.index)?;
        }
        for name in every_map() {
            remove(&pins.map_path(name))?;
        }
        remove_folders(&pins.folder);
        Ok(())
    }
}

/// Whether nothing forwards any more by what is pinned under `folder`, and nothing ever will: it has pins of links, and
/// the devices of all of them are gone (`bpf_xdp_link_release` on the device's way out), as they are when their network
/// namespace is.
///
/// # Errors
/// A pin cannot be read.
pub fn pins_are_dead(folder: &Path) -> Result<bool> {
    let links = folder.join("links");
    let mut dead = false;
    for entry in fs::read_dir(&links).map_err(pin_error("read", &links))? {
        let path = entry.map_err(pin_error("read", &links))?.path();
        let link = sys::obj_get(&path).map_err(pin_error("open the pinned XDP link", &path))?;
        let index = sys::link_index(link.as_fd());
        if index.map_err(pin_error("ask about the pinned XDP link", &path))? != 0 {
            return Ok(false);
        }
        dead = true;
    }
    Ok(dead)
}

/// The names of all maps.
fn every_map() -> impl Iterator<Item = &'static str> {
    let rest = [
        COUNTERS,
        SEGMENT_COUNTERS,
        SEGMENT_FAILURES,
        OUT_LINKS,
        PROGRAMS,
    ];
    IMAGE.into_iter().chain(STATE).chain(rest)
}

/// Bytes of a pinned map.
fn pinned_bytes(folder: &Path, maps: &HashMap<String, OwnedFd>, name: &str) -> Result<usize> {
    let path = map_path(folder, name);
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let map = maps.get(name).ok_or_else(missing);
    let info = map.and_then(|map| sys::map_info(map.as_fd()));
    let info = info.map_err(pin_error("ask about the pinned map", &path))?;
    Ok(info.value_size as usize * info.max_entries as usize)
}

/// All sizes must be those that this version gives such an image: nothing else tells that layouts
/// differ, or that the number of CPUs does.
fn check_sizes(
    folder: &Path,
    capacity: &Capacity,
    bytes: impl Fn(&str) -> Result<usize>,
) -> Result<()> {
    let cpus = possible_cpus().map_err(|source| Error::System {
        call: "reading the CPUs",
        source,
    })?;
    let incompatible = |why: String| Error::Incompatible {
        path: folder.to_owned(),
        why,
    };
    let expected = sizes(capacity, cpus).map_err(|error| incompatible(error.to_string()))?;
    for (name, expected) in expected {
        let found = bytes(name)?;
        if found != expected as usize {
            let why = format!("`{name}` has {found} bytes, not {expected}");
            return Err(incompatible(why));
        }
    }
    Ok(())
}

/// Opens a pinned link and gives it this version's program.
fn recover_link(engine: &Engine, path: &Path) -> Result<Option<Attached>> {
    let name = path.file_name().and_then(|name| name.to_str());
    let parts = name.and_then(|name| name.split_once('-'));
    let mode = match parts {
        Some((_, "native")) => AttachedMode::Native,
        Some((_, "generic")) => AttachedMode::Generic,
        _ => return Ok(None),
    };
    let link = sys::obj_get(path).map_err(pin_error("open the pinned XDP link", path))?;
    let index =
        sys::link_index(link.as_fd()).map_err(pin_error("ask about the pinned XDP link", path))?;
    if index == 0 {
        remove(path)?;
        return Ok(None);
    }
    sys::link_update(link.as_fd(), engine.program().as_fd())
        .map_err(pin_error("exchange the program of the XDP link", path))?;
    Ok(Some(Attached {
        index,
        mode,
        link,
        rx_hash: false,
    }))
}

/// Makes the folder, on a bpffs.
fn prepare(folder: &Path) -> Result<()> {
    if folder.starts_with(BPF_FS) && !is_bpffs(Path::new(BPF_FS)) {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("bpf"), BPF_FS, Some("bpf"), flags, Some("mode=700"))
            .map_err(|errno| pin_error("mount a bpffs at", Path::new(BPF_FS))(errno.into()))?;
    }
    for inside in ["maps", "links"] {
        let inside = folder.join(inside);
        fs::create_dir_all(&inside).map_err(pin_error("create", &inside))?;
    }
    if !is_bpffs(folder) {
        remove_folders(folder);
        let source = io::Error::other(
            "it is not on a bpffs; choose a folder under /sys/fs/bpf, or `mount -t bpf bpf DIR`",
        );
        return Err(pin_error("pin under", folder)(source));
    }
    Ok(())
}

/// Removes the folders that are empty: somebody may keep other things there.
fn remove_folders(folder: &Path) {
    for empty in [folder.join("maps"), folder.join("links"), folder.to_owned()] {
        let _ = fs::remove_dir(empty);
    }
}

fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(pin_error("remove the pin", path)(error))
        }
        _ => Ok(()),
    }
}

fn pin_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::NotPermitted { action },
        _ => Error::Pin {
            action,
            path,
            source,
        },
    }
}
