//! What is no capture, is cut short, lies about its lengths, or cannot be written; and files on disk.

use raddle_io::{Error, MAX_RECORD, Reader, Record, Resolution, Writer};

use crate::files::{Memory, frames, open, read, record, write};
use crate::ng::Ng;

#[test]
fn what_is_no_capture_says_so() {
    for bytes in [
        &b""[..],
        b"\xd4",
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
        b"hello, world, hello",
    ] {
        let error = read(bytes).unwrap_err();
        assert!(matches!(error, Error::NotACapture { .. }), "{error}");
        assert!(
            error
                .to_string()
                .starts_with("test.pcap: not a capture file"),
            "{error}"
        );
    }
    let error = read(&[0x34, 0xcd, 0xb2, 0xa1, 0, 0]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = Reader::open("/nonexistent.pcap").err().unwrap();
    assert_eq!(
        error.to_string(),
        "/nonexistent.pcap: No such file or directory (os error 2)"
    );
    let error = Writer::create("/nonexistent/a.pcap", Resolution::Nano)
        .err()
        .unwrap();
    assert!(matches!(error, Error::Open { .. }), "{error}");
}

#[test]
fn link_types_other_than_ethernet_are_refused() {
    let mut file = write(&frames(), Resolution::Micro);
    file[20] = 113;
    let error = read(&file).unwrap_err();
    assert!(
        matches!(
            error,
            Error::LinkType {
                record: 0,
                link_type: 113,
                ..
            }
        ),
        "{error}"
    );
    // Frame check sequence flags in the upper half do not make it another link type.
    file[20..24].copy_from_slice(&[1, 0, 0, 0x24]);
    assert_eq!(read(&file).unwrap().len(), 3);
    // pcapng: only where a packet comes from such an interface.
    let mut ng = Ng::new(true);
    ng.interface(1, 0, &[])
        .interface(276, 0, &[])
        .packet(0, 1, 1, b"a")
        .packet(1, 1, 1, b"b");
    let error = read(&ng.bytes).unwrap_err();
    assert!(
        matches!(
            error,
            Error::LinkType {
                record: 2,
                link_type: 276,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_file_that_was_cut_short_gives_what_is_whole() {
    let file = write(&frames(), Resolution::Nano);
    let mut ng = Ng::new(false);
    ng.interface(1, 0, &[]);
    for frame in frames() {
        ng.packet(0, frame.ts_ns, frame.original_len, &frame.data);
    }
    for bytes in [&file, &ng.bytes] {
        for length in 4..bytes.len() {
            let Ok(reader) = open(&bytes[..length]) else {
                continue;
            };
            let results: Vec<_> = reader.collect();
            let whole = results.iter().filter(|r| r.is_ok()).count();
            match results.last() {
                Some(Err(error)) => {
                    let due = whole as u64 + 1;
                    assert!(
                        matches!(error, Error::CutShort { record, .. } if *record == due),
                        "{error}"
                    );
                }
                _ => assert!(whole < 3, "{length}"),
            }
        }
    }
}

#[test]
fn lengths_that_lie_are_errors_and_cost_no_memory() {
    let mut file = write(&frames(), Resolution::Nano);
    file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = read(&file).unwrap_err();
    assert!(
        matches!(error, Error::Malformed { record: 1, .. }),
        "{error}"
    );
    for (length, captured) in [(u32::MAX, 4), (8, 4), (33, 4), (36, u32::MAX - 2), (36, 5)] {
        let mut ng = Ng::new(false);
        ng.interface(1, 0, &[]);
        let block = ng.bytes.len();
        ng.packet(0, 1, 4, b"abcd");
        ng.bytes[block + 4..block + 8].copy_from_slice(&length.to_le_bytes());
        ng.bytes[block + 20..block + 24].copy_from_slice(&captured.to_le_bytes());
        let error = read(&ng.bytes).unwrap_err();
        assert!(
            matches!(error, Error::Malformed { record: 1, .. }),
            "{length} {captured} {error}"
        );
    }
    let mut ng = Ng::new(false);
    ng.interface(1, 0, &[]).block(2, &[0; 20]);
    let error = read(&ng.bytes).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn what_does_not_fit_is_not_written() {
    let memory = Memory::default();
    let mut writer = Writer::new(memory.clone(), "out.pcap", Resolution::Nano).unwrap();
    let error = writer
        .write(&record(0, 0, &vec![0; MAX_RECORD + 1]))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("out.pcap: cannot write record 1: "),
        "{error}"
    );
    assert!(writer.write(&record(1 << 62, 1, b"x")).is_err());
    writer.write(&record(0, 0, &vec![7; MAX_RECORD])).unwrap();
    writer.finish().unwrap();
    let bytes = memory.0.lock().unwrap().clone();
    assert_eq!(
        read(&bytes).unwrap(),
        [record(0, MAX_RECORD as u32, &vec![7; MAX_RECORD])]
    );
    // A full disk is told by `write` or, for what was still buffered, by `finish`.
    let mut writer = Writer::create("/dev/full", Resolution::Nano).unwrap();
    writer.write(&record(0, 1, b"x")).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("/dev/full: cannot write: No space left"),
        "{error}"
    );
}

#[test]
fn files_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pcap");
    let mut writer = Writer::create(&path, Resolution::Micro).unwrap();
    for frame in frames() {
        writer.write(&frame).unwrap();
    }
    writer.finish().unwrap();
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.resolution(), Resolution::Micro);
    let records: Vec<Record> = reader.map(Result::unwrap).collect();
    assert_eq!(records[0].ts_ns, 1_700_000_000_123_456_000);
    assert_eq!(
        records.iter().map(Record::is_truncated).collect::<Vec<_>>(),
        [false, true, false]
    );
}
