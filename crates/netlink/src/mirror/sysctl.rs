//! Settings that only `/proc/sys/net` tells.

use std::collections::HashMap;
use std::fs::{File, read_dir};
use std::io::Read;
use std::net::Ipv6Addr;

use raddle_rib::event::{DeviceSettings, HmacKey, Settings};

use crate::probe::Error;
use crate::probe::seg6::Seg6;

/// The settings of a namespace and of its devices, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sysctls {
    pub settings: Settings,
    pub devices: HashMap<String, DeviceSettings>,
    /// Keys of SRv6 HMACs, by number.
    pub keys: Vec<HmacKey>,
}

impl Sysctls {
    /// Reads the calling thread's network namespace.
    ///
    /// Cost: about 12 small files for each device.
    pub(super) fn read(seg6: &mut Seg6Settings) -> Self {
        let entries = read_dir("/proc/sys/net/ipv4/conf");
        // Names that are not UTF-8 come replaced from netlink too, but could not be opened.
        let names = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        Sysctls {
            settings: settings(seg6),
            devices: device_settings(&known, names),
            keys: seg6.keys(),
        }
    }
}

/// The settings of the calling thread's network namespace alone. Cost: 11 small files and a question.
pub(super) fn settings(seg6: &mut Seg6Settings) -> Settings {
    Settings {
        tunsrc: seg6.source(),
        ..namespace_settings(&known)
    }
}

/// What generic netlink tells of SRv6. Nothing, where the kernel has none of it or may not be asked:
/// without `CAP_NET_ADMIN` nothing is forwarded either.
#[derive(Debug)]
pub(super) struct Seg6Settings(Option<Seg6>);

impl Seg6Settings {
    pub(super) fn open() -> Seg6Settings {
        Seg6Settings(told(Seg6::open()).flatten())
    }

    fn source(&mut self) -> Option<Ipv6Addr> {
        told(self.0.as_mut()?.source()).flatten()
    }

    fn keys(&mut self) -> Vec<HmacKey> {
        let keys = self.0.as_mut().and_then(|seg6| told(seg6.keys()));
        keys.unwrap_or_default()
    }
}

fn told<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Ok(told) => Some(told),
        Err(error) => {
            tracing::debug!(%error, "SRv6 settings count as unset");
            None
        }
    }
}

/// The settings of a namespace, by a function that reads one setting below `/proc/sys/net`, such as
/// `ipv4/fib_multipath_hash_seed`; negative numbers come as their bits. What cannot be read counts as 0,
/// which is what a kernel does that does not know the setting. `ip sr tunsrc` is no such setting.
pub fn namespace_settings(read: &dyn Fn(&str) -> Option<u32>) -> Settings {
    let number = |path: &str| read(path).unwrap_or(0);
    Settings {
        hash_policy4: number("ipv4/fib_multipath_hash_policy") as u8,
        hash_policy6: number("ipv6/fib_multipath_hash_policy") as u8,
        hash_fields4: number("ipv4/fib_multipath_hash_fields"),
        hash_fields6: number("ipv6/fib_multipath_hash_fields"),
        hash_seed: number("ipv4/fib_multipath_hash_seed"),
        use_neigh: number("ipv4/fib_multipath_use_neigh") != 0,
        forward_use_pmtu: number("ipv4/ip_forward_use_pmtu") != 0,
        min_pmtu: number("ipv4/route/min_pmtu"),
        seg6_flowlabel: signed(read("ipv6/seg6_flowlabel")),
        tunsrc: None,
        local_ports: ports(number("ipv4/ip_local_port_range")),
        default_ttl: number("ipv4/ip_default_ttl") as u8,
    }
}

/// A range of ports, from what [`number`] makes of it.
fn ports(both: u32) -> (u16, u16) {
    ((both >> 16) as u16, both as u16)
}

/// A setting that may be negative, from the bits that it was read as; 0 where there is none.
fn signed(bits: Option<u32>) -> i8 {
    bits.map_or(0, |bits| (bits as i32).clamp(-1, 1) as i8)
}

/// The settings of devices by name, read likewise; `all` and `default` are no devices.
pub fn device_settings(
    read: &dyn Fn(&str) -> Option<u32>,
    names: impl IntoIterator<Item = String>,
) -> HashMap<String, DeviceSettings> {
    let number = |path: String| read(&path).unwrap_or(0);
    let all4 = Device4::read(&number, "all");
    let forwarding6 = number("ipv6/conf/all/forwarding".into()) != 0;
    names
        .into_iter()
        .filter(|name| name != "all" && name != "default")
        .map(|name| {
            let settings = device(read, &all4, forwarding6, &name);
            (name, settings)
        })
        .collect()
}

