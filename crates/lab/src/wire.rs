//! The wires: veths, offloads, the BPF program between the ends, and the shapers.

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    programs::{
        SchedClassifier, TcAttachType,
        tc::{NlOptions, TcAttachOptions, qdisc_add_clsact},
    },
};

use crate::{
    End, LabError, LinkId, Rate, Topology, batch::Batch, ethtool::Ethtool, names, netns, qdisc,
};

/// Room for the Ethernet header in the MTU's frame.
const HEADER: u64 = 14;

/// Makes the veths of all links, each between a node's namespace and the wire namespace.
pub(crate) fn create(lab: &str, topology: &Topology) -> Result<(), LabError> {
    let wire = names::netns(lab, names::WIRE);
    let mut batch = Batch::new("ip", None);
    for (number, link) in topology.links().iter().enumerate() {
        let mtu = link.mtu.unwrap_or(topology.mtu());
        for (side, end) in link.ends.iter().enumerate() {
            let End { node, dev, .. } = end;
            let (of, of_side) = end.poses_as.unwrap_or((LinkId(number), side));
            batch.add(format_args!(
                "link add {near} netns {wire} index {index} mtu {mtu} type veth \
                 peer name {dev} netns {netns} address {mac} mtu {mtu}",
                near = names::wire_dev(number, side),
                index = names::wire_index(number, side),
                netns = names::netns(lab, node),
                mac = names::mac(lab, of.0, of_side),
            ));
        }
    }
    batch.run("making the links")
}

/// Sets offloads, attaches the wire program, and starts the shapers.
pub(crate) fn connect(lab: &str, topology: &Topology) -> Result<(), LabError> {
    let devices: Vec<String> = (0..topology.links().len())
        .flat_map(|link| [0, 1].map(|side| names::wire_dev(link, side)))
        .collect();
    if devices.is_empty() {
        return Ok(());
    }
    netns::within(&names::netns(lab, names::WIRE), || {
        offloads(&devices, wire_side)?;
        attach(&devices)
    })??;
    shape(lab, topology)
}

/// Sets the offloads of a node's own devices. Call it in the node's namespace.
pub(crate) fn node_offloads<'a>(ends: impl Iterator<Item = &'a End>) -> Result<(), LabError> {
    let (without, with): (Vec<&End>, Vec<&End>) = ends.partition(|end| end.gro_off);
    let names = |ends: Vec<&'a End>| ends.into_iter().map(|end| &*end.dev).collect::<Vec<_>>();
    offloads(&names(with), node_side)?;
    offloads(&names(without), |feature| {
        (feature == "rx-gro").then_some(false)
    })
}

fn offloads(devices: &[impl AsRef<str>], want: fn(&str) -> Option<bool>) -> Result<(), LabError> {
    let Some(first) = devices.first() else {
        return Ok(());
    };
    let failed = |dev: &str| LabError::io(format!("cannot set the offloads of {dev}"));
    let ethtool = Ethtool::new(first.as_ref()).map_err(failed(first.as_ref()))?;
    for dev in devices {
        ethtool
            .set(dev.as_ref(), want)
            .map_err(failed(dev.as_ref()))?;
    }
    Ok(())
}

/// Offloads of the wire's end of a link. It sends to the node what a real cable would bring: frames of
/// at most the MTU, with their checksums filled in and their VLAN tags in the bytes. And it receives
/// with GRO, which makes the device use NAPI: without, it would silently drop what an XDP program of
/// the node redirects to the link.
fn wire_side(feature: &str) -> Option<bool> {
    let segments = feature.starts_with("tx-") && feature.ends_with("-segmentation");
    match feature {
        _ if segments || feature.starts_with("tx-checksum-") => Some(false),
        "tx-gso-list" | "tx-gso-partial" | "tx-gso-robust" => Some(false),
        "tx-vlan-hw-insert" | "tx-vlan-stag-hw-insert" => Some(false),
        "rx-gro" => Some(true),
        _ => None,
    }
}

/// Offloads of the node's end: as a usual network card, which receives with GRO. (With GRO on, veth
/// also keeps its NAPI running when XDP programs come and go, so that no frame is lost over that.)
fn node_side(feature: &str) -> Option<bool> {
    (feature == "rx-gro").then_some(true)
}

