//! Flows to compute with: from captures, from lists, or made up.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use raddle_explain::FlowWords;
use raddle_io::Reader;
use raddle_packet::protocol::ethertype;
use raddle_packet::{Ethernet, Family, Stop, Vlan, dissect};
use raddle_select::{Flow, FlowKey, Keys, Policy, keys_of_packet};
use raddle_sim::sample::{self, Sample, flow_of};
use raddle_text::outside::{Bounded, open_or_stdin};
use thiserror::Error;

/// Most bytes of a packet that are kept: what the dissector may look at.
const HEADERS: usize = 256;
/// Most flows that are made up.
const MOST: usize = 10_000_000;
/// Bytes of a list that are read at most: a hundred for each of so many flows.
const MOST_BYTES: u64 = 1 << 30;

/// Where the flows come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// A capture (pcap, pcapng) or a list ([`list`]), by its file's name, `-` for standard input; or how many to make
    /// up.
    pub flows: Option<String>,
    /// Make up so many TCP flows.
    pub synthetic: Option<usize>,
    /// Where made-up flows come from; 10.0.0.0/8 or fd00::/8 without one.
    pub hosts: Option<IpNet>,
}

/// Why there are no flows.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// More than there is room for.
    #[error("{0} flows are too many to make up: {MOST} at most")]
    TooMany(usize),
    /// Hosts, and no flows to make up.
    #[error("--hosts is for made-up flows: add --synthetic N")]
    OnlyHosts,
    /// Made-up flows are to go to the other family.
    #[error("hosts {0} and the destination are of different families")]
    Families(IpNet),
    /// A file cannot be read.
    #[error("cannot read the flows {name}: {why}")]
    Read {
        /// The file.
        name: String,
        /// Why not.
        why: io::Error,
    },
    /// A capture is broken.
    #[error(transparent)]
    Capture(#[from] raddle_io::Error),
    /// A line of a list is none.
    #[error("{name}: {why}")]
    List {
        /// The file.
        name: String,
        /// What is wrong.
        why: LineError,
    },
}

/// What is wrong with a line of a list.
#[derive(Debug, Error)]
#[error("line {number}: {what}")]
pub struct LineError {
    /// The line, from 1.
    pub number: usize,
    /// What is wrong with it.
    pub what: LineFault,
}

/// What can be wrong with a line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LineFault {
    /// Words of `explain` that say no flow.
    #[error(transparent)]
    Words(#[from] raddle_explain::Error),
    /// Something else.
    #[error(
        "no flow in '{0}': a line is 'DST from SRC [iif LINK] [ipproto PROTO] [sport PORT] [dport PORT]', \
         'SRC DST [PROTO [SPORT DPORT]]', or one of conntrack -L or ss -tun"
    )]
    NoFlow(String),
    /// Addresses that do not fit.
    #[error(transparent)]
    Addresses(sample::LineError),
    /// Nobody sends it.
    #[error("the flow has no source: add from SRC")]
    NoSource,
}

impl Source {
    /// Whether flows are read, which have destinations of their own.
    pub fn is_file(&self) -> bool {
        self.flows
            .as_ref()
            .is_some_and(|text| text.parse::<usize>().is_err())
    }

    /// The flows, if any were asked for. Made-up ones go to `dst`, or among the hosts without one.
    ///
    /// # Errors
    /// They cannot be read or made up.
    pub fn load(&self, dst: Option<IpAddr>) -> Result<Option<Vec<Sample>>, Error> {
        let number = self.flows.as_ref().and_then(|text| text.parse().ok());
        match (number.or(self.synthetic), &self.flows) {
            (Some(count), _) if count > MOST => Err(Error::TooMany(count)),
            (Some(count), _) => self.made_up(count, dst).map(Some),
            (None, Some(file)) => read(file).map(Some),
            (None, None) if self.hosts.is_some() => Err(Error::OnlyHosts),
            (None, None) => Ok(None),
        }
    }

    fn made_up(&self, count: usize, dst: Option<IpAddr>) -> Result<Vec<Sample>, Error> {
        let default = match dst {
            Some(IpAddr::V6(_)) => IpNet::V6(ipnet::Ipv6Net::new_assert(
                std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0),
                8,
            )),
            _ => IpNet::V4(ipnet::Ipv4Net::new_assert(
                std::net::Ipv4Addr::new(10, 0, 0, 0),
                8,
            )),
        };
        let hosts = self.hosts.unwrap_or(default);
        let flows = sample::synthetic(hosts, dst, count, 1).ok_or(Error::Families(hosts))?;
        Ok(flows.into_iter().map(Sample::of).collect())
    }
}

