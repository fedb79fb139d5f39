//! Tables of the size of the Internet's: the real one where it is at hand, else an invented one.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use raddle_fib::{Prefix4, Prefix6};

/// xorshift: repeatable and fast.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn roll(&mut self, below: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(below)) >> 32) as u32
    }
}

/// The folder of `prefixes4.txt.xz` and `prefixes6.txt.xz`: `RADDLE_DATA`, or `shared/data` beside
/// the workspace.
fn folder() -> PathBuf {
    match std::env::var_os("RADDLE_DATA") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    }
}

/// The lines of one of the lists, or why there are none.
fn read<A: FromStr>(name: &str) -> Result<Vec<(A, u8)>, String> {
    let path = folder().join(name);
    if !path.exists() {
        return Err(format!("{} is not there (set RADDLE_DATA)", path.display()));
    }
    let xz = Command::new("xz").arg("-dc").arg(&path).output();
    let xz = xz.map_err(|error| format!("xz cannot be run: {error}"))?;
    if !xz.status.success() {
        return Err(format!(
            "xz: {}",
            String::from_utf8_lossy(&xz.stderr).trim()
        ));
    }
    let text = String::from_utf8(xz.stdout).map_err(|error| error.to_string())?;
    let line = |line: &str| {
        let (addr, len) = line.trim().split_once('/')?;
        Some((addr.parse().ok()?, len.parse().ok()?))
    };
    let parsed: Option<Vec<_>> = text.lines().map(line).collect();
    parsed.ok_or_else(|| format!("{} is not a list of prefixes", path.display()))
}

/// The real IPv4 table, or why it is missing.
pub(crate) fn real4() -> Result<Vec<Prefix4>, String> {
    let list = read::<Ipv4Addr>("prefixes4.txt.xz")?.into_iter();
    list.map(|(addr, len)| Prefix4::new(addr.into(), len).map_err(|error| error.to_string()))
        .collect()
}

/// The real IPv6 table, or why it is missing.
pub(crate) fn real6() -> Result<Vec<Prefix6>, String> {
    let list = read::<Ipv6Addr>("prefixes6.txt.xz")?.into_iter();
    list.map(|(addr, len)| Prefix6::new(addr.into(), len).map_err(|error| error.to_string()))
        .collect()
}

/// A hash that spreads routes over `n` values, so that neighbours rarely merge.
pub(crate) fn spread(key: u64, n: u32) -> u32 {
    let mixed = (key ^ (key >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1 + (((mixed >> 32) * u64::from(n)) >> 32) as u32
}
