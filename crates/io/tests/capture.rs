//! Captures: what we write and read again, what tcpdump makes of it, and what is no capture.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::io::{Cursor, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use raddle_io::{Error, MAX_RECORD, Reader, Record, Resolution, Writer};

/// A file in memory that a `Writer` can own while the test reads it.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn write(records: &[Record], resolution: Resolution) -> Vec<u8> {
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

fn open(bytes: &[u8]) -> Result<Reader, Error> {
    Reader::new(Cursor::new(bytes.to_vec()), "test.pcap")
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, Error> {
    open(bytes)?.collect()
}

fn record(ts_ns: u64, original_len: u32, data: &[u8]) -> Record {
    Record {
        ts_ns,
        original_len,
        data: data.to_vec(),
    }
}

/// The same classic file with every header word in the other byte order.
fn swapped(file: &[u8]) -> Vec<u8> {
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

/// Builds pcapng by hand, in either byte order.
struct Ng {
    big_endian: bool,
    bytes: Vec<u8>,
}

impl Ng {
    fn new(big_endian: bool) -> Ng {
        let mut ng = Ng {
            big_endian,
            bytes: Vec::new(),
        };
        ng.section();
        ng
    }

    fn word(&self, word: u32) -> [u8; 4] {
        if self.big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        }
    }

    fn half(&self, half: u16) -> [u8; 2] {
        if self.big_endian {
            half.to_be_bytes()
        } else {
            half.to_le_bytes()
        }
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> &mut Ng {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.word(body.len() as u32 + 12);
        let kind = self.word(kind);
        self.bytes
            .extend_from_slice(&[&kind[..], &length, &body, &length].concat());
        self
    }

    fn section(&mut self) -> &mut Ng {
        let body = [
            &self.word(0x1a2b_3c4d)[..],
            &self.half(1),
            &self.half(0),
            &[0xff; 8],
        ]
        .concat();
        self.block(0x0a0d_0d0a, &body)
    }

    fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut value = value.to_vec();
        let length = self.half(value.len() as u16);
        value.resize(value.len().next_multiple_of(4), 0);
        [&self.half(code)[..], &length, &value].concat()
    }

    fn interface(&mut self, link_type: u16, snaplen: u32, options: &[Vec<u8>]) -> &mut Ng {
        let mut body = [
            &self.half(link_type)[..],
            &self.half(0),
            &self.word(snaplen),
            &options.concat(),
        ]
        .concat();
        if !options.is_empty() {
            body.extend(self.option(0, &[]));
        }
        self.block(1, &body)
    }

    fn packet(&mut self, interface: u32, ts: u64, original: u32, data: &[u8]) -> &mut Ng {
        let words = [
            interface,
            (ts >> 32) as u32,
            ts as u32,
            data.len() as u32,
            original,
        ]
        .map(|w| self.word(w));
        let mut data = data.to_vec();
        data.resize(data.len().next_multiple_of(4), 0xee);
        self.block(6, &[words.as_flattened(), &data].concat())
    }

    fn simple_packet(&mut self, original: u32, data: &[u8]) -> &mut Ng {
        self.block(3, &[&self.word(original)[..], data].concat())
    }
}

/// Has tcpdump read `bytes` and write them again as classic pcap; none if it is not installed.
fn through_tcpdump(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut child = match Command::new("tcpdump")
        .args(["--nano", "-r", "-", "-w", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(_) => {
            eprintln!("skipped: {name} needs tcpdump (apt-get install tcpdump)");
            return None;
        }
    };
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "tcpdump: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(output.stdout)
}

fn frames() -> Vec<Record> {
    vec![
        record(1_700_000_000_123_456_789, 60, &[0xaa; 60]),
        record(1_700_000_000_999_999_999, 9000, &[0xbb; 96]),
        record(1_700_000_001_000_000_000, 61, &[0xcc; 61]),
    ]
}

#[test]
fn tcpdump_reads_ours_and_we_read_tcpdumps() {
    let ours = write(&frames(), Resolution::Nano);
    let Some(theirs) = through_tcpdump("tcpdump_reads_ours_and_we_read_tcpdumps", &ours) else {
        return;
    };
    let reader = open(&theirs).unwrap();
    assert_eq!(reader.resolution(), Resolution::Nano);
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), frames());
    // The other byte order, which tcpdump reads too.
    let theirs = through_tcpdump("tcpdump_swapped", &swapped(&ours)).unwrap();
    assert_eq!(read(&theirs).unwrap(), read(&swapped(&ours)).unwrap());
}

