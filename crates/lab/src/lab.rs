//! Building a lab, using it, and removing it without a trace.

use std::{
    fmt,
    ops::Deref,
    process::{Child, Command, Output},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    Convergence, HashPolicy, LabError, LabSummary, LinkCounters, LinkId, Node, Rate, Stage,
    Topology,
    assemble::{dismantle, namespaces, set_sysctl},
    converge, counters,
    interrupt::Interrupt,
    names,
    netns::{self, View},
    preflight,
    state::{self, Saved},
    wire,
};

/// A lab that stands. Dropping this leaves the lab as it is; see [`ScopedLab`] for one that does not.
#[derive(Debug, Clone)]
pub struct Lab {
    pub(crate) name: String,
    pub(crate) topology: Topology,
}

/// A lab that is removed when this is dropped.
#[derive(Debug)]
pub struct ScopedLab(Lab);

/// How [`Lab::up`] goes about it.
pub struct UpOptions<'a> {
    /// How long to wait for routing to converge; `None` does not wait. Default: 60 seconds.
    pub wait: Option<Duration>,
    /// Called at every step.
    pub progress: Option<&'a mut dyn FnMut(Progress)>,
}

impl Default for UpOptions<'_> {
    fn default() -> Self {
        Self {
            wait: Some(Duration::from_secs(60)),
            progress: None,
        }
    }
}

/// The step at which [`Lab::up`] is. Its text is for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Making so many namespaces.
    Nodes(usize),
    /// Making so many links.
    Links(usize),
    /// Starting routing daemons on so many nodes.
    Daemons(usize),
    /// Waiting for routes.
    Routing(Convergence),
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(count) => write!(f, "making {count} nodes"),
            Self::Links(count) => write!(f, "making {count} links"),
            Self::Daemons(count) => write!(f, "starting BGP on {count} nodes"),
            Self::Routing(c) => write!(f, "routing: {} of {} routes", c.ready, c.expected),
        }
    }
}

impl Lab {
    /// Builds a lab.
    ///
    /// Everything that was made is removed again when a step fails, or when SIGINT, SIGTERM or SIGHUP
    /// arrives meanwhile (they are caught only during the call).
    ///
    /// # Errors
    /// [`LabError::NameInUse`] if there is a lab of this name; what the machine lacks; and any step's
    /// failure.
    ///
    /// # Minimum kernel version
    /// 5.13, for GRO on veth. From 6.11 on the nodes' hash seeds are set; before, they are random and
    /// paths cannot be predicted.
    pub fn up(name: &str, topology: &Topology, options: UpOptions<'_>) -> Result<Self, LabError> {
        names::check_lab(name)?;
        preflight::check(topology)?;
        if !namespaces(name).is_empty() {
            return Err(LabError::NameInUse(name.to_owned()));
        }
        let interrupt = Interrupt::catch();
        let lock = state::create(name)?;
        let lab = Self {
            name: name.to_owned(),
            topology: topology.clone(),
        };
        match lab.build(options, &interrupt) {
            Ok(()) => Ok(lab),
            Err(error) => {
                // The reason for the failure is worth more than what rolling back might say.
                if let Err(remains) = dismantle(name) {
                    tracing::error!("{remains}");
                }
                drop(lock);
                // A child that the terminal's Ctrl-C ended looks like a failure of its own.
                interrupt.check().and(Err(error))
            }
        }
    }

    /// Removes a lab: ends every process in its namespaces, deletes them and all files. Also removes
    /// what a killed `up` left behind.
    ///
    /// # Errors
    /// [`LabError::NoSuchLab`], [`LabError::Busy`], or [`LabError::Remains`] naming what stayed.
    pub fn down(name: &str) -> Result<(), LabError> {
        names::check_lab(name)?;
        preflight::root()?;
        let has_files = state::dir(name).exists();
        if !has_files && namespaces(name).is_empty() {
            return Err(LabError::NoSuchLab(name.to_owned()));
        }
        let _lock = if has_files {
            Some(state::lock(name)?)
        } else {
            None
        };
        dismantle(name)
    }

