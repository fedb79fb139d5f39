//! Building a lab step by step, and taking it apart.

use std::thread;

use crate::{
    Lab, LabError, Node, Progress, Stage, UpOptions,
    batch::Batch,
    frr,
    interrupt::Interrupt,
    names, netns,
    state::{self, Saved},
    wire,
};

impl Lab {
    pub(crate) fn build(
        &self,
        mut options: UpOptions<'_>,
        interrupt: &Interrupt,
    ) -> Result<(), LabError> {
        let mut say = |step: Progress| {
            if let Some(progress) = &mut options.progress {
                progress(step);
            }
            interrupt.check()
        };
        let (name, topology) = (&self.name, &self.topology);
        self.save(Stage::Building)?;
        say(Progress::Nodes(topology.nodes().len()))?;
        self.make_namespaces()?;
        say(Progress::Links(topology.links().len()))?;
        wire::create(name, topology)?;
        wire::connect(name, topology)?;
        topology.nodes().iter().try_for_each(|n| self.address(n))?;
        wire::bring_up(name, topology)?;
        topology.nodes().iter().try_for_each(|n| self.route(n))?;
        let routers = topology.nodes().iter().filter(|n| n.bgp.is_some()).count();
        if routers > 0 {
            say(Progress::Daemons(routers))?;
            self.start_daemons()?;
        }
        interrupt.check()?;
        if let Some(timeout) = options.wait {
            // Interruption is noticed by the wait itself.
            self.wait_converged(timeout, |c| drop(say(Progress::Routing(c))))?;
        }
        self.save(Stage::Ready)
    }

    fn save(&self, stage: Stage) -> Result<(), LabError> {
        let (name, topology) = (self.name.clone(), self.topology.clone());
        state::save(&Saved {
            name,
            stage,
            topology,
        })
    }

    fn make_namespaces(&self) -> Result<(), LabError> {
        let wire = names::netns(&self.name, names::WIRE);
        let mut batch = Batch::new("ip", None);
        batch.add(format_args!("netns add {wire}"));
        for node in self.topology.nodes() {
            batch.add(format_args!(
                "netns add {}",
                names::netns(&self.name, &node.name)
            ));
        }
        batch.run("making namespaces")?;
        // The wires have no addresses: nothing may answer, announce or solicit there.
        let silence = [
            ("net.ipv6.conf.all.disable_ipv6", "1"),
            ("net.ipv6.conf.default.disable_ipv6", "1"),
        ];
        netns::within(&wire, || {
            silence.into_iter().try_for_each(|(k, v)| set_sysctl(k, v))
        })?
        .map_err(LabError::io("cannot silence the wires"))?;
        for node in self.topology.nodes() {
            state::create_node(&self.name, &node.name)?;
            self.set_sysctls(node)?;
        }
        Ok(())
    }

    /// The settings of a node, made before it has devices, which inherit some of them.
    fn set_sysctls(&self, node: &Node) -> Result<(), LabError> {
        let policy = self.topology.policy().sysctl().to_string();
        let forward = if node.role.forwards() { "1" } else { "0" };
        let mut wanted = vec![
            ("net.ipv4.ip_forward".to_owned(), forward),
            ("net.ipv6.conf.all.forwarding".to_owned(), forward),
            ("net.ipv4.fib_multipath_hash_policy".to_owned(), &policy),
            ("net.ipv6.fib_multipath_hash_policy".to_owned(), &policy),
        ];
        for conf in ["all", "default"] {
            wanted.extend([
                // Several paths to one place make asymmetric routing normal.
                (format!("net.ipv4.conf.{conf}.rp_filter"), "0"),
                // Addresses are known to be unique; waiting for detection only costs time.
                (format!("net.ipv6.conf.{conf}.accept_dad"), "0"),
                // Routers announce themselves to each other for BGP's sake, not as gateways.
                (format!("net.ipv6.conf.{conf}.accept_ra"), "0"),
                (format!("net.ipv6.conf.{conf}.keep_addr_on_down"), "1"),
            ]);
        }
        let set_all = || wanted.iter().try_for_each(|(k, v)| set_sysctl(k, v));
        let netns = names::netns(&self.name, &node.name);
        netns::within(&netns, set_all)?.map_err(LabError::io(format!(
            "cannot set the sysctls of {}",
            node.name
        )))?;
        let seed = self.seed_of(node).to_string();
        if netns::within(&netns, || set_sysctl(SEED, &seed))?.is_err() {
            tracing::warn!("{SEED} cannot be set (before Linux 6.11): paths are unpredictable");
        }
        Ok(())
    }

