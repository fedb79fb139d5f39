//! `encap seg6local`: what a SID of this machine does.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Seg6Error;
use super::attributes::{Attributes, put, put_nested};
use super::encaps::{checked, segments_of, srh};
use raddle_image::{flavours, segment_kind as kind};

/// `SEG6_LOCAL_*`.
mod attribute {
    pub(super) const ACTION: u16 = 1;
    pub(super) const SRH: u16 = 2;
    pub(super) const TABLE: u16 = 3;
    pub(super) const NH4: u16 = 4;
    pub(super) const NH6: u16 = 5;
    pub(super) const OIF: u16 = 7;
    pub(super) const VRFTABLE: u16 = 9;
    pub(super) const COUNTERS: u16 = 10;
    pub(super) const FLAVORS: u16 = 11;
    /// Ours: what End.DX2V sends where, [`super::VLAN_LEN`] bytes each.
    pub(super) const VLANS: u16 = 0x1001;
    /// Ours: End.B6.Encaps.Red.
    pub(super) const REDUCED: u16 = 0x1002;
}

/// `SEG6_LOCAL_CNT_*`.
const COUNTERS: [u16; 3] = [2, 3, 4];
/// `SEG6_LOCAL_FLV_OPERATION`.
const OPERATION: u16 = 1;
/// `SEG6_LOCAL_FLV_LCBLOCK_BITS`.
const BLOCK_BITS: u16 = 2;
/// `SEG6_LOCAL_FLV_LCNODE_FN_BITS`.
const CSID_BITS: u16 = 3;
/// VLAN, two zeros, out-link.
const VLAN_LEN: usize = 8;

/// Which table a behaviour looks in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableRef {
    /// The table with this number.
    Table(u32),
    /// That of the VRF whose table has this number; the packet comes in by the VRF then.
    Vrf(u32),
}

impl TableRef {
    /// The table's number.
    pub fn number(self) -> u32 {
        match self {
            TableRef::Table(number) | TableRef::Vrf(number) => number,
        }
    }
}

/// What a SID does (RFC 8986, section 4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Behaviour {
    /// `End`.
    End,
    /// `End.X`.
    X {
        /// The neighbour.
        nh6: Ipv6Addr,
        /// The link that it is on, where it is said.
        oif: Option<u32>,
    },
    /// `End.T`.
    T {
        /// Table.
        table: u32,
    },
    /// `End.DX2`.
    Dx2 {
        /// Out-link.
        oif: u32,
    },
    /// `End.DX2V`: out-links by VLAN, ascending. The kernel has none.
    Dx2v {
        /// VLAN (0..=4094) and out-link.
        vlans: Vec<(u16, u32)>,
    },
    /// `End.DX6`; `::` for the inner destination.
    Dx6 {
        /// The neighbour.
        nh6: Ipv6Addr,
    },
    /// `End.DX4`; `0.0.0.0` for the inner destination.
    Dx4 {
        /// The neighbour.
        nh4: Ipv4Addr,
    },
    /// `End.DT6`.
    Dt6 {
        /// Table.
        table: TableRef,
    },
    /// `End.DT4`; the kernel has it with a VRF only.
    Dt4 {
        /// Table.
        table: TableRef,
    },
    /// `End.DT46`; the kernel has it with a VRF only.
    Dt46 {
        /// Table of both families.
        table: TableRef,
    },
    /// `End.B6.Insert`.
    B6 {
        /// A valid SRH with room for the packet's destination.
        srh: Vec<u8>,
    },
    /// `End.B6.Encaps`, `End.B6.Encaps.Red`.
    B6Encaps {
        /// A valid SRH, not reduced.
        srh: Vec<u8>,
        /// Whether it is reduced before it is sent. The kernel does not have that.
        reduced: bool,
    },
    /// One that engines do not know, such as `End.BPF` (15): the kernel's.
    Other(u32),
}

/// A SID of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sid {
    /// What it does.
    pub behaviour: Behaviour,
    /// Flavours as they are configured ([`flavours`]). The kernel heeds not all of them, see
    /// [`Sid::kernel_flavours`].
    pub flavours: u8,
    /// With compressed SIDs: length of the locator block in bits, a multiple of 8; otherwise 0.
    pub block: u8,
    /// With compressed SIDs: length of node and function in bits, a multiple of 8; otherwise 0.
    pub csid: u8,
    /// Whether it counts.
    pub counters: bool,
}