    /// Removes every lab, and says for each how that went.
    pub fn down_all() -> Vec<(String, Result<(), LabError>)> {
        let names = state::names();
        names
            .into_iter()
            .map(|name| (name.clone(), Self::down(&name)))
            .collect()
    }

    /// Finds a lab that stands.
    ///
    /// # Errors
    /// [`LabError::NoSuchLab`]; [`LabError::Busy`] while it is being built, [`LabError::Unfinished`] if
    /// it never was.
    pub fn load(name: &str) -> Result<Self, LabError> {
        names::check_lab(name)?;
        let Saved { topology, .. } = state::load(name)?;
        match state::summary(name).stage {
            Stage::Ready => Ok(Self {
                name: name.to_owned(),
                topology,
            }),
            Stage::Building => Err(LabError::Busy(name.to_owned())),
            Stage::Broken => Err(LabError::Unfinished(name.to_owned())),
        }
    }

    /// All labs, sorted by name, also unfinished ones.
    pub fn list() -> Vec<LabSummary> {
        state::names()
            .iter()
            .map(|name| state::summary(name))
            .collect()
    }

    /// The lab and node that this process runs in, where it cannot see labs: programs that run through
    /// [`command`](Self::command) have a `/run/raddle` of their own.
    pub fn inside() -> Option<(String, String)> {
        let (lab, node) = netns::own("rdl-")?;
        (!state::dir(&lab).exists()).then_some((lab, node))
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was built.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Removes the lab when the result is dropped: for tests and benchmarks.
    pub fn scoped(self) -> ScopedLab {
        ScopedLab(self)
    }

    /// The namespace of a node, as `ip netns` names it.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`].
    pub fn netns(&self, node: &str) -> Result<String, LabError> {
        self.node(node).map(|n| names::netns(&self.name, &n.name))
    }

    /// The namespace of the wires, and in it the device of one end (0 or 1) of a link: what the shaper
    /// is on, and where `tcpdump` sees frames before the link delays or drops them.
    ///
    /// # Errors
    /// [`LabError::NoSuchLink`].
    pub fn wire_device(&self, link: LinkId, end: usize) -> Result<(String, String), LabError> {
        self.check_link(link)?;
        Ok((
            names::netns(&self.name, names::WIRE),
            names::wire_dev(link.0, end),
        ))
    }

    /// A command that will run in a node; use it as any [`Command`].
    ///
    /// It sees the node's `/sys`, and its own `/sys/fs/bpf`, `/run/raddle` and `/run/frr` (so `vtysh`
    /// needs no arguments). [`CommandExt::exec`](std::os::unix::process::CommandExt::exec) moves the
    /// calling process itself into the node.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`], or if the namespace is gone.
    pub fn command(&self, node: &str, program: &str) -> Result<Command, LabError> {
        let netns = self.netns(node)?;
        let dir = state::node_dir(&self.name, node);
        let mut binds = vec![(dir.join("bpf"), "/sys/fs/bpf")];
        if self.node(node)?.bgp.is_some() {
            binds.push((dir.join("frr"), "/run/frr"));
        }
        // Last, as it hides the directories that the others come from.
        binds.push((dir.join("run"), "/run/raddle"));
        netns::command(&netns, program, View { binds })
    }

    /// Runs a program in a node and returns what it wrote; its failure is in the status.
    ///
    /// # Errors
    /// As [`command`](Self::command), or if the program cannot be started.
    pub fn output(&self, node: &str, argv: &[&str]) -> Result<Output, LabError> {
        let mut command = self.argv(node, argv)?;
        command.output().map_err(cannot_run(node, argv))
    }

    /// Starts a program in a node.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub fn spawn(&self, node: &str, argv: &[&str]) -> Result<Child, LabError> {
        let mut command = self.argv(node, argv)?;
        command.spawn().map_err(cannot_run(node, argv))
    }

