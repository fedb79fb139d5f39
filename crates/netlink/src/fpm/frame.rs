//! Frames of FPM: a header of 4 bytes (version, type, length in network byte order with the header in it), and
//! netlink messages.

/// Bytes of the header.
const HEADER: usize = 4;
/// The version that there is (`FPM_PROTO_VERSION`).
const VERSION: u8 = 1;
/// The payload is netlink (`FPM_MSG_TYPE_NETLINK`).
const NETLINK: u8 = 1;
/// The payload is protobuf (`FPM_MSG_TYPE_PROTOBUF`).
const PROTOBUF: u8 = 2;

/// Why a stream is no stream of frames that we understand. Where the next one begins is not known then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another version.
    #[error("it speaks version {0} of FPM, and only 1 is known")]
    Version(u8),
    /// The other encoding of FRR's older module.
    #[error("it sends protobuf: start zebra with -M dplane_fpm_nl, or -M fpm:netlink")]
    Protobuf,
    /// Another kind of payload.
    #[error("it sends messages of type {0}, and only netlink (1) is known")]
    Kind(u8),
    /// Shorter than its own header.
    #[error("a frame of {0} bytes cannot be: its header has 4")]
    Length(u16),
}

/// Bytes of a stream, cut into frames.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
    /// Where the first frame that has not been taken begins.
    start: usize,
}

impl Frames {
    /// Adds what came next, in pieces of any size. Holds a frame (64 KiB) and one piece at most, if all frames
    /// are taken between.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The payload of the next frame, if it is there as a whole.
    ///
    /// # Errors
    /// [`FrameError`]; nothing behind it can be trusted.
    pub fn take(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some(&[version, kind, high, low]) = rest.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        match kind {
            NETLINK => {}
            PROTOBUF => return Err(FrameError::Protobuf),
            kind => return Err(FrameError::Kind(kind)),
        }
        let length = u16::from_be_bytes([high, low]);
        let Some(payload) = usize::from(length).checked_sub(HEADER) else {
            return Err(FrameError::Length(length));
        };
        let Some(frame) = rest[HEADER..].get(..payload) else {
            return Ok(None);
        };
        self.start += HEADER + payload;
        Ok(Some(frame))
    }

    /// Forgets what has come: another stream begins.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(payload: &[u8]) -> Vec<u8> {
        let length = (HEADER + payload.len()) as u16;
        [&[VERSION, NETLINK][..], &length.to_be_bytes(), payload].concat()
    }

    proptest! {
        /// Frames come out as they went in, wherever the stream is cut.
        #[test]
        fn a_stream_may_be_cut_anywhere(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            cuts in proptest::collection::vec(1..50usize, 1..40),
        ) {
            let stream: Vec<u8> = payloads.iter().flat_map(|payload| framed(payload)).collect();
            let (mut frames, mut got, mut rest) = (Frames::default(), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                let (piece, behind) = rest.split_at((*cut).min(rest.len()));
                rest = behind;
                frames.push(piece);
                while let Some(frame) = frames.take().unwrap() {
                    got.push(frame.to_vec());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, payloads);
        }
    }

    #[test]
    fn what_is_no_frame_is_named() {
        for (bytes, error) in [
            ([2, 1, 0, 4], FrameError::Version(2)),
            ([1, 2, 0, 4], FrameError::Protobuf),
            ([1, 3, 0, 4], FrameError::Kind(3)),
            ([1, 1, 0, 3], FrameError::Length(3)),
        ] {
            let mut frames = Frames::default();
            frames.push(&bytes);
            assert_eq!(frames.take(), Err(error));
        }
    }

    /// The longest frame that there can be is one.
    #[test]
    fn the_longest_frame_fits() {
        let mut frames = Frames::default();
        let longest = vec![7; usize::from(u16::MAX) - HEADER];
        frames.push(&framed(&longest));
        assert_eq!(frames.take().unwrap(), Some(&longest[..]));
        assert_eq!(frames.take(), Ok(None));
    }
}
