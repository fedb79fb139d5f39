//! `hashrnd`: the key of the flow dissector. Kernels before 6.11 choose among paths by it, and all make the hash by it that
//! packets get for receive packet steering.

use std::fs::File;
use std::io::{BufReader, Read};

use raddle_select::{Brought, Family, HashKey, software_hash};

use crate::bpf::{self, FlowHash};
use crate::code;
use crate::error::Error;
use crate::privilege;
use crate::symbols;

const SYMBOLS: &str = "/proc/kallsyms";

/// Functions in whose code the key's address is, and the end of all code: what lies behind it is data.
const FUNCTIONS: [&str; 5] = [
    "flow_hash_from_keys",
    "__skb_get_hash",
    "__skb_get_hash_net",
    "__skb_get_hash_symmetric",
    "__skb_get_hash_symmetric_net",
];
const END_OF_CODE: &str = "_etext";
/// How much of a function's code is read: in steps of 8 times 32 bytes.
const STEPS: u64 = 4;

/// Reads the key and proves it.
///
/// 1. It is looked for where the symbols of that name are; where there are none (a kernel without
///    `CONFIG_KALLSYMS_ALL`), at each address of data in the code of the functions that use it.
/// 2. It is the one by which the kernel makes the hashes of random frames, in all their bits.
pub(crate) fn read() -> Result<HashKey, Error> {
    let places = symbols::data(kallsyms()?, "hashrnd").map_err(UNREADABLE)?;
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
    let fits = |key| {
        observed
            .iter()
            .all(|(frame, hash)| frame.hash(key) == Some(*hash))
    };
    let by_symbol = !places.is_empty();
    let places = match by_symbol {
        true => places,
        false => in_code()?,
    };
    for place in places {
        // What only looks like an address may lead nowhere.
        match bpf::read::<2>(Some(place), &[0]) {
            Ok([k0, k1]) if fits(HashKey::new(k0, k1)) => return Ok(HashKey::new(k0, k1)),
            Err(e) if by_symbol => return Err(e),
            Ok(_) | Err(_) => {}
        }
    }
    Err(match by_symbol {
        true => Error::Unproven("the flow hashes of frames"),
        false => Error::NoSymbol,
    })
}

const UNREADABLE: fn(std::io::Error) -> Error = |e| Error::system("read /proc/kallsyms")(e);

fn kallsyms() -> Result<BufReader<File>, Error> {
    let file = File::open(SYMBOLS).map_err(Error::system("open /proc/kallsyms"))?;
    Ok(BufReader::with_capacity(1 << 16, file))
}

