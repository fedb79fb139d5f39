//! The Internet's tables, where they are at hand; and what is drawn.

mod dice;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

pub(crate) use dice::{Dice, spread};
use raddle_fib::{Prefix4, Prefix6};

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
