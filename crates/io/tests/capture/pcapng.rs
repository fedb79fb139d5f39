//! Time, sections and packets of pcapng.

use raddle_io::Error;

use crate::files::{open, read, record};
use crate::ng::Ng;

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
