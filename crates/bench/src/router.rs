//! The machine under test: a router between a generator and two sinks, in one namespace.
//!
//! ```text
//! gen0 (sends) --- in0 | router | out0 --- sink0
//!                               | out1 --- sink1
//! ```
//! The far ends of the wires have no addresses. All of it runs on the CPU that the thread is pinned
//! to, so every row has the cost of generator and sink in it, and ratios are lower than a router
//! alone would show.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use ipnet::IpNet;
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, unshare};
use raddle_netlink::Socket;
use raddle_rib::event::{Route, RouteTarget};

use crate::measure::Column;
use raddle_exit::Failure;

/// MAC address of the generator.
pub(crate) const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// MAC address of the router's in-link.
pub(crate) const IN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Nexthop object that the large tables lead to: a group of two.
const GROUP4: u32 = 40;
const GROUP6: u32 = 60;
/// Neighbours behind each out-link.
const NEIGHBOURS: u32 = 32;

/// Moves this thread into a namespace of its own, on the last CPU, and builds the router there.
pub(crate) fn build() -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|e| Failure::system(format!("cannot make a network namespace: {e}")))?;
    pin_to_cpu()?;
    for (a, b) in [("gen0", "in0"), ("out0", "sink0"), ("out1", "sink1")] {
        ip(&format!("link add {a} type veth peer name {b}"))?;
    }
    let macs = [
        ("gen0", 1),
        ("in0", 2),
        ("out0", 16),
        ("out1", 17),
        ("sink0", 32),
        ("sink1", 33),
    ];
    for (name, last) in macs {
        ip(&format!(
            "link set {name} addrgenmode none address 02:00:00:00:00:{last:02x} up"
        ))?;
    }
    for (file, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/fib_multipath_hash_policy", "1"),
        ("ipv6/fib_multipath_hash_policy", "1"),
        ("ipv4/fib_multipath_hash_seed", "12345"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/in0/rp_filter", "0"),
        ("ipv6/route/max_size", "2147483647"),
    ] {
        // Older kernels have no seed: their own choice is random, and of the same cost.
        let _ = std::fs::write(format!("/proc/sys/net/{file}"), value);
    }
    batch(&addresses())?;
    batch(&routes(""))
}

/// What containers have beside them: masquerading for their addresses, filters for their bridge, and connection tracking.
const FIREWALL: &str = r#"
table inet containers {
  chain forward {
    type filter hook forward priority filter; policy accept;
    oifname "docker0" ct state established,related accept
    iifname "docker0" oifname != "docker0" accept
    iifname != "docker0" oifname "docker0" drop
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr 172.17.0.0/16 oifname != "docker0" masquerade
    ip6 saddr fd00:17::/64 oifname != "docker0" masquerade
  }
}
"#;

/// As a machine with several uplinks has them: by source, beside others by port and TOS.
const RULES4: [&str; 5] = [
    "route VERB default nhid 40 table 100",
    "rule VERB pref 100 from 192.0.2.0/24 lookup 101",
    "rule VERB pref 101 ipproto 6 dport 443 lookup 101",
    "rule VERB pref 102 tos 0x10 lookup 101",
    "rule VERB pref 103 from 10.0.0.0/24 lookup 100",
];
/// The same of IPv6.
const RULES6: [&str; 5] = [
    "route VERB default nhid 60 table 100",
    "rule VERB pref 100 from 2001:db8:ffff::/64 lookup 101",
    "rule VERB pref 101 ipproto 6 dport 443 lookup 101",
    "rule VERB pref 102 tos 0x10 lookup 101",
    "rule VERB pref 103 from 2001:db8::/64 lookup 100",
];

