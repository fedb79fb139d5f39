//! Behaviours of SIDs and encapsulations: which are followed, and which segment of the image stands for one.

use raddle_image::{Reason, segment_kind};
use raddle_rib::event::{Encap, Route};
use raddle_rib::seg6::{Behaviour, Mode, Seg6, TableRef};
use raddle_rib::{Owner, Rib, SegmentUse};

use super::super::{Out, segment_as_out};
use super::{Reference, has_carrier, is_up, metric};

/// `RTAX_HOPLIMIT`.
const HOP_LIMIT: u8 = 10;

/// A segment in the form of a neighbour; and why it is the kernel's, where it is.
pub(super) type Segment = (Out, Option<Reason>);

/// What an encapsulation comes to; an error where it is one that is left to the kernel.
pub(super) fn segment_of(
    encap: Option<&Encap>,
    owner: Owner,
    index: u32,
    (route, own): (&Route, bool),
) -> Result<Option<SegmentUse>, Reason> {
    let Some(encap) = encap else {
        return Ok(None);
    };
    let what = Seg6::parse(encap).map_err(|_| Reason::Encap)?;
    let (owner, hop_limit) = match &what {
        Seg6::Sid(sid) => match sid.behaviour {
            Behaviour::Other(_) | Behaviour::X { oif: Some(_), .. } => return Err(Reason::Encap),
            _ => (owner, 0),
        },
        Seg6::Encaps(_) => (Owner::Shared, metric(route, HOP_LIMIT).min(255) as u8),
    };
    Ok(Some(SegmentUse {
        what,
        owner,
        index,
        hop_limit,
        own,
    }))
}

impl Reference {
    /// The segment that stands for this, whichever of the route's replacements it is. None where the image has none.
    ///
    /// # Panics
    /// When it is of another kind than it shall be.
    pub(super) fn segment(&self, rib: &Rib, what: &SegmentUse) -> Option<Segment> {
        let plain = |known: &SegmentUse| {
            let mut known = known.clone();
            if let Owner::Route { generation, .. } = &mut known.owner {
                *generation = 0;
            }
            known
        };
        let mut all = rib.segments().filter(|(_, known, _)| plain(known) == *what);
        let (number, _, seen) = all.next()?;
        assert!(all.next().is_none(), "two segments for {what:?}");
        let reason = Reason::from_number(seen.reason).filter(|_| seen.kind == segment_kind::KERNEL);
        let is = reason.map_or(Ok(seen.kind), Err);
        if let Some(kind) = self.kind_of(rib, what)
            && is != Err(Reason::ImageFull)
        {
            assert_eq!(is, kind, "{what:?}");
        }
        Some((segment_as_out(number, seen.flags, seen.kind), reason))
    }

    /// What kind of segment this shall be, or why it is the kernel's; none where that hangs on headers that are not made
    /// here.
    ///
    /// 1. A SID that is an IPv6 route's is the kernel's while its link gives the route no share, unless it is raddle's own.
    /// 2. A frame leaves by an Ethernet link that is up, has carrier, may be used, and is no VLAN.
    /// 3. Any other is carried out by what it is.
    fn kind_of(&self, rib: &Rib, what: &SegmentUse) -> Option<Result<u8, Reason>> {
        let sid = match &what.what {
            Seg6::Sid(sid) => sid,
            Seg6::Encaps(encaps) => {
                let has_source = encaps.source.or(self.settings.tunsrc).is_some();
                let kind = match encaps.mode {
                    Mode::Inline => segment_kind::INSERT,
                    mode if mode.is_l2() => segment_kind::ENCAPS_L2,
                    _ => segment_kind::ENCAPS,
                };
                let is_made = has_source || encaps.mode == Mode::Inline;
                return (is_made && encaps.hmac_key().is_none()).then_some(Ok(kind));
            }
        };
        if let Owner::Route { dst, .. } = &what.owner
            && dst.addr().is_ipv6()
            && !what.own
            && !self.is_usable(what.index, true)
        {
            return Some(Err(Reason::OutLink));
        }
        Some(Ok(match &sid.behaviour {
            Behaviour::End => segment_kind::END,
            Behaviour::X { .. } => segment_kind::END_X,
            Behaviour::T { .. } => segment_kind::END_T,
            Behaviour::Dx6 { .. } => segment_kind::END_DX6,
            Behaviour::Dx4 { .. } => segment_kind::END_DX4,
            Behaviour::Dt6 {
                table: TableRef::Table(_),
            } => segment_kind::END_DT6,
            Behaviour::Dt4 {
                table: TableRef::Table(_),
            } => segment_kind::END_DT4,
            Behaviour::Dt46 {
                table: TableRef::Table(_),
            } => segment_kind::END_DT46,
            Behaviour::Dx2v { .. } => segment_kind::END_DX2V,
            Behaviour::Dx2 { oif } => {
                let link = self.links.iter().find(|link| link.index == *oif);
                let is_ready =
                    link.is_some_and(|link| is_up(link) && has_carrier(link) && link.arp_type == 1);
                let is_vlan = link.is_some_and(|link| link.kind.as_deref() == Some("vlan"));
                match (
                    is_ready && !is_vlan && rib.ports().out.contains(oif),
                    what.own,
                ) {
                    (true, _) => segment_kind::END_DX2,
                    (false, true) => return Some(Err(Reason::SegmentLink)),
                    (false, false) => return Some(Err(Reason::OutLink)),
                }
            }
            _ => return None,
        }))
    }
}
