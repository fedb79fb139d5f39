//! What a policy hashes: which flow keys come of a packet or a flow.

use raddle_packet::{Addresses, Dissected, Family, Stop, dissect, dissect_plain, protocol};
use thiserror::Error;

use crate::header::{Input, about_ipv4, about_ipv6, l3_ipv4, l3_ipv6};
use crate::key::{Flow, FlowKey, KeyAddresses};
use crate::policy::{Field, FieldSet, HashConfig, Policy};

/// What is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One key, whose hash is the packet's.
    One(FlowKey),
    /// Policy 3 of a packet: up to two keys, whose hashes (0 where there is no key) are hashed
    /// together by [`crate::jhash_2words`].
    Two {
        /// Of the packet's own header; none where no field of it is selected.
        outer: Option<FlowKey>,
        /// Of the innermost packet; none where there is none, or no field of it is selected.
        inner: Option<FlowKey>,
    },
    /// Policy 3 of a flow without any field of its own header: the hash is 0.
    Nothing,
}

/// Why there is no flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Not even the IP header is there, or it makes no sense; the kernel drops such packets before
    /// it hashes them.
    #[error("packet of {have} bytes holds no valid {family} header")]
    NoHeader {
        /// What the packet was taken for.
        family: Family,
        /// Bytes that there were.
        have: usize,
    },
    /// The innermost packet has addresses of a kind that is not modelled.
    #[error("the innermost packet is neither IPv4 nor IPv6 (TIPC); its hash is not modelled")]
    NoAddresses,
}

/// The flow keys of a packet, as forwarding makes them (`fib_multipath_hash`,
/// `rt6_multipath_hash`).
///
/// `l3` is the packet from its IP header on, ended at its IP length. Keys are unordered.
///
/// Policy 0, IPv4:
/// 1. The packet's addresses, and nothing else, unless rule 2 applies.
/// 2. Of an ICMP error (types 3, 4, 5, 11, 12; not a later fragment) with 8 bytes of ICMP and 20
///    bytes of the packet that it is about: that packet's addresses.
///
/// Policy 0, IPv6:
/// 1. The packet's addresses, flow label and next header, unless rule 2 applies.
/// 2. Of an ICMPv6 error (types 1 to 4) directly behind the IPv6 header, with 8 bytes of ICMPv6 and
///    40 bytes of the packet that it is about: those of that packet.
///
/// Policy 1:
/// 1. Addresses, protocol and ports as [`dissect`] finds them with [`Stop::AtEncap`]. ICMP errors are
///    hashed as themselves, fragments and tunnels without ports; the flow label does not count.
/// 2. With [`HashConfig::icmp_follows_flow`]: an ICMP error of rule 2 of policy 0 is hashed by what it
///    is about, as by rule 1, if at least the IP header of that is there.
///
/// Policy 2:
/// 1. As [`dissect`] finds them with [`Stop::Innermost`]: of IPv4 the addresses, of IPv6 the
///    addresses, flow label and next header. A plain packet is its own innermost one, and ICMP
///    errors are hashed as themselves.
///
/// Policy 3:
/// 1. If fields of the packet's own header are selected: these, as by rule 1 of policy 1; the others
///    are 0. IPv4 has no flow label.
/// 2. If fields of the innermost packet are selected, and there is a packet inside the packet:
///    these, as by rule 1 of policy 2, and its protocol and ports.
///
/// With IPv6 rules that match on ports or protocol the kernel takes ICMPv6 packets under policy 0 from
/// the dissector instead; that is not modelled here.
///
/// # Errors
/// [`KeyError`] for packets that hold no such header.
#[inline]
pub fn keys_of_packet(config: &HashConfig, family: Family, l3: &[u8]) -> Result<Keys, KeyError> {
    keys_and_input(config, family, l3).map(|(keys, _)| keys)
}

/// [`keys_of_packet`], and which rule gave the first key.
#[inline(always)]
pub(crate) fn keys_and_input(
    config: &HashConfig,
    family: Family,
    l3: &[u8],
) -> Result<(Keys, Input), KeyError> {
    let one = |(key, input)| (Keys::One(key), input);
    let found = match (config.policy, family) {
        (Policy::L3, Family::V4) => l3_ipv4(l3).map(one),
        (Policy::L3, Family::V6) => l3_ipv6(l3).map(one),
        (Policy::L4, _) => l4(config.icmp_follows_flow, family, l3).map(one),
        (Policy::Inner, _) => return inner(family, l3).map(one),
        (Policy::Custom, _) => return custom(config, family, l3),
    };
    found.ok_or(no_header(family, l3))
}

