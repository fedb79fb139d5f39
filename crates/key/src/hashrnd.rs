//! `hashrnd`: the key of the flow dissector, by which kernels before 6.11 choose among paths.

use std::fs::File;
use std::hash::Hasher as _;
use std::io::{BufReader, Read};

use raddle_select::{FlowKey, HashKey, KeyAddresses};
use siphasher::sip::SipHasher24;

use crate::bpf::{self, FlowHash};
use crate::error::Error;
use crate::privilege;
use crate::symbols;

const SYMBOLS: &str = "/proc/kallsyms";

/// Reads the key and proves it.
pub(crate) fn read() -> Result<HashKey, Error> {
    let file = File::open(SYMBOLS).map_err(Error::system("open /proc/kallsyms"))?;
    let places = symbols::data(BufReader::with_capacity(1 << 16, file), "hashrnd")
        .map_err(Error::system("read /proc/kallsyms"))?;
    if places.is_empty() {
        return Err(Error::NoSymbol);
    }
    if places.contains(&0) {
        privilege::require(&[privilege::SYSLOG])?;
        return Err(Error::NoSymbol);
    }
    let hash = FlowHash::load()?;
    let frames = Frame::draw()?;
    // The first hash makes the key, where there is none yet.
    let observed: Vec<(Frame, u32)> = frames
        .into_iter()
        .map(|frame| Ok((frame, hash.of(&frame.bytes())?)))
        .collect::<Result<_, Error>>()?;
    for place in places {
        let [k0, k1] = bpf::read::<2>(Some(place), &[0])?;
        let key = HashKey::new(k0, k1);
        if observed
            .iter()
            .all(|(frame, hash)| frame.hash(key) == *hash)
        {
            return Ok(key);
        }
    }
    Err(Error::Unproven("the flow hashes of frames"))
}

/// Frames that a key is tried with: 32 bits each.
const FRAMES: usize = 16;

/// What differs between the frames.
#[derive(Clone, Copy)]
struct Frame {
    src: [u8; 4],
    dst: [u8; 4],
    ports: [u16; 2],
}

impl Frame {
    /// Random ones: what was asked before tells nothing of them.
    fn draw() -> Result<Vec<Frame>, Error> {
        let mut random = [[0; 12]; FRAMES];
        let mut source = File::open("/dev/urandom").map_err(Error::system("open /dev/urandom"))?;
        source
            .read_exact(random.as_flattened_mut())
            .map_err(Error::system("read /dev/urandom"))?;
        let frame = |[a, b, c, d, e, f, g, h, i, j, k, l]: [u8; 12]| Frame {
            src: [a, b, c, d],
            dst: [e, f, g, h],
            ports: [u16::from_be_bytes([i, j]), u16::from_be_bytes([k, l])],
        };
        Ok(random.into_iter().map(frame).collect())
    }

    /// UDP over IPv4 over Ethernet.
    fn bytes(&self) -> [u8; 60] {
        let mut bytes = [0; 60];
        bytes[12..14].copy_from_slice(&[8, 0]);
        let l3 = &mut bytes[14..];
        l3[0] = 0x45;
        l3[2..4].copy_from_slice(&46u16.to_be_bytes());
        l3[8..10].copy_from_slice(&[64, UDP]);
        l3[12..16].copy_from_slice(&self.src);
        l3[16..20].copy_from_slice(&self.dst);
        l3[20..22].copy_from_slice(&self.ports[0].to_be_bytes());
        l3[22..24].copy_from_slice(&self.ports[1].to_be_bytes());
        l3[24..26].copy_from_slice(&26u16.to_be_bytes());
        bytes
    }

    /// The kernel's flow hash of the frame by this key: as that of a path, but with the EtherType in front.
    fn hash(&self, key: HashKey) -> u32 {
        let flow = FlowKey {
            addresses: KeyAddresses::V4 {
                src: self.src.into(),
                dst: self.dst.into(),
            },
            sport: self.ports[0],
            dport: self.ports[1],
            ip_proto: UDP,
            flow_label_word: 0,
        };
        let mut hashed = [0; FlowKey::LEN4];
        hashed.copy_from_slice(flow.ordered().pack().as_ref());
        hashed[..2].copy_from_slice(&[8, 0]);
        let [k0, k1] = key.words();
        let mut siphash = SipHasher24::new_with_keys(k0, k1);
        siphash.write(&hashed);
        (siphash.finish() as u32).max(1)
    }
}

const UDP: u8 = 17;
