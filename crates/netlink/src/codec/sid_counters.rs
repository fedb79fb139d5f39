//! `SEG6_LOCAL_COUNTERS`: what a SID has counted, in the attributes of its encapsulation.

use super::build::Builder;
use super::wire::Attributes;
use super::{DecodeError, NESTED};

/// `SEG6_LOCAL_COUNTERS`.
const SEG6_LOCAL_COUNTERS: u16 = 10;
const SEG6_LOCAL_CNT_PACKETS: u16 = 2;
const SEG6_LOCAL_CNT_BYTES: u16 = 3;
const SEG6_LOCAL_CNT_ERRORS: u16 = 4;

/// What a SID has counted (`seg6_local_update_counters`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidCounters {
    /// Packets that the behaviour was carried out on.
    pub packets: u64,
    /// Their bytes: IPv6 header and payload as they reached the SID.
    pub bytes: u64,
    /// Packets that it was not carried out on.
    pub errors: u64,
}

impl SidCounters {
    /// Reads the counters among the attributes of a `seg6local` encapsulation; `None` where it has none.
    ///
    /// # Errors
    /// When the attributes are cut short, or a counter is not of 64 bits.
    pub fn find(encap: &[u8]) -> Result<Option<SidCounters>, DecodeError> {
        for attribute in Attributes::new(encap) {
            let nest = attribute?;
            if nest.kind != SEG6_LOCAL_COUNTERS {
                continue;
            }
            let mut counters = SidCounters::default();
            for attribute in Attributes::new(nest.payload) {
                let a = attribute?;
                match a.kind {
                    SEG6_LOCAL_CNT_PACKETS => counters.packets = a.u64("SEG6_LOCAL_CNT_PACKETS")?,
                    SEG6_LOCAL_CNT_BYTES => counters.bytes = a.u64("SEG6_LOCAL_CNT_BYTES")?,
                    SEG6_LOCAL_CNT_ERRORS => counters.errors = a.u64("SEG6_LOCAL_CNT_ERRORS")?,
                    _ => {}
                }
            }
            return Ok(Some(counters));
        }
        Ok(None)
    }

    /// The attributes of a `seg6local` encapsulation with these counters in the place of those that it
    /// has, or where the kernel has them: attributes are in the order of their numbers
    /// (`seg6_local_fill_encap`), without padding (`nla_put_u64_64bit` where the machine needs none).
    ///
    /// # Errors
    /// When the attributes are cut short.
    pub fn put(self, encap: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut b = Builder::new();
        b.begin(0, 0, &[]);
        let head = b.as_bytes().len();
        let mut due = Some(self);
        for attribute in Attributes::new(encap) {
            let a = attribute?;
            if a.kind >= SEG6_LOCAL_COUNTERS
                && let Some(counters) = due.take()
            {
                counters.append(&mut b);
            }
            if a.kind != SEG6_LOCAL_COUNTERS {
                // Whether an attribute is said to be nested is not kept by the walk; the kernel says so
                // of the flavours.
                let nested = if a.kind == SEG6_LOCAL_FLAVORS {
                    NESTED
                } else {
                    0
                };
                b.put(a.kind | nested, a.payload);
            }
        }
        if let Some(counters) = due {
            counters.append(&mut b);
        }
        Ok(b.as_bytes()[head..].to_vec())
    }

    fn append(self, b: &mut Builder) {
        let nest = b.open(SEG6_LOCAL_COUNTERS | NESTED);
        b.put_u64(SEG6_LOCAL_CNT_PACKETS, self.packets);
        b.put_u64(SEG6_LOCAL_CNT_BYTES, self.bytes);
        b.put_u64(SEG6_LOCAL_CNT_ERRORS, self.errors);
        b.close(nest);
    }
}

impl std::ops::Add for SidCounters {
    type Output = SidCounters;

    fn add(self, other: SidCounters) -> SidCounters {
        SidCounters {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
            errors: self.errors.wrapping_add(other.errors),
        }
    }
}

/// `SEG6_LOCAL_FLAVORS`.
const SEG6_LOCAL_FLAVORS: u16 = 11;

#[cfg(test)]
mod tests {
    use super::*;

    /// `encap seg6local action End count flavors psp`, as Linux 6.18 dumps it.
    fn dumped(packets: u64) -> Vec<u8> {
        let mut bytes = vec![8, 0, 1, 0, 1, 0, 0, 0, 40, 0, 10, 0x80];
        for (number, value) in [(2u16, packets), (3, 400), (4, 5)] {
            bytes.extend(12u16.to_le_bytes());
            bytes.extend(number.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend([12, 0, 11, 0x80, 8, 0, 1, 0, 2, 0, 0, 0]);
        bytes
    }

    const COUNTED: SidCounters = SidCounters {
        packets: 3,
        bytes: 400,
        errors: 5,
    };

    #[test]
    #[cfg(target_endian = "little")]
    fn counters_are_read_and_written_as_the_kernel_writes_them() {
        assert_eq!(SidCounters::find(&dumped(3)).unwrap(), Some(COUNTED));
        assert_eq!(COUNTED.put(&dumped(0)).unwrap(), dumped(3));
        let mut without = dumped(3);
        without.drain(8..48);
        assert_eq!(SidCounters::find(&without).unwrap(), None);
        assert_eq!(COUNTED.put(&without).unwrap(), dumped(3));
        let end = [8, 0, 1, 0, 1, 0, 0, 0];
        assert_eq!(COUNTED.put(&end).unwrap(), dumped(3)[..48]);
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let whole = dumped(1);
        for length in [13, 30, 47] {
            assert!(SidCounters::find(&whole[..length]).is_err(), "{length}");
            assert!(COUNTED.put(&whole[..length]).is_err(), "{length}");
        }
    }
}
