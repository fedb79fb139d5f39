//! Frames of any headers for the generator.

use std::net::Ipv6Addr;

/// Bytes of the destination MAC address, which is written apart.
const MAC: usize = 6;
/// `LONG_WORDS` of `bpf/bench.h`.
const WORDS: usize = 24;
/// Words of `struct long_traffic` before the frame's.
const HEAD: usize = 2;
const TRAFFIC_PORTS: u64 = 2;
const TRAFFIC_DESTINATIONS: u64 = 4;

/// A frame that is sent again and again, with another source port each time, and, where there is a
/// list, to its destinations in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    frame: Vec<u8>,
    port_at: u8,
    destinations: Vec<Ipv6Addr>,
}

/// The frame is too short or too long for the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the generator takes frames of 62 to 198 bytes, this one has {0}")]
pub struct TooLong(pub usize);

impl Template {
    /// A frame, to which zeros are added until the generator can take it (whole words of 8 bytes), and
    /// the place of the port in it.
    ///
    /// # Errors
    /// When it is shorter than 54 or longer than 198 bytes.
    pub fn new(mut frame: Vec<u8>, port_at: u8) -> Result<Template, TooLong> {
        let words = frame.len().saturating_sub(MAC).div_ceil(8);
        if !(7..=WORDS).contains(&words) {
            return Err(TooLong(frame.len()));
        }
        frame.resize(MAC + words * 8, 0);
        Ok(Template {
            frame,
            port_at,
            destinations: Vec::new(),
        })
    }

    /// The same to these destinations in turn: those of the first IPv6 header.
    pub fn to_each(mut self, destinations: Vec<Ipv6Addr>) -> Template {
        self.destinations = destinations;
        self
    }

    /// The frame as it is before it is varied.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Where the source port is in it.
    pub fn port_at(&self) -> usize {
        self.port_at.into()
    }

    /// Bytes of a frame.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// The destinations, as `struct destination`.
    pub(super) fn destination_words(&self) -> impl Iterator<Item = [u64; 2]> + '_ {
        self.destinations.iter().map(|to| {
            let both = u128::from_le_bytes(to.octets());
            [both as u64, (both >> 64) as u64]
        })
    }

    /// `struct long_traffic`, as far as it is not zero.
    pub(super) fn words(&self) -> [u64; HEAD + WORDS] {
        let little_endian = |bytes: &[u8]| {
            let both = bytes.iter().rev();
            both.fold(0, |word, &byte| word << 8 | u64::from(byte))
        };
        let mut words = [0; HEAD + WORDS];
        let rest = self.frame[MAC..].chunks_exact(8);
        words[0] = little_endian(&self.frame[..MAC]) | (rest.len() as u64) << 48;
        words[1] = TRAFFIC_PORTS | u64::from(self.port_at) << 32;
        if !self.destinations.is_empty() {
            words[1] |= TRAFFIC_DESTINATIONS;
        }
        for (word, bytes) in words[HEAD..].iter_mut().zip(rest) {
            *word = little_endian(bytes);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_words() {
        let template = Template::new((0..97).collect(), 60).unwrap();
        assert_eq!(template.len(), 102);
        let words = template.words();
        assert_eq!(words[0], 12 << 48 | 0x0504_0302_0100);
        assert_eq!(words[1], 60 << 32 | TRAFFIC_PORTS);
        assert_eq!(words[2], 0x0d0c_0b0a_0908_0706);
        assert_eq!(words[13], 0x60_5f5e, "the last bytes, and zeros");
        assert_eq!(Template::new(vec![0; 199], 0), Err(TooLong(199)));
        assert!(Template::new(vec![0; 198], 0).is_ok());
    }

    #[test]
    fn destinations_are_a_list() {
        let template = Template::new(vec![0; 70], 0).unwrap();
        let template = template.to_each(vec!["5f00::1".parse().unwrap()]);
        assert_eq!(template.destination_words().next(), Some([0x5f, 1 << 56]));
        assert_eq!(template.words()[1] & TRAFFIC_DESTINATIONS, 4);
    }
}
