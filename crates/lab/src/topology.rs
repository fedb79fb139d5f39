//! Descriptions of labs: nodes, links, addresses, routing. Pure data, checked once when built.

mod check;
mod device;
mod link;
mod node;

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::SegmentRouting;
pub use check::TopologyError;
pub(crate) use check::in_range;
use check::{check_device, check_made, check_node};
pub use device::{BondHash, Device, DeviceKind};
pub(crate) use device::{Feature, VXLAN_ROOM};
pub use link::{End, Link, LinkId};
pub use node::{Bgp, Evpn, HashPolicy, Neighbour, Node, Role, StaticRoute, Tenant};

/// A route that is there once routing has converged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// The node that has the route.
    pub node: String,
    /// Its destination.
    pub prefix: IpNet,
    /// The number of its nexthops.
    pub nexthops: usize,
    /// The VRF whose route it is; without one, the main table's.
    #[serde(default)]
    pub vrf: Option<String>,
}

/// The description of a lab, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TopologyBuilder", into = "TopologyBuilder")]
pub struct Topology(TopologyBuilder);

/// A topology under construction: fill the fields, by hand or with the methods, then
/// [`build`](Self::build).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyBuilder {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The links; their order is their number.
    pub links: Vec<Link>,
    /// The MTU of every link, 1280 to 65535 bytes. [`Topology::DEFAULT_MTU`] unless changed.
    pub mtu: u32,
    /// The multipath hash policy of every node at start.
    pub policy: HashPolicy,
    /// Whether FRR installs nexthop groups (`ip nexthop`), or routes that list their nexthops.
    pub nexthop_groups: bool,
    /// What [`Lab::wait_converged`](crate::Lab::wait_converged) waits for.
    pub expectations: Vec<Expectation>,
}

impl Default for TopologyBuilder {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            links: Vec::new(),
            mtu: Topology::DEFAULT_MTU,
            policy: HashPolicy::default(),
            nexthop_groups: true,
            expectations: Vec::new(),
        }
    }
}

