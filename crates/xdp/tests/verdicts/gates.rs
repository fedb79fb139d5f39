//! What is asked of every frame: steps P1 to P5; and links that do not exist.

use raddle_image::{Reason, link_flags};
use raddle_xdp::{Engine, Error, LoadOptions, Verdict};

use crate::bench::{bent, packet4, set_up, to6};
use raddle_xdp_testing::bench::SEED;
use raddle_xdp_testing::engines::monotonic;
use raddle_xdp_testing::image::config;
use raddle_xdp_testing::image::small;
use raddle_xdp_testing::net::{in_namespace, index_of};

#[test]
fn gates() {
    in_namespace("gates", || {
        let b = set_up();
        let frame = packet4();
        b.forward(&frame, 0);
        let mut held = config(SEED, 1, 1);
        held.magic = 0;
        b.memory.store_config(&held);
        b.kernel(&frame, Reason::Held);
        held = config(SEED, 1, 1);
        held.flags |= 1;
        b.memory.store_config(&held);
        b.kernel(&frame, Reason::Held);
        held = config(SEED, 1, 1);
        held.deadline = 1;
        b.memory.store_config(&held);
        b.kernel(&frame, Reason::Held);
        held.deadline = u64::MAX;
        b.memory.store_config(&held);
        b.forward(&frame, 0);
        // A deadline that passes while nothing else changes.
        held.deadline = monotonic() + 2_000_000_000;
        b.memory.store_config(&held);
        b.forward(&frame, 0);
        // The program looks at the clock once a jiffy, of 10 ms at most.
        while monotonic() < held.deadline + 20_000_000 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        b.kernel(&frame, Reason::Held);
        b.memory.store_config(&config(SEED, 1, 1));
        b.with_link(|link| link.flags &= !link_flags::ENABLED);
        b.kernel(&frame, Reason::NotEnabled);
        let elsewhere = b.engine.test_run(&frame, index_of("lo")).unwrap();
        assert_eq!(elsewhere.verdict, Verdict::Kernel(Reason::NotEnabled));
    });
}

#[test]
fn frames_that_are_not_ours() {
    in_namespace("frames_that_are_not_ours", || {
        let b = set_up();
        let typed = |hi, lo| bent(packet4(), |f| f[12..14].copy_from_slice(&[hi, lo]));
        b.kernel(&typed(0x81, 0x00), Reason::Vlan);
        b.kernel(&typed(0x88, 0xa8), Reason::Vlan);
        b.kernel(&typed(0x08, 0x06), Reason::NotIp);
        b.kernel(&typed(0x00, 0x40), Reason::NotIp);
        // The type is looked at before the address.
        let arp = bent(typed(0x08, 0x06), |f| f[..6].fill(0xff));
        b.kernel(&arp, Reason::NotIp);
        b.kernel(&bent(packet4(), |f| f[..6].fill(0xff)), Reason::OtherMac);
        for byte in 0..6 {
            b.kernel(&bent(packet4(), |f| f[byte] ^= 0x40), Reason::OtherMac);
            let six = to6("2001:db8:1::7");
            b.kernel(&bent(six, |f| f[byte] ^= 0x40), Reason::OtherMac);
        }
        b.kernel(&packet4()[..14], Reason::Truncated);
        b.kernel(&packet4()[..33], Reason::Truncated);
        b.kernel(&to6("2001:db8:1::7")[..53], Reason::Truncated);
    });
}

#[test]
fn links_that_do_not_exist() {
    in_namespace("links_that_do_not_exist", || {
        let engine = Engine::load(&LoadOptions { capacity: small() }).unwrap();
        let gone = engine.set_out_link(999);
        assert!(
            matches!(gone, Err(Error::NoSuchLink { index: 999 })),
            "{gone:?}"
        );
        let high = engine.set_out_link(1 << 20);
        assert!(matches!(high, Err(Error::LinkIndex { .. })), "{high:?}");
        engine.remove_out_link(999).unwrap();
    });
}