/// Addresses of data in the code of the functions that use the key.
fn in_code() -> Result<Vec<u64>, Error> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Error::NoSymbol);
    }
    let mut names = FUNCTIONS.to_vec();
    names.push(END_OF_CODE);
    let symbols = symbols::code(kallsyms()?, &names).map_err(UNREADABLE)?;
    if symbols.iter().any(|(_, address)| *address == 0) {
        privilege::require(&[privilege::SYSLOG])?;
        return Err(Error::NoSymbol);
    }
    let end = symbols.iter().find(|(name, _)| name == END_OF_CODE);
    let Some((_, end)) = end else {
        return Err(Error::NoSymbol);
    };
    let mut found = Vec::new();
    for (_, start) in symbols.iter().filter(|(name, _)| name != END_OF_CODE) {
        let mut bytes = Vec::new();
        for step in 0..STEPS {
            let words = bpf::read::<32>(Some(start + 256 * step), &[0])?;
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        found.extend(code::operands(&bytes, *start, |address| address >= *end));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
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

    /// The kernel's hash of the frame by this key.
    fn hash(&self, key: HashKey) -> Option<u32> {
        match software_hash(key, Family::V4, &self.bytes()[14..]) {
            Brought::Hash { hash, .. } => Some(hash),
            Brought::Nothing | Brought::Unknown(_) => None,
        }
    }
}

const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// An IP header, what it says comes next, and more of it.
    fn headers() -> impl Strategy<Value = (Family, Vec<u8>)> {
        let v4 = (
            any::<[u8; 8]>(),
            prop_oneof![9 => Just(0u16), 1 => any::<u16>()],
        )
            .prop_map(|(ends, fragment)| {
                let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0];
                header[6..8].copy_from_slice(&fragment.to_be_bytes());
                header.extend(ends);
                (Family::V4, header)
            });
        let v6 = (any::<[u8; 32]>(), prop_oneof![Just(0u32), 0u32..1 << 20]).prop_map(
            |(ends, label)| {
                let mut header = (6 << 28 | label).to_be_bytes().to_vec();
                header.extend([0, 0, 0, 64]);
                header.extend(ends);
                (Family::V6, header)
            },
        );
        prop_oneof![v4, v6]
    }

    fn packet() -> impl Strategy<Value = (Family, Vec<u8>)> {
        let next = prop::sample::select(vec![
            6u8, 17, 1, 58, 132, 33, 136, 50, 51, 47, 4, 41, 0, 44, 60,
        ]);
        let tunnel = prop::sample::select(vec![[0, 0], [0x20, 0], [0xb0, 0], [0x30, 1], [0, 1]]);
        let stack = prop::collection::vec((headers(), tunnel), 1..4);
        (stack, next, any::<[u8; 48]>()).prop_map(|(stack, last, payload)| {
            let mut bytes = Vec::new();
            let mut behind = stack
                .iter()
                .skip(1)
                .map(|((family, _), _)| *family)
                .peekable();
            for ((family, header), gre) in &stack {
                let inside = behind.next();
                let mut header = header.clone();
                let by_gre = gre[0] != 0;
                let next = match inside {
                    None => last,
                    Some(_) if by_gre => 47,
                    Some(Family::V4) => 4,
                    Some(Family::V6) => 41,
                };
                header[if *family == Family::V4 { 9 } else { 6 }] = next;
                bytes.extend(header);
                let Some(inside) = inside else { continue };
                if by_gre {
                    bytes.extend(gre);
                    bytes.extend(match (gre[1], inside) {
                        (1, _) => [0x88, 0x0b],
                        (_, Family::V4) => [8, 0],
                        (_, Family::V6) => [0x86, 0xdd],
                    });
                    for bit in [0x80, 0x20, 0x10] {
                        if gre[0] & bit != 0 {
                            bytes.extend([0x5a, bit, 3, 4]);
                        }
                    }
                    if gre[1] == 1 {
                        bytes.extend([0xff, 3, 0, if inside == Family::V4 { 0x21 } else { 0x57 }]);
                    }
                }
            }
            bytes.extend(payload);
            (stack[0].0.0, bytes)
        })
    }

    /// What is computed of packets of all kinds is what the kernel gives them.
    #[test]
    fn the_kernel_gives_packets_these_hashes() {
        let (key, kernel) = match (read(), FlowHash::load()) {
            (Ok(key), Ok(kernel)) => (key, kernel),
            (Err(e), _) | (_, Err(e)) => return eprintln!("skipped: {e}"),
        };
        let (hashed, all) = (Cell::new(0), Cell::new(0));
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 4000,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let tried = runner.run(&packet(), |(family, l3)| {
            let mut frame = vec![2; 12];
            frame.extend(match family {
                Family::V4 => [8, 0],
                Family::V6 => [0x86, 0xdd],
            });
            frame.extend(&l3);
            all.set(all.get() + 1);
            if let Brought::Hash { hash, .. } = software_hash(key, family, &l3) {
                hashed.set(hashed.get() + 1);
                prop_assert_eq!(kernel.of(&frame).unwrap(), hash);
            }
            Ok(())
        });
        tried.unwrap();
        let (hashed, all) = (hashed.get(), all.get());
        assert!(hashed > 1000, "{hashed} of {all} have a hash over ports");
    }
}
