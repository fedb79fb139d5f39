//! Bridges: what the mirror knows of their ports, FDBs and VLANs is what `bridge` and `ip` show.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;

use raddle_netlink::codec::number::nlm;
use raddle_netlink::codec::{Builder, encode};
use raddle_netlink::{Mirror, Socket};
use raddle_rib::event::{Event, FdbEntry};
use serde_json::Value;

use crate::state::State;
use crate::support::{Follower, in_namespace, index_of, ip, same, sysctl, try_ip};

/// Runs `bridge` in the calling thread's namespace. Its output, or what is wrong.
fn try_bridge(arguments: &str) -> Result<String, String> {
    let arguments = arguments.split_whitespace();
    let output = Command::new("bridge").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

/// The same, where it has to succeed.
fn bridge(arguments: &str) -> String {
    try_bridge(arguments).unwrap_or_else(|error| panic!("bridge {arguments}: {error}"))
}

/// The entries that are a bridge's, with what is kept of them.
fn fdb() -> Vec<String> {
    let text = bridge("-d fdb show");
    let of_bridges = text.lines().filter(|line| line.contains(" master "));
    let line = |line: &str| {
        let drop = ["static", "offload", "extern_learn", "sticky", "stale"];
        let words = line.split_whitespace().filter(|word| !drop.contains(word));
        words.collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<_> = of_bridges.map(line).collect();
    lines.sort();
    lines
}

/// None where the kernel has none.
fn port_vlans() -> Vec<String> {
    let Ok(text) = try_bridge("-j -d vlan show") else {
        return Vec::new();
    };
    let links: Value = serde_json::from_str(&text).unwrap();
    let mut lines = Vec::new();
    for link in links.as_array().unwrap() {
        for vlan in link["vlans"].as_array().unwrap() {
            let first = vlan["vlan"].as_u64().unwrap();
            let last = vlan["vlanEnd"].as_u64().unwrap_or(first);
            let flags = vlan["flags"].as_array().into_iter().flatten();
            let flags: String = flags
                .map(|flag| format!(" {}", flag.as_str().unwrap()))
                .collect();
            let (name, state) = (
                link["ifname"].as_str().unwrap(),
                vlan["state"].as_str().unwrap(),
            );
            lines.extend((first..=last).map(|id| format!("{name} {id}{flags} {state}")));
        }
    }
    lines.sort();
    lines
}

fn ports() -> Vec<String> {
    let links: Vec<Value> = serde_json::from_str(&ip("-j -d link show")).unwrap();
    let on = |is: &Value| if is.as_bool().unwrap() { "on" } else { "off" };
    let line = |link: &Value| {
        let port = &link["linkinfo"]["info_slave_data"];
        let state = port["state"].as_str()?;
        let (learns, locked) = (on(&port["learning"]), on(&port["locked"]));
        let name = link["ifname"].as_str().unwrap();
        Some(format!("{name} {state} learning {learns} locked {locked}"))
    };
    let mut lines: Vec<_> = links.iter().filter_map(line).collect();
    lines.sort();
    lines
}

/// Whether this kernel has VLANs at bridges; says so where it has none.
fn filters_vlans(name: &str) -> bool {
    let can = try_ip("link set br0 type bridge vlan_filtering 1");
    if !can {
        eprintln!(
            "{name}: without VLANs, for which this kernel lacks CONFIG_BRIDGE_VLAN_FILTERING"
        );
    }
    can
}

fn agrees(follower: &mut Follower, what: &str) {
    follower.until(what, |state: &State| {
        same("ports", &state.ports_text(), &ports())?;
        same("FDBs", &state.fdb_text(), &fdb())?;
        same("VLANs", &state.port_vlans_text(), &port_vlans())
    });
}

/// Runs each command and compares after each.
fn step_by_step(follower: &mut Follower, commands: &str) {
    for command in commands.lines().map(str::trim).filter(|c| !c.is_empty()) {
        match command.strip_prefix("bridge ") {
            Some(command) => drop(bridge(command)),
            None => drop(ip(command)),
        }
        agrees(follower, command);
    }
}

/// A bridge with two ports, of which the other ends say nothing by themselves.
fn bridged() {
    sysctl("ipv6/conf/default/disable_ipv6", "1");
    ip("link add br0 address 02:00:00:00:00:10 type bridge");
    for n in 0..2 {
        ip(&format!(
            "link add v{n} address 02:00:00:00:00:0{n} type veth peer name p{n}"
        ));
        ip(&format!("link set p{n} up"));
        ip(&format!("link set v{n} master br0 up"));
    }
    ip("link set br0 up");
}

#[test]
fn ports_and_entries_are_followed() {
    in_namespace("ports_and_entries_are_followed", || {
        bridged();
        let mut follower = Follower::new();
        agrees(&mut follower, "initial state");
        assert!(!fdb().is_empty());
        assert_eq!(ports().len(), 2);
        step_by_step(
            &mut follower,
            "link set v0 type bridge_slave learning off
             bridge link set dev v0 learning on
             bridge link set dev v0 state 4
             bridge link set dev v0 state 3
             link set v1 type bridge_slave locked on
             link set p1 down
             link set p1 up
             link set v1 mtu 1400
             bridge fdb add 02:00:00:00:01:01 dev v0 master static
             bridge fdb add 02:00:00:00:01:02 dev v0 master dynamic
             bridge fdb add 02:00:00:00:01:03 dev v0 master
             bridge fdb add 02:00:00:00:01:04 dev v0 self
             bridge fdb replace 02:00:00:00:01:02 dev v1 master dynamic
             bridge fdb del 02:00:00:00:01:01 dev v0 master
             link set v0 address 02:00:00:00:00:77
             link set br0 address 02:00:00:00:00:78
             link set v0 nomaster
             link set v0 master br0
             link set v0 down
             link set v0 up
             link set br0 type bridge fdb_flush
             link set br0 type bridge stp_state 1
             link set br0 down
             link set v1 type bridge_slave learning off
             link set br0 up
             link del v1
             link add br1 type bridge
             link set v0 master br1
             link del br0
             link del br1",
        );
        assert!(follower.state.fdb.is_empty());
        assert_eq!(follower.mirror.stats().malformed, 0);
        assert_eq!(follower.mirror.stats().overruns, 0);
    });
}

#[test]
fn what_is_learnt_moves_and_ages() {
    in_namespace("what_is_learnt_moves_and_ages", || {
        bridged();
        for n in 0..2 {
            ip(&format!("link set p{n} address 02:00:00:00:09:09"));
            ip(&format!("addr add 10.9.{n}.1/24 dev p{n}"));
        }
        let mut follower = Follower::new();
        let (v0, v1) = (index_of("v0"), index_of("v1"));
        let at = |state: &State| {
            let mut entries = state.fdb.values();
            let it = entries.find(|entry| entry.mac == [2, 0, 0, 0, 9, 9])?;
            assert!(!it.local && !it.is_special);
            Some(it.port)
        };
        for (host, (subnet, port)) in (7..).zip([(0, v0), (1, v1), (0, v0)]) {
            ask(subnet, host);
            follower.until("learning", |state| match at(state) {
                Some(now) if now == port => Ok(()),
                other => Err(format!("it is at {other:?}")),
            });
            agrees(&mut follower, "what was learnt");
        }
        // A hundredth of a second, in which nobody sends.
        ip("link set br0 type bridge ageing_time 1");
        follower.until("ageing", |state| match at(state) {
            None => Ok(()),
            Some(port) => Err(format!("it is still at {port}")),
        });
    });
}

/// Asks by a link, whose address is given, for a neighbour that nobody is.
fn ask(subnet: u8, host: u8) {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    socket
        .send_to(&[0], (Ipv4Addr::from([10, 9, subnet, host]), 9))
        .unwrap();
}

#[test]
fn vlans_are_followed() {
    let name = "vlans_are_followed";
    in_namespace(name, || {
        bridged();
        if !filters_vlans(name) {
            return;
        }
        bridge("vlan add dev v1 vid 100-2000");
        let mut follower = Follower::new();
        agrees(&mut follower, "initial state");
        let br0 = index_of("br0");
        let set = |state: &State| state.links[&br0].bridge.unwrap();
        step_by_step(
            &mut follower,
            "bridge vlan add dev v0 vid 10-20
             bridge vlan add dev v0 vid 30 pvid untagged
             bridge vlan add dev v0 vid 31 pvid
             bridge vlan add dev v0 vid 31
             bridge vlan add dev br0 vid 30 self
             bridge vlan add dev br0 vid 31 pvid untagged self
             bridge vlan set dev v0 vid 12 state blocking
             bridge vlan del dev v0 vid 15
             bridge vlan del dev v0 vid 31
             bridge vlan del dev br0 vid 30 self
             bridge vlan add dev br0 vid 3000-4094 self
             bridge fdb add 02:00:00:00:01:01 dev v0 master static vlan 10
             bridge fdb add 02:00:00:00:01:02 dev v0 master dynamic vlan 10
             bridge fdb replace 02:00:00:00:01:02 dev v1 master dynamic vlan 100
             bridge vlan del dev v1 vid 100-1000
             link set br0 type bridge vlan_default_pvid 5
             link set v0 nomaster
             link set v0 master br0
             link set v1 type bridge_slave vlan_tunnel on
             link add br1 type bridge vlan_filtering 1 vlan_default_pvid 7
             link set v0 master br1
             link del br1",
        );
        assert_eq!(set(&follower.state).protocol, 0x8100);
        ip("link set br0 type bridge vlan_protocol 802.1ad");
        follower.until("protocol", |state| match set(state).protocol {
            0x88a8 => Ok(()),
            other => Err(format!("{other:x}")),
        });
        assert!(set(&follower.state).filters_vlans);
        let special = follower.state.links.values().find_map(|link| link.port);
        assert!(special.unwrap().is_special);
        step_by_step(&mut follower, "link set br0 type bridge vlan_filtering 0");
        follower.until("no VLANs", |state| match set(state).filters_vlans {
            false => Ok(()),
            true => Err("it filters them".into()),
        });
        step_by_step(&mut follower, "link del br0");
        assert!(follower.state.port_vlans.is_empty());
        assert_eq!(follower.mirror.stats().malformed, 0);
    });
}

/// Many entries, of which some go while they are dumped, so that the dump passes others over (`br_fdb_dump`): none is missed.
#[test]
fn many_entries_are_read_while_they_go() {
    in_namespace("many_entries_are_read_while_they_go", || {
        bridged();
        let (bridge, port) = (index_of("br0"), index_of("v0"));
        let entry = |n: u16| {
            let [high, low] = n.to_be_bytes();
            FdbEntry {
                bridge,
                mac: [2, 0, 0, 1, high, low],
                vlan: 0,
                port,
                local: false,
                is_special: false,
            }
        };
        let change = |gone: bool, range: std::ops::Range<u16>| {
            let mut socket = Socket::open().unwrap();
            let all: Vec<u16> = range.collect();
            for some in all.chunks(100) {
                let mut request = Builder::new();
                for n in some {
                    let entry = entry(*n);
                    let event = match gone {
                        // A request is about the port.
                        true => Event::FdbGone(port, entry.mac, 0),
                        false => Event::Fdb(entry),
                    };
                    encode(&mut request, &event, nlm::CREATE).unwrap();
                }
                socket.request(&mut request, "change entries").unwrap();
            }
        };
        change(false, 0..20_000);
        let mut mirror = Mirror::open().unwrap();
        let (mut state, mut goes_on) = (State::default(), true);
        mirror
            .initial(&mut |event| {
                // The kernel has told few of them by then: it waits for whoever reads. The newest stand first.
                if matches!(event, Event::Fdb(_)) && std::mem::take(&mut goes_on) {
                    change(true, 15_000..20_000);
                }
                state.apply(event);
            })
            .unwrap();
        let mut follower = Follower { mirror, state };
        agrees(&mut follower, "entries");
        assert!(follower.state.fdb.len() >= 15_000);
        assert_eq!(follower.mirror.stats().overruns, 0);
    });
}
