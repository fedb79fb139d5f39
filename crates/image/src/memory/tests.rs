//! What is written is read again.

use super::*;

#[test]
fn records_survive_memory() {
    let memory = Memory::heap(&Capacity {
        adjacencies: 4,
        ..Capacity::default()
    });
    let adj = Adjacency {
        index: 9,
        state: ADJ_FORWARD,
        mtu: 1500,
        ..Adjacency::default()
    };
    store(&memory.adjacencies, 3, &adj);
    assert_eq!(memory.adjacency(3), adj);
    assert_eq!(memory.adjacency(4).state, ADJ_KERNEL);
}

#[test]
fn segments_survive_memory() {
    let memory = Memory::heap(&Capacity {
        segments: 5,
        ..Capacity::default()
    });
    assert!(!memory.has_segments());
    let segment = Segment {
        kind: segment_kind::END_X,
        table4: 3,
        table6: 4,
        target: std::array::from_fn(|byte| byte as u8 + 1),
        ..Segment::default()
    };
    memory.store_segment(4, &segment);
    assert_eq!(memory.segment(4), segment);
    assert_eq!(memory.segment(3), Segment::default());
    assert!(memory.has_segments());
    let without = Segment {
        kind: segment_kind::END_T,
        ..segment
    };
    memory.store_segment(4, &without);
    assert_eq!(memory.segment(4).target, [0; 16]);
    assert_eq!(memory.segment(4).table6, 4);
    assert_eq!(memory.segment(1 << 20).kind, segment_kind::KERNEL);
    memory.reset(|| {});
    assert!(!memory.has_segments());
    let words = memory.segment_targets.words().iter();
    assert!(
        words
            .into_iter()
            .all(|word| word.load(Ordering::Relaxed) == 0)
    );
}
