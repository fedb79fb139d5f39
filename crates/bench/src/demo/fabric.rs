//! The fabric that the demo runs on: who sends, who receives, and which links are compared.

use std::io::{IsTerminal, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use ipnet::IpNet;
use raddle_lab::{
    Clos, Counters, HashPolicy, Lab, LabError, LinkId, Rate, Role, ScopedLab, UpOptions,
};

use crate::program::on_path;
use raddle_exit::Failure;

/// The lab's name. The routers' hash seeds come from it, so that they repeat from run to run.
const NAME: &str = "demo";
/// Who sends, from behind `LEAF`, and who receives, behind the other leaf.
const SENDER: &str = "host1";
const RECEIVER: &str = "host2";
const LEAF: &str = "leaf1";

/// The fabric; removed when dropped.
pub(super) struct Fabric {
    /// The lab it is built of.
    pub lab: ScopedLab,
    /// The sending and the receiving host.
    pub hosts: [&'static str; 2],
    /// Their addresses.
    pub addresses: [Ipv4Addr; 2],
    /// The leaf that the sender is behind, where the paths part.
    pub leaf: &'static str,
    /// The leaf's device towards the sender.
    pub input: String,
    /// The leaf's links to the spines.
    pub links: Vec<FabricLink>,
    /// Leaves and spines.
    pub routers: Vec<String>,
}

/// A link from the leaf to a spine.
#[derive(Clone, Debug)]
pub(super) struct FabricLink {
    /// The leaf's device; the lab names it after the spine.
    pub name: String,
    /// The lab's number for it.
    pub id: LinkId,
    /// Which end of it the leaf is.
    pub end: usize,
}

impl Fabric {
    /// Builds it: two leaves, two spines, a host behind each leaf.
    pub(super) fn up(rate: Rate) -> Result<Fabric, Failure> {
        let clos = Clos {
            rate: Some(rate),
            policy: HashPolicy::L3,
            ..Clos::default()
        };
        let topology = clos.topology().map_err(|e| Failure::usage(e.to_string()))?;
        let mut progress = Progress::new();
        let mut say = |step: raddle_lab::Progress| progress.say(&format!("fabric: {step}"));
        let mut up = |name: &str| {
            let options = UpOptions {
                progress: Some(&mut say),
                ..UpOptions::default()
            };
            Lab::up(name, &topology, options)
        };
        let lab = match up(NAME) {
            // Another demo runs, or one was killed: its remains are the user's to remove.
            Err(LabError::NameInUse(_) | LabError::Busy(_)) => {
                up(&format!("{NAME}-{}", std::process::id()))
            }
            result => result,
        };
        drop(progress);
        Fabric::of(lab?.scoped())
    }

    fn of(lab: ScopedLab) -> Result<Fabric, Failure> {
        let topology = lab.topology();
        let missing = |what: &str| Failure::system(format!("the lab has no {what}"));
        let address = |host: &str| {
            let end = topology
                .links()
                .iter()
                .flat_map(|l| &l.ends)
                .find(|end| end.node == host);
            end.and_then(|end| {
                end.addresses.iter().find_map(|net| match net {
                    IpNet::V4(net) => Some(net.addr()),
                    IpNet::V6(_) => None,
                })
            })
        };
        let addresses = [
            address(SENDER).ok_or_else(|| missing("address of the sender"))?,
            address(RECEIVER).ok_or_else(|| missing("address of the receiver"))?,
        ];
        let mut links = Vec::new();
        let mut input = None;
        for (number, link) in topology.links().iter().enumerate() {
            let Some(end) = link.ends.iter().position(|end| end.node == LEAF) else {
                continue;
            };
            let name = link.ends[end].dev.clone();
            if link.bgp {
                links.push(FabricLink {
                    name,
                    id: LinkId(number),
                    end,
                });
            } else {
                input = Some(name);
            }
        }
        let routers = topology
            .nodes()
            .iter()
            .filter(|node| node.role != Role::Host);
        let routers = routers.map(|node| node.name.clone()).collect();
        Ok(Fabric {
            hosts: [SENDER, RECEIVER],
            addresses,
            leaf: LEAF,
            input: input.ok_or_else(|| missing("link to the sender"))?,
            links,
            routers,
            lab,
        })
    }

    /// What each of the links delivered to its spine so far.
    pub(super) fn delivered(&self) -> Result<Vec<Counters>, Failure> {
        let all = self.lab.counters()?;
        let of = |link: &FabricLink| {
            let counters = all.iter().find(|counters| counters.link == link.id);
            counters.map_or_else(Counters::default, |counters| counters.to[1 - link.end])
        };
        Ok(self.links.iter().map(of).collect())
    }
}

/// Lines about what goes on, to standard error: one that changes on a terminal, else one each.
pub(super) struct Progress {
    terminal: bool,
    last: String,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress {
            terminal: std::io::stderr().is_terminal(),
            last: String::new(),
        }
    }

    pub(super) fn say(&mut self, text: &str) {
        let mut stderr = std::io::stderr();
        // Where the lines cannot be shown, the work goes on without them.
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
        } else if kind(text) != kind(&self.last) {
            let _ = writeln!(stderr, "{text}");
        }
        text.clone_into(&mut self.last);
    }

    /// Takes the line away, so that something else can be printed.
    pub(super) fn end(&mut self) {
        if self.terminal && !self.last.is_empty() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.last.clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// The text up to its first number: lines that only count are of one kind.
fn kind(text: &str) -> &str {
    text.split(|c: char| c.is_ascii_digit())
        .next()
        .unwrap_or(text)
}

/// What has to be there before anything is touched.
///
/// # Errors
/// One message with everything that is missing, and the command that installs it.
pub(super) fn preflight() -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::needs_root(
            "the demo builds a fabric of network namespaces (nothing outside of them is touched) \
             and",
        ));
    }
    let frr = ["/usr/lib/frr", "/usr/libexec/frr", "/usr/sbin"];
    let frr = frr
        .iter()
        .any(|home| PathBuf::from(home).join("bgpd").exists());
    let wanted = [
        ("ip", "iproute2", on_path("ip")),
        ("tc", "iproute2", on_path("tc")),
        ("bgpd", "frr", frr),
        ("iperf3", "iperf3", on_path("iperf3")),
    ];
    let missing: Vec<_> = wanted.iter().filter(|(_, _, there)| !there).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<&str> = missing.iter().map(|(program, ..)| *program).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package, _)| *package).collect();
    packages.dedup();
    Err(Failure::system(format!(
        "the demo runs {}, not found here; install: apt-get install {}",
        programs.join(", "),
        packages.join(" ")
    )))
}
