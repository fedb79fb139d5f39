//! Small questions to the running kernel. What cannot be answered is an error that says why, never
//! "none".

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use raddle_netlink::probe::ethtool;
use raddle_netlink::probe::namespace::Namespace;
use raddle_netlink::probe::seg6::Seg6;
use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::event::Link;
use raddle_select::Steering;
use thiserror::Error;

use super::facts::{Choices, Connections, Facts, Other, Receive, Target, Tuning};
use super::srv6::Srv6;
use raddle_preflight as preflight;

/// Why a question has no answer.
#[derive(Debug, Error)]
pub(super) enum Unanswered {
    /// The kernel gives none by netlink.
    #[error(transparent)]
    Netlink(#[from] raddle_netlink::Error),
    /// Or by other calls.
    #[error(transparent)]
    Probe(#[from] raddle_netlink::probe::Error),
    /// A file cannot be read.
    #[error("{file}: {why}")]
    File {
        file: &'static str,
        why: std::io::Error,
    },
    /// `/sys` shows another namespace.
    #[error(
        "/sys shows another network namespace than ours, so not {0}; ip netns exec mounts the right one"
    )]
    OtherSys(String),
    /// What was found is not all.
    #[error("only root may look into all of them")]
    NotRoot,
}

/// A number below `/proc/sys/net` of the calling thread's namespace.
fn sysctl(path: &str) -> Option<u32> {
    std::fs::read_to_string(format!("/proc/sys/net/{path}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Settings that the mirror does not have.
pub(super) fn tuning() -> Tuning {
    let switch = |path| sysctl(path).map(|value| value != 0);
    Tuning {
        compat_mode: switch("ipv4/nexthop_compat_mode"),
        txrehash: switch("core/txrehash"),
        plb: switch("ipv4/tcp_plb_enabled"),
    }
}

/// Settings of SRv6 that the mirror does not have.
pub(super) fn seg6<'a>(links: impl Iterator<Item = &'a Link>, srv6: &mut Srv6) {
    srv6.enabled_all = sysctl("ipv6/conf/all/seg6_enabled").map(|value| value != 0);
    for link in links {
        // A link without IPv6 has none.
        let name = &link.name;
        if let Some(value) = sysctl(&format!("ipv6/conf/{name}/seg6_enabled")) {
            srv6.enabled.insert(link.index, value != 0);
        }
    }
}

/// The source of outer headers and the keys of HMACs.
pub(super) fn seg6_keys(srv6: &mut Srv6) -> Result<(), Unanswered> {
    let Some(mut seg6) = Seg6::open()? else {
        return Ok(());
    };
    let source = seg6.source()?;
    srv6.tunsrc = Some(source.unwrap_or(Ipv6Addr::UNSPECIFIED));
    let keys = seg6.keys()?;
    srv6.hmac_keys = Some(keys.iter().map(|key| key.id).collect());
    Ok(())
}

/// Which of the links have receive packet steering.
pub(super) fn steering(links: &[Link]) -> Result<Vec<u32>, Unanswered> {
    let mut steered = Vec::new();
    let mut hidden = Vec::new();
    for link in links {
        match preflight::steering(Path::new("/sys/class/net"), link) {
            Some(Steering::On | Steering::Partly) => steered.push(link.index),
            Some(Steering::Off) => {}
            None => hidden.push(link.name.as_str()),
        }
    }
    match hidden.as_slice() {
        [] => Ok(steered),
        hidden => Err(Unanswered::OtherSys(hidden.join(", "))),
    }
}

/// Receive offloads of the links.
pub(super) fn offloads(links: &[Link], receive: &mut Receive) -> Result<(), Unanswered> {
    for link in links {
        let flags = match ethtool::flags(&link.name) {
            Ok(flags) => flags,
            // It has gone meanwhile.
            Err(e) if e.errno() == Some(libc::ENODEV) => continue,
            Err(e) => return Err(e.into()),
        };
        let note = |on: bool, list: &mut Vec<u32>| {
            if on {
                list.push(link.index);
            }
        };
        note(flags.rx_hash, &mut receive.hashed);
        note(flags.lro, &mut receive.merged);
        note(flags.rx_vlan && link.kind.is_none(), &mut receive.untagged);
    }
    Ok(())
}

/// Established TCP connections by their two addresses.
pub(super) fn connections() -> Result<Vec<Connections>, Unanswered> {
    let mut counts = BTreeMap::new();
    for file in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        let open = match std::fs::File::open(file) {
            Ok(open) => open,
            // No IPv6 in this kernel.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && file.ends_with('6') => continue,
            Err(why) => return Err(Unanswered::File { file, why }),
        };
        for line in BufReader::new(open).lines() {
            let line = line.map_err(|why| Unanswered::File { file, why })?;
            if let Some(pair) = established(&line) {
                *counts.entry(pair).or_insert(0) += 1;
            }
        }
    }
    let connections = counts.into_iter();
    Ok(connections
        .map(|((local, remote), count)| Connections {
            local,
            remote,
            count,
        })
        .collect())
}

/// The addresses in a line of `/proc/net/tcp`, if the connection is established (`01`).
fn established(line: &str) -> Option<(IpAddr, IpAddr)> {
    let mut words = line.split_whitespace().skip(1);
    let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
    if state != "01" {
        return None;
    }
    Some((proc_address(local)?, proc_address(remote)?))
}

/// `0100007F:1F90`: 32-bit words as the machine loads them, then the port.
fn proc_address(text: &str) -> Option<IpAddr> {
    let (address, _port) = text.split_once(':')?;
    if !address.is_ascii() {
        return None;
    }
    let word = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match address.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            let address = Ipv6Addr::from(bytes);
            // IPv4 over an IPv6 socket is routed as IPv4.
            Some(
                address
                    .to_ipv4_mapped()
                    .map_or(address.into(), IpAddr::from),
            )
        }
        _ => None,
    }
}

