//! The network that tests run in.

mod bond;
mod bridge;
mod transmit;
mod vlan;
mod vrf;

pub use bridge::BRIDGE_MAC;
pub use vlan::{gateway, gateway_mac};

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use raddle_lab::{Chain, Lab, LinkId, ScopedLab, UpOptions};
use raddle_netlink::{RouteQuery, Socket};
use serde_json::Value;

use crate::frame::{self, Addresses, Crafted, Flow};
use crate::tags::{Tag, tagged};
use crate::tunnelled::{Outer, innermost};
use crate::{Arrival, Outcome, PacketSocket, lab_name, raddle};

/// For how long nothing has to come until nothing more is waited for: 60 ms, or what `RADDLE_QUIET_MS` says.
pub fn quiet() -> Duration {
    let said = std::env::var("RADDLE_QUIET_MS").ok();
    let said = said.and_then(|said| said.parse().ok());
    Duration::from_millis(said.unwrap_or(60))
}

/// How frames from a source are put.
#[derive(Clone, Debug, Default)]
struct Dress {
    tags: Vec<Tag>,
    payload: usize,
    /// In a tunnel to the router, with the MAC address that they are to inside.
    outer: Option<(Outer, [u8; 6])>,
}

/// `source -- router == sink`, see [`Chain`]; removed when dropped.
///
/// The router's links are `source`, `sink`, `sink-2`, ...; its neighbours are permanent entries, so
/// that nothing depends on when they were asked last.
#[derive(Debug)]
pub struct World {
    lab: ScopedLab,
    links: u32,
    macs: HashMap<(&'static str, String), [u8; 6]>,
    frame_macs: [[u8; 6]; 2],
    source: Mutex<PacketSocket>,
    sinks: Mutex<Vec<PacketSocket>>,
    netlink: Mutex<Socket>,
    iif: u32,
    /// `/proc/net/dev` of the router, and its link there that frames come in by.
    counters: Mutex<File>,
    entry: &'static str,
    /// How frames from these sources are put, which others are not.
    dressed: Mutex<HashMap<IpAddr, Dress>>,
    /// Whether frames that arrive are seen with their VLAN tags.
    sees_tags: AtomicBool,
    /// Whether frames in tunnels are known again by what is inside.
    sees_inside: AtomicBool,
    /// Identities of the frames that were transmitted last.
    latest: Mutex<HashSet<Vec<u8>>>,
    late: AtomicUsize,
}

impl World {
    /// With so many parallel links, MTU 1500.
    pub fn new(name: &str, links: u32) -> World {
        World::with_mtu(name, links, 1500)
    }

    /// With links of another MTU.
    pub fn with_mtu(name: &str, links: u32, mtu: u32) -> World {
        let chain = Chain {
            links,
            mtu,
            ..Chain::default()
        };
        // What is built takes minutes, and neighbours that have failed are not kept for so long.
        raddle();
        let name = lab_name(name);
        let lab = Lab::up(&name, &chain.topology().unwrap(), UpOptions::default())
            .unwrap_or_else(|e| panic!("{e}"))
            .scoped();
        let mut macs = HashMap::new();
        let mut iif = 0;
        for node in ["source", "router", "sink"] {
            let shown = lab.output(node, &["ip", "-j", "link", "show"]).unwrap();
            let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
            // Modules of tunnels put some into each namespace that have no MAC addresses.
            let links = shown.as_array().unwrap().iter();
            for link in links.filter(|link| link["link_type"] == "ether") {
                let name = link["ifname"].as_str().unwrap().to_owned();
                if (node, &*name) == ("router", "source") {
                    iif = link["ifindex"].as_u64().unwrap() as u32;
                }
                macs.insert((node, name), mac(link["address"].as_str().unwrap()));
            }
        }
        let sinks = (1..=links)
            .map(|n| open(&lab, "sink", &parallel("router", n)))
            .collect();
        let world = World {
            links,
            source: open(&lab, "source", "router").into(),
            frame_macs: [("router", "source"), ("source", "router")]
                .map(|(node, link)| macs[&(node, link.to_owned())]),
            sinks: Mutex::new(sinks),
            netlink: Mutex::new(lab.within("router", Socket::open).unwrap().unwrap()),
            macs,
            iif,
            // It stays that of the namespace that it was opened in.
            counters: lab
                .within("router", || File::open("/proc/thread-self/net/dev"))
                .unwrap()
                .unwrap()
                .into(),
            entry: "source",
            dressed: Mutex::default(),
            sees_tags: AtomicBool::new(false),
            sees_inside: AtomicBool::new(false),
            latest: Mutex::default(),
            late: AtomicUsize::new(0),
            lab,
        };
        for n in 1..=links {
            world.neighbours(n, "permanent");
        }
        world
    }

