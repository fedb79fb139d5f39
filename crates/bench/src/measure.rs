//! The measurement: rows in turn, round after round, column after column.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use raddle_image::{Capacity, Reason};
use raddle_netlink::Mirror;
use raddle_preflight::{Beneath, Known, Way};
use raddle_rib::event::Event;
use raddle_rib::{Ports, Rib};
use raddle_xdp::bench::{Attachment, Bench, Program, Template, Traffic};
use raddle_xdp::{AttachedMode, Engine, LoadOptions, Mode};

use crate::router::{self, GENERATOR_MAC, IN_MAC, index_of};
use raddle_exit::Failure;

/// What the tables hold and where the packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Few routes, one nexthop.
    One,
    /// Few routes, two nexthops.
    Ecmp2,
    /// Few routes, 64 nexthops.
    Ecmp64,
    /// [`Column::Ecmp2`] with loose reverse-path filtering, where no default route makes it trivial.
    RpLoose,
    /// The same with strict filtering.
    RpStrict,
    /// [`Column::Ecmp2`] beside a firewall that concerns other links, as containers have it.
    Firewall,
    /// [`Column::Ecmp2`] by routing rules: packets are looked up where a rule for their source leads, beside rules for others.
    Rules,
    /// [`Column::Ecmp2`] with all links in a VRF, and the routes in its table.
    Vrf,
    /// One nexthop, by a bond of both links, whose driver chooses one of them (balance-xor, layer3+4).
    Bond,
    /// One nexthop, in by a VLAN upon the in-link.
    VlanIn,
    /// One nexthop, out by a VLAN upon the out-link.
    VlanOut,
    /// Both.
    Vlan,
    /// One nexthop, in by a bridge of the in-link.
    BridgeIn,
    /// One nexthop, out by a bridge of the out-link.
    BridgeOut,
    /// One nexthop, out through a VXLAN.
    VxlanOut,
    /// One nexthop, out through a tunnel of GRE.
    GreOut,
    /// A large table, random destinations, two nexthops.
    Full,
}

impl Column {
    pub(crate) const ALL: [Column; 17] = [
        Column::One,
        Column::Ecmp2,
        Column::Ecmp64,
        Column::RpLoose,
        Column::RpStrict,
        Column::Firewall,
        Column::Rules,
        Column::Vrf,
        Column::Bond,
        Column::VlanIn,
        Column::VlanOut,
        Column::Vlan,
        Column::BridgeIn,
        Column::BridgeOut,
        Column::VxlanOut,
        Column::GreOut,
        Column::Full,
    ];

    /// Whether there is such a column of this family: `rp_filter` is IPv4's.
    fn is_for(self, v6: bool) -> bool {
        !(v6 && matches!(self, Column::RpLoose | Column::RpStrict))
    }

    /// Whether packets come in by a VLAN.
    pub(crate) fn is_tagged_in(self) -> bool {
        matches!(self, Column::VlanIn | Column::Vlan)
    }

    /// Whether packets go out by a VLAN.
    pub(crate) fn is_tagged_out(self) -> bool {
        matches!(self, Column::VlanOut | Column::Vlan)
    }

    /// The link upon the in-link that packets come in by, if it is not that.
    pub(crate) fn upon_in(self) -> Option<&'static str> {
        match self {
            _ if self.is_tagged_in() => Some(router::VLAN_IN),
            Column::BridgeIn => Some(router::BRIDGE),
            _ => None,
        }
    }

    /// The link upon the out-link that packets go out by, if it is not that.
    pub(crate) fn upon_out(self) -> Option<&'static str> {
        match self {
            _ if self.is_tagged_out() => Some(router::VLAN_OUT),
            Column::BridgeOut => Some(router::BRIDGE),
            Column::VxlanOut => Some(router::VXLAN),
            Column::GreOut => Some(router::GRE),
            _ => None,
        }
    }

    /// Whether raddle's main program calls others for it: those for tagged frames, ports and tunnels come with those for segments.
    fn needs_programs(self) -> bool {
        self.upon_in().is_some() || matches!(self, Column::VxlanOut | Column::GreOut)
    }

    /// As `--only` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Column::One => "one",
            Column::Ecmp2 => "ecmp2",
            Column::Ecmp64 => "ecmp64",
            Column::RpLoose => "rp-loose",
            Column::RpStrict => "rp-strict",
            Column::Firewall => "firewall",
            Column::Rules => "rules",
            Column::Vrf => "vrf",
            Column::Bond => "bond",
            Column::VlanIn => "vlan-in",
            Column::VlanOut => "vlan-out",
            Column::Vlan => "vlan",
            Column::BridgeIn => "bridge-in",
            Column::BridgeOut => "bridge-out",
            Column::VxlanOut => "vxlan-out",
            Column::GreOut => "gre-out",
            Column::Full => "full",
        }
    }
}