impl Behaviour {
    /// `End.B6.Insert` with these segments, in the order of travel.
    ///
    /// # Errors
    /// [`Seg6Error`] without any segment, or with more than 126.
    pub fn b6(segments: &[Ipv6Addr]) -> Result<Behaviour, Seg6Error> {
        let srh = srh(segments, true)?;
        Ok(Behaviour::B6 { srh })
    }

    /// `End.B6.Encaps` or, `reduced`, `End.B6.Encaps.Red` with these segments, in the order of travel.
    ///
    /// # Errors
    /// [`Seg6Error`] without any segment, or with more than 127.
    pub fn b6_encaps(segments: &[Ipv6Addr], reduced: bool) -> Result<Behaviour, Seg6Error> {
        let srh = srh(segments, false)?;
        Ok(Behaviour::B6Encaps { srh, reduced })
    }

    /// Its number: `SEG6_LOCAL_ACTION_*`, or that of [`kind`] where the kernel has none.
    pub fn number(&self) -> u32 {
        u32::from(match self {
            Behaviour::End => kind::END,
            Behaviour::X { .. } => kind::END_X,
            Behaviour::T { .. } => kind::END_T,
            Behaviour::Dx2 { .. } => kind::END_DX2,
            Behaviour::Dx2v { .. } => kind::END_DX2V,
            Behaviour::Dx6 { .. } => kind::END_DX6,
            Behaviour::Dx4 { .. } => kind::END_DX4,
            Behaviour::Dt6 { .. } => kind::END_DT6,
            Behaviour::Dt4 { .. } => kind::END_DT4,
            Behaviour::Dt46 { .. } => kind::END_DT46,
            Behaviour::B6 { .. } => kind::END_B6,
            Behaviour::B6Encaps { .. } => kind::END_B6_ENCAPS,
            Behaviour::Other(number) => return *number,
        })
    }

    /// iproute2's name, and for what it lacks RFC 8986's; none for one that has no name.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            Behaviour::End => "End",
            Behaviour::X { .. } => "End.X",
            Behaviour::T { .. } => "End.T",
            Behaviour::Dx2 { .. } => "End.DX2",
            Behaviour::Dx2v { .. } => "End.DX2V",
            Behaviour::Dx6 { .. } => "End.DX6",
            Behaviour::Dx4 { .. } => "End.DX4",
            Behaviour::Dt6 { .. } => "End.DT6",
            Behaviour::Dt4 { .. } => "End.DT4",
            Behaviour::Dt46 { .. } => "End.DT46",
            Behaviour::B6 { .. } => "End.B6",
            Behaviour::B6Encaps { reduced: false, .. } => "End.B6.Encaps",
            Behaviour::B6Encaps { reduced: true, .. } => "End.B6.Encaps.Red",
            Behaviour::Other(15) => "End.BPF",
            Behaviour::Other(_) => return None,
        })
    }

    /// The segments that it adds, in the order of travel; none for those that add none.
    pub fn segments(&self) -> Vec<Ipv6Addr> {
        match self {
            Behaviour::B6 { srh } | Behaviour::B6Encaps { srh, .. } => segments_of(srh),
            _ => Vec::new(),
        }
    }
}

impl Sid {
    /// A SID that counts, of no flavour.
    pub fn new(behaviour: Behaviour) -> Sid {
        Sid {
            behaviour,
            flavours: 0,
            block: 0,
            csid: 0,
            counters: true,
        }
    }

    /// The flavours that the kernel heeds: PSP or NEXT-C-SID of End, and where there are both the
    /// latter (`seg6_end_flavors`); NEXT-C-SID of End.X. It takes flavours of other behaviours, too, and
    /// does nothing about them.
    pub fn kernel_flavours(&self) -> u8 {
        let next = self.flavours & flavours::NEXT_CSID;
        match self.behaviour {
            Behaviour::End if next == 0 => self.flavours & flavours::PSP,
            Behaviour::End | Behaviour::X { .. } => next,
            _ => 0,
        }
    }