impl TopologyBuilder {
    /// Adds a node and returns it, for its addresses and routes.
    pub fn node(&mut self, name: impl Into<String>, role: Role) -> &mut Node {
        let node = Node {
            name: name.into(),
            role,
            hash_seed: None,
            addresses: Vec::new(),
            routes: Vec::new(),
            bgp: None,
            segments: SegmentRouting::default(),
            neighbours: Vec::new(),
            made: Vec::new(),
        };
        self.nodes.push(node);
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    /// Adds a link between two nodes and returns it. Each device is named after the node at the far
    /// end; of several links between the same two nodes, the second is `NODE-2` and so on.
    pub fn link(&mut self, a: &str, b: &str) -> &mut Link {
        let same = self.links.iter().filter(|l| l.joins(a, b)).count();
        let end = |node: &str, far: &str| End {
            node: node.to_owned(),
            dev: if same == 0 {
                far.to_owned()
            } else {
                format!("{far}-{}", same + 1)
            },
            addresses: Vec::new(),
            poses_as: None,
            gro_off: false,
        };
        self.links.push(Link {
            ends: [end(a, b), end(b, a)],
            rate: None,
            bgp: false,
            mtu: None,
        });
        let last = self.links.len() - 1;
        &mut self.links[last]
    }

    /// Checks the description.
    ///
    /// # Errors
    /// The first contradiction found; see [`TopologyError`].
    pub fn build(self) -> Result<Topology, TopologyError> {
        in_range("the MTU", self.mtu.into(), 1280, 65535)?;
        in_range("the number of links", self.links.len() as u64, 0, 32767)?;
        let mut devices: HashMap<&str, HashSet<&str>> = HashMap::new();
        for node in &self.nodes {
            check_node(node)?;
            if devices.insert(&node.name, HashSet::new()).is_some() {
                return Err(TopologyError::DuplicateNode(node.name.clone()));
            }
        }
        let speakers: HashSet<&str> = self
            .nodes
            .iter()
            .filter(|n| n.bgp.is_some())
            .map(|n| &*n.name)
            .collect();
        for (link, end) in self
            .links
            .iter()
            .flat_map(|l| l.ends.iter().map(move |e| (l, e)))
        {
            check_device(&end.dev)?;
            let unknown = || TopologyError::UnknownNode(end.node.clone());
            if !devices
                .get_mut(&*end.node)
                .ok_or_else(unknown)?
                .insert(&end.dev)
            {
                let (node, dev) = (end.node.clone(), end.dev.clone());
                return Err(TopologyError::DuplicateDevice { node, dev });
            }
            if let Some(mtu) = link.mtu {
                in_range("the MTU of a link", mtu.into(), 1280, 65535)?;
            }
            if let Some(posed) = end.poses_as {
                self.check_end(posed)?;
            }
            if link.bgp && !speakers.contains(&*end.node) {
                return Err(TopologyError::NotBgp(end.node.clone()));
            }
        }
        for node in &self.nodes {
            if let Some(known) = devices.get_mut(&*node.name) {
                check_made(node, known)?;
            }
        }
        if let Some(e) = self
            .expectations
            .iter()
            .find(|e| !devices.contains_key(&*e.node))
        {
            return Err(TopologyError::UnknownNode(e.node.clone()));
        }
        for node in &self.nodes {
            for neighbour in &node.neighbours {
                self.check_end(neighbour.end)?;
            }
            let known = &devices[&*node.name];
            let used = node.neighbours.iter().map(|n| &n.dev);
            for dev in used.chain(node.segments.routes.iter().map(|r| &r.dev)) {
                if !known.contains(&**dev) {
                    let (node, dev) = (node.name.clone(), dev.clone());
                    return Err(TopologyError::UnknownDevice { node, dev });
                }
            }
        }
        Ok(Topology(self))
    }

    fn check_end(&self, (link, end): (LinkId, usize)) -> Result<(), TopologyError> {
        in_range("an end of a link", end as u64, 0, 1)?;
        let last = self.links.len().saturating_sub(1) as u64;
        in_range("the number of a link", link.0 as u64, 0, last)
    }
}

impl Topology {
    /// 9000 bytes, the jumbo frame of data centres.
    ///
    /// Everything in a lab shares one machine: host, leaf, spine, leaf, host is five hops of work for
    /// each packet. With 9000 bytes, two cores fill two links of 1 Gbit/s through four routers, by the
    /// kernel or by XDP, and stay mostly idle; with 1500, XDP routers reached 1.5 of the 2 Gbit/s.
    pub const DEFAULT_MTU: u32 = 9000;

    /// The nodes, in the order of their creation.
    pub fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    /// The links, by number.
    pub fn links(&self) -> &[Link] {
        &self.0.links
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.0.nodes.iter().find(|n| n.name == name)
    }

    /// The numbers of the links between two nodes, in either direction.
    pub fn links_between(&self, a: &str, b: &str) -> impl Iterator<Item = LinkId> {
        self.0
            .links
            .iter()
            .enumerate()
            .filter(move |(_, l)| l.joins(a, b))
            .map(|(i, _)| LinkId(i))
    }

    /// The number of the link, and which end of it (0 or 1), that a device of a node is.
    pub fn link_of(&self, node: &str, dev: &str) -> Option<(LinkId, usize)> {
        self.0.links.iter().enumerate().find_map(|(i, link)| {
            let end = link
                .ends
                .iter()
                .position(|e| e.node == node && e.dev == dev)?;
            Some((LinkId(i), end))
        })
    }

    /// The devices of a node, in the order of their links.
    pub fn devices<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .links
            .iter()
            .flat_map(|l| &l.ends)
            .filter(move |e| e.node == node)
            .map(|e| &*e.dev)
    }

