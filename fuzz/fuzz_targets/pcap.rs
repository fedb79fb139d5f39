//! Any bytes as a capture file: every record is sound, and survives being written.
#![no_main]

use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex, PoisonError};

use libfuzzer_sys::fuzz_target;
use raddle_io::{Error, MAX_RECORD, Reader, Record, Resolution, Writer};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guard.clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guard.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = Reader::new(Cursor::new(data.to_vec()), "input") else {
        return;
    };
    let mut records: Vec<Record> = Vec::new();
    let mut record = Record::default();
    loop {
        match reader.read(&mut record) {
            Ok(true) => {
                assert!(record.data.len() <= MAX_RECORD);
                assert!(record.data.len() <= record.original_len as usize);
                assert!(!record.is_truncated() || record.data.len() < record.original_len as usize);
                records.push(record.clone());
            }
            Ok(false) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                // Nothing comes behind an error.
                assert!(matches!(reader.read(&mut record), Ok(false)));
                break;
            }
        }
    }
    if let Err(error) = rewrite(&records) {
        panic!("{error}");
    }
});

/// Writes the records and reads them back.
fn rewrite(records: &[Record]) -> Result<(), Error> {
    let file = Shared::default();
    let mut writer = Writer::new(file.clone(), "output", Resolution::Nano)?;
    let mut written = Vec::new();
    for record in records {
        match writer.write(record) {
            Ok(()) => written.push(record.clone()),
            // Years that classic pcap cannot tell.
            Err(Error::Unwritable { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    writer.finish()?;
    let back: Result<Vec<Record>, Error> =
        Reader::new(Cursor::new(file.bytes()), "output")?.collect();
    assert_eq!(back?, written);
    Ok(())
}