/// Attaches the wire program to devices of the namespace of this thread.
fn attach(devices: &[String]) -> Result<(), LabError> {
    let failed = |doing: String, reason: &dyn std::error::Error| LabError::Wire {
        doing,
        reason: chain(reason),
    };
    let loading = |e: &dyn std::error::Error| failed("loaded".into(), e);
    let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/wire.bpf.o"));
    let mut loader = EbpfLoader::new();
    let mut bpf: Ebpf = loader
        .verifier_log_level(VerifierLogLevel::DISABLE)
        .load(object)
        .map_err(|e| loading(&e))?;
    let missing = || LabError::Wire {
        doing: "loaded".into(),
        reason: "it is not there".into(),
    };
    let program: &mut SchedClassifier = bpf
        .program_mut("wire")
        .ok_or_else(missing)?
        .try_into()
        .map_err(|e: aya::programs::ProgramError| loading(&e))?;
    program.load().map_err(|e| loading(&e))?;
    for dev in devices {
        let attaching = |e: &dyn std::error::Error| failed(format!("attached to {dev}"), e);
        qdisc_add_clsact(dev).map_err(|e| attaching(&e))?;
        // By netlink even where the kernel has tcx: such a filter stays when this process ends.
        let how = TcAttachOptions::Netlink(NlOptions {
            priority: 1,
            ..NlOptions::default()
        });
        let link = program
            .attach_with_options(dev, TcAttachType::Ingress, how)
            .and_then(|id| program.take_link(id))
            .map_err(|e| attaching(&e))?;
        // Dropping the link would detach the program; the filter goes with its device instead.
        std::mem::forget(link);
    }
    Ok(())
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Puts a token bucket on both ends of every link that has a rate.
fn shape(lab: &str, topology: &Topology) -> Result<(), LabError> {
    let mut batch = Batch::new("tc", Some(names::netns(lab, names::WIRE)));
    for (number, link) in topology.links().iter().enumerate() {
        if let Some(rate) = link.rate {
            for side in [0, 1] {
                let dev = names::wire_dev(number, side);
                batch.add(format_args!(
                    "qdisc add dev {dev} root {}",
                    bucket(rate, topology.mtu())
                ));
            }
        }
    }
    batch.run("shaping the links")
}

/// The token bucket for a rate.
///
/// The burst is what the rate brings in one millisecond: a timer that is late by as much costs no
/// throughput. A switch's queue is 10 ms long. Both hold at least a few frames, for slow rates.
fn bucket(rate: Rate, mtu: u32) -> String {
    let frame = u64::from(mtu) + HEADER;
    let burst = rate.bytes_in(1).max(4 * frame);
    let limit = rate.bytes_in(10).max(50 * frame) + burst;
    format!("tbf rate {}bit burst {burst} limit {limit}", rate.bits())
}

/// Has the shapers of a link pass nothing on: no frame fits into their bucket.
pub(crate) fn cut(lab: &str, link: LinkId) -> Result<(), LabError> {
    reshape(
        lab,
        link,
        "tbf rate 8bit burst 10 limit 10",
        "cutting the link",
    )
}

/// The rate, in bytes a second, of shapers that [`cut`] sets; no rate of a topology is as low.
const CUT_RATE: u32 = 1;

/// Which of so many links are cut, by what the kernel says.
pub(crate) fn cut_links(lab: &str, links: usize) -> Result<Vec<LinkId>, LabError> {
    let rates = netns::within(&names::netns(lab, names::WIRE), qdisc::rates)?;
    let rates = rates.map_err(LabError::io("cannot read the shapers of links"))?;
    let is_cut = |link: &usize| {
        let rate = |side| rates.get(&names::wire_index(*link, side));
        [0, 1].iter().any(|side| rate(*side) == Some(&CUT_RATE))
    };
    Ok((0..links).filter(is_cut).map(LinkId).collect())
}

/// Gives a link another rate, both ways.
pub(crate) fn set_rate(
    lab: &str,
    link: LinkId,
    rate: Option<Rate>,
    mtu: u32,
) -> Result<(), LabError> {
    let qdisc = rate.map_or_else(|| "noqueue".to_owned(), |rate| bucket(rate, mtu));
    reshape(lab, link, &qdisc, "shaping the link")
}

/// Replaces the shapers of a link. They are made anew, as what is queued in an old one, and the debt
/// that it remembers, would live on in it.
fn reshape(lab: &str, link: LinkId, qdisc: &str, what: &str) -> Result<(), LabError> {
    let mut batch = Batch::new("tc", Some(names::netns(lab, names::WIRE)));
    for side in [0, 1] {
        let dev = names::wire_dev(link.0, side);
        batch.add(format_args!("qdisc replace dev {dev} root noqueue"));
        if qdisc != "noqueue" {
            batch.add(format_args!("qdisc replace dev {dev} root {qdisc}"));
        }
    }
    batch.run(what)
}

/// Pulls the plug of a link, or puts it back: both nodes lose or regain the carrier.
pub(crate) fn set_carrier(lab: &str, link: LinkId, on: bool) -> Result<(), LabError> {
    let mut batch = Batch::new("ip", Some(names::netns(lab, names::WIRE)));
    for side in [0, 1] {
        let state = if on { "up" } else { "down" };
        batch.add(format_args!(
            "link set {} {state}",
            names::wire_dev(link.0, side)
        ));
    }
    batch.run("switching the link")
}

/// Brings the wire's ends of all links up.
pub(crate) fn bring_up(lab: &str, topology: &Topology) -> Result<(), LabError> {
    let mut batch = Batch::new("ip", Some(names::netns(lab, names::WIRE)));
    for number in 0..topology.links().len() {
        for side in [0, 1] {
            batch.add(format_args!(
                "link set {} up",
                names::wire_dev(number, side)
            ));
        }
    }
    batch.run("bringing the links up")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets() {
        let rate = |text: &str| text.parse::<Rate>().unwrap();
        assert_eq!(
            bucket(rate("1gbit"), 9000),
            "tbf rate 1000000000bit burst 125000 limit 1375000"
        );
        assert_eq!(
            bucket(rate("1mbit"), 1500),
            "tbf rate 1000000bit burst 6056 limit 81756"
        );
    }

    #[test]
    fn what_a_cable_does_not_do() {
        for off in [
            "tx-tcp-segmentation",
            "tx-udp-segmentation",
            "tx-checksum-ip-generic",
        ] {
            assert_eq!(wire_side(off), Some(false));
        }
        assert_eq!(wire_side("rx-gro"), Some(true));
        assert_eq!(wire_side("tx-scatter-gather"), None);
        assert_eq!(node_side("tx-tcp-segmentation"), None);
    }
}