    /// The links that a device of a node is, or is made of: those of a bond's members, that of the
    /// link beneath a VLAN. Empty for what is made of no link, and for what is not there.
    pub fn links_beneath(&self, node: &str, dev: &str) -> Vec<LinkId> {
        if let Some((link, _)) = self.link_of(node, dev) {
            return vec![link];
        }
        let made = self.node(node).into_iter().flat_map(|n| &n.made);
        let device = made.filter(|device| device.name == dev);
        // What a device is upon was made before it, so this ends.
        device
            .flat_map(|device| device.upon())
            .flat_map(|beneath| self.links_beneath(node, beneath))
            .collect()
    }

    /// The MTU of every link, in bytes.
    pub fn mtu(&self) -> u32 {
        self.0.mtu
    }

    /// The multipath hash policy at start.
    pub fn policy(&self) -> HashPolicy {
        self.0.policy
    }

    /// Whether FRR installs nexthop groups.
    pub fn nexthop_groups(&self) -> bool {
        self.0.nexthop_groups
    }

    /// The routes that are there once routing has converged.
    pub fn expectations(&self) -> &[Expectation] {
        &self.0.expectations
    }

    /// Opens the description for changes.
    pub fn into_builder(self) -> TopologyBuilder {
        self.0
    }

    /// Whether any node speaks BGP, so that FRR is needed.
    pub(crate) fn needs_frr(&self) -> bool {
        self.0.nodes.iter().any(|n| n.bgp.is_some())
    }

    /// What the kernel has to know for the devices that nodes make, each once.
    pub(crate) fn features(&self) -> Vec<&'static Feature> {
        let mut all: Vec<&Feature> = Vec::new();
        for device in self.0.nodes.iter().flat_map(|node| &node.made) {
            let feature = device.kind.feature();
            if !all.contains(&feature) {
                all.push(feature);
            }
        }
        all
    }
}

impl TryFrom<TopologyBuilder> for Topology {
    type Error = TopologyError;

    fn try_from(builder: TopologyBuilder) -> Result<Self, TopologyError> {
        builder.build()
    }
}

