//! What the kernel has counted of SIDs, read when it is asked for: nothing announces it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::codec::number::INET6;
use crate::codec::number::rtm::{RTM_GETNEXTHOP, RTM_GETROUTE, RTM_NEWNEXTHOP, RTM_NEWROUTE};
use crate::codec::{
    Builder, DecodeError, EncapView, Message, Messages, RouteView, SidCounters, nexthop_encap,
};
use crate::error::Error;
use crate::socket::{Dump, DumpSink, Socket};

/// `LWTUNNEL_ENCAP_SEG6_LOCAL`.
const SEG6_LOCAL: u16 = 7;
/// A dump that changes under the reader this often is taken as it is.
const ATTEMPTS: u32 = 4;

/// What carries a SID or an encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EncapOf {
    /// A nexthop of a route's own.
    Route {
        /// The route's table.
        table: u32,
        /// Its prefix.
        dst: IpNet,
        /// Its metric.
        metric: u32,
        /// The nexthop's gateway.
        gateway: Option<IpAddr>,
        /// The nexthop's link.
        index: u32,
    },
    /// A nexthop object.
    Nexthop(u32),
}

impl Socket {
    /// What the kernel has counted of each SID that has counters: one dump of the IPv6 routes and one of
    /// the nexthop objects.
    ///
    /// # Errors
    /// [`Error::Refused`] when the kernel refuses a dump; [`Error::Decode`] for counters that make no
    /// sense.
    ///
    /// # Minimum kernel version
    /// 5.14 for counters; older kernels have none.
    pub fn sid_counters(&mut self) -> Result<BTreeMap<EncapOf, SidCounters>, Error> {
        let mut found = BTreeMap::new();
        for _ in 0..ATTEMPTS {
            let mut sink = Sink::default();
            let mut request = Builder::new();
            let mut head = [0; 12];
            head[0] = INET6;
            request.begin(RTM_GETROUTE, 0, &head).end()?;
            let mut quality = self.dump(&mut request, "dump routes", &mut sink)?;
            let mut request = Builder::new();
            request.begin(RTM_GETNEXTHOP, 0, &[0; 8]).end()?;
            match self.dump(&mut request, "dump nexthops", &mut sink) {
                Ok(Dump::Consistent) => {}
                Ok(Dump::Interrupted) => quality = Dump::Interrupted,
                // A kernel without nexthop objects.
                Err(e) if e.errno() == Some(libc::EOPNOTSUPP) => {}
                Err(e) => return Err(e),
            }
            found = sink.found;
            if quality == Dump::Consistent {
                break;
            }
        }
        Ok(found)
    }
}

/// Keeps the counters of a dump.
#[derive(Default)]
struct Sink {
    found: BTreeMap<EncapOf, SidCounters>,
    buffer: Vec<u8>,
}

impl DumpSink for Sink {
    fn buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    fn take(&mut self, buffer: Vec<u8>) -> Result<(), Error> {
        for message in Messages::new(&buffer) {
            let message = message?;
            match message.kind {
                RTM_NEWROUTE => self.route(&message)?,
                RTM_NEWNEXTHOP => self.nexthop(&message)?,
                _ => {}
            }
        }
        self.buffer = buffer;
        Ok(())
    }
}

impl Sink {
    fn route(&mut self, message: &Message<'_>) -> Result<(), DecodeError> {
        let Some(view) = RouteView::new(message)? else {
            return Ok(());
        };
        // The expansion of an object is the object's business.
        if view.object.is_some() {
            return Ok(());
        }
        for (hop, encap) in view.encaps()? {
            if let Some(counters) = counters(encap)? {
                let place = EncapOf::Route {
                    table: view.table,
                    dst: view.destination()?,
                    metric: view.metric,
                    gateway: hop.gateway,
                    index: hop.index,
                };
                self.found.insert(place, counters);
            }
        }
        Ok(())
    }

    fn nexthop(&mut self, message: &Message<'_>) -> Result<(), DecodeError> {
        if let Some((id, encap)) = nexthop_encap(message)?
            && let Some(counters) = counters(encap)?
        {
            self.found.insert(EncapOf::Nexthop(id), counters);
        }
        Ok(())
    }
}

fn counters(encap: EncapView<'_>) -> Result<Option<SidCounters>, DecodeError> {
    match encap.kind {
        SEG6_LOCAL => SidCounters::find(encap.data),
        _ => Ok(None),
    }
}
