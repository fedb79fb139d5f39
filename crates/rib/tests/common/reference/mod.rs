//! What becomes of a packet, reckoned the slow and obvious way: the reference that the image, and what `explain` says,
//! are judged by.
//!
//! It is told the same events as the mirror and shares none of its code, only plain types (events, reasons, decoded
//! SIDs). Everything is a list, every question a walk over all of it; nothing is kept that was concluded. The rules are
//! the kernel's, and where engines do not follow the kernel the packet is the kernel's under a reason:
//!
//! 1. Rules in the order of their priority name the tables ([`lookup`]).
//! 2. The first table that has any route to the destination decides; there the longest prefix, and of its routes
//!    raddle's own, else the kernel's first, else what FPM tells ([`lookup`]).
//! 3. What the route's kind says; where it is unicast, its nexthops ([`hops`]): those that are dead have no share, the
//!    others share the hashes by weight, and a gateway that does not answer is passed over.
//! 4. Links that go take nexthop objects with them, and make plain IPv4 routes doubtful until they are read again
//!    ([`history`]).
//!
//! Taken from the mirror: which links may be used, the numbers of segments, and their marks. Not reckoned: the headers that
//! segments put around packets, and so whether one that needs them is the kernel's; `tests/segments` has those.

mod history;
mod hops;
mod lookup;
mod routes;
mod segments;
mod spread;
mod told;
mod way_back;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use raddle_rib::event::{
    Address, Bucket, DeviceSettings, Event, GroupMember, Link, Neighbour, Nexthop, NexthopKind,
    Route, Rule, Settings, Sweep,
};

use history::{Happened, History};
use routes::Routes;
use told::Told;
pub use way_back::Filter;

/// Everything that was told, in lists.
#[derive(Debug, Default)]
pub struct Reference {
    now: i64,
    settings: Settings,
    links: Vec<Link>,
    devices: Vec<(u32, DeviceSettings)>,
    addresses: Vec<Address>,
    neighbours: Vec<Neighbour>,
    objects: Vec<Nexthop>,
    buckets: Buckets,
    /// In the order in which they were told.
    rules: Vec<Rule>,
    /// The families of which it is known what rules there are, if only that there are none.
    families: BTreeSet<u8>,
    /// IPv6 destinations that only the kernel treats as it does.
    hosts: BTreeSet<Ipv6Addr>,
    v4: Routes,
    v6: Routes,
    told: Told,
    history: History,
    /// Running dumps of links, addresses, neighbours, objects and rules, with what each has mentioned.
    dumps: Vec<(Sweep, Vec<Event>)>,
}

/// Who owns which bucket of which resilient group.
#[derive(Debug, Default)]
struct Buckets {
    known: Vec<Bucket>,
    dump: Option<BucketDump>,
}

/// A running dump of buckets.
#[derive(Debug)]
struct BucketDump {
    /// The only group that it is about, or none for all.
    of: Option<u32>,
    mentioned: Vec<Bucket>,
    /// Groups whose buckets may have moved since it began.
    moved: Vec<u32>,
}

