//! Where packets come from and go to: capture files.
//!
//! [`Reader`] reads pcap and pcapng of either byte order and any timestamp resolution, one record
//! at a time, in bounded memory; [`Writer`] writes classic pcap. Both know Ethernet only, because
//! raddle forwards Ethernet frames; anything else is an [`Error`] that says what to do.
//!
//! `-` stands for standard input or output.
//!
//! Not supported: other link types, the "modified" pcap format (magic `a1b2cd34`), pcapng's
//! obsolete Packet Block, writing pcapng, compressed files.
//!
//! ```
//! use raddle_io::{Reader, Resolution, Writer};
//!
//! # fn main() -> Result<(), raddle_io::Error> {
//! # let dir = std::env::temp_dir().join(format!("raddle-io-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir).expect("a directory for the example");
//! # let (from, to) = (dir.join("a.pcap"), dir.join("b.pcap"));
//! # Writer::create(&from, Resolution::Nano)?.finish()?;
//! let reader = Reader::open(&from)?;
//! let mut writer = Writer::create(&to, reader.resolution())?;
//! for record in reader {
//!     writer.write(&record?)?;
//! }
//! writer.finish()?;
//! # std::fs::remove_dir_all(&dir).expect("removed");
//! # Ok(())
//! # }
//! ```

mod error;
mod pcapng;
mod reader;
mod writer;

pub use error::Error;
pub use reader::Reader;
pub use writer::Writer;

/// Most bytes that one record may hold, and the snapshot length of files that we write: libpcap's
/// `MAXIMUM_SNAPLEN`, which is above every Ethernet frame and every GSO super-frame.
pub const MAX_RECORD: usize = 256 * 1024;

/// One captured frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When it was captured, in nanoseconds since 1970-01-01 UTC; 0 where the file does not tell
    /// (pcapng's Simple Packet Block).
    pub ts_ns: u64,
    /// How long the frame was on the wire, in bytes; never less than `data.len()`.
    pub original_len: u32,
    /// What was captured of it, from the destination MAC on.
    pub data: Vec<u8>,
}

impl Record {
    /// Whether the capture cut the frame short (`tcpdump -s`).
    pub fn is_truncated(&self) -> bool {
        self.data.len() < self.original_len as usize
    }
}

/// The unit of a classic pcap file's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Microseconds (magic `a1b2c3d4`).
    Micro,
    /// Nanoseconds (magic `a1b23c4d`).
    Nano,
}

impl Resolution {
    /// Nanoseconds in one unit.
    pub(crate) fn unit_ns(self) -> u64 {
        match self {
            Resolution::Micro => 1_000,
            Resolution::Nano => 1,
        }
    }
}
