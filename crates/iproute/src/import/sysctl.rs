//! Settings, from lines of `sysctl -a`.

use std::collections::HashMap;

use raddle_netlink::mirror::{device_settings, namespace_settings, number};
use raddle_rib::event::{DeviceSettings, Settings};

use super::Error;

/// The settings below `net.` that are numbers, by their path below `/proc/sys/net`.
pub(super) struct Sysctls {
    file: String,
    numbers: HashMap<String, u32>,
}

impl Sysctls {
    /// Reads lines such as `net.ipv4.conf.eth0/5.forwarding = 1`, in which dots of a device's name are
    /// slashes.
    pub(super) fn parse(file: &str, text: &str) -> Sysctls {
        let line = |line: &str| {
            let (key, value) = line.split_once('=')?;
            let path = key.trim().strip_prefix("net.")?;
            let swapped = path.chars().map(|c| match c {
                '.' => '/',
                '/' => '.',
                c => c,
            });
            Some((swapped.collect(), number(value.trim())?))
        };
        Sysctls {
            file: file.to_owned(),
            numbers: text.lines().filter_map(line).collect(),
        }
    }

    fn read(&self, path: &str) -> Option<u32> {
        self.numbers.get(path).copied()
    }

    fn want(&self, path: &str, key: String) -> Result<(), Error> {
        match self.read(path) {
            Some(_) => Ok(()),
            None => Err(Error::Setting {
                file: self.file.clone(),
                key,
            }),
        }
    }

    /// The settings of the namespace.
    pub(super) fn namespace(&self) -> Result<Settings, Error> {
        self.want(
            "ipv4/fib_multipath_hash_policy",
            "net.ipv4.fib_multipath_hash_policy".into(),
        )?;
        Ok(namespace_settings(&|path| self.read(path)))
    }

    /// The settings of these devices.
    pub(super) fn devices(
        &self,
        names: impl Iterator<Item = String>,
    ) -> Result<HashMap<String, DeviceSettings>, Error> {
        let names: Vec<String> = names.collect();
        for name in &names {
            let key = format!("net.ipv4.conf.{}.forwarding", name.replace('.', "/"));
            self.want(&format!("ipv4/conf/{name}/forwarding"), key)?;
        }
        Ok(device_settings(&|path| self.read(path), names))
    }
}