/// Namespaces that are looked at.
const MOST_NAMESPACES: usize = 256;

/// Other namespaces that forward, and their seeds.
pub(super) fn other_namespaces() -> Result<Vec<Other>, Unanswered> {
    let namespaces = Namespace::all()?;
    let mut others = Vec::new();
    for namespace in namespaces.iter().skip(1).take(MOST_NAMESPACES) {
        let read = namespace.run(|| {
            let forwards = sysctl("ipv4/ip_forward") == Some(1)
                || sysctl("ipv6/conf/all/forwarding") == Some(1);
            let seed = sysctl("ipv4/fib_multipath_hash_seed");
            let policy4 = sysctl("ipv4/fib_multipath_hash_policy");
            Ok(seed.zip(policy4).filter(|_| forwards))
        });
        if let Some((seed, policy4)) = read? {
            let place = namespace.place.to_string();
            others.push(Other {
                place,
                seed,
                policy4,
            });
        }
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(Unanswered::NotRoot);
    }
    Ok(others)
}

/// Flows that are asked about for each destination.
const FLOWS: u32 = 64;
/// Destinations that are asked about.
const MOST_DESTINATIONS: usize = 16;

/// Asks the kernel about flows over plain multipath routes that have a link without carrier.
///
/// The questions are those of a local sender without an address yet: no link has to forward, and no
/// source address is preferred. What another route answers is left out.
pub(super) fn choices(facts: &Facts) -> Result<Vec<Choices>, Unanswered> {
    let lacks_carrier = |index: u32| {
        facts
            .links
            .get(&index)
            .is_some_and(|link| link.is_up() && !link.has_carrier())
    };
    let doubtful = facts
        .paths
        .iter()
        .enumerate()
        .filter(|(_, paths)| match &paths.target {
            Target::Plain(hops) => hops.iter().any(|hop| lacks_carrier(hop.index)),
            Target::Group(_) => false,
        });
    let mut socket = None;
    let mut all = Vec::new();
    for (place, paths) in doubtful.take(MOST_DESTINATIONS) {
        let socket = match &mut socket {
            Some(socket) => socket,
            none => none.insert(Socket::open()?),
        };
        let members = facts.members(paths);
        let mut choices = Choices {
            paths: place,
            asked: 0,
            by_link: BTreeMap::new(),
        };
        for n in 0..FLOWS {
            let query = RouteQuery {
                ip_proto: Some(libc::IPPROTO_UDP as u8),
                sport: Some(20_000 + n as u16),
                dport: Some(9),
                ..RouteQuery::default()
            };
            // A refusal is an answer: no route leads there, so no path is chosen.
            let Ok(answer) = socket.get_route(host(paths.dst, n), &query) else {
                continue;
            };
            let is_ours =
                |m: &&super::facts::Member| (m.index, m.gateway) == (answer.index, answer.gateway);
            if members.iter().any(|m| is_ours(&m)) {
                choices.asked += 1;
                *choices.by_link.entry(answer.index).or_default() += 1;
            }
        }
        all.push(choices);
    }
    Ok(all)
}

