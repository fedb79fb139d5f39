//! Static SIDs and encapsulations, for what this kernel lacks: `[[sid]]` and
//! `[[encap]]` in the configuration, `--sid` and `--encap` on the command line.
//!
//! This is what they are in words and values. The daemon makes them routes of the mirror that no dump sweeps
//! ([`ROUTE_STATIC`]), see `static_routes.rs`.

mod encap;
mod error;
mod sid;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use encap::RawEncap;
pub use encap::StaticEncap;
pub use error::StaticError;
pub(crate) use sid::RawSid;
pub use sid::StaticSid;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use raddle_rib::event::{ROUTE_STATIC, Route, RouteTarget};

use raddle_config::Spanned;
use raddle_iproute::Names;

use crate::config::Invalid;

/// `RT_TABLE_MAIN`.
const MAIN: u32 = 254;

/// A route that only raddle has.
fn static_route(dst: IpNet, table: u32, target: RouteTarget) -> Route {
    Route {
        table,
        dst,
        flags: ROUTE_STATIC,
        target,
        ..Route::default()
    }
}

/// The prefix that `text` is, without bits behind its length.
fn prefix(text: &str) -> Result<IpNet, StaticError> {
    let prefix: IpNet = match text.parse() {
        Ok(prefix) => prefix,
        Err(_) => {
            let host = text.parse::<IpAddr>().ok().map(IpNet::from);
            host.ok_or_else(|| StaticError::Prefix(text.into()))?
        }
    };
    match prefix == prefix.trunc() {
        true => Ok(prefix),
        false => Err(StaticError::HostBits(prefix)),
    }
}

/// A list of segments as iproute2 writes it.
fn segments(text: &str) -> Result<Vec<Ipv6Addr>, StaticError> {
    let segment = |word: &str| word.parse().map_err(|_| StaticError::Segment(word.into()));
    text.split(',').map(segment).collect()
}

/// One of the SIDs, or of the encapsulations, by its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// A SID.
    Sid(usize),
    /// An encapsulation.
    Encap(usize),
}

/// None of two that say what becomes of the same packets.
pub(crate) fn check(sids: &[StaticSid], encaps: &[StaticEncap]) -> Result<(), Invalid> {
    let sids = sids.iter().enumerate();
    let sids = sids.map(|(n, sid)| (Which::Sid(n), sid.table(), sid.prefix()));
    let encaps = encaps.iter().enumerate();
    let encaps = encaps.map(|(n, encap)| (Which::Encap(n), encap.table(), encap.prefix()));
    let mut seen = HashSet::new();
    for (which, table, prefix) in sids.chain(encaps) {
        if !seen.insert((table, prefix)) {
            let table = Names::load().table(table).into_owned();
            return Err(Invalid::Twice {
                which,
                prefix,
                table,
            });
        }
    }
    Ok(())
}

/// A value that does not come from a file.
fn from_option<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
