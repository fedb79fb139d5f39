//! The rules, one by one and against what must never be.

use proptest::prelude::*;

use super::*;

fn cut() -> impl Strategy<Value = Cut> {
    let sent = prop_oneof![Just(Sent::Nothing), Just(Sent::Part), Just(Sent::All)];
    let class = prop_oneof![
        Just(Class::ReadOnly),
        Just(Class::Slot),
        Just(Class::Write),
        Just(Class::Once),
        Just(Class::Unknown),
    ];
    (sent, class, any::<[bool; 3]>()).prop_map(|(sent, class, flags)| Cut {
        sent,
        class,
        signed: flags[0],
        answered: flags[1],
        wanted: flags[2],
    })
}

proptest! {
    #[test]
    fn nothing_that_counts_is_ever_run_twice(cut in cut()) {
        let (action, _) = decide(&cut);
        let may_have_run = cut.sent == Sent::All;
        let non_idempotent = matches!(cut.class, Class::Write | Class::Once | Class::Unknown);
        if may_have_run && non_idempotent {
            prop_assert_ne!(action, Action::Elsewhere);
        }
        // What is signed passes unchanged, and a server takes a number once.
        if may_have_run && cut.signed {
            prop_assert_ne!(action, Action::Elsewhere);
        }
        // A client that waits is either answered or told.
        prop_assert_eq!(action == Action::Drop, !cut.wanted);
    }
}

#[test]
fn rules_have_their_numbers() {
    let plain = Cut {
        sent: Sent::All,
        class: Class::Once,
        signed: false,
        answered: false,
        wanted: true,
    };
    let read = Cut {
        class: Class::ReadOnly,
        ..plain
    };
    for (cut, decided) in [
        (
            Cut {
                wanted: false,
                ..plain
            },
            (Action::Drop, 1),
        ),
        (
            Cut {
                answered: true,
                ..plain
            },
            (Action::Disconnect, 2),
        ),
        (
            Cut {
                sent: Sent::Part,
                ..plain
            },
            (Action::Elsewhere, 3),
        ),
        (
            Cut {
                signed: true,
                ..read
            },
            (Action::Disconnect, 4),
        ),
        (
            Cut {
                signed: true,
                ..plain
            },
            (Action::SamePort, 4),
        ),
        (read, (Action::Elsewhere, 5)),
        (
            Cut {
                class: Class::Write,
                ..plain
            },
            (Action::SamePort, 6),
        ),
        (plain, (Action::SamePort, 6)),
    ] {
        assert_eq!(decide(&cut), decided, "{cut:?}");
    }
}

fn way() -> impl Strategy<Value = Way> {
    any::<[bool; 2]>().prop_map(|[works, tried]| Way {
        own: false,
        works,
        tried,
    })
}

proptest! {
    /// Whatever is known, every way is tried once, no other than the own one without detours, and then
    /// somebody is blamed.
    #[test]
    fn every_way_is_tried_once(
        mut ways in proptest::collection::vec(way(), 0..6), own in 0..6_usize, silent: bool, detours: bool,
    ) {
        ways.iter_mut().for_each(|way| way.tried = false);
        let own = own.min(ways.len());
        ways.insert(own, Way { own: true, works: false, tried: false });
        let mut rules = Vec::new();
        let blame = loop {
            match next_way(silent, detours, &ways) {
                (Try::By(i), rule) => {
                    prop_assert!(!ways[i].tried);
                    prop_assert!(detours || ways[i].own);
                    ways[i].tried = true;
                    rules.push(rule);
                }
                (Try::Wait(blame), _) => break blame,
            }
        };
        prop_assert!(rules.is_sorted());
        prop_assert_eq!(ways.iter().filter(|way| way.tried).count(), if detours { ways.len() } else { 1 });
        prop_assert_eq!(blame == Blame::OwnWay, !detours);
        let works = ways.iter().any(|way| way.works);
        prop_assert!(!detours || (blame == Blame::WayBack) == works);
    }
}

#[test]
fn ways_have_their_order() {
    let own = Way {
        own: true,
        works: false,
        tried: false,
    };
    let dark = Way { own: false, ..own };
    let works = Way {
        works: true,
        ..dark
    };
    let ways = [own, dark, works];
    assert_eq!(next_way(false, true, &ways), (Try::By(0), 1));
    assert_eq!(next_way(true, true, &ways), (Try::By(2), 2));
    assert_eq!(next_way(true, true, &ways[..2]), (Try::By(1), 3));
    assert_eq!(next_way(true, false, &ways), (Try::By(0), 4));
    assert_eq!(next_way(true, true, &[]), (Try::Wait(Blame::Server), 5));
}

#[test]
fn repeats_are_rarer_and_rarer() {
    let seconds: Vec<u64> = (0..7).map(|n| repeat_after(n).as_secs()).collect();
    assert_eq!(seconds, [5, 5, 10, 20, 40, 60, 60]);
    assert_eq!(repeat_after(u32::MAX).as_secs(), 60);
}

#[test]
fn what_counts_is_sent_twice_only_by_rule() {
    use Meant::{Answer, Other, Server, Wait};
    for (progress, plain) in [
        (Progress::UnderWay, (Wait, 3)),
        (Progress::Answered(true), (Answer, 4)),
        (Progress::Answered(false), (Other, 5)),
    ] {
        for signed in [false, true] {
            let want = if signed { (Server, 2) } else { plain };
            assert_eq!(repeated(&Repeated { progress, signed }), want);
        }
    }
}

#[test]
fn what_an_earlier_process_sent_goes_from_the_same_place_or_is_another() {
    use Resume::{Other, SamePlace};
    for (age, same_port, taken, want) in [
        (0, true, false, (SamePlace, 4)),
        (119, true, false, (SamePlace, 4)),
        (120, true, false, (Other, 1)),
        (0, false, false, (Other, 2)),
        (0, true, true, (Other, 3)),
    ] {
        let left = Left {
            age: Duration::from_secs(age),
            same_port,
            taken,
        };
        assert_eq!(resumed(&left), want);
    }
}