/// Reads a capture or a list, whichever it is.
fn read(name: &str) -> Result<Vec<Sample>, Error> {
    let named = || name.to_owned();
    let failed = |why: io::Error| Error::Read { name: named(), why };
    let mut input = open_or_stdin(Path::new(name)).map_err(failed)?;
    let mut magic = Vec::new();
    input
        .by_ref()
        .take(4)
        .read_to_end(&mut magic)
        .map_err(failed)?;
    let whole = io::Cursor::new(magic.clone()).chain(input);
    if is_capture(&magic) {
        return capture(Reader::new(whole, name)?);
    }
    let flows: Result<Vec<Flow>, LineError> = lines_of(whole, name)?.iter().map(sourced).collect();
    let flows = flows.map_err(|why| Error::List { name: named(), why })?;
    Ok(flows.into_iter().map(Sample::of).collect())
}

/// Reads a list of flows ([`list`]) from a file; `-` is standard input.
///
/// # Errors
/// It cannot be read, or has more bytes than ten million flows need; what is wrong with a line.
pub fn read_list(file: &Path) -> Result<Vec<Line>, Error> {
    let name = file.display().to_string();
    match open_or_stdin(file) {
        Ok(input) => lines_of(input, &name),
        Err(why) => Err(Error::Read { name, why }),
    }
}

/// The lines of a list that is called so.
fn lines_of(input: impl Read, name: &str) -> Result<Vec<Line>, Error> {
    let named = || name.to_owned();
    let text = io::read_to_string(Bounded::new(input, MOST_BYTES));
    let text = text.map_err(|why| Error::Read { name: named(), why })?;
    list(&text).map_err(|why| Error::List { name: named(), why })
}

/// A flow of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of its line, from 1.
    pub number: usize,
    /// The flow.
    pub words: FlowWords,
}

/// Reads a list of flows, one a line (`docs/flows.md`).
///
/// 1. What follows `#` is a comment; lines without a word have no flow.
/// 2. A line of an address, alone or before a word of `explain`, is in `explain`'s words.
/// 3. The others are those of [`sample::parse_line`].
///
/// # Errors
/// What is wrong in the first line that is none of these.
pub fn list(text: &str) -> Result<Vec<Line>, LineError> {
    let mut flows = Vec::new();
    for (i, whole) in text.lines().enumerate() {
        let number = i + 1;
        let words = words(whole).map_err(|what| LineError { number, what })?;
        flows.extend(words.map(|words| Line { number, words }));
    }
    Ok(flows)
}

fn words(whole: &str) -> Result<Option<FlowWords>, LineFault> {
    let line = whole.split('#').next().unwrap_or_default();
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    if FlowWords::are(&words) {
        return Ok(Some(FlowWords::parse_line(&words)?));
    }
    match sample::parse_line(line) {
        Ok(flow) => Ok(flow.map(|flow| FlowWords::of(&flow)).transpose()?),
        Err(sample::LineError::NoFlow) => {
            let start = whole.trim().chars().take(80).collect();
            Err(LineFault::NoFlow(start))
        }
        Err(e @ sample::LineError::Families { .. }) => Err(LineFault::Addresses(e)),
    }
}

/// The flow of a line, which has to say where it comes from.
fn sourced(line: &Line) -> Result<Flow, LineError> {
    let flow = line
        .words
        .flow()
        .filter(|_| !line.words.src.is_unspecified());
    flow.ok_or(LineError {
        number: line.number,
        what: LineFault::NoSource,
    })
}

/// The magic numbers of pcap, of both byte orders and units, and of pcapng.
fn is_capture(magic: &[u8]) -> bool {
    let known = [0xa1b2_c3d4_u32, 0xa1b2_3c4d, 0x0a0d_0d0a];
    magic.first_chunk().is_some_and(|four| {
        known.contains(&u32::from_be_bytes(*four)) || known.contains(&u32::from_le_bytes(*four))
    })
}

/// What makes two packets one flow whatever the hash policy: outer flow, L3 key, inner flow.
type Identity = (Flow, Option<FlowKey>, Option<Flow>);

