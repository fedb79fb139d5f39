//! VLANs of the router.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::{World, lock, mac_text};
use crate::tags::Tag;

impl World {
    /// Makes a VLAN upon a link of the router, which may be a VLAN itself, and sets it up; `words` are more of `ip link add`'s.
    /// Says whether the kernel has VLANs. From the first one on, frames that arrive are seen with their tags.
    pub fn vlan(&self, lower: &str, name: &str, tag: Tag, words: &str) -> bool {
        let kind = match tag.kind {
            0x88a8 => "802.1ad",
            _ => "802.1Q",
        };
        let line = format!(
            "ip link add link {lower} name {name} type vlan proto {kind} id {} {words}",
            tag.tci & 0xfff
        );
        let line: Vec<&str> = line.split_whitespace().collect();
        if !self.lab().output("router", &line).unwrap().status.success() {
            return false;
        }
        self.see_tags();
        self.ip(&format!("link set {name} up"));
        true
    }

    /// Frames that arrive are seen with their tags from now on.
    pub fn see_tags(&self) {
        // Once, as somebody may be using the sockets.
        if !self.sees_tags.swap(true, Ordering::Relaxed) {
            lock(&self.source).see_tags().unwrap();
            for sink in lock(&self.sinks).iter_mut() {
                sink.see_tags().unwrap();
            }
        }
    }

    /// Gives links of the router networks. Of network `NET` 10.3.NET.1/24 and 2001:db8:3:NET::1/64 (NET in hexadecimal) are its
    /// addresses, .2 and ::2 the gateway to 172.20.NET.0/24 and 2001:db8:4:NET::/64; `more` is what `ip route` shall say
    /// behind that. Nobody has the gateway's MAC address, so nobody answers what is sent there.
    pub fn networks(&self, links: &[(&str, u8)], more: &str) {
        let mut lines = Vec::new();
        for (link, net) in links {
            let (four, six) = gateway(*net);
            let mac = mac_text(gateway_mac(*net));
            lines.extend([
                format!("addr replace 10.3.{net}.1/24 dev {link}"),
                format!("addr replace 2001:db8:3:{net:x}::1/64 dev {link} nodad"),
                format!("neigh replace {four} lladdr {mac} dev {link} nud permanent"),
                format!("neigh replace {six} lladdr {mac} dev {link} nud permanent"),
                format!("route replace 172.20.{net}.0/24 via {four} dev {link} {more}"),
                format!("route replace 2001:db8:4:{net:x}::/64 via {six} dev {link} {more}"),
            ]);
        }
        self.batch(&lines);
    }

    /// Answers are not rationed, nobody is redirected, and sources are not looked at.
    pub fn plain_settings(&self) {
        for (key, value) in [
            ("net.ipv4.icmp_ratelimit", "0"),
            ("net.ipv4.icmp_ratemask", "0"),
            ("net.ipv6.icmp.ratelimit", "0"),
            ("net.ipv6.icmp.ratemask", "255"),
        ] {
            self.sysctl(key, value);
        }
        let links: Value = serde_json::from_str(&self.ip("-j link show")).unwrap();
        let links = links.as_array().unwrap().iter();
        let names = links.map(|link| link["ifname"].as_str().unwrap());
        for name in ["all", "default"].into_iter().chain(names) {
            self.sysctl(&format!("net.ipv4.conf.{name}.send_redirects"), "0");
            self.sysctl(&format!("net.ipv4.conf.{name}.rp_filter"), "0");
        }
        self.policy(1);
    }

    /// Has `ip` on the router do many things; they have to succeed. One process is soon started also where all is emulated.
    pub fn batch(&self, lines: &[String]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        self.ip(&format!("-batch {}", file.path().display()));
    }
}

/// The gateways of [`World::networks`].
pub fn gateway(net: u8) -> (Ipv4Addr, Ipv6Addr) {
    (
        Ipv4Addr::new(10, 3, net, 2),
        Ipv6Addr::new(0x2001, 0xdb8, 3, net.into(), 0, 0, 0, 2),
    )
}

/// Their MAC addresses.
pub const fn gateway_mac(net: u8) -> [u8; 6] {
    [2, 0x99, 0, 0, 0, net]
}
