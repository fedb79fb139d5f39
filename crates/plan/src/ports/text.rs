//! Plans, checks and counts for people.

use std::fmt;

use raddle_sim::ports::random_paths;
use raddle_sim::sample::name_of;
use raddle_sim::spread::Evenness;

use super::audit::{Audit, Audits, Load};
use super::beyond::PlannedRouter;
use super::certificate::{Certificate, PlannedPath, PlannedSpare, Varied};
use super::question::has_ports;
use super::verify::Verification;
use crate::chart::Chart;
use crate::paths::{Named, percent};

/// What connections are, besides their addresses. A port that nobody has named is 0, and plans for it hold for no other.
fn of_protocol(proto: u8, dport: u16) -> String {
    let name = name_of(proto).map_or_else(|| format!("protocol {proto}"), str::to_owned);
    match (has_ports(proto), dport) {
        (false, _) => format!(", {name}"),
        (true, 0) => format!(", {name} port 0 (none is named)"),
        (true, port) => format!(", {name} port {port}"),
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flow = &self.flow;
        let what = match flow.vary {
            Varied::Sport => "source port",
            Varied::FlowLabel => "flow label",
        };
        let loads = self.loads();
        let used = loads.iter().filter(|load| **load > 0).count();
        let paths = self.paths.iter().filter(|path| path.hashes > 0).count();
        let count = self.connections.len();
        writeln!(
            out,
            "{count} connections from {} to {}{}, over {}: {used} of {paths} paths (random ones: {:.1} on average)",
            match self.is_unbound() {
                true => "their paths' addresses".to_owned(),
                false => flow.from.to_string(),
            },
            flow.dst,
            of_protocol(flow.proto, flow.dport),
            self.route,
            random_paths(paths, count)
        )?;
        if self.preferred {
            writeln!(
                out,
                "Linux (6.16 and later) prefers nexthops whose source is {}: leave --from out to cover the \
                 others",
                flow.from
            )?;
        }
        self.bonds
            .iter()
            .try_for_each(|bond| writeln!(out, "{bond}"))?;
        let names: Vec<String> = self.paths.iter().map(|path| path.path.text()).collect();
        let wide = names.iter().map(String::len).max().unwrap_or(0).max(4);
        writeln!(out, "\n{what:>11}  {:>10}  path", "hash")?;
        for c in &self.connections {
            let from = c
                .from
                .map_or_else(String::new, |from| format!(" src {from}"));
            let name = names.get(c.path).map_or("unknown", String::as_str);
            let hash = c
                .hash
                .map_or_else(|| "not shown".to_owned(), |hash| hash.to_string());
            let then: Vec<&str> = self.beyond.iter().zip(&c.beyond).map(link_of).collect();
            let then = match then.is_empty() {
                true => String::new(),
                false => format!(", then {}", then.join(", ")),
            };
            writeln!(out, "{:>11}  {hash:>10}  {name}{from}{then}", c.value)?;
        }
        writeln!(out, "\n{:wide$}  {:>9}  connections", "path", "share")?;
        for ((name, path), load) in names.iter().zip(&self.paths).zip(&loads) {
            let share = percent(path.hashes as f64 / raddle_sim::SPACE as f64);
            writeln!(out, "{name:wide$}  {share:>9}  {load:>11}")?;
        }
        for router in &self.beyond {
            let used = router.links.iter().filter(|link| link.connections > 0);
            let (used, links) = (used.count(), router.links.len());
            let each = router
                .links
                .iter()
                .map(|l| format!("{} {}", l.link, l.connections));
            let each: Vec<String> = each.collect();
            writeln!(
                out,
                "\nat {}: {used} of {links} links ({})",
                router.router,
                each.join(", ")
            )?;
        }
        let open = |spare: &&PlannedSpare| !spare.connections.is_empty();
        let mut spares = self.spares.iter().filter(open).peekable();
        if spares.peek().is_some() {
            writeln!(out, "\nif a link fails")?;
        }
        spares.try_for_each(|spare| writeln!(out, "  {spare}"))
    }
}

