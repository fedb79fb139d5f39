//! Bonds of the router.

use std::time::Duration;

use serde_json::Value;

use super::{World, mac_text, parallel};
use crate::within;

/// How long a bond may take until all its members take part: LACP on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    /// Makes a bond of these links, with this mode (`ip link`'s words for it); says whether the kernel has bonds. It has the addresses
    /// of the first link, and the gateway behind that as its neighbour.
    pub fn bond(&self, name: &str, mode: &str, members: &[&str]) -> bool {
        let mut words = vec!["ip", "link", "add", name, "type", "bond", "miimon", "50"];
        words.extend(["mode"]);
        words.extend(mode.split(' '));
        let made = self.lab().output("router", &words).unwrap();
        if !made.status.success() {
            return false;
        }
        let shown: Value =
            serde_json::from_str(&self.ip(&format!("-j addr show dev {}", members[0]))).unwrap();
        for member in members {
            self.ip(&format!("addr flush dev {member}"));
            self.ip(&format!("link set {member} down"));
            self.ip(&format!("link set {member} master {name}"));
        }
        self.ip(&format!("link set {name} up"));
        for address in shown[0]["addr_info"].as_array().unwrap() {
            if address["scope"] != "global" {
                continue;
            }
            let (local, length) = (address["local"].as_str().unwrap(), &address["prefixlen"]);
            let nodad = if local.contains(':') { "nodad" } else { "" };
            self.ip(&format!("addr add {local}/{length} dev {name} {nodad}"));
        }
        if let Some(n) = (1..=self.links()).find(|n| self.out(*n) == members[0]) {
            let mac = mac_text(self.mac("sink", &parallel("router", n)));
            let (four, six) = self.gateway(n);
            for gateway in [four.to_string(), six.to_string()] {
                self.ip(&format!(
                    "neigh replace {gateway} lladdr {mac} dev {name} nud permanent"
                ));
            }
        }
        true
    }

    /// Waits until just these members of a bond are active.
    pub fn bond_is_by(&self, name: &str, active: &[&str]) {
        within(PATIENCE, || {
            let shown: Value =
                serde_json::from_str(&self.ip(&format!("-d -j link show master {name}"))).unwrap();
            let members = shown.as_array().unwrap().iter();
            let works = |member: &&Value| {
                let data = &member["linkinfo"]["info_slave_data"];
                data["state"] == "ACTIVE" && data["mii_status"] == "UP"
            };
            let mut now: Vec<&str> = members
                .filter(works)
                .map(|member| member["ifname"].as_str().unwrap())
                .collect();
            now.sort_unstable();
            match now == active {
                true => Ok(()),
                false => Err(format!("{name} is by {now:?}, not {active:?}: {shown}")),
            }
        });
    }
}