    /// The lab itself.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Number of parallel links.
    pub fn links(&self) -> u32 {
        self.links
    }

    /// The name of the `n`th parallel link on the router, from 1.
    pub fn out(&self, n: u32) -> String {
        parallel("sink", n)
    }

    /// The same for the lab, to pull its plug.
    pub fn plug(&self, n: u32) -> LinkId {
        // The source's link is the first.
        LinkId(n as usize)
    }

    /// The gateway behind the `n`th parallel link, in both families.
    pub fn gateway(&self, n: u32) -> (Ipv4Addr, Ipv6Addr) {
        let hex = (n / 10 * 16 + n % 10) as u16;
        (
            Ipv4Addr::new(10, 2, n as u8, 2),
            Ipv6Addr::new(0x2001, 0xdb8, 2, hex, 0, 0, 0, 2),
        )
    }

    /// The MAC address of a link.
    pub fn mac(&self, node: &'static str, link: &str) -> [u8; 6] {
        self.macs[&(node, link.to_owned())]
    }

    /// The MAC addresses of frames that the source sends to the router.
    pub fn frame_macs(&self) -> [[u8; 6]; 2] {
        self.frame_macs
    }

    /// Frames of flows are to and from these MAC addresses from now on.
    pub fn send_to(&mut self, macs: [[u8; 6]; 2]) {
        self.frame_macs = macs;
    }

    /// From now on sends by a veth whose ends are the source's and the router's link `direct`, with
    /// no wire between: what comes out of a wire counts as redirected, and generic XDP passes over
    /// such frames (`skb_is_redirected`).
    pub fn send_directly(&mut self) {
        let [source, router] = ["source", "router"].map(|node| self.lab.netns(node).unwrap());
        let created = Command::new("ip")
            .args(["link", "add", "direct", "netns", &source, "type", "veth"])
            .args(["peer", "name", "direct", "netns", &router])
            .status();
        assert!(created.unwrap().success());
        // Else its frames might lack their tags, and a bridge takes nothing from such a port.
        self.node(
            "source",
            "ethtool -K direct txvlan off tx-vlan-stag-hw-insert off",
        );
        self.node("source", "ip link set direct up");
        self.ip("link set direct up");
        self.frame_macs = ["router", "source"].map(|node| {
            let shown = self.node(node, "ip -j link show direct");
            let shown: Value = serde_json::from_str(&shown).unwrap();
            mac(shown[0]["address"].as_str().unwrap())
        });
        let shown: Value = serde_json::from_str(&self.ip("-j link show direct")).unwrap();
        self.iif = shown[0]["ifindex"].as_u64().unwrap() as u32;
        self.source = open(&self.lab, "source", "direct").into();
        self.entry = "direct";
    }

