//! What the wires carried.

use std::{collections::HashMap, fs};

use serde::{Deserialize, Serialize};

use crate::{LabError, LinkId, names, netns, qdisc};

/// Frames and bytes, since the lab was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames of at most the MTU, as they are on a cable.
    pub packets: u64,
    /// Bytes from the destination MAC to the end of the payload.
    pub bytes: u64,
    /// Frames that found the shaper's queue or the receiving ring full. Segments that GRO had merged
    /// before they came to the queue are one.
    pub dropped: u64,
}

/// What a link delivered in each direction, counted behind the shaper.
///
/// Counted on the wire, where every frame passes: a node's own device counters miss some of what XDP
/// programs forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// The link.
    pub link: LinkId,
    /// Delivered to the link's end 0 and to its end 1.
    pub to: [Counters; 2],
}

/// Reads the counters of all links: one file and one dump of qdiscs, no process.
pub(crate) fn read(lab: &str, links: usize) -> Result<Vec<LinkCounters>, LabError> {
    // /proc/net would be that of the process's first thread, which is not in the namespace.
    let (text, shaped) = netns::within(&names::netns(lab, names::WIRE), || {
        let text = fs::read_to_string("/proc/thread-self/net/dev")?;
        Ok((text, qdisc::drops()?))
    })?
    .map_err(LabError::io("cannot read the counters of the wires"))?;
    let devices = parse(&text);
    let to = |link, side| {
        let device = devices.get(&*names::wire_dev(link, side));
        let mut counters = device.copied().unwrap_or_default();
        let shaped = shaped.get(&names::wire_index(link, side));
        counters.dropped += shaped.copied().unwrap_or_default();
        counters
    };
    Ok((0..links)
        .map(|link| LinkCounters {
            link: LinkId(link),
            to: [to(link, 0), to(link, 1)],
        })
        .collect())
}

/// The sending side of every device in the text of `/proc/net/dev`, without what qdiscs dropped.
fn parse(text: &str) -> HashMap<&str, Counters> {
    text.lines()
        .filter_map(|line| {
            let (dev, numbers) = line.split_once(':')?;
            let field = |i| numbers.split_ascii_whitespace().nth(i)?.parse().ok();
            // Eight fields of receiving come first; then bytes, packets, errors, drops of sending.
            let sent = Counters {
                bytes: field(8)?,
                packets: field(9)?,
                dropped: field(11)?,
            };
            Some((dev.trim(), sent))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_sending_side() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n  l0a: 1 2 3 4 5 6 7 8 \
                    900 10 11 12 13 14 15 16\nbroken: 1\n";
        let devices = parse(text);
        assert_eq!(devices.len(), 1);
        assert_eq!(
            devices["l0a"],
            Counters {
                bytes: 900,
                packets: 10,
                dropped: 12
            }
        );
    }
}
