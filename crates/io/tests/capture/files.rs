//! Records, and files in memory that hold them.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use raddle_io::{Error, Reader, Record, Resolution, Writer};

/// A file in memory that a `Writer` can own while the test reads it.
#[derive(Clone, Default)]
pub(crate) struct Memory(pub(crate) Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn write(records: &[Record], resolution: Resolution) -> Vec<u8> {
    let memory = Memory::default();
    let mut writer = Writer::new(memory.clone(), "memory", resolution).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    assert_eq!(writer.records(), records.len() as u64);
    writer.finish().unwrap();
    let bytes = memory.0.lock().unwrap();
    bytes.clone()
}

pub(crate) fn open(bytes: &[u8]) -> Result<Reader, Error> {
    Reader::new(Cursor::new(bytes.to_vec()), "test.pcap")
}

pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Record>, Error> {
    open(bytes)?.collect()
}

pub(crate) fn record(ts_ns: u64, original_len: u32, data: &[u8]) -> Record {
    Record {
        ts_ns,
        original_len,
        data: data.to_vec(),
    }
}

/// The same classic file with every header word in the other byte order.
pub(crate) fn swapped(file: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let swap = |out: &mut Vec<u8>, word: &[u8]| out.extend(word.iter().rev());
    for range in [0..4, 4..6, 6..8, 8..12, 12..16, 16..20, 20..24] {
        swap(&mut out, &file[range]);
    }
    let mut at = 24;
    while at < file.len() {
        for i in 0..4 {
            swap(&mut out, &file[at + 4 * i..at + 4 * i + 4]);
        }
        let captured = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        out.extend_from_slice(&file[at + 16..at + 16 + captured]);
        at += 16 + captured;
    }
    out
}

pub(crate) fn frames() -> Vec<Record> {
    vec![
        record(1_700_000_000_123_456_789, 60, &[0xaa; 60]),
        record(1_700_000_000_999_999_999, 9000, &[0xbb; 96]),
        record(1_700_000_001_000_000_000, 61, &[0xcc; 61]),
    ]
}
