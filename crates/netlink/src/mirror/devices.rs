//! Settings of devices, which two threads read.
//!
//! The one that dumps reads all of them, every second and whenever one has changed. The one that receives notifications
//! reads those of a device that one of them names, so that a change counts at once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nix::net::if_::if_indextoname;
use raddle_rib::event::DeviceSettings;

use super::sysctl;
use crate::codec::number::rtm::RTM_NEWNETCONF;
use crate::codec::{Decoded, Messages, decode_message};

/// What is known, by name. Of two that have read the same device, the one counts that began later.
#[derive(Debug, Default)]
pub(super) struct Devices {
    by_name: HashMap<String, DeviceSettings>,
    /// When reading of all of them began.
    began: Option<Instant>,
    /// When devices were read alone, of those of which this was later.
    alone: HashMap<String, Instant>,
}

impl Devices {
    pub(super) fn get(&self, name: &str) -> Option<DeviceSettings> {
        self.by_name.get(name).copied()
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.by_name.remove(name);
        self.alone.remove(name);
    }

    /// All of them, as they were read from then on.
    pub(super) fn all(&mut self, mut read: HashMap<String, DeviceSettings>, began: Instant) {
        self.alone.retain(|_, at| *at > began);
        for name in self.alone.keys() {
            if let (Some(now), Some(known)) = (read.get_mut(name), self.by_name.get(name)) {
                *now = *known;
            }
        }
        self.by_name = read;
        self.began = Some(began);
    }

    /// One of them, as it was read from then on.
    pub(super) fn one(&mut self, read: &Alone) {
        let is_older = self.began.is_some_and(|began| began > read.began);
        if is_older && self.by_name.contains_key(&read.name) {
            return;
        }
        self.by_name.insert(read.name.clone(), read.settings);
        self.alone.insert(read.name.clone(), read.began);
    }
}

/// The settings of one device.
#[derive(Clone, Debug)]
pub(super) struct Alone {
    pub name: String,
    pub settings: DeviceSettings,
    /// When reading them began.
    pub began: Instant,
}

/// The devices whose settings have changed, as a notification tells before anybody has looked at the rest of it.
///
/// 1. Those that are named, if they are few: a change of `conf.all` is told of each device.
/// 2. Reading rests ten times as long as it took, so that whoever changes settings all the time does not keep the thread
///    from its work.
#[derive(Debug, Default)]
pub(super) struct Changed {
    indexes: Vec<u32>,
    not_before: Option<Instant>,
}

/// Rule 1: so many.
const FEW: usize = 4;
/// Rule 2.
const REST: u32 = 10;

impl Changed {
    /// Notes the devices that these notifications name. What cannot be read is left to those who read all of it.
    pub(super) fn note(&mut self, notifications: &[u8]) {
        for message in Messages::new(notifications).flatten() {
            if message.kind != RTM_NEWNETCONF {
                continue;
            }
            if let Ok(Decoded::Netconf(netconf)) = decode_message(&message)
                && let Ok(index @ 1..) = u32::try_from(netconf.index)
                && !self.indexes.contains(&index)
                && self.indexes.len() <= FEW
            {
                self.indexes.push(index);
            }
        }
    }

    /// Reads those that were noted, in the calling thread's network namespace, and forgets them.
    pub(super) fn read(&mut self) -> Vec<Alone> {
        if self.indexes.is_empty() {
            return Vec::new();
        }
        let indexes = std::mem::take(&mut self.indexes);
        let began = Instant::now();
        if indexes.len() > FEW || self.not_before.is_some_and(|at| began < at) {
            return Vec::new();
        }
        let read = indexes.into_iter().filter_map(|index| {
            let name = if_indextoname(index).ok()?.into_string().ok()?;
            let settings = sysctl::device_alone(&name)?;
            Some(Alone {
                name,
                settings,
                began,
            })
        });
        let read = read.collect();
        let took = began.elapsed().max(Duration::from_micros(100));
        self.not_before = Some(Instant::now() + took * REST);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(rp_filter: u8) -> DeviceSettings {
        DeviceSettings {
            rp_filter,
            ..DeviceSettings::default()
        }
    }

    fn all(rp_filter: u8) -> HashMap<String, DeviceSettings> {
        HashMap::from([("eth0".to_owned(), with(rp_filter))])
    }

    fn alone(rp_filter: u8, began: Instant) -> Alone {
        Alone {
            name: "eth0".to_owned(),
            settings: with(rp_filter),
            began,
        }
    }

    /// Two threads read at moments in some order, and what they have read arrives in another: in each of them what was
    /// read last is what is known in the end.
    #[test]
    fn what_was_read_later_counts_in_whatever_order_it_arrives() {
        let start = Instant::now();
        let at = |n: u64| start + Duration::from_millis(n);
        // Each reading: whether of all, and when; its number is its value.
        for kinds in 0..8u8 {
            let is_all = |n: u64| kinds >> n & 1 == 1;
            // Those of one thread arrive in order.
            for order in [
                [0, 1, 2],
                [0, 2, 1],
                [1, 0, 2],
                [1, 2, 0],
                [2, 0, 1],
                [2, 1, 0],
            ] {
                let place = |n| order.iter().position(|&of| of == n);
                let keeps_order = |a, b| is_all(a) != is_all(b) || (place(a) < place(b)) == (a < b);
                if !(keeps_order(0, 1) && keeps_order(0, 2) && keeps_order(1, 2)) {
                    continue;
                }
                let mut devices = Devices::default();
                for n in order {
                    match is_all(n) {
                        true => devices.all(all(n as u8), at(n)),
                        false => devices.one(&alone(n as u8, at(n))),
                    }
                }
                assert_eq!(
                    devices.get("eth0"),
                    Some(with(2)),
                    "kinds {kinds:03b}, order {order:?}"
                );
            }
        }
    }

    #[test]
    fn a_device_that_is_gone_is_not_kept() {
        let start = Instant::now();
        let mut devices = Devices::default();
        devices.one(&alone(1, start + Duration::from_secs(1)));
        devices.all(HashMap::new(), start);
        assert_eq!(devices.get("eth0"), None);
        devices.one(&alone(1, start));
        assert_eq!(devices.get("eth0"), Some(with(1)), "it came since");
        devices.forget("eth0");
        assert_eq!(devices.get("eth0"), None);
    }
}