    /// Runs a function on a thread inside a node. Sockets that it makes are the node's.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`], or if the namespace is gone.
    pub fn within<T: Send>(
        &self,
        node: &str,
        function: impl FnOnce() -> T + Send,
    ) -> Result<T, LabError> {
        netns::within(&self.netns(node)?, function)
    }

    /// Sets the multipath hash policy of both families on every node.
    ///
    /// # Errors
    /// If a node refuses.
    pub fn set_policy(&self, policy: HashPolicy) -> Result<(), LabError> {
        self.topology
            .nodes()
            .iter()
            .try_for_each(|n| self.set_node_policy(&n.name, policy))
    }

    /// Sets the multipath hash policy of both families on one node.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`], or if the kernel refuses.
    pub fn set_node_policy(&self, node: &str, policy: HashPolicy) -> Result<(), LabError> {
        let value = policy.sysctl().to_string();
        self.set_sysctl(node, "net.ipv4.fib_multipath_hash_policy", &value)?;
        self.set_sysctl(node, "net.ipv6.fib_multipath_hash_policy", &value)
    }

    /// Sets a network sysctl of a node, by its name with dots.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`], or if the kernel does not know or like it.
    pub fn set_sysctl(&self, node: &str, key: &str, value: &str) -> Result<(), LabError> {
        let netns = self.netns(node)?;
        netns::within(&netns, || set_sysctl(key, value))?.map_err(LabError::io(format!(
            "cannot set {key} to {value} on {node}"
        )))
    }

    /// The multipath hash seed of a node.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`].
    pub fn hash_seed(&self, node: &str) -> Result<u32, LabError> {
        self.node(node).map(|n| self.seed_of(n))
    }

    /// Takes the carrier of a link away from both nodes, as if someone pulled the cable.
    ///
    /// # Errors
    /// [`LabError::NoSuchLink`].
    pub fn link_down(&self, link: LinkId) -> Result<(), LabError> {
        self.check_link(link)?;
        wire::set_carrier(&self.name, link, false)
    }

    /// Gives the carrier of a link back.
    ///
    /// # Errors
    /// [`LabError::NoSuchLink`].
    pub fn link_up(&self, link: LinkId) -> Result<(), LabError> {
        self.check_link(link)?;
        wire::set_carrier(&self.name, link, true)
    }

    /// Has a link lose everything, both ways, without a sign: the carriers stay, and no route changes.
    /// Frames that it has queued are lost, too.
    ///
    /// # Errors
    /// [`LabError::NoSuchLink`].
    pub fn cut(&self, link: LinkId) -> Result<(), LabError> {
        self.check_link(link)?;
        wire::cut(&self.name, link)
    }

    /// Gives a link the rate of the topology again, after [`cut`](Self::cut) or
    /// [`set_rate`](Self::set_rate).
    ///
    /// # Errors
    /// [`LabError::NoSuchLink`].
    pub fn restore(&self, link: LinkId) -> Result<(), LabError> {
        self.check_link(link)?;
        self.set_rate(link, self.topology.links()[link.0].rate)
    }

    /// The links that are [`cut`](Self::cut).
    ///
    /// # Errors
    /// If the wire namespace cannot be entered: without root, or when it is gone.
    pub fn cut_links(&self) -> Result<Vec<LinkId>, LabError> {
        wire::cut_links(&self.name, self.topology.links().len())
    }

    /// Changes the rate of a link, both ways; `None` is as fast as the machine can. The topology
    /// keeps the old one, and [`restore`](Self::restore) gives it back.
    ///
    /// # Errors
    /// [`LabError::NoSuchLink`].
    pub fn set_rate(&self, link: LinkId, rate: Option<Rate>) -> Result<(), LabError> {
        self.check_link(link)?;
        wire::set_rate(&self.name, link, rate, self.topology.mtu())
    }

