//! VRFs of the router.

use super::World;

impl World {
    /// Makes a VRF with this table, of these links; says whether the kernel has VRFs.
    pub fn vrf(&self, name: &str, table: u32, links: &[&str]) -> bool {
        // A link that comes or goes is down for a moment.
        self.sysctl("net.ipv6.conf.all.keep_addr_on_down", "1");
        let table = table.to_string();
        let words = ["ip", "link", "add", name, "type", "vrf", "table", &table];
        if !self
            .lab()
            .output("router", &words)
            .unwrap()
            .status
            .success()
        {
            return false;
        }
        self.ip(&format!("link set {name} up"));
        for link in links {
            self.ip(&format!("link set {link} master {name}"));
        }
        for n in 1..=self.links() {
            self.neighbours(n, "permanent");
        }
        true
    }
}
