//! What engines count.

/// Packets and bytes. Bytes count whole frames, from the destination MAC on, without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Frames.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Counter {
    fn add_assign(&mut self, other: Counter) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

impl std::ops::Sub for Counter {
    type Output = Counter;

    fn sub(self, other: Counter) -> Counter {
        Counter {
            packets: self.packets.wrapping_sub(other.packets),
            bytes: self.bytes.wrapping_sub(other.bytes),
        }
    }
}
