//! Reading captures, a record at a time.
//!
//! We frame records and blocks ourselves and hand `pcap-parser` exactly one at a time: a length
//! field that lies is then an error about that record, not a reason to buffer more of the file.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use pcap_parser::PcapError;

use crate::pcapng::Section;
use crate::{Error, MAX_RECORD, Record, Resolution};

/// The only link type that can be forwarded (`LINKTYPE_ETHERNET`).
pub(crate) const ETHERNET: u32 = 1;
/// Bytes of a classic pcap file's header.
const FILE_HEADER: usize = 24;
/// Bytes of a classic pcap record's header.
const RECORD_HEADER: usize = 16;
/// pcapng's Section Header Block type, the same in both byte orders.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Reads a capture, record by record; an iterator of `Result<Record, Error>` that ends after the
/// first error.
///
/// Memory is bounded by the longest block (at most 16 MiB, usually a few KiB) and, for pcapng, by
/// the number of its interfaces (at most 65,536).
pub struct Reader {
    input: Input,
    format: Format,
    done: bool,
}

/// What the file's first bytes said.
enum Format {
    /// Classic pcap: byte order and timestamp unit.
    Classic {
        big_endian: bool,
        resolution: Resolution,
    },
    /// pcapng: the section we are in.
    Ng(Section),
}

impl Reader {
    /// Opens `path`, or standard input when it is `-`, and reads the file's header.
    ///
    /// # Errors
    /// [`Error::Open`], and as [`Reader::new`].
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, Error> {
        let path = path.as_ref();
        if path == Path::new("-") {
            return Reader::new(io::stdin(), "standard input");
        }
        let file = path.display().to_string();
        match File::open(path) {
            Ok(input) => Reader::new(input, &file),
            Err(source) => Err(Error::Open { file, source }),
        }
    }

    /// Reads a capture from `input`; errors call it `name`. This is what a fuzz target drives.
    ///
    /// # Errors
    /// [`Error::NotACapture`] when the magic is unknown, [`Error::Unsupported`] for formats that
    /// are known but not read, [`Error::LinkType`] when a classic file is not of Ethernet,
    /// [`Error::CutShort`] and [`Error::Read`].
    pub fn new(input: impl Read + Send + 'static, name: &str) -> Result<Reader, Error> {
        let mut input = Input {
            read: BufReader::with_capacity(64 * 1024, Box::new(input)),
            name: name.to_owned(),
            record: 1,
            buffer: Vec::new(),
        };
        let format = match input.fill(4)? {
            4 if input.buffer[..] == SECTION => Format::Ng(Section::default()),
            4 => classic(&mut input)?,
            _ => return Err(Error::NotACapture { file: input.name }),
        };
        Ok(Reader {
            input,
            format,
            done: false,
        })
    }

    /// The resolution that loses nothing when the records are written to a classic pcap file.
    pub fn resolution(&self) -> Resolution {
        match self.format {
            Format::Classic { resolution, .. } => resolution,
            Format::Ng(_) => Resolution::Nano,
        }
    }

    /// Reads the next record into `record`, reusing its buffer; `false` at the end of the file.
    /// For callers that cannot afford an allocation for each record, as the iterator makes.
    ///
    /// # Errors
    /// Any but the opening ones; nothing can be read after an error.
    pub fn read(&mut self, record: &mut Record) -> Result<bool, Error> {
        if self.done {
            return Ok(false);
        }
        let result = match &mut self.format {
            Format::Classic {
                big_endian,
                resolution,
            } => read_classic(&mut self.input, *big_endian, *resolution, record),
            Format::Ng(section) => section.read(&mut self.input, record),
        };
        self.done = !matches!(result, Ok(true));
        self.input.record += 1;
        result
    }
}