/// The `n`th address to ask about behind a prefix, wrapping where it has fewer; documentation's
/// addresses for a default route.
fn host(dst: ipnet::IpNet, n: u32) -> IpAddr {
    match dst {
        ipnet::IpNet::V4(net) if net.prefix_len() == 0 => {
            Ipv4Addr::new(198, 51, 100, n as u8).into()
        }
        ipnet::IpNet::V4(net) => {
            let size = 32 - u32::from(net.prefix_len());
            let within = if size >= 32 {
                u32::MAX
            } else {
                (1 << size) - 1
            };
            Ipv4Addr::from_bits(net.network().to_bits() | ((n + 1) & within)).into()
        }
        ipnet::IpNet::V6(net) => {
            let network = match net.prefix_len() {
                0 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
                _ => net.network(),
            };
            let size = 128 - u32::from(net.prefix_len());
            let within = if size >= 32 {
                u32::MAX
            } else {
                (1 << size) - 1
            };
            Ipv6Addr::from_bits(network.to_bits() | u128::from((n + 1) & within)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_as_the_kernel_writes_them() {
        let line = |addresses: &str, state: &str| {
            format!("   0: {addresses} {state} 00000000:00000000 00:00000000 00000000  0 0 1")
        };
        let four = "0100007F:1F90 0200000A:0050";
        let expected: (IpAddr, IpAddr) =
            ("127.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(established(&line(four, "01")), Some(expected));
        assert_eq!(established(&line(four, "0A")), None);
        let six = "B80D0120000000000000000001000000:1F90 0000000000000000FFFF00000200000A:0050";
        let expected: (IpAddr, IpAddr) =
            ("2001:db8::1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(established(&line(six, "01")), Some(expected));
        for text in [
            "",
            "  sl  local_address rem_address   st",
            "1: 2: 3: 01",
            "1: é:1 é:1 01",
        ] {
            assert_eq!(established(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_to_ask_about_are_behind_the_prefix() {
        for (dst, n, expected) in [
            ("10.9.0.0/24", 0, "10.9.0.1"),
            ("10.9.0.0/24", 255, "10.9.0.0"),
            ("10.9.0.7/32", 9, "10.9.0.7"),
            ("0.0.0.0/0", 9, "198.51.100.9"),
            ("128.0.0.0/1", 3, "128.0.0.4"),
            ("2001:db8:9::/64", 1, "2001:db8:9::2"),
            ("2001:db8:9::7/128", 1, "2001:db8:9::7"),
            ("::/0", 0, "2001:db8::1"),
        ] {
            let dst = dst.parse().unwrap();
            assert_eq!(
                host(dst, n),
                expected.parse::<IpAddr>().unwrap(),
                "{dst} {n}"
            );
        }
    }
}
