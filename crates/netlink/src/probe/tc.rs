//! Traffic control: queueing disciplines (qdiscs) and filters.

use super::Error;
use super::talk::Talk;
use crate::codec::{Attribute, Attributes, Builder, DecodeError, Message};

const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;
const TCA_FQ_FLOW_MAX_RATE: u16 = 7;
const TCA_CAKE_BASE_RATE64: u16 = 2;
const TCA_MQPRIO_SHAPER: u16 = 2;
/// Bytes in `struct tc_mqprio_qopt`, aligned, before mqprio's attributes.
const MQPRIO_HEAD: usize = 84;

/// `TC_H_INGRESS` and `TC_H_CLSACT`: the parent of a link's ingress qdisc, and its handle.
const CLSACT: u32 = 0xffff_fff1;
/// Its parent for filters on ingress (`TC_H_MIN_INGRESS`).
const MIN_INGRESS: u32 = 0xffff_fff2;
/// Its parent for filters on egress (`TC_H_MIN_EGRESS`).
const MIN_EGRESS: u32 = 0xffff_fff3;

/// A queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qdisc {
    /// The link that it is on.
    pub index: u32,
    /// Its handle (`8001:` is 0x80010000); 0 for one that the kernel has set up by itself.
    pub handle: u32,
    /// Where it hangs: `u32::MAX` for the root, otherwise a class of another qdisc.
    pub parent: u32,
    /// Its kind: `fq_codel`, `htb`, ...
    pub kind: String,
    /// Whether its options limit a rate, for the kinds of which some do: fq (`maxrate`), cake
    /// (`bandwidth`), mqprio (`shaper bw_rlimit`).
    pub limits_rate: bool,
}

impl Qdisc {
    /// `ingress` or `clsact`: no queue, but a place for filters.
    pub fn is_ingress(&self) -> bool {
        self.parent == CLSACT
    }
}

/// On which side of a link a filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// What the link receives.
    Ingress,
    /// What the link sends.
    Egress,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        })
    }
}

/// A filter (classifier).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its kind: `bpf`, `flower`, `u32`, `matchall`, ...
    pub kind: String,
    /// Its priority ("pref").
    pub priority: u16,
    /// For `bpf`: the program's name and id.
    pub program: Option<(String, u32)>,
}

/// All qdiscs of the namespace but those at which the kernel does not let look without being
/// asked for (default children, which shape nothing).
///
/// # Errors
/// As [`super`] says.
pub fn qdiscs() -> Result<Vec<Qdisc>, Error> {
    let what = "list queueing disciplines";
    let Some(mut talk) = Talk::open(libc::NETLINK_ROUTE, what)? else {
        return Ok(Vec::new());
    };
    talk.dump(&mut request(RTM_GETQDISC, 0, 0), what, decode_qdisc)
}