impl Iterator for Reader {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = Record::default();
        match self.read(&mut record) {
            Ok(true) => Some(Ok(record)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// Reads the rest of a classic file's header; its magic is in the buffer.
fn classic(input: &mut Input) -> Result<Format, Error> {
    if input.buffer[..] == [0x34, 0xcd, 0xb2, 0xa1] || input.buffer[..] == [0xa1, 0xb2, 0xcd, 0x34]
    {
        return Err(Error::Unsupported {
            file: input.name.clone(),
            what: "files in the \"modified\" pcap format",
        });
    }
    let not_a_capture = |input: &Input| Error::NotACapture {
        file: input.name.clone(),
    };
    if !pcap_magic(&input.buffer) {
        return Err(not_a_capture(input));
    }
    if input.more(FILE_HEADER - 4)? < FILE_HEADER - 4 {
        return Err(input.cut_short());
    }
    let (_, header) =
        pcap_parser::parse_pcap_header(&input.buffer).map_err(|_| not_a_capture(input))?;
    // The upper half tells whether frames end with their check sequence, which we treat as padding.
    let link_type = header.network.0 as u32 & 0xffff;
    if link_type != ETHERNET {
        return Err(Error::LinkType {
            file: input.name.clone(),
            record: 0,
            link_type,
        });
    }
    let resolution = if header.is_nanosecond_precision() {
        Resolution::Nano
    } else {
        Resolution::Micro
    };
    Ok(Format::Classic {
        big_endian: header.is_bigendian(),
        resolution,
    })
}

/// Whether these four bytes begin a classic pcap file that we read.
fn pcap_magic(bytes: &[u8]) -> bool {
    let Ok(magic) = bytes.try_into().map(u32::from_le_bytes) else {
        return false;
    };
    [0xa1b2_c3d4, 0xa1b2_3c4d]
        .iter()
        .any(|&m: &u32| magic == m || magic == m.swap_bytes())
}

/// Reads one record of a classic file.
fn read_classic(
    input: &mut Input,
    big_endian: bool,
    resolution: Resolution,
    record: &mut Record,
) -> Result<bool, Error> {
    match input.fill(RECORD_HEADER)? {
        0 => return Ok(false),
        RECORD_HEADER => {}
        _ => return Err(input.cut_short()),
    }
    let word = |at: usize| {
        let bytes = [0, 1, 2, 3].map(|i| input.buffer[at + i]);
        if big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    };
    let captured = word(8) as usize;
    if captured > MAX_RECORD {
        return Err(input.malformed("more than 262144 bytes captured"));
    }
    if input.more(captured)? < captured {
        return Err(input.cut_short());
    }
    let parse = if big_endian {
        pcap_parser::parse_pcap_frame_be
    } else {
        pcap_parser::parse_pcap_frame
    };
    let (_, frame) = parse(&input.buffer).map_err(|e| input.refused(e))?;
    // A fraction of a second or more happens in files by old tools; it just adds up.
    let seconds = u64::from(frame.ts_sec) * 1_000_000_000;
    record.set(
        seconds + u64::from(frame.ts_usec) * resolution.unit_ns(),
        frame.origlen,
        frame.data,
    );
    Ok(true)
}

impl Record {
    /// Fills in what was read.
    pub(crate) fn set(&mut self, ts_ns: u64, original_len: u32, data: &[u8]) {
        self.ts_ns = ts_ns;
        // Some tools write an original length of 0, or that of the payload only.
        self.original_len = original_len.max(data.len() as u32);
        self.data.clear();
        self.data.extend_from_slice(data);
    }
}

/// The byte stream, what it is called, and how far we are.
pub(crate) struct Input {
    read: BufReader<Box<dyn Read + Send>>,
    name: String,
    /// The record that is due, from 1.
    record: u64,
    /// The record or block at hand.
    pub(crate) buffer: Vec<u8>,
}

impl Input {
    /// Starts a new record: reads up to `count` bytes into the emptied buffer.
    pub(crate) fn fill(&mut self, count: usize) -> Result<usize, Error> {
        self.buffer.clear();
        self.more(count)
    }

    /// Reads up to `count` bytes more; fewer only at the end of the file. The buffer grows with
    /// what is really there, not with what a length field promises.
    pub(crate) fn more(&mut self, count: usize) -> Result<usize, Error> {
        let mut limited = self.read.by_ref().take(count as u64);
        limited
            .read_to_end(&mut self.buffer)
            .map_err(|source| Error::Read {
                file: self.name.clone(),
                record: self.record,
                source,
            })
    }

    pub(crate) fn cut_short(&self) -> Error {
        Error::CutShort {
            file: self.name.clone(),
            record: self.record,
        }
    }

    pub(crate) fn malformed(&self, what: &'static str) -> Error {
        Error::Malformed {
            file: self.name.clone(),
            record: self.record,
            what,
        }
    }

    pub(crate) fn unsupported(&self, what: &'static str) -> Error {
        Error::Unsupported {
            file: self.name.clone(),
            what,
        }
    }

    pub(crate) fn link_type(&self, link_type: u32) -> Error {
        Error::LinkType {
            file: self.name.clone(),
            record: self.record,
            link_type,
        }
    }

    /// `pcap-parser` would not take the bytes of one whole record: they contradict themselves.
    pub(crate) fn refused<T>(&self, _: pcap_parser::nom::Err<PcapError<T>>) -> Error {
        self.malformed("its lengths contradict each other")
    }
}