    pub(super) fn parse(data: &[u8]) -> Result<Sid, Seg6Error> {
        let attributes = Attributes(data);
        let number = attributes.u32(attribute::ACTION, "the action")?;
        let number = number.ok_or(Seg6Error::Missing("the action"))?;
        let behaviour = behaviour(number, attributes)?;
        let mut sid = Sid {
            behaviour,
            flavours: 0,
            block: 0,
            csid: 0,
            counters: attributes.find(attribute::COUNTERS).is_some(),
        };
        if let Some(inner) = attributes.find(attribute::FLAVORS) {
            sid.read_flavours(Attributes(inner))?;
        }
        Ok(sid)
    }

    fn read_flavours(&mut self, inner: Attributes<'_>) -> Result<(), Seg6Error> {
        const COMPRESSED: u8 = flavours::NEXT_CSID | flavours::REPLACE_CSID;
        let operations = inner.u32(OPERATION, "the flavours")?;
        self.flavours = operations.ok_or(Seg6Error::Missing("flavours"))? as u8;
        if self.flavours & COMPRESSED != 0 {
            self.block = inner.u8(BLOCK_BITS, "lblen")?.unwrap_or(32);
            self.csid = inner.u8(CSID_BITS, "nflen")?.unwrap_or(16);
            let fits = |bits: u8| (8..=120).contains(&bits) && bits.is_multiple_of(8);
            let (block, csid) = (self.block, self.csid);
            if !fits(block) || !fits(csid) || u16::from(block) + u16::from(csid) > 128 {
                return Err(Seg6Error::Csid { block, csid });
            }
        }
        Ok(())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let word = |out: &mut Vec<u8>, number, value: u32| put(out, number, &value.to_ne_bytes());
        word(&mut out, attribute::ACTION, self.behaviour.number());
        match &self.behaviour {
            Behaviour::End | Behaviour::Other(_) => {}
            Behaviour::X { nh6, oif } => {
                put(&mut out, attribute::NH6, &nh6.octets());
                if let Some(oif) = oif {
                    word(&mut out, attribute::OIF, *oif);
                }
            }
            Behaviour::T { table } => word(&mut out, attribute::TABLE, *table),
            Behaviour::Dx2 { oif } => word(&mut out, attribute::OIF, *oif),
            Behaviour::Dx2v { vlans } => put(&mut out, attribute::VLANS, &vlan_bytes(vlans)),
            Behaviour::Dx6 { nh6 } => put(&mut out, attribute::NH6, &nh6.octets()),
            Behaviour::Dx4 { nh4 } => put(&mut out, attribute::NH4, &nh4.octets()),
            Behaviour::Dt6 { table } | Behaviour::Dt4 { table } | Behaviour::Dt46 { table } => {
                let number = match table {
                    TableRef::Table(_) => attribute::TABLE,
                    TableRef::Vrf(_) => attribute::VRFTABLE,
                };
                word(&mut out, number, table.number());
            }
            Behaviour::B6 { srh } => put(&mut out, attribute::SRH, srh),
            Behaviour::B6Encaps { srh, reduced } => {
                put(&mut out, attribute::SRH, srh);
                if *reduced {
                    put(&mut out, attribute::REDUCED, &[]);
                }
            }
        }
        if self.counters {
            let mut inner = Vec::new();
            for number in COUNTERS {
                put(&mut inner, number, &[0; 8]);
            }
            put_nested(&mut out, attribute::COUNTERS, &inner);
        }
        if self.flavours != 0 {
            let mut inner = Vec::new();
            word(&mut inner, OPERATION, self.flavours.into());
            if self.block != 0 {
                put(&mut inner, BLOCK_BITS, &[self.block]);
                put(&mut inner, CSID_BITS, &[self.csid]);
            }
            put_nested(&mut out, attribute::FLAVORS, &inner);
        }
        out
    }
}

