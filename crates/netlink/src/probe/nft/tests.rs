use super::*;
use crate::codec::{Messages, NESTED};

#[test]
fn a_chain_with_devices_is_on_those_links_and_no_others() {
    let mut b = Builder::new();
    b.begin(NEWCHAIN, 0, &[5, 0, 0, 0])
        .put_str(CHAIN_TABLE, "t")
        .put_str(CHAIN_NAME, "c");
    let hook = b.open(CHAIN_HOOK | NESTED);
    b.put(HOOK_NUMBER, &1u32.to_be_bytes())
        .put(HOOK_PRIORITY, &(-5i32).to_be_bytes());
    let devices = b.open(HOOK_DEVICES | NESTED);
    b.put_str(DEVICE_NAME, "eth0")
        .put_str(DEVICE_PREFIX, "veth");
    b.close(devices);
    b.close(hook)
        .put(CHAIN_POLICY, &0u32.to_be_bytes())
        .put(CHAIN_USE, &3u32.to_be_bytes());
    b.end().unwrap();
    let message = Messages::new(b.as_bytes()).next().unwrap().unwrap();
    let chain = decode_chain(&message).unwrap().unwrap();
    assert_eq!(
        (
            chain.family,
            chain.hook,
            chain.priority,
            chain.policy_drop,
            chain.rules
        ),
        (Family::Netdev, Hook::Egress, -5, true, 3)
    );
    for (link, on) in [
        ("eth0", true),
        ("eth01", false),
        ("veth7", true),
        ("et", false),
    ] {
        assert_eq!(chain.is_on(link), on, "{link}");
    }
}

#[test]
fn comments_are_found_behind_other_user_data() {
    assert_eq!(comment(b"\x02\x01x\x00\x03hi\0"), Some("hi".into()));
    assert_eq!(comment(b"\x02\x09x"), None);
    assert_eq!(comment(b""), None);
}