/// The link that a connection takes at a router.
fn link_of<'a>((router, link): (&'a PlannedRouter, &usize)) -> &'a str {
    router.links.get(*link).map_or("unknown", |link| &link.link)
}

/// `eth1: open 1 2, close 3: 3 paths`.
impl fmt::Display for PlannedSpare {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: open", self.dev)?;
        for connection in &self.connections {
            write!(out, " {}", connection.value)?;
        }
        if !self.close.is_empty() {
            write!(out, ", close")?;
        }
        for value in &self.close {
            write!(out, " {value}")?;
        }
        let live = self.loads.iter().filter(|load| **load > 0).count();
        let plural = if live == 1 { "" } else { "s" };
        write!(out, ": {live} path{plural}")
    }
}

impl Certificate {
    /// The connections on each path, planned and as random ports would lie on average.
    pub fn chart(&self) -> Chart {
        let count = self.connections.len() as f64;
        let loads = self.loads();
        let group = |(path, load): (&PlannedPath, &usize)| {
            let expected = count * path.hashes as f64 / raddle_sim::SPACE as f64;
            let bars = vec![
                ("planned".to_owned(), *load as f64),
                ("random ports, mean".to_owned(), expected),
            ];
            (path.path.link().to_owned(), bars)
        };
        let even = Evenness::of(loads.iter().map(|load| *load as f64), loads.len() as u64);
        Chart {
            title: format!(
                "{count} connections to {}: {} paths in use",
                self.flow.dst, even.used
            ),
            unit: "connections",
            groups: self.paths.iter().zip(&loads).map(group).collect(),
        }
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (agree, of, paths) = (self.agree, self.of, self.paths);
        match self.brought {
            false => writeln!(
                out,
                "the kernel agrees on {agree} of {of} connections; they use {paths} paths"
            )?,
            true => writeln!(
                out,
                "{agree} of {of} connections go as planned by the hash that their packets bring along, and use {paths} paths; \
                 the kernel cannot be asked about that, and agrees about packets without one"
            )?,
        }
        for change in &self.changed {
            writeln!(out, "  {change}")?;
        }
        for difference in &self.differ {
            let predicted = difference.predicted.as_ref();
            writeln!(
                out,
                "  {}: planned {}, now {}, the kernel says {}",
                difference.value,
                difference.planned.text(),
                predicted.map_or_else(|| "nowhere".to_owned(), Named::text),
                difference.kernel
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Audits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Audits(audits) = self;
        for audit in audits {
            let count: u64 = audit.paths.iter().map(|load| load.connections).sum();
            let even = &audit.evenness;
            writeln!(
                out,
                "{}: {count} connections on {} of {} paths (random ones: {:.1}), the fullest has {:.2} times \
                 the mean",
                audit.name(),
                even.used,
                even.paths,
                audit.random,
                even.imbalance
            )?;
            audit
                .bonds
                .iter()
                .try_for_each(|bond| writeln!(out, "  {bond}"))?;
            for load in &audit.paths {
                let share = percent(load.share);
                let path = load.path.text();
                writeln!(out, "  {:>6}  {share:>9}  {path}", load.connections)?;
            }
        }
        out.write_str(match audits.is_empty() {
            true => "no connection has a route with several paths\n",
            false => {
                "by local addresses and ports; a TCP connection whose port was not bound before it connected \
                 may lie elsewhere (Linux 6.16 and later draw its path)\n"
            }
        })
    }
}

impl Audits {
    /// The connections on each path.
    pub fn chart(&self) -> Chart {
        let Audits(audits) = self;
        let several = audits.len() > 1;
        let group = |audit: &Audit, load: &Load| {
            let label = match several {
                true => format!("{}\n{}", load.path.link(), audit.name()),
                false => load.path.link().to_owned(),
            };
            let bar = ("connections".to_owned(), load.connections as f64);
            (label, vec![bar])
        };
        Chart {
            title: "Connections by path".to_owned(),
            unit: "connections",
            groups: audits
                .iter()
                .flat_map(|audit| audit.paths.iter().map(move |load| group(audit, load)))
                .collect(),
        }
    }
}
