//! VLAN tags, as engines tell them apart.

/// What a VLAN is upon a link: the tag of its frames without priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vlan {
    /// EtherType 0x88a8 (802.1ad, a service tag) instead of 0x8100 (802.1Q).
    pub service: bool,
    /// VLAN identifier, 0 to 4095.
    pub id: u16,
}

impl Vlan {
    /// EtherType of 802.1Q.
    pub const CUSTOMER: u16 = 0x8100;
    /// EtherType of 802.1ad.
    pub const SERVICE: u16 = 0x88a8;

    /// Of this EtherType and tag control information, priorities and all; none of another EtherType.
    pub fn of(ether_type: u16, tci: u16) -> Option<Vlan> {
        let service = match ether_type {
            Vlan::CUSTOMER => false,
            Vlan::SERVICE => true,
            _ => return None,
        };
        let id = tci & 0xfff;
        Some(Vlan { service, id })
    }

    /// Its tag with priority 0, as [`crate::Adjacency::tag`] has it.
    pub fn tag(self) -> u32 {
        let ether_type = match self.service {
            false => Vlan::CUSTOMER,
            true => Vlan::SERVICE,
        };
        u32::from(ether_type) << 16 | u32::from(self.id & 0xfff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_and_made() {
        assert_eq!(Vlan::of(0x0800, 5), None);
        let vlan = Vlan::of(0x88a8, 0xe005).unwrap();
        let service = true;
        assert_eq!(vlan, Vlan { service, id: 5 });
        assert_eq!(vlan.tag(), 0x88a8_0005);
    }
}