#[test]
fn tcpdump_agrees_about_pcapng() {
    for big_endian in [false, true] {
        let mut ng = Ng::new(big_endian);
        let nano = ng.option(9, &[9]);
        ng.interface(1, 262_144, &[nano]);
        for (i, frame) in frames().iter().enumerate() {
            ng.packet(0, frame.ts_ns + i as u64, frame.original_len, &frame.data);
        }
        ng.block(5, &[0; 12]).block(0x0bad, &[1, 2, 3]);
        let ours = read(&ng.bytes).unwrap();
        assert_eq!(ours.len(), 3);
        assert_eq!(ours[2].ts_ns, frames()[2].ts_ns + 2);
        let Some(theirs) = through_tcpdump("tcpdump_agrees_about_pcapng", &ng.bytes) else {
            return;
        };
        assert_eq!(read(&theirs).unwrap(), ours);
    }
}

#[test]
fn pcapng_timestamps_of_every_resolution() {
    for big_endian in [false, true] {
        let second = 1_600_000_000_u64;
        let offset = |s: i64| {
            if big_endian {
                s.to_be_bytes()
            } else {
                s.to_le_bytes()
            }
        };
        let cases: [(&[u8], i64, u64, u64); 9] = [
            (
                &[],
                0,
                second * 1_000_000 + 7,
                second * 1_000_000_000 + 7000,
            ),
            (
                &[6],
                0,
                second * 1_000_000 + 7,
                second * 1_000_000_000 + 7000,
            ),
            (
                &[3],
                0,
                second * 1_000 + 7,
                second * 1_000_000_000 + 7_000_000,
            ),
            (
                &[9],
                0,
                second * 1_000_000_000 + 7,
                second * 1_000_000_000 + 7,
            ),
            (&[12], 0, 5_000_000_007_999, 5_000_000_007),
            (
                &[0x80 | 10],
                0,
                second << 10 | 512,
                second * 1_000_000_000 + 500_000_000,
            ),
            (&[0xff], 0, u64::MAX, 0),
            (&[127], 0, u64::MAX, 0),
            (&[6], -100, 200_000_001, 100_000_001_000),
        ];
        for (resolution, seconds, ts, ns) in cases {
            let mut ng = Ng::new(big_endian);
            let mut options = vec![ng.option(14, &offset(seconds))];
            if !resolution.is_empty() {
                options.push(ng.option(9, resolution));
            }
            ng.interface(1, 0, &options).packet(0, ts, 4, b"abcd");
            assert_eq!(
                read(&ng.bytes).unwrap(),
                [record(ns, 4, b"abcd")],
                "{resolution:?}"
            );
        }
        // What lies outside the range of a u64 is cut off, not wrapped round.
        let mut ng = Ng::new(big_endian);
        let options = [ng.option(14, &offset(i64::MAX))];
        ng.interface(1, 0, &options).packet(0, 5, 1, b"x");
        let options = [ng.option(14, &offset(i64::MIN))];
        ng.interface(1, 0, &options).packet(1, 5, 1, b"x");
        let times: Vec<u64> = read(&ng.bytes).unwrap().iter().map(|r| r.ts_ns).collect();
        assert_eq!(times, [u64::MAX, 0]);
    }
}