/// What forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// The kernel.
    Kernel,
    /// An XDP program that asks `bpf_fib_lookup()`, as xdp-forward does.
    FibLookup,
    /// raddle.
    Raddle,
    /// An XDP program that redirects without looking: the floor.
    Redirect,
    /// Nothing: a sink takes the packets as they come in. The time of a generator, one link and a sink. A router
    /// adds its own and a second link. Of two links the sending half of the first and the receiving half of the
    /// second are not the router's, so what the other rows take beyond this one is the router alone: it receives
    /// once and sends once.
    Absorb,
}

impl Row {
    pub(crate) const ALL: [Row; 5] = [
        Row::Kernel,
        Row::FibLookup,
        Row::Raddle,
        Row::Redirect,
        Row::Absorb,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Row::Kernel => "kernel",
            Row::FibLookup => "bpf_fib_lookup",
            Row::Raddle => "raddle",
            Row::Redirect => "bare redirect",
            Row::Absorb => "generator",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) rounds: u32,
    pub(crate) packets: u32,
    pub(crate) routes: u32,
    pub(crate) columns: Vec<Column>,
    /// Room for SIDs and encapsulations; none but the usual where it is 0.
    pub(crate) segments: usize,
}

/// One column of one family: million packets a second, by row and round.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) column: Column,
    pub(crate) v6: bool,
    pub(crate) rates: [Vec<f64>; 5],
    /// Packets of raddle's row that the kernel got, by reason: none, or the row is not raddle's.
    pub(crate) punted: BTreeMap<&'static str, u64>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    pub(crate) cells: Vec<Cell>,
    /// Columns that this kernel cannot have, and why.
    pub(crate) skipped: Vec<(&'static str, String)>,
    pub(crate) rounds: u32,
    pub(crate) packets: u32,
    pub(crate) routes: u32,
    /// Mirroring the large IPv4 table from nothing until it is published.
    pub(crate) mirrored: Option<Duration>,
    /// From the change of the nexthop group behind the large table until it is published.
    pub(crate) changed: Option<Duration>,
}

/// The router, its engine and the benchmark's programs.
pub(crate) struct Machine {
    pub(crate) engine: Engine,
    bench: Bench,
    rib: Rib,
    mirror: Mirror,
    input: u32,
    generator: u32,
    sinks: [u32; 2],
    /// An engine whose programs do not count segments, and its mirror.
    uncounted: Option<Mirrored>,
    counts: bool,
    _programs: Vec<Attachment>,
}

/// An engine and what drives it.
struct Mirrored {
    engine: Engine,
    rib: Rib,
    mirror: Mirror,
}

/// Builds the router in a namespace of this thread and measures.
pub(crate) fn run(settings: &Settings) -> Result<Results, Failure> {
    router::build()?;
    let mut machine = Machine::start(settings)?;
    let mut results = Results {
        rounds: settings.rounds,
        packets: settings.packets,
        routes: settings.routes,
        ..Results::default()
    };
    for &column in settings
        .columns
        .iter()
        .filter(|column| **column != Column::Full)
    {
        if let Some(why) = router::lacks(column) {
            results.skipped.push((column.name(), why));
            continue;
        }
        router::surround(column, true)?;
        machine.settle()?;
        if column == Column::Bond {
            machine.send_through(&["bond0"])?;
        }
        let is_upon = column.upon_in().is_some() || column.upon_out().is_some();
        if is_upon {
            machine.use_upon(column)?;
        }
        machine.look_at_firewall()?;
        for v6 in [false, true].into_iter().filter(|v6| column.is_for(*v6)) {
            results.cells.push(machine.cell(column, v6, settings)?);
        }
        router::surround(column, false)?;
        machine.settle()?;
        if column == Column::Bond || is_upon {
            machine.send_through(&["out0", "out1"])?;
        }
        machine.look_at_firewall()?;
    }
    if settings.columns.contains(&Column::Full) {
        for v6 in [false, true] {
            progress(&format!("installing {} routes", settings.routes));
            router::install(v6, settings.routes)?;
            machine.settle()?;
            if !v6 {
                results.mirrored = Some(machine.mirror_anew(settings)?);
                results.changed = Some(machine.change_group()?);
            }
            results
                .cells
                .push(machine.cell(Column::Full, v6, settings)?);
        }
    }
    progress("");
    Ok(results)
}

