//! Names: of labs, nodes, namespaces and wire ends; and the numbers derived from them.

use crate::LabError;

/// The node name that no topology may use: the namespace of all wires.
pub(crate) const WIRE: &str = "wire";

/// A checked lab name.
///
/// Node names hold no hyphen, so that a namespace's name can be taken apart again without doubt.
pub(crate) fn check_lab(name: &str) -> Result<(), LabError> {
    let ends = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = name.as_bytes();
    let inside = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let good =
        bytes.len() <= 24 && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inside);
    if good {
        Ok(())
    } else {
        Err(LabError::BadName(name.to_owned()))
    }
}

/// The namespace of a node, as `ip netns` shows it.
pub(crate) fn netns(lab: &str, node: &str) -> String {
    format!("rdl-{lab}-{node}")
}

/// The node whose namespace this is, if it is one of the lab's.
pub(crate) fn node_of<'a>(lab: &str, netns: &'a str) -> Option<&'a str> {
    let node = netns
        .strip_prefix("rdl-")?
        .strip_prefix(lab)?
        .strip_prefix('-')?;
    (!node.contains('-')).then_some(node)
}

/// The wire-side device of one end (0 or 1) of a link.
pub(crate) fn wire_dev(link: usize, end: usize) -> String {
    format!("l{link}{}", if end == 0 { 'a' } else { 'b' })
}

/// The interface index of that device: 2k and 2k+1, as the wire program expects. The first hundred
/// are left to whatever the kernel makes by itself in a new namespace (lo, tunnel fallback devices).
pub(crate) fn wire_index(link: usize, end: usize) -> u32 {
    100 + 2 * link as u32 + end as u32
}

/// A locally administered MAC address for an end of a link. It repeats from run to run, and with it
/// the link-local address that is the gateway of the neighbour's routes.
pub(crate) fn mac(lab: &str, link: usize, end: usize) -> String {
    let [a, b, c, _] = fnv1a(lab).to_be_bytes();
    let [hi, lo] = (link as u16).to_be_bytes();
    let first = if end == 0 { "02" } else { "06" };
    format!("{first}:{a:02x}:{b:02x}:{c:02x}:{hi:02x}:{lo:02x}")
}

/// A locally administered MAC address for a device that a node makes, which repeats from run to run.
pub(crate) fn made_mac(lab: &str, node: &str, dev: &str) -> String {
    let [a, b, c, d] = fnv1a(&format!("{lab}/{node}/{dev}")).to_be_bytes();
    format!("0a:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// The multipath hash seed of a node: the same at every run of a lab of this name, different for every
/// node. With one seed everywhere, a spine would repeat the choice of its leaf, and half of the paths
/// would never be used (polarisation).
pub(crate) fn seed(lab: &str, node: &str) -> u32 {
    // 0 would mean a random seed of the kernel's own.
    fnv1a(&format!("{lab}/{node}")).max(1)
}

/// 32-bit FNV-1a: small, and the same on every machine and in every version.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_names() {
        for good in ["demo", "a", "0", "two-words", "x1"] {
            assert!(check_lab(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a/b",
            "..",
            "a b",
            "abcdefghijklmnopqrstuvwxy",
        ] {
            assert!(check_lab(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn namespaces_belong_to_one_lab() {
        assert_eq!(node_of("a", &netns("a", "leaf1")), Some("leaf1"));
        assert_eq!(node_of("a", &netns("a-b", "leaf1")), None);
        assert_eq!(node_of("a-b", &netns("a-b", "leaf1")), Some("leaf1"));
        assert_eq!(node_of("a", "other"), None);
    }

    #[test]
    fn wire_ends_differ_in_the_lowest_bit() {
        for link in 0..100 {
            assert_eq!(wire_index(link, 0) ^ 1, wire_index(link, 1));
        }
    }

    #[test]
    fn seeds_and_macs_repeat_and_differ() {
        assert_eq!(seed("demo", "leaf1"), seed("demo", "leaf1"));
        assert_ne!(seed("demo", "leaf1"), seed("demo", "spine1"));
        assert_ne!(seed("demo", "leaf1"), seed("other", "leaf1"));
        assert_eq!(mac("demo", 258, 0)[2..], mac("demo", 258, 1)[2..]);
        assert!(mac("demo", 258, 0).starts_with("02:") && mac("demo", 258, 1).starts_with("06:"));
        assert!(mac("demo", 258, 0).ends_with(":01:02"));
        assert!(made_mac("demo", "leaf1", "br-red").starts_with("0a:00:"));
        assert_ne!(
            made_mac("demo", "leaf1", "br-red"),
            made_mac("demo", "leaf2", "br-red")
        );
    }
}