impl Reference {
    /// The same event that the mirror is told.
    pub fn apply(&mut self, event: Event) {
        for (_, mentioned) in &mut self.dumps {
            mentioned.push(event.clone());
        }
        match event {
            Event::Clock(now) => self.now = self.now.max(now),
            Event::Link(link) => self.link(link),
            Event::LinkGone(index) => {
                self.history.note(index, Happened::Gone);
                self.devices.retain(|(of, _)| *of != index);
                let before = self.links.len();
                self.links.retain(|link| link.index != index);
                if self.links.len() != before {
                    self.lose_objects_on(index);
                }
            }
            Event::Device(index, settings) => self.device(index, settings),
            Event::Address(address) => self.address(address),
            Event::AddressGone(address) => {
                let before = self.addresses.len();
                self.addresses.retain(|known| !is_same(known, &address));
                let has_one =
                    |known: &Address| known.index == address.index && known.local.is_ipv4();
                if self.addresses.len() != before
                    && address.local.is_ipv4()
                    && !self.addresses.iter().any(has_one)
                {
                    self.history.note(address.index, Happened::Down);
                }
            }
            Event::Neighbour(neighbour) => {
                self.forget_neighbour(neighbour.index, neighbour.dst);
                self.neighbours.push(neighbour);
            }
            Event::NeighbourGone(index, dst) => self.forget_neighbour(index, dst),
            // Who draws bridges has a reference of its own for them.
            Event::Fdb(_) | Event::FdbGone(..) => {}
            // So it is with tunnels.
            Event::TunnelFdb(_) | Event::TunnelFdbGone(..) => {}
            Event::LearntMtu(_) | Event::LearntMtuGone(..) => {}
            Event::PortVlan(_) | Event::PortVlanGone(..) => {}
            Event::Nexthop(object) => self.object(object),
            Event::NexthopGone(id) => self.lose_object(id),
            Event::Bucket(bucket) => self.buckets.set(bucket),
            Event::Route(route, op) => {
                let now = self.now;
                self.routes_of(route.dst).tell(route, Some(op), now);
            }
            Event::RouteGone(route) => {
                let now = self.now;
                self.routes_of(route.dst).tell(route, None, now);
            }
            Event::Meanwhile(route, op) => {
                let now = self.now;
                self.routes_of(route.dst).meanwhile(route, op, now);
            }
            Event::Rule(rule) => {
                self.families.insert(rule.family);
                if !self.rules.contains(&rule) {
                    self.rules.push(rule);
                }
            }
            // One with values that are not kept may be another: a dump tells.
            Event::RuleGone(rule)
                if rule.other.iter().any(|other| ![19, 0x1001].contains(other)) => {}
            Event::RuleGone(rule) => self.rules.retain(|known| *known != rule),
            Event::Settings(settings) => self.settings = settings,
            Event::HmacKeys(_) => {}
            Event::KernelHosts(told) => self.hosts = told.hosts,
            Event::BondOrder(..) => {}
            Event::SweepBegin(sweep) => self.begin(sweep),
            Event::SweepEnd(sweep) => self.end(sweep),
            Event::Fpm(told) => self.tell(told),
        }
    }

    fn routes_of(&mut self, dst: IpNet) -> &mut Routes {
        match dst {
            IpNet::V4(_) => &mut self.v4,
            IpNet::V6(_) => &mut self.v6,
        }
    }

    fn dumps(&self, sweep: Sweep) -> bool {
        self.dumps.iter().any(|(of, _)| *of == sweep)
    }

    fn link(&mut self, link: Link) {
        let index = link.index;
        let before = self.links.iter().position(|known| known.index == index);
        let before = before.map(|at| self.links.remove(at));
        if let Some(before) = &before {
            if (is_up(before), has_carrier(before)) != (is_up(&link), has_carrier(&link)) {
                self.history.note(index, Happened::Changed);
            }
            match (is_up(before), is_up(&link)) {
                (true, false) => self.history.note(index, Happened::Down),
                (false, true) => self.history.note(index, Happened::Up),
                _ => {}
            }
        }
        let had = before.is_some_and(|before| is_up(&before) && has_carrier(&before));
        let has = is_up(&link) && has_carrier(&link);
        self.links.push(link);
        if had && !has {
            self.lose_objects_on(index);
        }
    }

    fn device(&mut self, index: u32, settings: DeviceSettings) {
        let before = self.devices.iter().find(|(of, _)| *of == index).copied();
        self.devices.retain(|(of, _)| *of != index);
        self.devices.push((index, settings));
        let ignores = |d: DeviceSettings| (d.ignore_linkdown4, d.ignore_linkdown6);
        let changes = before.is_some_and(|(_, before)| ignores(before) != ignores(settings));
        let link = self.links.iter().find(|link| link.index == index);
        if changes && link.is_some_and(|link| !has_carrier(link)) {
            self.history.note(index, Happened::SettingChanged);
        }
    }