    /// Addresses and offloads of a node's devices, and brings them up.
    fn address(&self, node: &Node) -> Result<(), LabError> {
        let netns = names::netns(&self.name, &node.name);
        let ends = || self.topology.links().iter().flat_map(|l| &l.ends);
        let ends = || ends().filter(|end| end.node == node.name);
        netns::within(&netns, || wire::node_offloads(ends()))??;
        let mut batch = Batch::new("ip", Some(netns));
        batch.add("link set lo up");
        for address in &node.addresses {
            batch.add(format_args!("address add {address} dev lo"));
        }
        for device in &node.made {
            let mac = names::made_mac(&self.name, &node.name, &device.name);
            device.lines(&mac).into_iter().for_each(|l| batch.add(l));
        }
        for end in ends() {
            for address in &end.addresses {
                batch.add(format_args!("address add {address} dev {}", end.dev));
            }
            batch.add(format_args!("link set {} up", end.dev));
        }
        // After the links, as a VLAN needs the device that it is on to be up.
        for device in &node.made {
            for address in &device.addresses {
                batch.add(format_args!("address add {address} dev {}", device.name));
            }
            batch.add(format_args!("link set {} up", device.name));
        }
        for neighbour in &node.neighbours {
            let (link, side) = neighbour.end;
            batch.add(format_args!(
                "neighbour add {} lladdr {} dev {} nud permanent",
                neighbour.address,
                names::mac(&self.name, link.0, side),
                neighbour.dev
            ));
        }
        batch.run(&format!("setting up {}", node.name))
    }

    /// A node's own routes. Its links must have a carrier by now.
    fn route(&self, node: &Node) -> Result<(), LabError> {
        let mut batch = Batch::new("ip", Some(names::netns(&self.name, &node.name)));
        for route in &node.routes {
            let via: Vec<_> = match &*route.via {
                [only] => vec![format!("via {only}")],
                several => several.iter().map(|v| format!("nexthop via {v}")).collect(),
            };
            let source = route.source.map(|source| format!("src {source} "));
            let congestion = route.congestion.as_ref();
            let congestion = congestion.map(|name| format!("congctl {name} "));
            batch.add(format_args!(
                "route add {} {}{}{}",
                route.prefix,
                source.unwrap_or_default(),
                congestion.unwrap_or_default(),
                via.join(" ")
            ));
        }
        if let Some(source) = node.segments.source {
            batch.add(format_args!("sr tunsrc set {source}"));
        }
        for route in &node.segments.routes {
            batch.add(format_args!(
                "route add {} {} dev {}",
                route.prefix, route.action, route.dev
            ));
        }
        batch.run(&format!("adding the routes of {}", node.name))
    }

    /// Starts the daemons of all nodes, side by side: each start is mostly waiting.
    fn start_daemons(&self) -> Result<(), LabError> {
        let routers = self
            .topology
            .nodes()
            .iter()
            .filter_map(|n| Some((&*n.name, n.bgp.as_ref()?)));
        thread::scope(|scope| {
            let starts: Vec<_> = routers
                .map(|(node, bgp)| {
                    scope.spawn(move || frr::start(&self.name, &self.topology, node, bgp))
                })
                .collect();
            let join = |start: thread::ScopedJoinHandle<'_, _>| {
                start
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            // All are joined, so that none is still starting while a failure is rolled back.
            starts.into_iter().map(join).fold(Ok(()), Result::and)
        })
    }
}

/// From Linux 6.11 on.
const SEED: &str = "net.ipv4.fib_multipath_hash_seed";

/// Sets a sysctl of this thread's namespace.
pub(crate) fn set_sysctl(key: &str, value: &str) -> std::io::Result<()> {
    // A dot in a device's name is written as a slash in a sysctl's (sysctl.d(5)).
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let path: String = key.chars().map(swap).collect();
    std::fs::write(format!("/proc/sys/{path}"), value)
}

/// The namespaces of a lab that exist.
pub(crate) fn namespaces(lab: &str) -> Vec<String> {
    let mut all = netns::names();
    all.retain(|ns| names::node_of(lab, ns).is_some());
    all
}

/// Removes everything that belongs to a lab, whatever state it is in.
pub(crate) fn dismantle(lab: &str) -> Result<(), LabError> {
    let mut remains = Vec::new();
    let namespaces = namespaces(lab);
    for pid in netns::end_processes(&namespaces) {
        remains.push(format!("process {pid} does not end"));
    }
    for netns in &namespaces {
        if let Err(e) = netns::delete(netns) {
            remains.push(format!("namespace {netns}: {e}"));
        }
    }
    if let Err(e) = state::remove(lab) {
        remains.push(format!("{}: {e}", state::dir(lab).display()));
    }
    if remains.is_empty() {
        Ok(())
    } else {
        Err(LabError::Remains {
            lab: lab.to_owned(),
            reason: remains.join("; "),
        })
    }
}