/// The filters on one side of a link. `qdiscs` are the link's own: only where they offer a place
/// for filters is the kernel asked.
///
/// # Errors
/// As [`super`] says.
pub fn filters(index: u32, direction: Direction, qdiscs: &[Qdisc]) -> Result<Vec<Filter>, Error> {
    let what = "list traffic control filters";
    let parents: Vec<u32> = qdiscs
        .iter()
        .filter(|q| q.index == index)
        .filter_map(|q| match (direction, q.is_ingress()) {
            (Direction::Ingress, true) => Some(MIN_INGRESS),
            (Direction::Egress, true) => (q.kind != "ingress").then_some(MIN_EGRESS),
            // Filters of classful qdiscs; one without a handle cannot have any.
            (Direction::Egress, false) => (q.handle != 0).then_some(q.handle),
            (Direction::Ingress, false) => None,
        })
        .collect();
    let mut filters = Vec::new();
    if parents.is_empty() {
        return Ok(filters);
    }
    let Some(mut talk) = Talk::open(libc::NETLINK_ROUTE, what)? else {
        return Ok(filters);
    };
    for parent in parents {
        let mut request = request(RTM_GETTFILTER, index, parent);
        match talk.dump(&mut request, what, decode_filter) {
            Ok(found) => filters.extend(found),
            // The link or its qdisc has gone since the qdiscs were listed.
            Err(e) if matches!(e.errno(), Some(libc::ENODEV | libc::EINVAL | libc::ENOENT)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filters)
}

/// Asks about a link's qdisc or class (`struct tcmsg`).
fn request(kind: u16, index: u32, parent: u32) -> Builder {
    let mut head = [0; 20];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[12..16].copy_from_slice(&parent.to_ne_bytes());
    let mut b = Builder::new();
    // Without attributes nothing can be too long.
    let _ = b.begin(kind, 0, &head).end();
    b
}

pub(super) fn decode_qdisc(message: &Message<'_>) -> Result<Option<Qdisc>, DecodeError> {
    if message.kind != RTM_NEWQDISC {
        return Ok(None);
    }
    let (head, attributes) = message.split::<20>("tcmsg")?;
    let mut qdisc = Qdisc {
        index: read(head, 4),
        handle: read(head, 8),
        parent: read(head, 12),
        ..Qdisc::default()
    };
    let mut options = None;
    for a in attributes {
        let a = a?;
        match a.kind {
            TCA_KIND => qdisc.kind = a.string(),
            TCA_OPTIONS => options = Some(a),
            _ => {}
        }
    }
    if let Some(options) = options {
        qdisc.limits_rate = limits_rate(&qdisc.kind, &options)?;
    }
    Ok(Some(qdisc))
}

fn limits_rate(kind: &str, options: &Attribute<'_>) -> Result<bool, DecodeError> {
    let (attributes, wanted) = match kind {
        "fq" => (options.nested(), TCA_FQ_FLOW_MAX_RATE),
        "cake" => (options.nested(), TCA_CAKE_BASE_RATE64),
        "mqprio" => {
            let rest = options.payload.get(MQPRIO_HEAD..).unwrap_or_default();
            (Attributes::new(rest), TCA_MQPRIO_SHAPER)
        }
        _ => return Ok(false),
    };
    for a in attributes {
        let a = a?;
        if a.kind == wanted {
            return match kind {
                "fq" => Ok(a.u32("TCA_FQ_FLOW_MAX_RATE")? != u32::MAX),
                "cake" => Ok(a.u64("TCA_CAKE_BASE_RATE64")? != 0),
                _ => Ok(a.u16("TCA_MQPRIO_SHAPER")? != 0),
            };
        }
    }
    Ok(false)
}

pub(super) fn decode_filter(message: &Message<'_>) -> Result<Option<Filter>, DecodeError> {
    if message.kind != RTM_NEWTFILTER {
        return Ok(None);
    }
    let (head, attributes) = message.split::<20>("tcmsg")?;
    let mut filter = Filter {
        kind: String::new(),
        priority: (read(head, 16) >> 16) as u16,
        program: None,
    };
    let mut options = None;
    for a in attributes {
        let a = a?;
        match a.kind {
            TCA_KIND => filter.kind = a.string(),
            TCA_OPTIONS => options = Some(a),
            _ => {}
        }
    }
    if let Some(options) = options
        && filter.kind == "bpf"
    {
        filter.program = program(options.nested())?;
    }
    Ok(Some(filter))
}

fn program(attributes: Attributes<'_>) -> Result<Option<(String, u32)>, DecodeError> {
    let (mut name, mut id) = (String::new(), None);
    for a in attributes {
        let a = a?;
        match a.kind {
            TCA_BPF_NAME => name = a.string(),
            TCA_BPF_ID => id = Some(a.u32("TCA_BPF_ID")?),
            _ => {}
        }
    }
    Ok(id.map(|id| (name, id)))
}

fn read(head: &[u8; 20], at: usize) -> u32 {
    u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Messages;

    fn decoded(kind: &str, options: impl Fn(&mut Builder)) -> Qdisc {
        let mut b = Builder::new();
        b.begin(RTM_NEWQDISC, 0, &[0; 20]).put_str(TCA_KIND, kind);
        let nest = b.open(TCA_OPTIONS);
        options(&mut b);
        b.close(nest).end().unwrap();
        let message = Messages::new(b.as_bytes()).next().unwrap().unwrap();
        decode_qdisc(&message).unwrap().unwrap()
    }

    #[test]
    fn only_a_rate_that_is_set_limits() {
        let fq = |rate: u32| decoded("fq", |b| _ = b.put_u32(TCA_FQ_FLOW_MAX_RATE, rate));
        assert!(!fq(u32::MAX).limits_rate);
        assert!(fq(125_000_000).limits_rate);
        let cake = |rate: u64| decoded("cake", |b| _ = b.put_u64(TCA_CAKE_BASE_RATE64, rate));
        assert!(!cake(0).limits_rate);
        assert!(cake(1).limits_rate);
        let mqprio = |shaper: u16| {
            decoded("mqprio", |b| {
                _ = b
                    .put_raw(&[0; MQPRIO_HEAD])
                    .put_u16(TCA_MQPRIO_SHAPER, shaper)
            })
        };
        assert!(!mqprio(0).limits_rate);
        assert!(mqprio(1).limits_rate);
        // The same attribute number means something else elsewhere.
        assert!(!decoded("sfq", |b| _ = b.put_u32(7, 1)).limits_rate);
    }
}
