//! What can go wrong with a capture file.

use std::io;

/// Why a capture cannot be read or written: which file, which record (counted from 1), what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened or created.
    #[error("{file}: {source}")]
    Open {
        /// The file's name.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Reading failed half-way.
    #[error("{file}: cannot read record {record}: {source}")]
    Read {
        /// The file's name.
        file: String,
        /// The record that was due.
        record: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// Writing failed, now or when buffered records were written out.
    #[error("{file}: cannot write: {source}")]
    Write {
        /// The file's name.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The file does not begin as pcap or pcapng does.
    #[error(
        "{file}: not a capture file: it begins with neither pcap's nor pcapng's magic; \
         unpack it first if it is compressed (zcat FILE | raddle ... -)"
    )]
    NotACapture {
        /// The file's name.
        file: String,
    },
    /// A kind of capture that we do not read, though others do.
    #[error("{file}: {what} are not supported; convert it with `editcap -F nsecpcap IN OUT`")]
    Unsupported {
        /// The file's name.
        file: String,
        /// What it holds.
        what: &'static str,
    },
    /// The frames are not Ethernet.
    #[error(
        "{file}: record {record}: link type {link_type}, but only Ethernet (1) can be forwarded; \
         capture on one Ethernet interface (not `-i any`)"
    )]
    LinkType {
        /// The file's name.
        file: String,
        /// The record; 0 when the file's header already says it.
        record: u64,
        /// `LINKTYPE_*` as the file tells it.
        link_type: u32,
    },
    /// The file ends in the middle of a record. All records before it were good.
    #[error(
        "{file}: the file ends within record {record}; it was cut short or is still written to"
    )]
    CutShort {
        /// The file's name.
        file: String,
        /// The incomplete record.
        record: u64,
    },
    /// A record or block contradicts the file format.
    #[error("{file}: record {record} is damaged: {what}; what comes before it was good")]
    Malformed {
        /// The file's name.
        file: String,
        /// The record that was due.
        record: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A record to write does not fit the format.
    #[error("{file}: cannot write record {record}: {what}")]
    Unwritable {
        /// The file's name.
        file: String,
        /// The record.
        record: u64,
        /// What does not fit.
        what: &'static str,
    },
}
