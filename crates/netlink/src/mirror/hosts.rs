//! Destinations for which the kernel goes by more than its routes, none of which it announces.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use raddle_rib::event::KernelHosts;

use super::sysctl::known;
use crate::codec::number::INET6;
use crate::codec::number::rtm::{RTM_GETNEIGH, RTM_GETROUTE};
use crate::codec::{Builder, Message, Messages, NTF_PROXY, RTM_F_CLONED, exception, proxied};
use crate::error::Error;
use crate::socket::{Dump, DumpSink, Socket};

/// More route exceptions than these are not told one by one: everybody can have this machine learn path MTUs for any
/// destination, and each that is told takes room in every table.
const EXCEPTIONS_MOST: usize = 4096;
/// How often exceptions are read while their number stays the same; less often where reading takes more than 2 % of that.
const INTERVAL: Duration = Duration::from_secs(1);
/// Reading them rests this many times as long as it took, even if their number changes.
const REST: u32 = 4;
/// The number of route exceptions in `/proc/net/rt6_stats` (`fib_rt_cache`).
const CACHED: usize = 4;

/// Reads them again and again.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    socket: Option<Socket>,
    told: KernelHosts,
    exceptions: BTreeSet<Ipv6Addr>,
    /// How many there were when they were read last.
    number: Option<u32>,
    /// When to read them again: not before, and in any case.
    rest: Option<Instant>,
    due: Option<Instant>,
}

impl Hosts {
    /// All of them, where they have changed.
    ///
    /// 1. Proxied neighbours count while `net.ipv6.conf.all.proxy_ndp` is on (`ip6_forward`), on whatever link.
    /// 2. Exceptions are read when their number changes, and once a second while there are any. Reading them has the
    ///    kernel walk over all IPv6 routes; their number is a small file.
    ///
    /// Cost where there are none: two small files.
    pub(super) fn read(&mut self) -> Option<KernelHosts> {
        let mut hosts = match known("ipv6/conf/all/proxy_ndp") {
            None | Some(0) => BTreeSet::new(),
            Some(_) => self.proxied(),
        };
        self.read_exceptions();
        let more_mtus = self.exceptions.len() > EXCEPTIONS_MOST;
        if !more_mtus {
            hosts.extend(&self.exceptions);
        }
        let now = KernelHosts { hosts, more_mtus };
        if now == self.told {
            return None;
        }
        self.told = now.clone();
        Some(now)
    }

    fn proxied(&mut self) -> BTreeSet<Ipv6Addr> {
        let mut header = [0; 12];
        header[0] = INET6;
        header[10] = NTF_PROXY;
        let read = self.dump(RTM_GETNEIGH, &header, "dump proxied neighbours", proxied);
        read.map_or_else(|| self.told.hosts.clone(), |(hosts, _)| hosts)
    }

    fn read_exceptions(&mut self) {
        let number = cached();
        if number == Some(0) {
            self.exceptions.clear();
            self.number = number;
            return;
        }
        let start = Instant::now();
        let rested = self.rest.is_none_or(|rest| start >= rest);
        let due = self.due.is_none_or(|due| start >= due);
        if !(due || rested && number != self.number) {
            return;
        }
        let mut header = [0; 12];
        header[0] = INET6;
        header[8..].copy_from_slice(&RTM_F_CLONED.to_ne_bytes());
        let what = "dump route exceptions";
        let Some((read, quality)) = self.dump(RTM_GETROUTE, &header, what, exception) else {
            return;
        };
        let took = start.elapsed();
        self.rest = Some(start + took * REST);
        self.due = Some(start + INTERVAL.max(took * 50));
        match quality {
            Dump::Consistent => (self.exceptions, self.number) = (read, number),
            // Some may be missing: it is read again, and none goes meanwhile.
            Dump::Interrupted => {
                self.exceptions.extend(read);
                self.number = None;
            }
        }
    }

    /// None where the kernel refuses, which it does only to processes that may not forward either.
    fn dump(
        &mut self,
        message: u16,
        header: &[u8],
        what: &'static str,
        address: fn(&Message<'_>) -> Option<IpAddr>,
    ) -> Option<(BTreeSet<Ipv6Addr>, Dump)> {
        let mut collect = Collect {
            address,
            found: BTreeSet::new(),
        };
        let mut dump = || -> Result<Dump, Error> {
            let socket = match &mut self.socket {
                Some(socket) => socket,
                none => none.insert(Socket::open()?),
            };
            let mut request = Builder::new();
            request.begin(message, 0, header).end()?;
            socket.dump(&mut request, what, &mut collect)
        };
        match dump() {
            Ok(quality) => Some((collect.found, quality)),
            Err(error) => {
                tracing::debug!(%error, "the last answer counts on");
                None
            }
        }
    }
}

/// How many route exceptions there are; none where that cannot be read.
fn cached() -> Option<u32> {
    let stats = std::fs::read_to_string("/proc/thread-self/net/rt6_stats").ok()?;
    let number = stats.split_whitespace().nth(CACHED)?;
    u32::from_str_radix(number, 16).ok()
}

/// The IPv6 addresses that a dump tells.
struct Collect {
    address: fn(&Message<'_>) -> Option<IpAddr>,
    found: BTreeSet<Ipv6Addr>,
}

impl DumpSink for Collect {
    fn buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn take(&mut self, buffer: Vec<u8>) -> Result<(), Error> {
        for message in Messages::new(&buffer) {
            if let Some(IpAddr::V6(ip)) = (self.address)(&message?) {
                self.found.insert(ip);
            }
        }
        Ok(())
    }
}
