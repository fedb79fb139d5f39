//! pcapng: sections, interfaces and the two kinds of packet block
//! (draft-ietf-opsawg-pcapng, sections 3 and 4).

use pcap_parser::{Block, InterfaceDescriptionBlock, OptionCode, parse_block_be, parse_block_le};

use crate::reader::{ETHERNET, Input};
use crate::{Error, MAX_RECORD, Record};

/// Longest block that we take, as Wireshark does.
const MAX_BLOCK: usize = 16 * 1024 * 1024;
/// Most interfaces that one section may describe.
const MAX_INTERFACES: usize = 65_536;
/// Section Header Block.
const SECTION: u32 = 0x0a0d_0d0a;
/// Packet Block, which Enhanced Packet Blocks replaced in 2009.
const OBSOLETE_PACKET: u32 = 2;

/// The section that we are in: its byte order and the interfaces described so far.
#[derive(Default)]
pub(crate) struct Section {
    /// Whether the file's first block, whose type is already in the buffer, has been read.
    begun: bool,
    big_endian: bool,
    interfaces: Vec<Interface>,
}

/// What we need of an Interface Description Block.
struct Interface {
    link_type: u16,
    /// Most bytes captured of a packet; 0 is no limit.
    snaplen: u32,
    /// `if_tsresol`: a negative power of 10, or of 2 if the top bit is set.
    resolution: u8,
    /// `if_tsoffset`: seconds to add.
    offset: i64,
}

impl Section {
    /// Reads blocks until one holds a packet; `false` at the end of the file.
    pub(crate) fn read(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, Error> {
        while self.read_block(input)? {
            let parse = if self.big_endian {
                parse_block_be
            } else {
                parse_block_le
            };
            let (_, block) = parse(&input.buffer).map_err(|e| input.refused(e))?;
            match block {
                Block::SectionHeader(_) => self.interfaces.clear(),
                Block::InterfaceDescription(_) if self.interfaces.len() >= MAX_INTERFACES => {
                    return Err(input.malformed("more than 65536 interfaces"));
                }
                Block::InterfaceDescription(block) => {
                    self.interfaces
                        .push(Interface::new(&block, self.big_endian));
                }
                Block::EnhancedPacket(packet) => {
                    let interface = self.interface(input, packet.if_id)?;
                    let captured = packet.caplen as usize;
                    let data = checked(input, packet.data, captured)?;
                    let ts = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                    record.set(interface.nanoseconds(ts), packet.origlen, data);
                    return Ok(true);
                }
                Block::SimplePacket(packet) => {
                    let snaplen = match self.interface(input, 0)?.snaplen {
                        0 => u32::MAX,
                        limit => limit,
                    };
                    let captured = packet.origlen.min(snaplen) as usize;
                    record.set(0, packet.origlen, checked(input, packet.data, captured)?);
                    return Ok(true);
                }
                Block::Unknown(block) if self.type_of(block.block_type) == OBSOLETE_PACKET => {
                    return Err(input.unsupported("pcapng's obsolete Packet Blocks"));
                }
                // Names, statistics, secrets, journal entries and custom blocks hold no packets.
                _ => {}
            }
        }
        Ok(false)
    }

    /// Reads exactly one block into the input's buffer; `false` at the end of the file.
    fn read_block(&mut self, input: &mut Input) -> Result<bool, Error> {
        // The reader has already taken the first block's type to tell the file formats apart.
        let have = if self.begun {
            input.fill(8)?
        } else {
            4 + input.more(4)?
        };
        self.begun = true;
        match have {
            0 => return Ok(false),
            8 => {}
            _ => return Err(input.cut_short()),
        }
        let mut head = 8;
        if word(&input.buffer, 0, false) == SECTION {
            if input.more(4)? < 4 {
                return Err(input.cut_short());
            }
            head = 12;
            self.big_endian = match word(&input.buffer, 8, false) {
                0x1a2b_3c4d => false,
                0x4d3c_2b1a => true,
                _ => return Err(input.malformed("a section without a byte-order magic")),
            };
        }
        let length = word(&input.buffer, 4, self.big_endian) as usize;
        if length < head + 4 || !length.is_multiple_of(4) {
            return Err(input.malformed("a block's length is impossible"));
        }
        if length > MAX_BLOCK {
            return Err(input.malformed("a block is longer than 16 MiB"));
        }
        if input.more(length - head)? < length - head {
            return Err(input.cut_short());
        }
        if word(&input.buffer, length - 4, self.big_endian) as usize != length {
            return Err(input.malformed("a block's two lengths differ"));
        }
        Ok(true)
    }

    /// The interface of a packet, which must be known and Ethernet.
    fn interface(&self, input: &Input, id: u32) -> Result<&Interface, Error> {
        match self.interfaces.get(id as usize) {
            None => Err(input.malformed("a packet of an interface that was not described")),
            Some(interface) if u32::from(interface.link_type) != ETHERNET => {
                Err(input.link_type(u32::from(interface.link_type)))
            }
            Some(interface) => Ok(interface),
        }
    }

    /// A block type that `pcap-parser` read as little-endian, in the section's byte order.
    fn type_of(&self, block_type: u32) -> u32 {
        if self.big_endian {
            block_type.swap_bytes()
        } else {
            block_type
        }
    }
}

impl Interface {
    fn new(block: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Interface {
        // pcap-parser 0.17 reads the offset as little-endian in any file, so we read it.
        let offset = block
            .options
            .iter()
            .find(|o| o.code == OptionCode::IfTsoffset);
        let offset = offset
            .and_then(|o| o.value.get(..8)?.try_into().ok())
            .unwrap_or([0; 8]);
        Interface {
            link_type: block.linktype.0 as u16,
            snaplen: block.snaplen,
            resolution: block.if_tsresol,
            offset: if big_endian {
                i64::from_be_bytes(offset)
            } else {
                i64::from_le_bytes(offset)
            },
        }
    }

    /// A packet's timestamp in nanoseconds, cut off at 0 and at `u64::MAX` (the year 2554).
    fn nanoseconds(&self, ts: u64) -> u64 {
        let ts = i128::from(ts);
        let power = u32::from(self.resolution & 0x7f);
        let ns = if self.resolution & 0x80 != 0 {
            (ts * 1_000_000_000) >> power
        } else if power <= 9 {
            ts * 10_i128.pow(9 - power)
        } else {
            10_i128.checked_pow(power - 9).map_or(0, |unit| ts / unit)
        };
        let ns = ns + i128::from(self.offset) * 1_000_000_000;
        ns.clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// The first `captured` of a packet block's bytes, which padding may follow.
fn checked<'a>(input: &Input, data: &'a [u8], captured: usize) -> Result<&'a [u8], Error> {
    if captured > MAX_RECORD {
        return Err(input.malformed("more than 262144 bytes captured"));
    }
    data.get(..captured)
        .ok_or_else(|| input.malformed("a packet is longer than its block"))
}

/// The 32-bit word at `at`; 0 beyond the end, which no caller asks for.
fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let bytes = bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .unwrap_or([0; 4]);
    if big_endian {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    }
}