/// The behaviour of this number with what these attributes say.
fn behaviour(number: u32, from: Attributes<'_>) -> Result<Behaviour, Seg6Error> {
    let nh6 = || {
        let nh6 = from.array::<16>(attribute::NH6, "nh6")?;
        nh6.map(Ipv6Addr::from).ok_or(Seg6Error::Missing("nh6"))
    };
    let table = || match (
        from.u32(attribute::TABLE, "table")?,
        from.u32(attribute::VRFTABLE, "vrftable")?,
    ) {
        (Some(_), Some(_)) => Err(Seg6Error::TwoTables),
        (Some(table), None) => Ok(TableRef::Table(table)),
        (None, Some(table)) => Ok(TableRef::Vrf(table)),
        (None, None) => Err(Seg6Error::Missing("table")),
    };
    let srh = || {
        let srh = from.find(attribute::SRH).ok_or(Seg6Error::Missing("srh"))?;
        checked(srh.to_vec())
    };
    Ok(match u8::try_from(number).unwrap_or(0) {
        kind::END => Behaviour::End,
        kind::END_X => Behaviour::X {
            nh6: nh6()?,
            oif: from.u32(attribute::OIF, "oif")?.filter(|oif| *oif != 0),
        },
        kind::END_T => Behaviour::T {
            table: from
                .u32(attribute::TABLE, "table")?
                .ok_or(Seg6Error::Missing("table"))?,
        },
        kind::END_DX2 => Behaviour::Dx2 {
            oif: from
                .u32(attribute::OIF, "oif")?
                .ok_or(Seg6Error::Missing("oif"))?,
        },
        kind::END_DX2V => Behaviour::Dx2v {
            vlans: vlans(from.find(attribute::VLANS).unwrap_or_default())?,
        },
        kind::END_DX6 => Behaviour::Dx6 { nh6: nh6()? },
        kind::END_DX4 => Behaviour::Dx4 {
            nh4: from
                .array::<4>(attribute::NH4, "nh4")?
                .map(Ipv4Addr::from)
                .ok_or(Seg6Error::Missing("nh4"))?,
        },
        kind::END_DT6 => Behaviour::Dt6 { table: table()? },
        kind::END_DT4 => Behaviour::Dt4 { table: table()? },
        kind::END_DT46 => Behaviour::Dt46 { table: table()? },
        kind::END_B6 => Behaviour::B6 { srh: srh()? },
        kind::END_B6_ENCAPS => Behaviour::B6Encaps {
            srh: srh()?,
            reduced: from.find(attribute::REDUCED).is_some(),
        },
        _ => Behaviour::Other(number),
    })
}

fn vlan_bytes(vlans: &[(u16, u32)]) -> Vec<u8> {
    let bytes = |(vlan, out): &(u16, u32)| {
        let mut bytes = [0; VLAN_LEN];
        bytes[..2].copy_from_slice(&vlan.to_ne_bytes());
        bytes[4..].copy_from_slice(&out.to_ne_bytes());
        bytes
    };
    vlans.iter().flat_map(bytes).collect()
}

/// The reverse, ascending by VLAN and each VLAN once.
fn vlans(bytes: &[u8]) -> Result<Vec<(u16, u32)>, Seg6Error> {
    let (entries, rest) = bytes.as_chunks::<VLAN_LEN>();
    if !rest.is_empty() || entries.is_empty() {
        return Err(Seg6Error::Length {
            what: "the list of VLANs",
            length: bytes.len(),
        });
    }
    let mut vlans: Vec<(u16, u32)> = entries
        .iter()
        .map(|&[a, b, _, _, c, d, e, f]| {
            (
                u16::from_ne_bytes([a, b]) & 0xfff,
                u32::from_ne_bytes([c, d, e, f]),
            )
        })
        .collect();
    vlans.sort_unstable();
    vlans.dedup_by_key(|(vlan, _)| *vlan);
    Ok(vlans)
}

/// See [`super::forget_counters`].
pub(super) fn forget_counters(data: &mut [u8]) {
    let places: Vec<(usize, usize)> = Attributes(data)
        .iter()
        .filter(|(number, _, _)| *number == attribute::COUNTERS)
        .flat_map(|(_, begin, inner)| {
            Attributes(inner)
                .iter()
                .filter(|(number, _, _)| COUNTERS.contains(number))
                .map(move |(_, at, value)| (begin + at, value.len()))
        })
        .collect();
    for (begin, length) in places {
        data[begin..begin + length].fill(0);
    }
}