#[test]
fn simple_packets_have_no_time_and_the_first_interfaces_snaplen() {
    let mut ng = Ng::new(false);
    ng.interface(1, 5, &[])
        .simple_packet(9, b"abcde")
        .simple_packet(3, b"xyz");
    let expected = [record(0, 9, b"abcde"), record(0, 3, b"xyz")];
    assert_eq!(read(&ng.bytes).unwrap(), expected);
}

#[test]
fn a_section_may_change_byte_order_and_forgets_the_interfaces() {
    let mut ng = Ng::new(false);
    ng.interface(1, 0, &[]).packet(0, 1, 1, b"a");
    ng.big_endian = true;
    ng.section().interface(1, 0, &[]).packet(0, 2, 1, b"b");
    assert_eq!(
        read(&ng.bytes).unwrap(),
        [record(1000, 1, b"a"), record(2000, 1, b"b")]
    );
    ng.section().packet(0, 2, 1, b"c");
    let mut reader = open(&ng.bytes).unwrap();
    let results: Vec<_> = reader.by_ref().collect();
    assert!(
        matches!(results[2], Err(Error::Malformed { record: 3, .. })),
        "{results:?}"
    );
    assert_eq!((results.len(), reader.next().is_none()), (3, true));
}

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

fn any_record() -> impl Strategy<Value = Record> {
    let time = 0..u64::from(u32::MAX) * 1_000_000_000;
    (
        time,
        any::<u16>(),
        proptest::collection::vec(any::<u8>(), 0..200),
    )
        .prop_map(|(ts_ns, more, data)| Record {
            ts_ns,
            original_len: data.len() as u32 + u32::from(more),
            data,
        })
}

proptest! {
    #[test]
    fn round_trip(records in proptest::collection::vec(any_record(), 0..20)) {
        let file = write(&records, Resolution::Nano);
        prop_assert_eq!(&read(&file).unwrap(), &records);
        prop_assert_eq!(&read(&swapped(&file)).unwrap(), &records);
        let coarse = read(&write(&records, Resolution::Micro)).unwrap();
        for (coarse, fine) in coarse.iter().zip(&records) {
            prop_assert_eq!(coarse.ts_ns, fine.ts_ns / 1000 * 1000);
            prop_assert_eq!(&coarse.data, &fine.data);
        }
    }

    #[test]
    fn pcapng_round_trip(
        records in proptest::collection::vec(any_record(), 0..20),
        big_endian: bool,
    ) {
        let mut ng = Ng::new(big_endian);
        let nano = ng.option(9, &[9]);
        ng.interface(1, 0, &[nano]);
        for record in &records {
            ng.packet(0, record.ts_ns, record.original_len, &record.data);
        }
        prop_assert_eq!(&read(&ng.bytes).unwrap(), &records);
    }

    /// Damaged files end in records or one error, never in a panic or a loop.
    #[test]
    fn damage_never_panics(
        records in proptest::collection::vec(any_record(), 1..5),
        format in 0..3,
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = write(&records, Resolution::Nano);
        if format > 0 {
            let mut ng = Ng::new(format == 2);
            let options = [ng.option(9, &[9]), ng.option(14, &[0; 8]), ng.option(2, b"eth0")];
            ng.interface(1, 0, &options).block(5, &[0; 32]).block(4, &[0; 8]);
            for record in &records {
                ng.packet(0, record.ts_ns, record.original_len, &record.data);
                ng.simple_packet(record.data.len() as u32, &record.data);
            }
            bytes = ng.bytes;
        }
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(reader) = open(&bytes) {
            let limit = bytes.len();
            prop_assert!(reader.take(limit + 1).count() <= limit);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        magic in 0_usize..5,
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let magics: [&[u8]; 5] = [
            b"",
            &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0],
            &[0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1],
            &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a],
            &[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0x1a, 0x2b, 0x3c, 0x4d],
        ];
        let bytes = [magics[magic], &bytes].concat();
        if let Ok(reader) = open(&bytes) {
            prop_assert!(reader.take(500).count() < 500);
        }
    }
}