/// The only key of a packet under policies 0 and 1; none where these have none, and under others.
#[inline]
pub(crate) fn one_key(config: &HashConfig, family: Family, l3: &[u8]) -> Option<FlowKey> {
    let found = match (config.policy, family) {
        (Policy::L3, Family::V4) => l3_ipv4(l3),
        (Policy::L3, Family::V6) => l3_ipv6(l3),
        (Policy::L4, _) => l4(config.icmp_follows_flow, family, l3),
        (Policy::Inner | Policy::Custom, _) => None,
    };
    found.map(|(key, _)| key)
}

fn no_header(family: Family, l3: &[u8]) -> KeyError {
    KeyError::NoHeader {
        family,
        have: l3.len(),
    }
}

#[inline]
fn l4(icmp_follows_flow: bool, family: Family, l3: &[u8]) -> Option<(FlowKey, Input)> {
    let seen = dissect(l3, family, Stop::AtEncap);
    let is_icmp = matches!(seen.ip_proto, protocol::ICMP | protocol::ICMPV6);
    if icmp_follows_flow
        && is_icmp
        && let Some(about) = about(family, l3)
        && let Some(key) = l4_of(&dissect(about, family, Stop::AtEncap))
    {
        return Some((key, Input::IcmpInner));
    }
    l4_of(&seen).map(|key| (key, Input::Dissected))
}

/// The key under policy 1 of what [`dissect_plain`] sees; none for other packets.
#[inline(always)]
pub(crate) fn l4_plain(family: Family, l3: &[u8]) -> Option<FlowKey> {
    dissect_plain(l3, family).and_then(|seen| l4_of(&seen))
}

#[inline]
fn l4_of(seen: &Dissected) -> Option<FlowKey> {
    Some(FlowKey {
        sport: seen.sport,
        dport: seen.dport,
        ip_proto: seen.ip_proto,
        ..FlowKey::of_addresses(addresses(seen)?)
    })
}

/// What an ICMP error is about.
#[cold]
fn about(family: Family, l3: &[u8]) -> Option<&[u8]> {
    match family {
        Family::V4 => {
            let header = l3.first_chunk::<20>()?;
            (header[9] == protocol::ICMP).then(|| about_ipv4(l3, header))?
        }
        Family::V6 => (*l3.get(6)? == protocol::ICMPV6).then(|| about_ipv6(l3))?,
    }
}

#[inline]
pub(crate) fn addresses(seen: &Dissected) -> Option<KeyAddresses> {
    match seen.addresses {
        Addresses::V4 { src, dst } => Some(KeyAddresses::V4 { src, dst }),
        Addresses::V6 { src, dst } => Some(KeyAddresses::V6 { src, dst }),
        Addresses::None => None,
    }
}

/// The dissector's addresses must have been there at the packet's own header; where they are gone,
/// something inside has replaced them.
fn innermost(family: Family, l3: &[u8]) -> Result<(Dissected, KeyAddresses), KeyError> {
    let seen = dissect(l3, family, Stop::Innermost);
    match addresses(&seen) {
        Some(addresses) => Ok((seen, addresses)),
        None if seen.encapsulated => Err(KeyError::NoAddresses),
        None => Err(no_header(family, l3)),
    }
}

fn inner(family: Family, l3: &[u8]) -> Result<(FlowKey, Input), KeyError> {
    let (seen, addresses) = innermost(family, l3)?;
    let key = FlowKey::of_addresses(addresses);
    let key = match addresses {
        KeyAddresses::V4 { .. } => key,
        KeyAddresses::V6 { .. } => FlowKey {
            ip_proto: seen.ip_proto,
            flow_label_word: seen.flow_label,
            ..key
        },
    };
    Ok((key, Input::Dissected))
}

/// `fib_multipath_custom_hash_skb`, `rt6_multipath_custom_hash_skb`.
fn custom(config: &HashConfig, family: Family, l3: &[u8]) -> Result<(Keys, Input), KeyError> {
    let (of_outer, of_inner) = (config.fields.outer(), config.fields.inner());
    let mut encapsulated = true;
    let mut outer = None;
    if !of_outer.is_empty() {
        let seen = dissect(l3, family, Stop::AtEncap);
        let addresses = addresses(&seen).ok_or(no_header(family, l3))?;
        encapsulated = seen.encapsulated;
        outer = Some(selected(of_outer, &seen, addresses));
    }
    let mut inner = None;
    if encapsulated && !of_inner.is_empty() {
        let (seen, addresses) = innermost(family, l3)?;
        inner = seen
            .encapsulated
            .then(|| selected(of_inner, &seen, addresses));
    }
    Ok((Keys::Two { outer, inner }, Input::Dissected))
}