impl From<Topology> for TopologyBuilder {
    fn from(topology: Topology) -> Self {
        topology.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_their_devices() {
        let build = |vrf: &str, vni| {
            let mut b: TopologyBuilder = crate::L3vni::default().topology().unwrap().into();
            let mut nodes = b.nodes.iter_mut();
            let leaf = nodes.find(|node| node.name == "leaf1").unwrap();
            let evpn = leaf.bgp.as_mut().unwrap().evpn.as_mut().unwrap();
            let tenant = &mut evpn.tenants[0];
            (tenant.vrf, tenant.vni) = (vrf.to_owned(), vni);
            b.build().map(drop)
        };
        let lacks = |what: &str| {
            Err(TopologyError::UnknownNetwork {
                node: "leaf1".to_owned(),
                what: what.to_owned(),
            })
        };
        assert_eq!(build("red", 4001), Ok(()));
        assert_eq!(build("green", 4001), lacks("VRF `green`"));
        // A device, but no VRF.
        assert_eq!(build("br-red", 4001), lacks("VRF `br-red`"));
        assert_eq!(build("red", 4003), lacks("VXLAN device with VNI 4003"));
    }

    fn two_nodes() -> TopologyBuilder {
        let mut b = TopologyBuilder::default();
        b.node("a", Role::Host);
        b.node("b", Role::Router);
        b
    }

    #[test]
    fn parallel_links_have_devices_of_their_own() {
        let mut b = two_nodes();
        b.link("a", "b");
        b.link("b", "a");
        let t = b.build().unwrap();
        assert_eq!(t.devices("a").collect::<Vec<_>>(), ["b", "b-2"]);
        assert_eq!(t.devices("b").collect::<Vec<_>>(), ["a", "a-2"]);
        assert_eq!(t.links_between("a", "b").count(), 2);
        assert_eq!(t.link_of("a", "b-2"), Some((LinkId(1), 1)));
        assert_eq!(t.link_of("a", "c"), None);
    }

    #[test]
    fn survives_json() {
        let mut b = two_nodes();
        b.link("a", "b").rate = Some("1gbit".parse().unwrap());
        let t = b.build().unwrap();
        let json = serde_json::to_string(&t).unwrap();
        assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), t);
        let bad = json.replace("\"mtu\":9000", "\"mtu\":12");
        assert!(
            serde_json::from_str::<Topology>(&bad)
                .unwrap_err()
                .to_string()
                .contains("MTU")
        );
    }

    fn vlan(on: &str, id: u16) -> Device {
        let kind = DeviceKind::Vlan { on: on.into(), id };
        Device::new(format!("{on}.{id}"), kind)
    }

    #[test]
    fn a_device_is_made_of_links() {
        let mut b = two_nodes();
        b.link("a", "b");
        b.link("a", "b");
        let hash = BondHash::Layer34;
        let mut bond = Device::new("bond", DeviceKind::Bond { hash });
        bond.members = vec!["b".into(), "b-2".into()];
        b.nodes[0].made = vec![vlan("b", 10), bond, vlan("bond", 10)];
        let t = b.build().unwrap();
        let beneath = |dev| t.links_beneath("a", dev);
        assert_eq!(beneath("b-2"), [LinkId(1)]);
        assert_eq!(beneath("b.10"), [LinkId(0)]);
        assert_eq!(beneath("bond.10"), [LinkId(0), LinkId(1)]);
        assert_eq!(beneath("bond.11"), []);
        let plural: Vec<_> = t.features().iter().map(|f| f.plural).collect();
        assert_eq!(plural, ["VLANs", "bonds"]);
    }

    type Break = fn(&mut TopologyBuilder);

    #[test]
    fn contradictions_are_refused() {
        let cases: [(Break, &str); 16] = [
            (
                |b| {
                    let prefix = "10.0.0.0/8".parse().unwrap();
                    let mut route = StaticRoute::new(prefix, vec!["10.1.1.1".parse().unwrap()]);
                    route.congestion = Some("cubic via".into());
                    b.nodes[0].routes.push(route);
                },
                "congestion control",
            ),
            (|b| b.mtu = 1279, "MTU"),
            (|b| _ = b.node("a", Role::Host), "two nodes"),
            (|b| _ = b.node("wire", Role::Host), "cannot name a node"),
            (|b| _ = b.node("a-b", Role::Host), "cannot name a node"),
            (|b| _ = b.link("a", "c"), "no node `c`"),
            (
                |b| b.link("a", "b").ends[0].dev = "lo".into(),
                "cannot name a device",
            ),
            (
                |b| b.link("a", "b").ends[0].dev = "x y".into(),
                "cannot name a device",
            ),
            (|b| b.link("a", "b").bgp = true, "speaks none"),
            (
                |b| {
                    b.link("a", "b");
                    b.link("a", "b").ends[0].dev = "b".into();
                },
                "two devices",
            ),
            (
                |b| {
                    let prefix = "10.0.0.0/8".parse().unwrap();
                    let via = vec!["::1".parse().unwrap()];
                    b.nodes[0].routes.push(StaticRoute::new(prefix, via));
                },
                "own address family",
            ),
            (|b| b.nodes[0].made.push(vlan("b", 10)), "no device `b`"),
            (
                |b| {
                    b.link("a", "b");
                    b.nodes[0].made = vec![vlan("b", 10), vlan("b", 10)];
                },
                "two devices named `b.10`",
            ),
            (
                |b| {
                    b.link("a", "b");
                    b.nodes[0].made = vec![vlan("b", 4095)];
                },
                "a VLAN's number is 4095",
            ),
            (
                |b| {
                    b.link("a", "b");
                    b.nodes[0].made = vec![vlan("b", 10)];
                    b.nodes[0].made[0].bgp = true;
                },
                "speaks none",
            ),
            (
                |b| {
                    b.nodes[0].made = vec![Device::new("red", DeviceKind::Vrf { table: 0 })];
                },
                "a VRF's table is 0",
            ),
        ];
        for (change, message) in cases {
            let mut b = two_nodes();
            change(&mut b);
            let error = b.build().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