/// Sets up what a column has beside it, or takes it away again.
pub(crate) fn surround(column: Column, there: bool) -> Result<(), Failure> {
    let filter = match (column, there) {
        (Column::RpLoose, true) => "2",
        (Column::RpStrict, true) => "1",
        (Column::RpLoose | Column::RpStrict, false) => "0",
        (Column::Firewall, _) => {
            let rules = if there { FIREWALL } else { "flush ruleset" };
            return feed("nft", &["-f", "-"], rules);
        }
        (Column::Rules, _) => {
            let verb = if there { "add" } else { "del" };
            for (family, lines) in [("-4", RULES4), ("-6", RULES6)] {
                let lines = lines.map(|line| line.replace("VERB", verb));
                feed("ip", &[family, "-batch", "-"], &lines.join("\n"))?;
            }
            return Ok(());
        }
        (Column::Vrf, there) => return vrf(there),
        (Column::Bond, there) => return bond(there),
        (Column::VlanIn | Column::VlanOut | Column::Vlan, there) => return vlan(column, there),
        (Column::BridgeIn | Column::BridgeOut, there) => return bridge(column, there),
        (Column::VxlanOut | Column::GreOut, there) => return tunnel(column, there),
        _ => return Ok(()),
    };
    std::fs::write("/proc/sys/net/ipv4/conf/in0/rp_filter", filter)
        .map_err(|e| Failure::system(format!("cannot set rp_filter: {e}")))
}

/// Why this kernel cannot have a column, if so.
pub(crate) fn lacks(column: Column) -> Option<String> {
    let (new, name, what) = match column {
        Column::Vrf => (NEW_VRF, "red", "VRFs"),
        Column::Bond => (NEW_BOND, "bond0", "bonds"),
        Column::VlanIn | Column::VlanOut | Column::Vlan => (NEW_VLAN_IN, VLAN_IN, "VLANs"),
        Column::BridgeIn | Column::BridgeOut => (NEW_BRIDGE, BRIDGE, "bridges"),
        Column::VxlanOut => (NEW_VXLAN, VXLAN, "VXLANs"),
        Column::GreOut => (NEW_GRE, GRE, "GRE"),
        _ => return None,
    };
    match ip(new) {
        Ok(()) => {
            let _ = ip(&format!("link del {name}"));
            None
        }
        Err(why) => Some(format!("this kernel has no {what} ({why})")),
    }
}

const NEW_BOND: &str =
    "link add bond0 type bond mode balance-xor xmit_hash_policy layer3+4 miimon 50";

/// Makes a bond of the router's out-links, by which the first of its routes leads, or takes it apart.
fn bond(there: bool) -> Result<(), Failure> {
    let links = ["out0", "out1"];
    if !there {
        ip("link del bond0")?;
        batch(&links.map(|link| format!("link set {link} up")))?;
        batch(&["in0", "out0", "out1"].map(|link| format!("addr flush dev {link}")))?;
        batch(&addresses())?;
        return batch(&routes(""));
    }
    let mut lines = vec![NEW_BOND.to_owned()];
    for link in links {
        lines.push(format!("addr flush dev {link}"));
        lines.push(format!("link set {link} down"));
        lines.push(format!("link set {link} master bond0"));
    }
    lines.push("link set bond0 addrgenmode none up".to_owned());
    batch(&lines)?;
    batch(&on_instead(addresses(), "out0", "bond0"))?;
    batch(&on_instead(first_routes(), "out0", "bond0"))
}

/// The VLAN that packets of some columns come in by, and that they go out by.
pub(crate) const VLAN_IN: &str = "in0.5";
pub(crate) const VLAN_OUT: &str = "out0.5";
/// The number of both.
pub(crate) const VLAN_ID: u8 = 5;
const NEW_VLAN_IN: &str = "link add link in0 name in0.5 type vlan id 5";
const NEW_VLAN_OUT: &str = "link add link out0 name out0.5 type vlan id 5";

