//! Destinations for which the kernel goes by more than its routes, none of which it announces.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use raddle_rib::event::KernelHosts;

use super::sysctl::known;
use crate::codec::number::INET6;
use crate::codec::number::rtm::RTM_GETNEIGH;
use crate::codec::{Builder, Messages, NTF_PROXY, proxied};
use crate::error::Error;
use crate::socket::{Dump, DumpSink, Socket};

/// Reading them rests this many times as long as it took.
const REST: u32 = 50;

/// Reads them again and again.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    told: KernelHosts,
    /// Not to be read again before.
    rest: Option<Instant>,
    /// Whether they could not be read last, which is said once.
    failed: bool,
}

impl Hosts {
    /// All of them, where they have changed: proxied neighbours, while `net.ipv6.conf.all.proxy_ndp` is on
    /// (`ip6_forward`), on whatever link.
    ///
    /// Cost where it is off: a small file. Else a dump of the entries, which takes no more than 2 % of the time.
    pub(super) fn read(&mut self) -> Option<KernelHosts> {
        let now = match known("ipv6/conf/all/proxy_ndp") {
            None | Some(0) => {
                self.rest = None;
                KernelHosts::default()
            }
            Some(_) => self.proxied()?,
        };
        if now == self.told {
            return None;
        }
        self.told = now.clone();
        Some(now)
    }

    /// None where it is too early, or the kernel refuses, which it does only to processes that may not forward either:
    /// the last answer counts on.
    fn proxied(&mut self) -> Option<KernelHosts> {
        let start = Instant::now();
        if self.rest.is_some_and(|rest| start < rest) {
            return None;
        }
        let read = dump();
        self.rest = Some(Instant::now() + start.elapsed() * REST);
        match read {
            Ok((mut hosts, quality)) => {
                self.failed = false;
                // Some may be missing: it is read again, and none goes meanwhile.
                if quality == Dump::Interrupted {
                    hosts.extend(&self.told.hosts);
                }
                Some(KernelHosts { hosts })
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!(
                        "proxied neighbours cannot be read, so that the last ones count on: {error}"
                    );
                }
                None
            }
        }
    }
}

/// The IPv6 addresses that this machine answers for, and whether these are all.
fn dump() -> Result<(BTreeSet<Ipv6Addr>, Dump), Error> {
    let mut header = [0; 12];
    header[0] = INET6;
    header[10] = NTF_PROXY;
    let mut request = Builder::new();
    request.begin(RTM_GETNEIGH, 0, &header).end()?;
    let mut collect = Collect::default();
    let quality = Socket::open()?.dump(&mut request, "dump proxied neighbours", &mut collect)?;
    Ok((collect.0, quality))
}

#[derive(Default)]
struct Collect(BTreeSet<Ipv6Addr>);

impl DumpSink for Collect {
    fn buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn take(&mut self, buffer: Vec<u8>) -> Result<(), Error> {
        for message in Messages::new(&buffer) {
            if let Some(IpAddr::V6(ip)) = proxied(&message?) {
                self.0.insert(ip);
            }
        }
        Ok(())
    }
}