/// A key that holds the selected fields only.
fn selected(fields: FieldSet, seen: &Dissected, addresses: KeyAddresses) -> FlowKey {
    let has_label = matches!(addresses, KeyAddresses::V6 { .. });
    FlowKey {
        addresses: masked(fields, addresses),
        sport: u16::from(fields.has(Field::SrcPort)) * seen.sport,
        dport: u16::from(fields.has(Field::DstPort)) * seen.dport,
        ip_proto: u8::from(fields.has(Field::IpProto)) * seen.ip_proto,
        flow_label_word: u32::from(has_label && fields.has(Field::FlowLabel)) * seen.flow_label,
    }
}

fn masked(fields: FieldSet, addresses: KeyAddresses) -> KeyAddresses {
    let (has_src, has_dst) = (fields.has(Field::SrcIp), fields.has(Field::DstIp));
    fn keep<T: From<[u8; N]>, const N: usize>(has: bool, address: T) -> T {
        if has { address } else { T::from([0; N]) }
    }
    match addresses {
        KeyAddresses::V4 { src, dst } => KeyAddresses::V4 {
            src: keep::<_, 4>(has_src, src),
            dst: keep::<_, 4>(has_dst, dst),
        },
        KeyAddresses::V6 { src, dst } => KeyAddresses::V6 {
            src: keep::<_, 16>(has_src, src),
            dst: keep::<_, 16>(has_dst, dst),
        },
    }
}

/// The flow keys of a flow, as local output and IPv6 `RTM_GETROUTE` make them from `flowi` fields
/// (IPv4 `RTM_GETROUTE` makes a packet of the question, and so [`keys_of_packet`] answers it).
///
/// Policies 0 and 2: IPv4 addresses; over IPv6 addresses, flow label and the protocol that was given.
/// Policy 1: addresses, protocol and ports. Policy 3: the selected fields of the packet's own
/// header; those of an innermost packet do not count, and the hash is not hashed again.
///
/// Nothing is dissected, so the protocol of a packet with extension headers and the ports of
/// fragments, ESP and AH differ from [`keys_of_packet`], and so does the byte order of the flow label
/// under policies 2 and 3. A TCP connect without a bound port has a random source port in kernels
/// from 6.16 on. Unordered.
pub fn keys_of_flow(config: &HashConfig, flow: &Flow) -> Keys {
    let key = FlowKey::of_addresses(flow.addresses);
    let ported = FlowKey {
        sport: flow.sport,
        dport: flow.dport,
        ip_proto: flow.proto,
        ..key
    };
    let label = FlowKey::label_as_loaded(flow.flow_label);
    match (config.policy, flow.family()) {
        (Policy::L3 | Policy::Inner, Family::V4) => Keys::One(key),
        (Policy::L3 | Policy::Inner, Family::V6) => Keys::One(FlowKey {
            ip_proto: flow.proto,
            flow_label_word: label,
            ..key
        }),
        (Policy::L4, _) => Keys::One(ported),
        (Policy::Custom, _) => {
            let fields = config.fields.outer();
            if fields.is_empty() {
                return Keys::Nothing;
            }
            let seen = Dissected {
                addresses: Addresses::None,
                ip_proto: flow.proto,
                sport: flow.sport,
                dport: flow.dport,
                flow_label: label,
                encapsulated: false,
                fragment: false,
            };
            Keys::One(selected(fields, &seen, flow.addresses))
        }
    }
}

/// The flow keys of the packets of a flow as a router sees them: with the flow's addresses, protocol
/// and ports, in no tunnel, without extension headers and not fragmented.
///
/// Differs from [`keys_of_flow`] in the byte order of the flow label (policy 2 and 3) and in that the
/// hash of policy 3 is hashed again.
pub fn keys_of_plain_packet(config: &HashConfig, flow: &Flow) -> Keys {
    let keys = keys_of_flow(config, flow);
    let swapped = |key: FlowKey| FlowKey {
        flow_label_word: key.flow_label_word.swap_bytes(),
        ..key
    };
    match (config.policy, keys) {
        (Policy::L3 | Policy::L4, keys) => keys,
        (Policy::Custom, Keys::One(key)) => Keys::Two {
            outer: Some(swapped(key)),
            inner: None,
        },
        (Policy::Custom, _) => Keys::Two {
            outer: None,
            inner: None,
        },
        (Policy::Inner, Keys::One(key)) => Keys::One(swapped(key)),
        (Policy::Inner, keys) => keys,
    }
}
