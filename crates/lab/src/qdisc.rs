//! What queueing disciplines dropped, and which pass nothing on: rtnetlink's answer, since `/proc/net/dev` knows
//! nothing of them.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _, Write as _},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

// include/uapi/linux/{netlink,rtnetlink,pkt_sched}.h
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const TC_H_ROOT: u32 = u32::MAX;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS: u16 = 3;
const TCA_TBF_PARMS: u16 = 1;
/// Where `rate.rate`, in bytes a second, is in `struct tc_tbf_qopt`.
const TBF_RATE: usize = 8;
/// Bytes of `struct nlmsghdr`, and of `struct tcmsg` behind it.
const HEADER: usize = 16;
const TCMSG: usize = 20;
/// The kernel fills at most 32 KiB per read of a dump.
const CHUNK: usize = 64 << 10;

/// What the qdisc at the root of each device dropped, by interface index, in the network namespace of
/// this thread. Frames that GRO had merged before they came to the queue count as one.
pub(crate) fn drops() -> io::Result<HashMap<u32, u64>> {
    dump(stats)
}

/// The rates of the token buckets at the roots of devices, in bytes a second, by interface index, in the network
/// namespace of this thread.
pub(crate) fn rates() -> io::Result<HashMap<u32, u32>> {
    dump(rate)
}

/// What a function finds in the attributes of each root qdisc.
fn dump<T>(of: fn(&[u8]) -> Option<T>) -> io::Result<HashMap<u32, T>> {
    let (family, kind) = (AddressFamily::Netlink, SockType::Raw);
    let protocol = SockProtocol::NetlinkRoute;
    let mut socket = File::from(socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol)?);
    let mut request = [0; HEADER + TCMSG];
    request[..4].copy_from_slice(&((HEADER + TCMSG) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETQDISC.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    socket.write_all(&request)?;
    let mut found = HashMap::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = socket.read(&mut chunk)?;
        if length == 0 || take(&chunk[..length], &mut found, of)? {
            return Ok(found);
        }
    }
}

/// Takes the messages of one chunk; whether the dump ends with them.
fn take<T>(
    mut chunk: &[u8],
    found: &mut HashMap<u32, T>,
    of: fn(&[u8]) -> Option<T>,
) -> io::Result<bool> {
    while let Some((kind, message, rest)) = cut(chunk, 4, 4, HEADER) {
        chunk = rest;
        match kind {
            NLMSG_DONE | NLMSG_ERROR => {
                return match word(message, 0) {
                    Some(code) if code != 0 => {
                        Err(io::Error::from_raw_os_error((code as i32).wrapping_neg()))
                    }
                    _ => Ok(true),
                };
            }
            RTM_NEWQDISC if word(message, 12) == Some(TC_H_ROOT) => {
                let index = word(message, 4);
                let value = of(message.get(TCMSG..).unwrap_or_default());
                found.extend(index.zip(value));
            }
            _ => {}
        }
    }
    Ok(false)
}

/// `drops` of `struct tc_stats`, behind the bytes and packets that were sent.
fn stats(attributes: &[u8]) -> Option<u64> {
    word(attribute(attributes, TCA_STATS)?, 12).map(u64::from)
}

/// The rate of a token bucket; none of other qdiscs.
fn rate(attributes: &[u8]) -> Option<u32> {
    if attribute(attributes, TCA_KIND)? != b"tbf\0" {
        return None;
    }
    let parameters = attribute(attribute(attributes, TCA_OPTIONS)?, TCA_TBF_PARMS)?;
    word(parameters, TBF_RATE)
}

/// The payload of the first attribute of a kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some((kind, payload, rest)) = cut(attributes, 2, 2, 4) {
        attributes = rest;
        // Without the mark that it holds others.
        if kind & 0x3fff == wanted {
            return Some(payload);
        }
    }
    None
}

/// The first message or attribute: its kind, what is behind its header, and what comes after it.
/// Its length, in `width` bytes at the start, counts the header, but not what fills up to 4 bytes.
fn cut(bytes: &[u8], width: usize, kind_at: usize, header: usize) -> Option<(u16, &[u8], &[u8])> {
    let length = match width {
        2 => half(bytes, 0)?.into(),
        _ => word(bytes, 0)? as usize,
    };
    let kind = half(bytes, kind_at)?;
    let payload = bytes.get(header..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, payload, rest))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A qdisc of a device with statistics, after an attribute of five bytes.
    fn qdisc(index: u32, parent: u32, dropped: u32) -> Vec<u8> {
        let mut payload = vec![0; TCMSG];
        payload[4..8].copy_from_slice(&index.to_ne_bytes());
        payload[12..16].copy_from_slice(&parent.to_ne_bytes());
        payload.extend([9, 0, 1, 0, b't', b'b', b'f', b'!', 0, 0, 0, 0]);
        payload.extend([20, 0, 3, 0]);
        payload.extend([7; 12]);
        payload.extend(dropped.to_ne_bytes());
        message(RTM_NEWQDISC, &payload)
    }

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER];
        message[..4].copy_from_slice(&((HEADER + payload.len()) as u32).to_ne_bytes());
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.extend(payload);
        message
    }

    #[test]
    fn roots_count_and_their_children_do_not() {
        let mut drops = HashMap::new();
        let mut take = |chunk: &[u8]| take(chunk, &mut drops, stats);
        let chunk = [qdisc(100, TC_H_ROOT, 5), qdisc(100, 0x8001_0001, 6)].concat();
        assert!(!take(&chunk).unwrap());
        let chunk = [qdisc(101, TC_H_ROOT, 7), message(NLMSG_DONE, &[0; 4])].concat();
        assert!(take(&chunk).unwrap());
        assert_eq!(drops, HashMap::from([(100, 5), (101, 7)]));
    }

    #[test]
    fn token_buckets_have_a_rate() {
        let kind = |name: &[u8; 4]| [&[8, 0, 1, 0][..], name].concat();
        let mut parameters = vec![0; 36];
        parameters[8..12].copy_from_slice(&25_000_000_u32.to_ne_bytes());
        let inner = [&[40, 0, 1, 0][..], &parameters].concat();
        // Marked as one that holds others, which the kernel does not do here, but may.
        let options = [&[44, 0, 2, 0x80][..], &inner].concat();
        let of = |name| rate(&[kind(name), options.clone()].concat());
        assert_eq!((of(b"tbf\0"), of(b"htb\0")), (Some(25_000_000), None));
        assert_eq!(rate(&kind(b"tbf\0")), None);
    }

    #[test]
    fn refusals_and_odd_bytes_do_no_harm() {
        let mut drops = HashMap::new();
        let refused = message(NLMSG_ERROR, &(-libc::EPERM).to_ne_bytes());
        let mut take = |chunk: &[u8]| take(chunk, &mut drops, stats);
        let error = take(&refused).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        let whole = qdisc(100, TC_H_ROOT, 5);
        for length in 0..whole.len() {
            assert!(!take(&whole[..length]).unwrap());
        }
        assert!(!take(&[0; 64]).unwrap() && drops.is_empty());
    }
}