/// Makes the VLANs of a column, by which the first of the router's routes leads if they are out-links, or takes them away.
fn vlan(column: Column, there: bool) -> Result<(), Failure> {
    let mut lines = Vec::new();
    if column.is_tagged_in() {
        lines.extend(match there {
            true => vec![
                NEW_VLAN_IN.to_owned(),
                format!("link set {VLAN_IN} addrgenmode none up"),
            ],
            false => vec![format!("link del {VLAN_IN}")],
        });
    }
    if column.is_tagged_out() {
        lines.extend(match there {
            true => vec![
                NEW_VLAN_OUT.to_owned(),
                format!("link set {VLAN_OUT} addrgenmode none up"),
                format!("addr add 10.2.0.1/24 dev {VLAN_OUT}"),
                format!("addr add 2001:db8:2::1/64 dev {VLAN_OUT} nodad"),
                format!(
                    "neigh replace 10.2.0.2 lladdr 02:00:00:00:00:20 dev {VLAN_OUT} nud permanent"
                ),
                format!(
                    "neigh replace 2001:db8:2::2 lladdr 02:00:00:00:00:20 dev {VLAN_OUT} nud permanent"
                ),
                format!("route replace 198.51.1.0/24 via 10.2.0.2 dev {VLAN_OUT}"),
                format!("route replace 2001:db8:f1::/48 via 2001:db8:2::2 dev {VLAN_OUT}"),
            ],
            false => vec![format!("link del {VLAN_OUT}")],
        });
    }
    batch(&lines)?;
    match there {
        true => Ok(()),
        false => batch(&routes("")),
    }
}

/// The bridge that packets of some columns come in by, and that those of others go out by.
pub(crate) const BRIDGE: &str = "br0";
const NEW_BRIDGE: &str = "link add br0 address 02:00:00:00:00:02 type bridge mcast_snooping 0";

/// Makes the bridge of a column, of the in-link or of the first out-link, by which the first of the router's routes leads then, or takes
/// it apart. What is behind the link is set, so that there is nothing to learn.
fn bridge(column: Column, there: bool) -> Result<(), Failure> {
    let (link, behind) = match column {
        Column::BridgeIn => ("in0", "02:00:00:00:00:01"),
        _ => ("out0", "02:00:00:00:00:20"),
    };
    if !there {
        batch(&[
            format!("link del {BRIDGE}"),
            format!("addr flush dev {link}"),
        ])?;
        batch(&on_instead(addresses(), link, link))?;
        return batch(&routes(""));
    }
    batch(&[
        NEW_BRIDGE.to_owned(),
        format!("addr flush dev {link}"),
        format!("link set {link} master {BRIDGE}"),
        format!("link set {BRIDGE} addrgenmode none up"),
    ])?;
    let known = format!("fdb replace {behind} dev {link} master static");
    feed("bridge", &["-batch", "-"], &known)?;
    batch(&on_instead(addresses(), link, BRIDGE))?;
    batch(&on_instead(first_routes(), link, BRIDGE))
}

/// The tunnels that packets of some columns go out through, to the first neighbour of the first out-link.
pub(crate) const VXLAN: &str = "vx5";
pub(crate) const GRE: &str = "gre5";
const NEW_VXLAN: &str =
    "link add vx5 type vxlan id 5 local 10.1.0.1 nolearning dstport 4789 ttl 64";
const NEW_GRE: &str = "link add gre5 type gre local 10.1.0.1 remote 10.1.0.2 ttl 64";
/// Behind the VXLAN.
const FAR_MAC: &str = "02:00:00:00:00:30";

/// Makes the tunnel of a column, through which the first of the router's routes leads then, or takes it away.
fn tunnel(column: Column, there: bool) -> Result<(), Failure> {
    let (new, link) = match column {
        Column::VxlanOut => (NEW_VXLAN, VXLAN),
        _ => (NEW_GRE, GRE),
    };
    if !there {
        ip(&format!("link del {link}"))?;
        return batch(&routes(""));
    }
    let mut lines = vec![
        new.to_owned(),
        format!("link set {link} addrgenmode none up"),
        format!("addr add 10.2.0.1/24 dev {link}"),
        format!("addr add 2001:db8:2::1/64 dev {link} nodad"),
    ];
    if link == VXLAN {
        let known = format!("fdb add {FAR_MAC} dev {link} dst 10.1.0.2 self static");
        batch(&lines)?;
        feed("bridge", &["-batch", "-"], &known)?;
        lines = ["10.2.0.2", "2001:db8:2::2"]
            .map(|there| format!("neigh replace {there} lladdr {FAR_MAC} dev {link} nud permanent"))
            .into();
    }
    lines.extend([
        format!("route replace 198.51.1.0/24 via 10.2.0.2 dev {link}"),
        format!("route replace 2001:db8:f1::/48 via 2001:db8:2::2 dev {link}"),
    ]);
    batch(&lines)
}