impl Machine {
    /// Loads everything in this thread's namespace, which [`router::build`] has made.
    pub(crate) fn start(settings: &Settings) -> Result<Machine, Failure> {
        let capacity = capacity(settings);
        let engine = Engine::load(&LoadOptions { capacity })?;
        let bench = Bench::load(settings.routes as usize)?;
        let (generator, input) = (index_of("gen0")?, index_of("in0")?);
        let sinks = [index_of("sink0")?, index_of("sink1")?];
        bench.set_source_port(generator)?;
        for name in ["out0", "out1"] {
            engine.set_out_link(index_of(name)?)?;
            bench.set_port(index_of(name)?)?;
        }
        let programs: Result<Vec<Attachment>, _> = sinks
            .iter()
            .map(|sink| bench.attach(Program::Sink, *sink, AttachedMode::Native))
            .collect();
        let (rib, mirror) = mirror(&engine, &capacity)?;
        let _programs = programs?;
        Ok(Machine {
            engine,
            bench,
            rib,
            mirror,
            input,
            generator,
            sinks,
            uncounted: None,
            counts: true,
            _programs,
        })
    }

    /// The links that raddle, and the program that asks `bpf_fib_lookup()`, send through from now on.
    fn send_through(&mut self, names: &[&str]) -> Result<(), Failure> {
        let mut out = BTreeSet::new();
        for name in names {
            let index = index_of(name)?;
            self.engine.set_out_link(index)?;
            self.bench.set_port(index)?;
            out.insert(index);
        }
        let enabled = [self.input].into();
        self.rib.set_ports(Ports { enabled, out });
        self.rib.commit();
        Ok(())
    }

    /// Has raddle forward from and through VLANs, bridges and tunnels beside the links below them.
    fn use_upon(&mut self, column: Column) -> Result<(), Failure> {
        let mut ports = self.rib.ports().clone();
        if column.needs_programs() {
            self.engine.load_srv6()?;
        }
        if let Some(link) = column.upon_in() {
            ports.enabled.insert(index_of(link)?);
        }
        if let Some(link) = column.upon_out() {
            ports.out.insert(index_of(link)?);
        }
        self.rib.set_ports(ports);
        self.rib.commit();
        Ok(())
    }

    /// The link that the bare redirect sends through.
    pub(crate) fn send_bare_to(&self, name: &str) -> Result<(), Failure> {
        Ok(self.bench.set_bare_ports(index_of(name)?, None)?)
    }

    /// Whether segments are counted from now on: an engine that cannot takes the other's place.
    pub(crate) fn count_segments(
        &mut self,
        counts: bool,
        settings: &Settings,
    ) -> Result<(), Failure> {
        if self.counts == counts {
            return Ok(());
        }
        let mut other = match self.uncounted.take() {
            Some(other) => other,
            None => {
                let capacity = capacity(settings);
                let mut engine = Engine::load(&LoadOptions { capacity })?;
                engine.load_srv6_uncounted()?;
                for name in ["out0", "out1"] {
                    engine.set_out_link(index_of(name)?)?;
                }
                let (rib, mirror) = mirror(&engine, &capacity)?;
                Mirrored {
                    engine,
                    rib,
                    mirror,
                }
            }
        };
        std::mem::swap(&mut self.engine, &mut other.engine);
        std::mem::swap(&mut self.rib, &mut other.rib);
        std::mem::swap(&mut self.mirror, &mut other.mirror);
        self.uncounted = Some(other);
        self.counts = counts;
        Ok(())
    }

