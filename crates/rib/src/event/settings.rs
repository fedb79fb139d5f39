//! Settings of devices and of the namespace, and keys for HMACs.

use raddle_srv6::Algorithm;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::Link;
use crate::rules::vrf_of;

/// Per-device settings that netlink's `RTM_NEWNETCONF` and `/proc/sys` tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSettings {
    /// `net.ipv4.conf.<dev>.forwarding`.
    pub forwarding4: bool,
    /// Whether IPv6 from this device is forwarded: `net.ipv6.conf.all.forwarding` or the device's
    /// `force_forwarding`, on a device that takes IPv6 at all.
    pub forwarding6: bool,
    /// Effective `rp_filter`: the larger of `conf.all` and `conf.<dev>`.
    pub rp_filter: u8,
    /// IPv4 `ignore_routes_with_linkdown` (`conf.all` or `conf.<dev>`).
    pub ignore_linkdown4: bool,
    /// IPv6 `ignore_routes_with_linkdown`.
    pub ignore_linkdown6: bool,
    /// IPv4 `send_redirects` (`conf.all` or `conf.<dev>`).
    pub send_redirects: bool,
    /// IPv4 `accept_local`.
    pub accept_local: bool,
    /// `net.ipv6.conf.<dev>.mtu`, which an administrator or a router advertisement may set below
    /// the link's; 0 where there is none.
    #[serde(default)]
    pub mtu6: u32,
    /// `net.ipv6.conf.<dev>.seg6_require_hmac`: -1 to ignore HMACs of SRHs, 0 to check those that there
    /// are, 1 to want one. The device's alone (`seg6_hmac_validate_skb`).
    #[serde(default)]
    pub seg6_require_hmac: i8,
    /// `net.ipv6.conf.<dev>.hop_limit`, or that of `conf.all` where the device has no IPv6; none where it is not
    /// known.
    #[serde(default)]
    pub hop_limit: Option<u8>,
}

impl DeviceSettings {
    /// What holds for packets that come in by a link, where `by_index` knows links and `of` their settings. Of a link in a VRF
    /// IPv4 takes the link's own: it comes in by the link (`ip_rcv_finish`). IPv6 takes the VRF's (`vrf_ip6_rcv`), but is forwarded
    /// only where the link does, too (`ip6_rcv_core`, `ip6_forward` by the link that a packet came in by).
    pub fn of_input<'a>(
        link: &Link,
        by_index: impl FnOnce(u32) -> Option<&'a Link>,
        of: impl Fn(u32) -> DeviceSettings,
    ) -> DeviceSettings {
        let own = of(link.index);
        let Some(vrf) = vrf_of(link, by_index) else {
            return own;
        };
        let vrf = of(vrf.index);
        DeviceSettings {
            forwarding4: own.forwarding4,
            forwarding6: own.forwarding6 && vrf.forwarding6,
            rp_filter: own.rp_filter,
            ignore_linkdown4: own.ignore_linkdown4,
            send_redirects: own.send_redirects,
            accept_local: own.accept_local,
            ..vrf
        }
    }
}

/// Settings of the whole network namespace that selection and forwarding depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `net.ipv4.fib_multipath_hash_policy`.
    pub hash_policy4: u8,
    /// `net.ipv6.fib_multipath_hash_policy`.
    pub hash_policy6: u8,
    /// `net.ipv4.fib_multipath_hash_fields`.
    pub hash_fields4: u32,
    /// `net.ipv6.fib_multipath_hash_fields`.
    pub hash_fields6: u32,
    /// `net.ipv4.fib_multipath_hash_seed`; 0 means that the kernel goes by a key of its own
    /// ([`crate::Rib::set_kernel_key`]).
    pub hash_seed: u32,
    /// `net.ipv4.fib_multipath_use_neigh`.
    pub use_neigh: bool,
    /// `net.ipv4.ip_forward_use_pmtu`: forwarded packets, too, keep to the path MTUs that ICMP errors
    /// have told this machine. The kernel announces none of them.
    pub forward_use_pmtu: bool,
    /// `net.ipv4.route.min_pmtu`: no path MTU below it is learnt.
    #[serde(default)]
    pub min_pmtu: u32,
    /// `net.ipv6.seg6_flowlabel`: -1 for an outer flow label of 0, 0 for the inner packet's, 1 for one
    /// made of the flow's hash.
    #[serde(default)]
    pub seg6_flowlabel: i8,
    /// `ip sr tunsrc`: source of outer headers; none for one chosen by the destination.
    #[serde(default)]
    pub tunsrc: Option<Ipv6Addr>,
    /// `net.ipv4.ip_local_port_range`: first and last of the ports that the kernel chooses among; zeros where it is not known.
    #[serde(default)]
    pub local_ports: (u16, u16),
    /// `net.ipv4.ip_default_ttl`; 0 where it is not known.
    #[serde(default)]
    pub default_ttl: u8,
}

/// A key for HMACs in SRHs (`ip sr hmac`). Shown without its secret, and part of no snapshot.
#[derive(Clone, PartialEq, Eq)]
pub struct HmacKey {
    /// Its number, never 0.
    pub id: u32,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Secret, at most 64 bytes.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HmacKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