/// The settings of one device of the calling thread's network namespace; none where it is gone. Cost: 16 small files.
pub(super) fn device_alone(name: &str) -> Option<DeviceSettings> {
    known(&format!("ipv4/conf/{name}/forwarding"))?;
    device_settings(&known, [name.to_owned()]).remove(name)
}

/// IPv4 settings that exist for one device and for all.
struct Device4 {
    rp_filter: u32,
    ignore_linkdown: bool,
    send_redirects: bool,
    accept_local: bool,
}

impl Device4 {
    fn read(number: &dyn Fn(String) -> u32, name: &str) -> Self {
        let value = |setting: &str| number(format!("ipv4/conf/{name}/{setting}"));
        Device4 {
            rp_filter: value("rp_filter"),
            ignore_linkdown: value("ignore_routes_with_linkdown") != 0,
            send_redirects: value("send_redirects") != 0,
            accept_local: value("accept_local") != 0,
        }
    }
}

/// What is in force on a device, rule by rule:
///
/// 1. IPv4 forwards as the device says (`conf.all` is only a way to set all devices).
/// 2. IPv6 forwards as `conf.all` says, or the device's `force_forwarding` (6.17; `ip6_forward`),
///    but nothing from a device with `disable_ipv6`, or without IPv6 because its MTU is below 1280:
///    it has no settings then (`ip6_rcv_core`).
/// 3. `rp_filter`: the larger of `conf.all` and the device's (`IN_DEV_MAXCONF`).
/// 4. The other IPv4 settings: either of them (`IN_DEV_ORCONF`).
/// 5. IPv6 `ignore_routes_with_linkdown` and `mtu`: the device's alone (`ip6_ignore_linkdown`,
///    `ip6_dst_mtu_maybe_forward`).
/// 6. IPv6 `hop_limit`: the device's, or that of `conf.all` where it has none (`ip6_dst_hoplimit`).
fn device(
    read: &dyn Fn(&str) -> Option<u32>,
    all: &Device4,
    forwarding6: bool,
    name: &str,
) -> DeviceSettings {
    let number = |path: String| read(&path).unwrap_or(0);
    let own = Device4::read(&number, name);
    let known_six = |setting: &str| read(&format!("ipv6/conf/{name}/{setting}"));
    let six = |setting: &str| known_six(setting).is_some_and(|value| value != 0);
    let takes_six = known_six("disable_ipv6") == Some(0);
    DeviceSettings {
        forwarding4: number(format!("ipv4/conf/{name}/forwarding")) != 0,
        forwarding6: takes_six && (forwarding6 || six("force_forwarding")),
        rp_filter: own.rp_filter.max(all.rp_filter).min(2) as u8,
        ignore_linkdown4: own.ignore_linkdown || all.ignore_linkdown,
        ignore_linkdown6: six("ignore_routes_with_linkdown"),
        send_redirects: own.send_redirects || all.send_redirects,
        accept_local: own.accept_local || all.accept_local,
        mtu6: number(format!("ipv6/conf/{name}/mtu")),
        seg6_require_hmac: signed(known_six("seg6_require_hmac")),
        hop_limit: known_six("hop_limit")
            .or_else(|| read("ipv6/conf/all/hop_limit"))
            .map(|limit| limit as u8),
    }
}

/// One setting below `/proc/sys/net`. The seed is a full `u32`; a negative number comes as its bits.
pub(super) fn known(path: &str) -> Option<u32> {
    let mut text = [0; 24];
    let mut file = File::open(format!("/proc/sys/net/{path}")).ok()?;
    let length = file.read(&mut text).ok()?;
    std::str::from_utf8(&text[..length])
        .ok()
        .and_then(|t| number(t.trim()))
}

/// A number of `/proc/sys` that fits 32 bits; a negative one comes as its bits, and of two port numbers the first one comes in the
/// upper half.
pub fn number(text: &str) -> Option<u32> {
    let signed = || text.parse::<i32>().ok().map(|number| number as u32);
    let port = |text: &str| text.parse::<u16>().ok().map(u32::from);
    let ports = || {
        let (first, last) = text.split_once(char::is_whitespace)?;
        Some(port(first)? << 16 | port(last.trim_start())?)
    };
    text.parse().ok().or_else(signed).or_else(ports)
}