fn capture(reader: Reader) -> Result<Vec<Sample>, Error> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut known: HashMap<Identity, usize> = HashMap::new();
    for record in reader {
        let record = record?;
        let Some((family, l3)) = ip_packet(&record.data) else {
            continue;
        };
        let bytes = u64::from(record.original_len);
        let Some(sample) = Sample::of_packet(family, &l3[..l3.len().min(HEADERS)], bytes) else {
            continue;
        };
        let inner = dissect(l3, family, Stop::Innermost);
        let inner = flow_of(&inner).filter(|_| inner.encapsulated);
        let key = match keys_of_packet(&Policy::L3.into(), family, l3) {
            Ok(Keys::One(key)) => Some(key),
            _ => None,
        };
        let at = *known
            .entry((sample.flow, key, inner))
            .or_insert(samples.len());
        match samples.get_mut(at) {
            Some(first) => first.load += bytes,
            None => samples.push(sample),
        }
    }
    Ok(samples)
}

/// The IP packet in a frame, behind VLAN tags if there are any, ended at its own length.
fn ip_packet(frame: &[u8]) -> Option<(Family, &[u8])> {
    let ethernet = Ethernet::new_checked(frame).ok()?;
    let (mut kind, mut at) = (ethernet.ether_type(), Ethernet::<&[u8]>::LEN);
    while [ethertype::VLAN, ethertype::QINQ].contains(&kind) {
        kind = Vlan::new_checked(frame.get(at..)?).ok()?.ether_type();
        at += Vlan::<&[u8]>::LEN;
    }
    let l3 = frame.get(at..)?;
    let word = |at: usize| {
        Some(usize::from(u16::from_be_bytes(
            *l3.get(at..)?.first_chunk()?,
        )))
    };
    let (family, length) = match kind {
        ethertype::IPV4 => (Family::V4, word(2)?),
        ethertype::IPV6 => (Family::V6, 40 + word(4)?),
        _ => return None,
    };
    Some((family, &l3[..l3.len().min(length)]))
}

/// A flow in words: `10.0.0.1:4000 -> 10.0.0.2:443 tcp`.
pub fn text(flow: &Flow) -> String {
    let (src, dst) = flow.addresses.ends();
    let end = |address: IpAddr, port: u16| match (address, port) {
        (_, 0) => address.to_string(),
        (IpAddr::V4(_), _) => format!("{address}:{port}"),
        (IpAddr::V6(_), _) => format!("[{address}]:{port}"),
    };
    let proto = match flow.proto {
        0 => String::new(),
        6 => " tcp".to_owned(),
        17 => " udp".to_owned(),
        other => format!(" proto {other}"),
    };
    format!(
        "{} -> {}{proto}",
        end(src, flow.sport),
        end(dst, flow.dport)
    )
}

#[cfg(test)]
mod tests {
    use raddle_io::{Record, Resolution, Writer};

    use super::*;

