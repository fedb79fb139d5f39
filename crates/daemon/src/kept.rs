//! Programs that outlive the daemon (`on-exit = "keep"`): pins on a bpffs, a folder for each network
//! namespace.

use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aya::maps::{Array, Map, MapData};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use raddle_image::Config;
use raddle_xdp::{Engine, has_own_program, pins_are_dead};
use serde::Serialize;

use crate::Error;

/// Where distributions mount the bpffs; the engine mounts one there if there is none.
const BPF_FS: &str = "/sys/fs/bpf";

/// Where the pins of this network namespace are.
pub(crate) fn folder() -> PathBuf {
    let socket = raddle_control::default_path();
    let name = socket
        .file_stem()
        .map_or_else(|| "raddle".into(), ToOwned::to_owned);
    Path::new(BPF_FS).join("raddle").join(name)
}

/// The links that have a pinned program, by index, with the mode that it runs in.
pub(crate) fn links() -> BTreeMap<u32, String> {
    let pins = std::fs::read_dir(folder().join("links"))
        .into_iter()
        .flatten()
        .flatten();
    pins.filter_map(|pin| {
        let name = pin.file_name();
        let (index, mode) = name.to_str()?.split_once('-')?;
        Some((index.parse().ok()?, mode.to_owned()))
    })
    .collect()
}

/// For how many seconds more the pinned programs forward without a daemon; 0 when they punt everything
/// already. None where that cannot be read, or no time is set.
fn seconds_left() -> Option<u64> {
    let map = MapData::from_pin(folder().join("maps/config")).ok()?;
    let map = Array::<_, [u8; size_of::<Config>()]>::try_from(Map::Array(map)).ok()?;
    let config = map.get(&0, 0).ok()?;
    let at = offset_of!(Config, deadline);
    let deadline = u64::from_ne_bytes(config[at..at + 8].try_into().ok()?);
    let left = deadline.saturating_sub(now());
    (deadline != 0).then(|| left.div_ceil(1_000_000_000))
}

/// Programs without a daemon.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// `kept`.
    pub state: &'static str,
    /// Where they are attached.
    pub links: Vec<KeptLink>,
    /// For how many seconds more they forward.
    pub forwards_for_seconds: Option<u64>,
}

/// A link with a program that has no daemon.
#[derive(Clone, Debug, Serialize)]
pub struct KeptLink {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub dev: String,
    /// How the program is attached.
    pub mode: String,
}

/// What `raddle status` tells where no daemon answers, but programs have been kept. None where
/// nothing is pinned, or the caller may not see it.
pub fn status() -> Option<Kept> {
    let links: Vec<KeptLink> = links()
        .into_iter()
        .map(|(ifindex, mode)| KeptLink {
            ifindex,
            dev: name(ifindex),
            mode,
        })
        .collect();
    (!links.is_empty()).then(|| Kept {
        state: "kept",
        links,
        forwards_for_seconds: seconds_left(),
    })
}

/// Detaches what an earlier daemon has left in this network namespace, and says from which links; and removes what was
/// left in namespaces that are gone.
///
/// # Errors
/// A daemon runs, whose programs they are; no privilege; there are programs whose pins are not to be seen from here.
pub fn detach() -> Result<Vec<String>, Error> {
    let _lock = raddle_control::lock()?;
    let links = links();
    remove()?;
    sweep();
    if links.is_empty() {
        check_unseen()?;
    }
    Ok(links.into_keys().map(name).collect())
}