    fn address(&mut self, address: Address) {
        if self.addresses.iter().any(|known| is_same(known, &address)) {
            return;
        }
        // Where there are no routes yet, those that come say themselves what is dead.
        let is_news = !self.dumps(Sweep::Addresses) && !self.v4.is_empty();
        if address.local.is_ipv4() && is_news {
            self.history.note(address.index, Happened::Up);
        }
        self.addresses.push(address);
    }

    fn forget_neighbour(&mut self, index: u32, dst: IpAddr) {
        self.neighbours
            .retain(|known| (known.index, known.dst) != (index, dst));
    }

    /// A resilient group that is announced may have moved its buckets, and one that a dump tells with other members has.
    fn object(&mut self, object: Nexthop) {
        let before = self.objects.iter().position(|known| known.id == object.id);
        let before = before.map(|at| self.objects.remove(at));
        let before = before.as_ref().and_then(resilient);
        if !self.dumps(Sweep::Nexthops) || before != resilient(&object) {
            self.buckets.forget(object.id);
        }
        self.objects.push(object);
    }

    /// Nexthop objects go with their link (`nexthop_flush_dev`), and do not come back with it.
    fn lose_objects_on(&mut self, link: u32) {
        let on = |object: &&Nexthop| matches!(object.kind, NexthopKind::Single { index, .. } if index == link);
        let lost: Vec<u32> = self.objects.iter().filter(on).map(|o| o.id).collect();
        lost.into_iter().for_each(|id| self.lose_object(id));
    }

    /// An object goes, also from the groups that it is in.
    fn lose_object(&mut self, id: u32) {
        let before = self.objects.len();
        self.objects.retain(|object| object.id != id);
        if self.objects.len() == before {
            return;
        }
        self.buckets.forget(id);
        for object in &mut self.objects {
            let members = match &mut object.kind {
                NexthopKind::Group(members) | NexthopKind::Resilient { members, .. } => members,
                NexthopKind::Single { .. } | NexthopKind::Blackhole => continue,
            };
            if members.iter().any(|member| member.id == id) {
                members.retain(|member| member.id != id);
                self.buckets.forget(object.id);
            }
        }
    }

    fn begin(&mut self, sweep: Sweep) {
        match sweep {
            Sweep::Routes4 => {
                self.history.reading_begins();
                self.v4.dump_begins();
            }
            Sweep::Routes6 => self.v6.dump_begins(),
            Sweep::Buckets => self.buckets.dump_begins(None),
            Sweep::BucketsOf(group) => self.buckets.dump_begins(Some(group)),
            _ => {
                self.dumps.retain(|(of, _)| *of != sweep);
                self.dumps.push((sweep, Vec::new()));
            }
        }
    }

    fn end(&mut self, sweep: Sweep) {
        let now = self.now;
        match sweep {
            Sweep::Routes4 => {
                self.v4.dump_ends(now);
                self.history.reading_ends();
            }
            Sweep::Routes6 => self.v6.dump_ends(now),
            Sweep::Buckets | Sweep::BucketsOf(_) => self.buckets.dump_ends(),
            _ => {
                let at = self.dumps.iter().position(|(of, _)| *of == sweep);
                if let Some(at) = at {
                    let (_, mentioned) = self.dumps.remove(at);
                    self.keep(sweep, &mentioned);
                }
            }
        }
    }

