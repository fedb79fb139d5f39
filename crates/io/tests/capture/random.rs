//! Drawn records there and back, and damaged files.

use proptest::prelude::*;
use raddle_io::{Record, Resolution};

use crate::files::{open, read, swapped, write};
use crate::ng::Ng;

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