    /// Follows the kernel until it is quiet.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        while self.mirror.wait(Some(Duration::from_millis(500)))? {
            let rib = &mut self.rib;
            self.mirror.poll(&mut |event| rib.apply(event))?;
        }
        self.rib.commit();
        Ok(())
    }

    /// As the daemon does at each look.
    fn look_at_firewall(&mut self) -> Result<(), Failure> {
        let ports = self.rib.ports().clone();
        let named = |links: &BTreeSet<u32>| -> BTreeMap<u32, String> {
            let links = links.iter().filter_map(|index| self.rib.link(*index));
            links.map(|link| (link.index, link.name.clone())).collect()
        };
        let (ins, outs) = (named(&ports.enabled), named(&ports.out));
        let none = Beneath::new();
        let (ins, outs) = (Way::of(&ins, &none), Way::of(&outs, &none));
        let verdicts = raddle_preflight::look(ins, outs, &mut Known::default())
            .map_err(|e| Failure::system(e.to_string()))?;
        self.rib.set_firewall(Some((ports, verdicts.firewall)));
        self.rib.commit();
        Ok(())
    }

    /// Mirrors everything from nothing and publishes it; says how long that took.
    fn mirror_anew(&mut self, settings: &Settings) -> Result<Duration, Failure> {
        self.rib = Rib::detached();
        self.engine.memory().reset(wait_for_readers);
        let start = Instant::now();
        (self.rib, self.mirror) = mirror(&self.engine, &capacity(settings))?;
        Ok(start.elapsed())
    }

    /// Changes the group behind the large table; says how long it took from the kernel's word to
    /// the engine.
    fn change_group(&mut self) -> Result<Duration, Failure> {
        router::change_group(3)?;
        let mut took = Duration::ZERO;
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && self.mirror.wait(Some(Duration::from_millis(300)))? {
            let start = Instant::now();
            let rib = &mut self.rib;
            self.mirror.poll(&mut |event| {
                let nexthop = matches!(event, Event::Nexthop(_));
                rib.apply(event);
                if nexthop && rib.commit_nexthops().is_some_and(|c| c.groups > 0) && took.is_zero()
                {
                    took = start.elapsed();
                }
            })?;
            rib.commit();
        }
        router::change_group(1)?;
        self.settle()?;
        Ok(took)
    }

    fn cell(&mut self, column: Column, v6: bool, settings: &Settings) -> Result<Cell, Failure> {
        let tagged = column.is_tagged_in().then(|| tagged(v6)).transpose()?;
        self.bench
            .set_traffic(&traffic(column, v6, settings.routes)?);
        // The floor sends through as many links as the rows above it.
        let one =
            column == Column::One || column.upon_in().is_some() || column.upon_out().is_some();
        let second = (!one).then(|| index_of("out1")).transpose()?;
        self.bench.set_bare_ports(index_of("out0")?, second)?;
        let mut rates = [const { Vec::new() }; 5];
        let before = self.punted();
        for round in 0..settings.rounds {
            for (row, rates) in Row::ALL.into_iter().zip(&mut rates) {
                let family = if v6 { "IPv6" } else { "IPv4" };
                progress(&format!(
                    "{family} {} round {}: {}",
                    column.name(),
                    round + 1,
                    row.name()
                ));
                self.bench.rewind();
                rates.push(match &tagged {
                    Some(frame) => self.template_rate(row, frame, settings.packets)?,
                    None => self.rate(row, settings.packets)?,
                });
            }
        }
        let mut punted = self.punted();
        for (reason, packets) in &mut punted {
            *packets -= before.get(reason).copied().unwrap_or(0);
        }
        punted.retain(|_, packets| *packets > 0);
        Ok(Cell {
            column,
            v6,
            rates,
            punted,
        })
    }

    /// Packets that raddle has left to the kernel or dropped so far, by reason.
    pub(crate) fn punted(&self) -> BTreeMap<&'static str, u64> {
        let counters = self.engine.counters();
        let packets = |reason: &Reason| (reason.name(), counters.reason(*reason).packets);
        Reason::ALL[1..].iter().map(packets).collect()
    }

    /// Million packets a second that reach the sinks when this row forwards.
    fn rate(&mut self, row: Row, packets: u32) -> Result<f64, Failure> {
        self.rate_of(row, packets, &|bench, link, packets| {
            bench.send(link, packets)
        })
    }

    /// The same of frames like this template, from its first destination on.
    pub(crate) fn template_rate(
        &mut self,
        row: Row,
        template: &Template,
        packets: u32,
    ) -> Result<f64, Failure> {
        self.bench.set_template(template);
        self.bench.rewind();
        self.rate_of(row, packets, &|bench, link, packets| {
            bench.send_template(template, link, packets)
        })
    }

    fn rate_of(
        &mut self,
        row: Row,
        packets: u32,
        send: &dyn Fn(&Bench, u32, u32) -> raddle_xdp::Result<Duration>,
    ) -> Result<f64, Failure> {
        let program = match row {
            Row::Kernel => {
                // Without a program, a veth takes redirected frames only with GRO on.
                router::command("ethtool", ["-K", "in0", "gro", "on"].into_iter())?;
                None
            }
            Row::FibLookup => Some(Program::FibLookup),
            Row::Raddle => {
                self.engine.attach(self.input, Mode::Native)?;
                None
            }
            Row::Redirect => Some(Program::Redirect),
            Row::Absorb => Some(Program::Sink),
        };
        let attached = match program {
            Some(program) => Some(
                self.bench
                    .attach(program, self.input, AttachedMode::Native)?,
            ),
            None => None,
        };
        send(&self.bench, self.generator, packets / 20)?;
        let before = self.sunk();
        let took = send(&self.bench, self.generator, packets)?;
        let arrived = self.sunk() - before;
        drop(attached);
        match row {
            Row::Kernel => {
                router::command("ethtool", ["-K", "in0", "gro", "off"].into_iter())?;
            }
            Row::Raddle => self.engine.detach(self.input)?,
            Row::FibLookup | Row::Redirect | Row::Absorb => {}
        }
        Ok(arrived as f64 / took.as_secs_f64() / 1e6)
    }

    /// Nanoseconds that raddle's program takes for a packet of this column in test runs, with those of
    /// writing the packet; with no column, those of writing it and a program that only passes it on.
    pub(crate) fn test_run(
        &self,
        column: Option<Column>,
        v6: bool,
        repeat: u32,
    ) -> Result<f64, Failure> {
        let packets = traffic(column.unwrap_or(Column::One), v6, 0)?;
        self.bench.set_traffic(&packets);
        self.bench.rewind();
        let engine = column.map(|_| &self.engine);
        Ok(self.bench.time(engine, self.input, repeat)?.into())
    }

    fn sunk(&self) -> u64 {
        let links = self.sinks.iter().chain([&self.input]);
        links.map(|link| self.bench.sunk(*link)).sum()
    }
}