    /// Makes a macvlan upon a link of the router, of this mode and with this MAC address, and sets it up; `node` is in whose namespace.
    /// What arrives at another node's is seen as if it came by one more parallel link. Says whether the kernel has macvlans.
    pub fn macvlan(&self, lower: &str, name: &str, mode: &str, mac: [u8; 6], node: &str) -> bool {
        let netns = self.lab.netns(node).unwrap();
        let mac = mac_text(mac);
        let line = format!(
            "ip link add link {lower} name {name} netns {netns} address {mac} type macvlan mode {mode}"
        );
        let line: Vec<&str> = line.split(' ').collect();
        if !self.lab.output("router", &line).unwrap().status.success() {
            return false;
        }
        self.node(node, &format!("ip link set {name} up"));
        if node != "router" {
            let socket = open(&self.lab, node, name);
            lock(&self.sinks).push(socket);
        }
        true
    }

    /// Sets the router's neighbours on the `n`th parallel link to what they are, in this state.
    pub fn neighbours(&self, n: u32, state: &str) {
        let mac = mac_text(self.mac("sink", &parallel("router", n)));
        let (four, six) = self.gateway(n);
        let dev = self.out(n);
        self.ip(&format!(
            "neigh replace {four} lladdr {mac} dev {dev} nud {state}"
        ));
        self.ip(&format!(
            "neigh replace {six} lladdr {mac} dev {dev} nud {state}"
        ));
    }

    /// Runs `ip` on the router; it has to succeed.
    pub fn ip(&self, arguments: &str) -> String {
        self.node("router", &format!("ip {arguments}"))
    }