    /// An Ethernet frame with a UDP packet from 10.0.0.1 to 10.0.0.2, port 53.
    fn udp(sport: u16, vlan: bool) -> Vec<u8> {
        let mut frame = vec![0; 12];
        if vlan {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend([
            8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.extend(sport.to_be_bytes());
        frame.extend([0, 53, 0, 8, 0, 0]);
        // Padding of a short frame.
        frame.extend([0xff; 18]);
        frame
    }

    fn from(file: &std::path::Path) -> Result<Vec<Sample>, Error> {
        let args = Source {
            flows: Some(file.to_str().unwrap().to_owned()),
            ..Source::default()
        };
        args.load(None).map(Option::unwrap)
    }

    #[test]
    fn a_list_that_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("list");
        let said = || read_list(&file).map(drop).unwrap_err().to_string();
        assert!(said().contains("list: No such file"), "{}", said());
        std::fs::write(&file, "10.0.0.2 from 10.0.0.1\nx").unwrap();
        assert!(said().contains("list: line 2: "), "{}", said());
        std::fs::write(&file, "10.0.0.2 from 10.0.0.1\n").unwrap();
        assert_eq!(read_list(&file).unwrap().len(), 1);
    }

    #[test]
    fn packets_of_a_capture_become_flows() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.pcap");
        let mut writer = Writer::create(&file, Resolution::Nano).unwrap();
        let arp = [&[0; 12][..], &[8, 6], &[0; 28]].concat();
        for data in [
            udp(1000, false),
            udp(1000, true),
            udp(2000, false),
            arp,
            vec![0; 5],
        ] {
            let original_len = data.len() as u32;
            let ts_ns = 0;
            writer
                .write(&Record {
                    ts_ns,
                    original_len,
                    data,
                })
                .unwrap();
        }
        writer.finish().unwrap();
        let samples = from(&file).unwrap();
        let seen: Vec<(String, u64)> = samples.iter().map(|s| (text(&s.flow), s.load)).collect();
        let flow = |port: u16| format!("10.0.0.1:{port} -> 10.0.0.2:53 udp");
        assert_eq!(seen, [(flow(1000), 60 + 64), (flow(2000), 60)]);
        assert!(
            samples
                .iter()
                .all(|s| s.packet.as_ref().is_some_and(|p| p.len() == 28))
        );
    }

    /// Both ways to write a flow, in one list, and what other programs print.
    #[test]
    fn a_list_has_flows_as_explain_takes_them_and_as_others_print_them() {
        let text = "\n# a comment\n\
                    10.0.0.2 from 10.0.0.1 ipproto udp sport 5 dport 6 # explain's\n\
                    10.0.0.1 10.0.0.2 udp 5 6\n\
                    Netid State Recv-Q Send-Q Local Peer\n\
                    udp ESTAB 0 0 10.0.0.1:5 10.0.0.2:6\n\
                    udp 17 29 src=10.0.0.1 dst=10.0.0.2 sport=5 dport=6 [UNREPLIED]\n\
                    to 10.0.0.2 from 10.0.0.1 iif eth0 ipproto udp sport 5 dport 6\n\
                    10.0.0.2\n";
        let lines = list(text).unwrap();
        let numbers: Vec<usize> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [3, 4, 6, 7, 8, 9]);
        let said: Vec<String> = lines.iter().map(|line| line.words.to_string()).collect();
        let flow = "10.0.0.2 from 10.0.0.1 ipproto udp sport 5 dport 6";
        assert_eq!(said[..4], [flow; 4]);
        assert_eq!(lines[4].words.iif.as_deref(), Some("eth0"));
        assert!(
            lines[..5]
                .iter()
                .all(|line| { text_of(line) == "10.0.0.1:5 -> 10.0.0.2:6 udp" })
        );
        // Explain takes it: this machine's own, from what the kernel chooses.
        assert_eq!(said[5], "10.0.0.2 from 0.0.0.0");
        assert_eq!(
            sourced(&lines[5]).unwrap_err().to_string(),
            "line 9: the flow has no source: add from SRC"
        );
    }

    fn text_of(line: &Line) -> String {
        text(&sourced(line).unwrap())
    }

    #[test]
    fn mistakes_in_a_list_have_their_line() {
        for (line, said) in [
            (
                "hello world",
                "line 2: no flow in 'hello world': a line is 'DST from SRC",
            ),
            (
                "10.0.0.1 oif eth0",
                "line 2: no flow in '10.0.0.1 oif eth0'",
            ),
            (
                "10.0.0.1 from 10.0.0.2 oif eth0",
                "line 2: 'oif' is not a word of a flow",
            ),
            ("10.0.0.1 from", "line 2: 'from' wants a value"),
            ("10.0.0.1 from ::1", "are of different families"),
            ("10.0.0.1 ::1", "are of different families"),
            ("10.0.0.1 10.0.0.2 0 5 6", "line 2: ports want a protocol"),
            ("10.0.0.1 10.0.0.2 tcp 70000 1", "line 2: no flow in"),
        ] {
            let error = list(&format!("10.0.0.1 10.0.0.2\n{line}\n")).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn lists_and_numbers_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("list");
        std::fs::write(&file, "10.0.0.1 10.0.0.2 udp 5 6\n").unwrap();
        assert_eq!(
            text(&from(&file).unwrap()[0].flow),
            "10.0.0.1:5 -> 10.0.0.2:6 udp"
        );
        std::fs::write(&file, "nonsense\n").unwrap();
        assert!(
            from(&file)
                .unwrap_err()
                .to_string()
                .contains("line 1: no flow")
        );
        assert!(
            from(&dir.path().join("none"))
                .unwrap_err()
                .to_string()
                .contains("cannot read")
        );
        let args = |flows: Option<&str>, hosts: Option<&str>| Source {
            flows: flows.map(str::to_owned),
            synthetic: None,
            hosts: hosts.map(|hosts| hosts.parse().unwrap()),
        };
        assert_eq!(
            args(Some("12"), None).load(None).unwrap().unwrap().len(),
            12
        );
        assert_eq!(args(None, None).load(None).unwrap(), None);
        assert!(args(None, Some("10.0.0.0/8")).load(None).is_err());
        assert!(args(Some("99999999"), None).load(None).is_err());
        let v6 = Some("fd00::1".parse().unwrap());
        assert!(args(Some("1"), Some("10.0.0.0/8")).load(v6).is_err());
        assert_eq!(args(Some("1"), None).load(v6).unwrap().unwrap().len(), 1);
    }
}
