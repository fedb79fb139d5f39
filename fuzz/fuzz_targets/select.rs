//! Flow keys of any packet, and groups of any weights: the fast forms give what the rules give.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use raddle_select::{
    Family, HashConfig, Hasher, MAX_HASH, Seed, choose_group, choose_plain, compile_threshold,
    explain_packet, keys_of_packet, search, upper_bounds,
};

fuzz_target!(|data: &[u8]| {
    let Some((&mode, rest)) = data.split_first() else {
        return;
    };
    if mode & 0x80 == 0 {
        packet(mode, rest);
    } else {
        // Too few bytes are no group.
        let _ = group(&mut Unstructured::new(rest));
    }
});

fn packet(mode: u8, l3: &[u8]) {
    let family = if mode & 4 == 0 {
        Family::V4
    } else {
        Family::V6
    };
    let fields = u32::from(mode & 0x70) << 4 | 0x0d3;
    let (Some(config), Some(seed)) = (HashConfig::kernel(mode & 3, fields), Seed::new(0x1234_abcd))
    else {
        return;
    };
    let config = HashConfig {
        icmp_follows_flow: mode & 8 != 0,
        ..config
    };
    let keys = keys_of_packet(&config, family, l3);
    let explained = explain_packet(&config, seed, family, l3);
    match (keys, explained) {
        (Ok(keys), Ok(explained)) => {
            assert_eq!(Hasher::new(seed).hash31(&keys), explained.hash31);
            // Both directions of a flow hash alike.
            for key in explained.keys {
                let hasher = Hasher::new(seed);
                assert_eq!(hasher.hash32(&key.key.ordered()), key.hash32);
            }
        }
        (Err(a), Err(b)) => assert_eq!(a, b),
        (keys, explained) => panic!("{keys:?} {explained:?}"),
    }
}

fn group(u: &mut Unstructured<'_>) -> Result<()> {
    let good: u64 = u.arbitrary()?;
    let hash: u32 = u.arbitrary::<u32>()? & MAX_HASH;
    let wide: bool = u.arbitrary()?;
    let mut weights: Vec<Option<u32>> = Vec::new();
    while !u.is_empty() && weights.len() < 64 {
        weights.push(match (u.arbitrary()?, wide) {
            (0u8, _) => None,
            (_, true) => Some(u.arbitrary()?),
            (n, false) => Some(n.into()),
        });
    }
    let uppers = upper_bounds(&weights);
    let good = |member: usize| good >> member & 1 != 0;
    let list = compile_threshold(&uppers, good);
    assert!(list.is_sorted_by(|a, b| a.0 < b.0), "{list:?}");
    assert!(list.last().is_none_or(|last| last.0 == MAX_HASH));
    let bounds: Vec<u32> = list.iter().map(|(upper, _)| *upper).collect();
    // A group's members all have bounds.
    let all: Option<Vec<u32>> = uppers.iter().copied().collect();
    let edges = uppers
        .iter()
        .flatten()
        .flat_map(|upper| [*upper, upper.wrapping_add(1) & MAX_HASH]);
    for hash in edges.chain([hash, 0, MAX_HASH]) {
        let fast = (!list.is_empty()).then(|| list[search(&bounds, hash)].1);
        let plain = choose_plain(&uppers, good, hash).map(|choice| choice.member);
        assert_eq!(fast, plain, "{hash} of {uppers:?}");
        if let Some(all) = &all {
            let group = choose_group(all, good, hash).map(|choice| choice.member);
            assert_eq!(fast, group, "{hash} of {uppers:?}");
        }
    }
    Ok(())
}