fn capacity(settings: &Settings) -> Capacity {
    let routes = settings.routes as usize + 100_000;
    let capacity = Capacity::default().for_routes(routes, routes);
    Capacity {
        segments: capacity.segments.max(settings.segments),
        ..capacity
    }
}

fn mirror(engine: &Engine, capacity: &Capacity) -> Result<(Rib, Mirror), Failure> {
    let mut mirror = Mirror::open()?;
    let mut rib = Rib::new(Arc::clone(&engine.memory()), capacity, wait_for_readers);
    mirror.initial(&mut |event| rib.apply(event))?;
    let out = [index_of("out0")?, index_of("out1")?].into();
    rib.set_ports(Ports {
        enabled: [index_of("in0")?].into(),
        out,
    });
    rib.commit();
    Ok((rib, mirror))
}

fn wait_for_readers() {
    if raddle_xdp::grace().is_err() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn traffic(column: Column, v6: bool, routes: u32) -> Result<Traffic, Failure> {
    let few = |n: u8| -> Vec<IpAddr> {
        match v6 {
            false => vec![[198, 51, n, 9].into()],
            true => vec![[0x2001, 0xdb8, 0xf0 + u16::from(n), 0, 0, 0, 0, 9].into()],
        }
    };
    let destinations = match column {
        Column::One
        | Column::Bond
        | Column::VlanIn
        | Column::VlanOut
        | Column::Vlan
        | Column::BridgeIn
        | Column::BridgeOut
        | Column::VxlanOut
        | Column::GreOut => few(1),
        Column::Ecmp2
        | Column::RpLoose
        | Column::RpStrict
        | Column::Firewall
        | Column::Rules
        | Column::Vrf => few(2),
        Column::Ecmp64 => few(3),
        Column::Full => router::destinations(v6, routes),
    };
    let source = match v6 {
        false => [10, 0, 0, 2].into(),
        true => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into(),
    };
    Ok(Traffic {
        dst_mac: IN_MAC,
        src_mac: GENERATOR_MAC,
        source,
        destinations,
        ports: (1, 2),
        vary_ports: true,
    })
}

/// Frames of [`Column::One`] with the tag of the VLAN that they come in by.
fn tagged(v6: bool) -> Result<Template, Failure> {
    let mut frame = [IN_MAC, GENERATOR_MAC].concat();
    frame.extend([0x81, 0x00, 0, router::VLAN_ID]);
    let payload = [0; 18];
    let udp = [&[0, 1, 0, 2, 0, 26, 0, 0][..], &payload].concat();
    if v6 {
        let addresses: [Ipv6Addr; 2] = [
            [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into(),
            [0x2001, 0xdb8, 0xf1, 0, 0, 0, 0, 9].into(),
        ];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, 17, 64]);
        frame.extend(addresses.map(|address| address.octets()).concat());
    } else {
        let mut header = [
            0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 198, 51, 1, 9,
        ];
        let sum = raddle_packet::checksum::checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend([0x08, 0x00]);
        frame.extend(header);
    }
    let port_at = frame.len() as u8;
    frame.extend(udp);
    Template::new(frame, port_at).map_err(|e| Failure::system(e.to_string()))
}

/// Says on a terminal what is being done.
pub(crate) fn progress(what: &str) {
    use std::io::{IsTerminal, Write};
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
        let _ = std::io::stderr().flush();
    }
}
