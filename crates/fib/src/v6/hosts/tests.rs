use super::*;

#[test]
fn hosts_are_found_where_they_were_put() {
    let hosts: Vec<(Host, Value)> = (1..10_000u32)
        .map(|i| (Host::of(u128::from(i.wrapping_mul(0x9e37_79b1)) << 96), i))
        .collect();
    let lines = (hosts.len() * 3 / 2).div_ceil(LINE_SLOTS) as u32;
    let words = spread_over(&hosts, lines).unwrap();
    let at = |i: usize| words[i];
    let mut longest = 0;
    for &(host, value) in &hosts {
        let (slot, found) = find(at, lines, host).unwrap();
        assert_eq!(found, Slot::Found(Some(value)));
        let line = slot / LINE_SLOTS;
        longest = longest.max(line - line_of(host, lines) as usize);
    }
    assert!(longest < MAX_LINES, "{longest}");
    let absent = Host { high: 1, low: 1 };
    assert!(matches!(find(at, lines, absent), Some((_, Slot::Empty))));
}

#[test]
fn lines_are_inside_and_cache_lines() {
    for at in (2..64).step_by(2) {
        let first = first_line(at);
        assert!(first > at + 1 && first.is_multiple_of(LINE_WORDS));
        assert!(first + 5 * LINE_WORDS + BEHIND <= at + hosts_words(5) as usize);
    }
}