    /// What a dump did not mention is gone.
    fn keep(&mut self, sweep: Sweep, mentioned: &[Event]) {
        let links: Vec<u32> = self.links.iter().map(|link| link.index).collect();
        let is_link = |index: u32| {
            let mut told = mentioned.iter();
            told.any(|event| matches!(event, Event::Link(link) if link.index == index))
        };
        match sweep {
            Sweep::Links => {
                for index in links.into_iter().filter(|index| !is_link(*index)) {
                    self.history.note(index, Happened::Gone);
                }
                self.links.retain(|link| is_link(link.index));
                self.devices.retain(|(index, _)| is_link(*index));
            }
            Sweep::Addresses => self.addresses.retain(|known| {
                let mut told = mentioned.iter();
                told.any(|event| matches!(event, Event::Address(told) if is_same(told, known)))
            }),
            Sweep::Neighbours => self.neighbours.retain(|known| {
                let is_it = |told: &Neighbour| (told.index, told.dst) == (known.index, known.dst);
                let mut told = mentioned.iter();
                told.any(|event| matches!(event, Event::Neighbour(told) if is_it(told)))
            }),
            Sweep::Nexthops => {
                let is_told = |id: u32| {
                    let mut told = mentioned.iter();
                    told.any(|event| matches!(event, Event::Nexthop(told) if told.id == id))
                };
                self.objects.retain(|object| is_told(object.id));
                self.buckets.known.retain(|bucket| is_told(bucket.group));
            }
            Sweep::Rules => {
                self.families.extend([4, 6]);
                let mut left = Vec::new();
                for event in mentioned {
                    let Event::Rule(told) = event else { continue };
                    if self.rules.contains(told) && !left.contains(told) {
                        left.push(told.clone());
                    }
                }
                self.rules = left;
            }
            Sweep::Routes4 | Sweep::Routes6 | Sweep::Buckets | Sweep::BucketsOf(_) => {}
            Sweep::Fdb | Sweep::PortVlans => {}
        }
    }
}

impl Buckets {
    fn set(&mut self, bucket: Bucket) {
        let list = match &mut self.dump {
            Some(dump) if dump.of.is_none_or(|of| of == bucket.group) => &mut dump.mentioned,
            _ => &mut self.known,
        };
        list.retain(|known| (known.group, known.index) != (bucket.group, bucket.index));
        list.push(bucket);
    }

    fn forget(&mut self, group: u32) {
        self.known.retain(|known| known.group != group);
        if let Some(dump) = &mut self.dump {
            dump.moved.push(group);
        }
    }

    fn dump_begins(&mut self, of: Option<u32>) {
        self.dump = Some(BucketDump {
            of,
            mentioned: Vec::new(),
            moved: Vec::new(),
        });
    }

    fn dump_ends(&mut self) {
        let Some(dump) = self.dump.take() else {
            return;
        };
        self.known
            .retain(|known| dump.of.is_some_and(|of| of != known.group));
        let told = dump.mentioned.into_iter();
        self.known
            .extend(told.filter(|bucket| !dump.moved.contains(&bucket.group)));
    }

    /// The owners of a group's buckets, if there are so many and each is known.
    fn owners(&self, group: u32, count: u16) -> Option<Vec<u32>> {
        let known = self.known.iter().filter(|bucket| bucket.group == group);
        if known.clone().count() != usize::from(count) {
            return None;
        }
        (0..count)
            .map(|index| Some(known.clone().find(|b| b.index == index)?.nexthop))
            .collect()
    }
}

/// `IFF_UP`.
fn is_up(link: &Link) -> bool {
    link.flags & 1 != 0
}

/// `IFF_RUNNING` or `IFF_LOWER_UP`.
fn has_carrier(link: &Link) -> bool {
    link.flags & 0x40 != 0 || link.flags & 0x1_0000 != 0
}

fn is_same(a: &Address, b: &Address) -> bool {
    a.index == b.index && a.local == b.local && a.peer == b.peer && a.prefix_len == b.prefix_len
}

/// Members and number of buckets of a resilient group.
fn resilient(object: &Nexthop) -> Option<(Vec<GroupMember>, u16)> {
    match &object.kind {
        NexthopKind::Resilient {
            members, buckets, ..
        } => Some((members.clone(), *buckets)),
        _ => None,
    }
}

/// A metric of a route (`RTAX_*`), 0 for none.
fn metric(route: &Route, kind: u8) -> u32 {
    let metric = route.metrics.iter().find(|(known, _)| *known == kind);
    metric.map_or(0, |(_, value)| *value)
}