/// The first of each family.
fn first_routes() -> Vec<String> {
    let mut lines = routes("");
    lines.retain(|line| {
        line.starts_with("route replace 198.51.1.0/24")
            || line.starts_with("route replace 2001:db8:f1::")
    });
    lines
}

/// Of these lines those of a link, for another one in its place.
fn on_instead(lines: Vec<String>, link: &str, other: &str) -> Vec<String> {
    let (of, instead) = (format!("dev {link}"), format!("dev {other}"));
    let lines = lines.into_iter().filter(|line| line.contains(&of));
    lines.map(|line| line.replace(&of, &instead)).collect()
}

const NEW_VRF: &str = "link add red type vrf table 100";

/// Puts the router's links into a VRF, or takes them out. They go down for it one after the other and lose most of what
/// they have, so all of it is made anew.
fn vrf(there: bool) -> Result<(), Failure> {
    let links = ["in0", "out0", "out1"];
    let mut lines = Vec::new();
    match there {
        true => {
            lines.extend([NEW_VRF.to_owned(), "link set red up".to_owned()]);
            lines.extend(links.map(|link| format!("link set {link} master red")));
        }
        false => lines.push("link del red".to_owned()),
    }
    lines.extend(links.map(|link| format!("addr flush dev {link}")));
    batch(&lines)?;
    batch(&addresses())?;
    batch(&routes(if there { " table 100" } else { "" }))
}

fn addresses() -> Vec<String> {
    let mut lines = vec![
        "addr add 10.0.0.1/24 dev in0".to_owned(),
        "addr add 2001:db8::1/64 dev in0 nodad".to_owned(),
    ];
    for out in 0..2 {
        lines.push(format!("addr add 10.1.{out}.1/24 dev out{out}"));
        lines.push(format!(
            "addr add 2001:db8:1:{out}::1/64 dev out{out} nodad"
        ));
        for n in 2..2 + NEIGHBOURS {
            for address in [
                format!("10.1.{out}.{n}"),
                format!("2001:db8:1:{out}::{n:x}"),
            ] {
                lines.push(format!(
                    "neigh replace {address} lladdr 02:00:00:00:00:{:02x} dev out{out} nud permanent",
                    32 + out
                ));
            }
        }
    }
    lines
}

/// All but those of the large table; `table` as `ip` takes it.
fn routes(table: &str) -> Vec<String> {
    let gateway = |v6: bool, out: u32, n: u32| match v6 {
        false => format!("10.1.{out}.{n}"),
        true => format!("2001:db8:1:{out}::{n:x}"),
    };
    let mut lines = Vec::new();
    for (v6, group, prefixes) in [
        (
            false,
            GROUP4,
            ["198.51.1.0/24", "198.51.2.0/24", "198.51.3.0/24"],
        ),
        (
            true,
            GROUP6,
            ["2001:db8:f1::/48", "2001:db8:f2::/48", "2001:db8:f3::/48"],
        ),
    ] {
        let hops = |each: u32| -> String {
            (0..each)
                .flat_map(|n| (0..2).map(move |out| (out, n + 2)))
                .map(|(out, n)| format!(" nexthop via {} dev out{out}", gateway(v6, out, n)))
                .collect()
        };
        lines.push(format!(
            "route replace {}{table} via {} dev out0",
            prefixes[0],
            gateway(v6, 0, 2)
        ));
        for (prefix, each) in [(prefixes[1], 1), (prefixes[2], NEIGHBOURS)] {
            lines.push(format!("route replace {prefix}{table}{}", hops(each)));
        }
        for out in 0..2 {
            let (id, via) = (group + 1 + out, gateway(v6, out, 2));
            lines.push(format!("nexthop replace id {id} via {via} dev out{out}"));
        }
        lines.push(format!(
            "nexthop replace id {group} group {}/{}",
            group + 1,
            group + 2
        ));
    }
    lines
}

/// Changes the nexthop group behind the large table, so that its cost can be measured.
pub(crate) fn change_group(weight: u16) -> Result<(), Failure> {
    ip(&format!(
        "nexthop replace id {GROUP4} group {},{weight}/{}",
        GROUP4 + 1,
        GROUP4 + 2
    ))
}