    /// Runs a command on a node; it has to succeed.
    pub fn node(&self, node: &str, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        let output = self
            .lab
            .output(node, &words)
            .unwrap_or_else(|e| panic!("{e}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sets a sysctl of the router.
    pub fn sysctl(&self, key: &str, value: &str) {
        self.lab
            .set_sysctl("router", key, value)
            .unwrap_or_else(|e| panic!("{e}"));
    }

    /// Sets the router's hash policy.
    pub fn policy(&self, number: u32) {
        for family in ["ipv4", "ipv6"] {
            self.sysctl(
                &format!("net.{family}.fib_multipath_hash_policy"),
                &number.to_string(),
            );
        }
    }

    /// `raddle` with these arguments on the router, not yet started.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let program = raddle().to_str().unwrap();
        let mut command = self
            .lab
            .command("router", program)
            .unwrap_or_else(|e| panic!("{e}"));
        command.args(arguments);
        command
    }

    /// Runs `raddle` on the router to its end.
    pub fn raddle(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(&mut self.command(arguments))
    }

    /// Runs `program`, which that user may run, on the router as an ordinary user.
    pub fn as_nobody(&self, program: &Path, arguments: &[&str]) -> Outcome {
        let mut command = self.lab.command("router", "setpriv").unwrap();
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(program)
            .args(arguments);
        Outcome::of(&mut command)
    }

    /// Runs `raddle` on the router and reads its JSON.
    pub fn raddle_json(&self, arguments: &[&str]) -> Value {
        let outcome = self.raddle(arguments);
        assert_eq!(
            outcome.code,
            Some(0),
            "raddle {arguments:?}: {}",
            outcome.stderr
        );
        serde_json::from_str(&outcome.stdout)
            .unwrap_or_else(|e| panic!("raddle {arguments:?}: {e}: {}", outcome.stdout))
    }

    /// The router's links that have an XDP program.
    pub fn attached(&self) -> Vec<String> {
        let links: Value = serde_json::from_str(&self.ip("-j link show")).unwrap();
        let with = links
            .as_array()
            .unwrap()
            .iter()
            .filter(|link| !link["xdp"].is_null());
        with.map(|link| link["ifname"].as_str().unwrap().to_owned())
            .collect()
    }

    /// How many packets the router's kernel has forwarded so far.
    pub fn kernel_forwarded(&self) -> u64 {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        let (four, six) = self
            .lab
            .within("router", || {
                (
                    read("/proc/thread-self/net/snmp"),
                    read("/proc/thread-self/net/snmp6"),
                )
            })
            .unwrap();
        let mut lines = four.lines().filter(|line| line.starts_with("Ip:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|n| n == "ForwDatagrams").unwrap();
        let four: u64 = values.split(' ').nth(at).unwrap().parse().unwrap();
        let six = six
            .lines()
            .find(|line| line.starts_with("Ip6OutForwDatagrams"))
            .unwrap();
        four + six
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    }

    /// The link on which the kernel says that it would forward the flow; none where it would not.
    pub fn kernel_choice(&self, flow: &Flow) -> Option<String> {
        let query = RouteQuery {
            src: Some(flow.src),
            iif: Some(self.iif),
            ip_proto: Some(flow.proto),
            sport: Some(flow.sport),
            dport: Some(flow.dport),
            ..RouteQuery::default()
        };
        let answer = lock(&self.netlink).get_route(flow.dst, &query).ok()?;
        let index = answer.index;
        let name = self
            .lab
            .within("router", || nix::net::if_::if_indextoname(index))
            .unwrap();
        Some(name.ok()?.into_string().unwrap())
    }

    /// Changes the router's state by netlink.
    pub fn netlink<T>(&self, change: impl FnOnce(&mut Socket) -> T) -> T {
        change(&mut lock(&self.netlink))
    }

    /// `count` UDP flows to the sink's prefix, of both families.
    pub fn flows(&self, count: u16) -> Vec<Flow> {
        (0..count)
            .map(|n| {
                let (src, dst): (IpAddr, IpAddr) = match n % 2 {
                    0 => (
                        [10, 1, 1, 2].into(),
                        Ipv4Addr::new(10, 9, 0, 2 + (n % 200) as u8).into(),
                    ),
                    _ => {
                        let dst = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 0x100 + n);
                        (
                            Ipv6Addr::new(0x2001, 0xdb8, 1, 1, 0, 0, 0, 2).into(),
                            dst.into(),
                        )
                    }
                };
                Flow {
                    src,
                    dst,
                    proto: 17,
                    sport: 20_000 + n,
                    dport: 30_000,
                }
            })
            .collect()
    }

    /// Frames from this source have these VLAN tags and so many bytes of payload from now on.
    pub fn dress(&self, source: IpAddr, tags: &[Tag], payload: usize) {
        let dress = Dress {
            tags: tags.to_vec(),
            payload,
            outer: None,
        };
        lock(&self.dressed).insert(source, dress);
    }

    /// Frames from this source come in a tunnel from now on, inside to this MAC address.
    pub fn dress_in(&self, source: IpAddr, outer: &Outer, to: [u8; 6]) {
        let dress = Dress {
            payload: 20,
            outer: Some((outer.clone(), to)),
            ..Dress::default()
        };
        lock(&self.dressed).insert(source, dress);
    }

    /// Frames that come out in a tunnel of the router's, or were sent in one, are known again by what is inside from now on.
    pub fn see_inside(&self) {
        self.sees_inside.store(true, Ordering::Relaxed);
    }

    /// That, or the frame itself.
    pub(crate) fn inside<'a>(&self, frame: &'a [u8]) -> Cow<'a, [u8]> {
        match self.sees_inside.load(Ordering::Relaxed) {
            true => innermost(frame).into(),
            false => frame.into(),
        }
    }

    /// A frame of a flow, with this number in it.
    pub fn frame(&self, flow: &Flow, number: u64) -> Vec<u8> {
        let (dressed, macs) = (lock(&self.dressed), self.frame_macs());
        let Some(dress) = dressed.get(&flow.src) else {
            return frame::udp(macs, flow, number, 20);
        };
        let Some((outer, to)) = &dress.outer else {
            return tagged(&frame::udp(macs, flow, number, dress.payload), &dress.tags);
        };
        let inner = frame::udp([*to, macs[1]], flow, number, dress.payload);
        [&macs[0], &macs[1], &[8, 0][..], &outer.around(&inner)].concat()
    }

    /// A frame for each flow.
    pub fn frames(&self, flows: &[Flow]) -> Vec<Crafted> {
        let frame = |(n, flow): (usize, &Flow)| Crafted {
            bytes: self.frame(flow, n as u64),
            kind: "UDP",
            flow: Some(*flow),
        };
        flows.iter().enumerate().map(frame).collect()
    }

    /// Addresses for random frames: sources on the source's link and behind it.
    pub fn addresses(&self, v4: Vec<Ipv4Addr>, v6: Vec<Ipv6Addr>) -> Addresses {
        let sources4 = (2..40).map(|n| Ipv4Addr::new(10, 1, 1, n));
        let sources4 = sources4.chain((0..20).map(|n| Ipv4Addr::new(172, 16 + n, 3, n)));
        let sources6 = (2..60).map(|n| Ipv6Addr::new(0x2001, 0xdb8, 1, 1, n, 7, 0, n));
        Addresses {
            macs: self.frame_macs(),
            v4: [sources4.collect(), v4],
            v6: [sources6.collect(), v6],
            tunnels: 0,
        }
    }

    /// All that comes out of the router while `act` runs, and after that until nothing has come for `quiet`.
    pub fn watched(&self, quiet: Duration, act: impl FnOnce()) -> Vec<Arrival> {
        let mut sinks = lock(&self.sinks);
        for sink in sinks.iter_mut() {
            while sink.receive().unwrap().is_some() {}
        }
        act();
        let mut arrived = Vec::new();
        let mut last = Instant::now();
        while last.elapsed() < quiet {
            for (n, sink) in (1..).zip(sinks.iter_mut()) {
                while let Some(frame) = sink.receive().unwrap() {
                    let (link, frame) = (self.out(n), frame.to_vec());
                    arrived.push(Arrival { link, frame });
                    last = Instant::now();
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        arrived
    }

    /// The MAC address of the gateway behind the `n`th parallel link.
    pub fn gateway_mac(&self, n: u32) -> [u8; 6] {
        self.mac("sink", &parallel("router", n))
    }

    pub(crate) fn sockets(
        &self,
    ) -> (
        MutexGuard<'_, PacketSocket>,
        MutexGuard<'_, Vec<PacketSocket>>,
    ) {
        (lock(&self.source), lock(&self.sinks))
    }

    /// What the wires dropped because the receiver was too slow: not the router's doing.
    pub fn wire_drops(&self) -> String {
        let (netns, _) = self.lab.wire_device(LinkId(0), 0).unwrap();
        let shown = Command::new("ip")
            .args(["-n", &netns, "-s", "-j", "link"])
            .output()
            .unwrap();
        let links: Value = serde_json::from_slice(&shown.stdout).unwrap();
        let drops = links.as_array().unwrap().iter().map(|link| {
            let stats = &link["stats64"];
            format!(
                "{} rx {} tx {}",
                link["ifname"], stats["rx"]["dropped"], stats["tx"]["dropped"]
            )
        });
        drops.collect::<Vec<_>>().join(", ")
    }
}

fn open(lab: &Lab, node: &str, link: &str) -> PacketSocket {
    let socket = lab.within(node, || PacketSocket::open(link));
    let socket = socket.unwrap_or_else(|e| panic!("{e}"));
    socket.unwrap_or_else(|e| panic!("{link} of {node}: {e}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of parallel links: `sink`, `sink-2`, `sink-3`, ...
fn parallel(to: &str, n: u32) -> String {
    match n {
        1 => to.to_owned(),
        n => format!("{to}-{n}"),
    }
}

fn mac(text: &str) -> [u8; 6] {
    let mut mac = [0; 6];
    for (byte, digits) in mac.iter_mut().zip(text.split(':')) {
        *byte = u8::from_str_radix(digits, 16).unwrap();
    }
    mac
}

fn mac_text(mac: [u8; 6]) -> String {
    let parts: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
    parts.join(":")
}