/// Looks for links of this network namespace that have raddle's program where neither a daemon nor pins are to be seen from
/// here: those are on the bpffs, or below the `/run`, of another mount namespace. `ip netns exec` makes one for each command.
///
/// # Errors
/// [`Error::PinsUnseen`], with such links.
pub fn check_unseen() -> Result<(), Error> {
    // The kernel takes a program off a moment after its daemon or its pin is gone.
    let end = Instant::now() + Duration::from_secs(1);
    loop {
        let links = with_programs();
        if links.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(Error::PinsUnseen { links });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Names of the links that have raddle's program.
fn with_programs() -> Vec<String> {
    let all = nix::net::if_::if_nameindex();
    let all = all.iter().flat_map(|all| all.iter());
    let ours = all.filter(|link| has_own_program(link.index()));
    ours.map(|link| link.name().to_string_lossy().into_owned())
        .collect()
}

/// Removes what was kept in network namespaces that are gone. Another namespace may have the number of one that is gone,
/// so it is not the number that tells:
///
/// 1. What is kept in this namespace stays.
/// 2. So does what a daemon may be using: its lock has to be free, and is held meanwhile.
/// 3. The devices of all links that are pinned have to be gone ([`pins_are_dead`]). A program on a device that has gone
///    back to another namespace, as physical ones do, stays.
/// 4. What cannot be read stays.
pub(crate) fn sweep() {
    let ours = folder();
    let folders = ours.parent().and_then(|all| std::fs::read_dir(all).ok());
    for folder in folders.into_iter().flatten().flatten().map(|e| e.path()) {
        let name = folder.file_name().and_then(|name| name.to_str());
        let is_ours = |name: &&str| folder != ours && is_of_namespace(name);
        let Some(name) = name.filter(is_ours) else {
            continue;
        };
        if !matches!(pins_are_dead(&folder), Ok(true)) {
            continue;
        }
        // Asked again under the lock: a daemon may have come meanwhile.
        if let Some(_lock) = raddle_control::lock_of(name)
            && matches!(pins_are_dead(&folder), Ok(true))
        {
            match std::fs::remove_dir_all(&folder) {
                Ok(()) => tracing::info!(
                    "removed {}: the links of its network namespace are gone",
                    folder.display()
                ),
                Err(e) => tracing::debug!("cannot remove {}: {e}", folder.display()),
            }
        }
    }
}

/// Whether a folder is one that is named for a network namespace.
fn is_of_namespace(name: &str) -> bool {
    let number = name.strip_prefix("net-").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

fn name(index: u32) -> String {
    let name = nix::net::if_::if_indextoname(index).ok();
    name.and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| format!("if{index}"))
}

/// Removes the pins. Links that no process holds are detached with them.
pub(crate) fn remove() -> Result<(), Error> {
    let folder = folder();
    Engine::clear_pinned_out_links(&folder);
    match std::fs::remove_dir_all(&folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::RemovePins {
            path: folder,
            source,
        }),
        _ => Ok(()),
    }
}

/// What is known about the place where programs would be pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// The device number of the bpffs, where one is mounted.
    bpffs: Option<(u32, u32)>,
    /// `/proc/self/mountinfo`.
    ours: String,
    /// `/proc/1/mountinfo`; none where it cannot be read.
    first: Option<String>,
}

/// Whether pins will be there after this process.
///
/// 1. Where the mounts of process 1 cannot be seen: taken for granted.
/// 2. Where process 1 has the same bpffs mounted (also when we are a unit with `ProtectSystem=`): yes.
/// 3. Where none is mounted yet, and we mount it for process 1 as well: yes. No two mount namespaces
///    have mounts of the same number.
/// 4. Otherwise the bpffs belongs to a mount namespace of its own, such as `ip netns exec` makes for
///    the command that it runs, and goes with it: no.
fn lasts(place: &Place) -> bool {
    let Some(first) = &place.first else {
        return true;
    };
    let column = |line: &str, n| line.split(' ').nth(n).map(str::to_owned);
    let of_first = |n, wanted: Option<String>| {
        let mut lines = first.lines();
        wanted.is_some() && lines.any(|line| column(line, n) == wanted)
    };
    match place.bpffs {
        Some((major, minor)) => of_first(2, Some(format!("{major}:{minor}"))),
        None => {
            let number = place.ours.lines().next().and_then(|line| column(line, 0));
            of_first(0, number)
        }
    }
}

/// Makes sure that programs can be kept, before a user relies on it.
///
/// # Errors
/// They would go with this process's mount namespace.
pub(crate) fn possible() -> Result<(), Error> {
    let is_bpffs = statfs(BPF_FS).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC);
    let bpffs = std::fs::metadata(BPF_FS).ok().filter(|_| is_bpffs);
    let place = Place {
        bpffs: bpffs.map(|folder| (libc::major(folder.dev()), libc::minor(folder.dev()))),
        ours: std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
        first: std::fs::read_to_string("/proc/1/mountinfo").ok(),
    };
    if lasts(&place) {
        return Ok(());
    }
    Err(Error::NotKept(BPF_FS))
}

/// `CLOCK_MONOTONIC` in nanoseconds, which programs that are kept go by.
pub(crate) fn now() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let now = now.map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_last_where_others_see_the_bpffs() {
        let first = "22 1 0:20 / /sys rw - sysfs sysfs rw\n\
                     31 22 0:29 / /sys/fs/bpf rw shared:9 - bpf bpf rw,mode=700\n";
        let copy = "122 101 0:20 / /sys rw - sysfs sysfs rw\n";
        let place = |bpffs, ours: &str| Place {
            bpffs,
            ours: ours.to_owned(),
            first: Some(first.to_owned()),
        };
        for (place, expected) in [
            (place(Some((0, 29)), first), true),
            (place(Some((0, 29)), copy), true),
            (place(Some((0, 2)), copy), false),
            (place(None, first), true),
            (place(None, copy), false),
            (
                Place {
                    first: None,
                    ..place(None, copy)
                },
                true,
            ),
        ] {
            assert_eq!(lasts(&place), expected, "{place:?}");
        }
    }
}