/// Prefix number `i` of the large table, without order: /24s of IPv4 outside of special ranges, or
/// IPv6 /48s, 64 in each of many /32s. None where the range is a special one.
fn prefix(v6: bool, i: u32) -> Option<IpNet> {
    if v6 {
        // An odd factor permutes, so no prefix comes twice.
        let block = (i >> 6).wrapping_mul(0x9e37_79b1) >> 8 & 0x000f_ffff;
        let site = (i & 63).wrapping_mul(1021) & 0xffff;
        let bits = 0x2400_u128 << 112 | u128::from(block) << 96 | u128::from(site) << 80;
        return IpNet::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), 48).ok();
    }
    let net = i.wrapping_mul(0x9e_3779) & 0x00ff_ffff;
    let first = net >> 16;
    if first == 0 || first == 10 || first == 127 || first == 198 || first >= 224 {
        return None;
    }
    IpNet::new(IpAddr::V4(Ipv4Addr::from_bits(net << 8)), 24).ok()
}

/// The first `count` prefixes of the large table.
fn prefixes(v6: bool, count: u32) -> impl Iterator<Item = IpNet> {
    let most = if v6 { 1 << 26 } else { 1 << 24 };
    let mut seen = std::collections::HashSet::new();
    (0..most)
        .filter_map(move |i| prefix(v6, i))
        .filter(move |net| seen.insert(*net))
        .take(count as usize)
}

/// Installs the large table of one family.
pub(crate) fn install(v6: bool, count: u32) -> Result<(), Failure> {
    let group = if v6 { GROUP6 } else { GROUP4 };
    let routes = prefixes(v6, count).map(|dst| Route {
        dst,
        protocol: 186,
        metric: 20,
        target: RouteTarget::Object(group),
        ..Route::default()
    });
    Socket::open()?.install_routes(routes)?;
    Ok(())
}

/// An address in each of the table's prefixes, in no order.
pub(crate) fn destinations(v6: bool, count: u32) -> Vec<IpAddr> {
    prefixes(v6, count)
        .map(|net| match net.addr() {
            IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() | 9)),
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() | 9)),
        })
        .collect()
}

/// Interface index of a link of this thread's namespace.
pub(crate) fn index_of(name: &str) -> Result<u32, Failure> {
    nix::net::if_::if_nametoindex(name).map_err(|e| Failure::system(format!("link {name}: {e}")))
}

/// Runs `ip` with these words.
pub(crate) fn ip(words: &str) -> Result<(), Failure> {
    command("ip", words.split(' '))
}

/// Runs a tool of the system; its complaint is ours.
pub(crate) fn command<'a>(
    program: &str,
    words: impl Iterator<Item = &'a str>,
) -> Result<(), Failure> {
    let output = Command::new(program).args(words).output().map_err(|e| {
        Failure::system(format!(
            "cannot run {program}: {e}; install iproute2 and ethtool"
        ))
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::system(format!(
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// Many lines for `ip` in one go.
pub(crate) fn batch(lines: &[String]) -> Result<(), Failure> {
    feed("ip", &["-batch", "-"], &lines.join("\n"))
}

/// Runs a program that reads this.
fn feed(program: &str, arguments: &[&str], input: &str) -> Result<(), Failure> {
    use std::io::Write;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .map_err(|e| Failure::system(format!("cannot run {program}: {e}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::system(format!(
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// Keeps this thread, and with it the generator, on the last CPU that it may use.
pub(crate) fn pin_to_cpu() -> Result<(), Failure> {
    let failed = |e| Failure::system(format!("cannot pin the measurement to a CPU: {e}"));
    let this = nix::unistd::Pid::from_raw(0);
    let allowed = sched_getaffinity(this).map_err(failed)?;
    let last = (0..CpuSet::count()).rfind(|cpu| allowed.is_set(*cpu) == Ok(true));
    let mut set = CpuSet::new();
    set.set(last.unwrap_or(0)).map_err(failed)?;
    sched_setaffinity(this, &set).map_err(failed)
}