    /// What every link delivered so far, in each direction. Cheap enough for ten times a second.
    ///
    /// # Errors
    /// If the wire namespace is gone.
    pub fn counters(&self) -> Result<Vec<LinkCounters>, LabError> {
        counters::read(&self.name, self.topology.links().len())
    }

    /// Waits until every route that the topology expects has all its nexthops in the kernel, and
    /// returns how long that took.
    ///
    /// # Errors
    /// [`LabError::NotConverged`] after the timeout; [`LabError::Interrupted`] on SIGINT or SIGTERM.
    pub fn wait_converged(
        &self,
        timeout: Duration,
        progress: impl FnMut(Convergence),
    ) -> Result<Duration, LabError> {
        converge::wait(&self.name, self.topology.expectations(), timeout, progress)
    }

    /// The lab for programs: nodes with namespaces, seeds and addresses, links with devices and rates.
    pub fn to_json(&self) -> Value {
        let nodes = self.topology.nodes().iter().map(|n| {
            json!({
                "name": n.name, "role": n.role, "netns": names::netns(&self.name, &n.name),
                "hash_seed": self.seed_of(n), "addresses": n.addresses, "bgp": n.bgp,
                "devices": self.topology.devices(&n.name).collect::<Vec<_>>(), "made": n.made,
            })
        });
        let links = self.topology.links().iter().enumerate().map(|(i, l)| {
            let ends = [0, 1].map(|side| {
                let end = &l.ends[side];
                json!({
                    "node": end.node, "dev": end.dev, "addresses": end.addresses,
                    "wire_dev": names::wire_dev(i, side),
                })
            });
            json!({"link": i, "rate": l.rate, "bgp": l.bgp, "ends": ends})
        });
        json!({
            "name": self.name, "mtu": self.topology.mtu(),
            "wire_netns": names::netns(&self.name, names::WIRE),
            "nodes": nodes.collect::<Vec<_>>(), "links": links.collect::<Vec<_>>(),
        })
    }

    fn argv(&self, node: &str, argv: &[&str]) -> Result<Command, LabError> {
        let (program, args) = argv.split_first().unwrap_or((&"", &[]));
        let mut command = self.command(node, program)?;
        command.args(args);
        Ok(command)
    }

    fn node(&self, name: &str) -> Result<&Node, LabError> {
        self.topology.node(name).ok_or_else(|| {
            let all: Vec<_> = self.topology.nodes().iter().map(|n| &*n.name).collect();
            LabError::NoSuchNode {
                lab: self.name.clone(),
                node: name.to_owned(),
                nodes: all.join(", "),
            }
        })
    }

    fn check_link(&self, link: LinkId) -> Result<(), LabError> {
        let count = self.topology.links().len();
        if link.0 < count {
            Ok(())
        } else {
            Err(LabError::NoSuchLink {
                link: link.0,
                count,
            })
        }
    }

    pub(crate) fn seed_of(&self, node: &Node) -> u32 {
        node.hash_seed
            .unwrap_or_else(|| names::seed(&self.name, &node.name))
    }
}

impl ScopedLab {
    /// Removes the lab now, and says how that went.
    ///
    /// # Errors
    /// As [`Lab::down`].
    pub fn down(self) -> Result<(), LabError> {
        let name = self.0.name.clone();
        std::mem::forget(self);
        Lab::down(&name)
    }
}

impl Deref for ScopedLab {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Drop for ScopedLab {
    fn drop(&mut self) {
        if let Err(error) = Lab::down(&self.0.name) {
            tracing::error!("{error}");
        }
    }
}

fn cannot_run(node: &str, argv: &[&str]) -> impl FnOnce(std::io::Error) -> LabError {
    LabError::io(format!("cannot run `{}` on {node}", argv.join(" ")))
}
