//! Bridges of the router.

use super::{World, mac_text};

/// MAC address of the router's bridges: none of its ports has it.
pub const BRIDGE_MAC: [u8; 6] = [2, 0x98, 0, 0, 0, 1];

impl World {
    /// Makes a bridge of these links, which lose their addresses, and sets it up; `words` are more of `ip link add`'s. Says whether the
    /// kernel has such bridges. From the first one on, frames that arrive are seen with their tags.
    pub fn bridge(&self, name: &str, words: &str, ports: &[&str]) -> bool {
        let mac = mac_text(BRIDGE_MAC);
        let line = format!("ip link add {name} address {mac} type bridge {words}");
        let line: Vec<&str> = line.split_whitespace().collect();
        if !self.lab().output("router", &line).unwrap().status.success() {
            return false;
        }
        self.see_tags();
        // On where the module is, which others may have loaded.
        for family in ["iptables", "ip6tables", "arptables"] {
            self.calls(family, false);
        }
        let mut lines = Vec::new();
        for port in ports {
            lines.extend([
                format!("addr flush dev {port}"),
                format!("link set {port} master {name}"),
            ]);
        }
        lines.push(format!("link set {name} up"));
        self.batch(&lines);
        true
    }

    /// Whether bridges have rules of this family (`iptables`, `ip6tables`, `arptables`) judge what they bridge (`br_netfilter`); says
    /// whether the kernel has that.
    pub fn calls(&self, family: &str, calls: bool) -> bool {
        let key = format!("net.bridge.bridge-nf-call-{family}");
        let value = if calls { "1" } else { "0" };
        self.lab().set_sysctl("router", &key, value).is_ok()
    }

    /// Has `bridge` on the router do things; they have to succeed.
    pub fn bridges(&self, lines: &[String]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        self.node(
            "router",
            &format!("bridge -batch {}", file.path().display()),
        );
    }

    /// Has a bridge forget all that it has learnt, and know these MAC addresses at ports, in VLANs (0: it has none).
    pub fn knows(&self, bridge: &str, hosts: &[([u8; 6], &str, u16)]) {
        self.ip(&format!("link set {bridge} type bridge fdb_flush"));
        let lines = hosts.iter().map(|(mac, port, vlan)| {
            let vlan = match vlan {
                0 => String::new(),
                vlan => format!("vlan {vlan}"),
            };
            let mac = mac_text(*mac);
            format!("fdb replace {mac} dev {port} master static {vlan}")
        });
        self.bridges(&lines.collect::<Vec<_>>());
    }
}
