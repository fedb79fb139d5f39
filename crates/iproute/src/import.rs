//! `raddle snapshot --from-ip`: a snapshot made from the JSON of `ip(8)` and the text of `sysctl(8)`,
//! of a machine that has no raddle.
//!
//! Each kind of object has a file of its own; which lines make them, `raddle snapshot --help` says.
//! Fields that are not known are passed over, except in rules, where an unknown one may be a selector
//! and makes the rule one that is not modelled. What iproute2 does not print (the bytes of an
//! encapsulation, the family of a nexthop that has only a device) is not in the snapshot; `explain`
//! needs none of it. iproute2 before 6.12 prints weights of nexthop groups above 256 modulo 256.

mod fault;
mod links;
mod object;
mod routes;
mod rules;
mod sysctl;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use raddle_rib::event::{Event, RouteOp, Sweep};
use raddle_rib::{Rib, Snapshot};
use raddle_select::KernelVersion;
use raddle_text::outside::Bounded;

use crate::names::Names;
pub use fault::Fault;
use object::{Lookup, Objects};

/// Bytes of a file that are read at most: some five million routes.
const MOST: u64 = 1 << 30;

/// Why output cannot be made into a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is not there.
    #[error(
        "there is no {name} among the files; raddle snapshot --help prints the lines that make \
         them all"
    )]
    Missing {
        /// What it would be called.
        name: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file has a name that says nothing.
    #[error(
        "{} is none of the files that raddle snapshot --help names (link.json, addr.json, ...)",
        file.display()
    )]
    Name {
        /// The file.
        file: PathBuf,
    },
    /// A file is not a list of JSON objects.
    #[error("{file} is not the JSON output of ip -j: {source}")]
    Json {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// An object lacks something, or says something that makes no sense.
    #[error("{file}: {object}: {what}")]
    Object {
        /// The file.
        file: String,
        /// The object's name, or its number.
        object: String,
        /// What is wrong with it.
        what: Fault,
    },
    /// A setting is not there.
    #[error("{file} does not say {key}, which every kernel has: collect it anew (sysctl -a)")]
    Setting {
        /// The file.
        file: String,
        /// The setting.
        key: String,
    },
}

/// The files, by the name that each kind has; the second names are those of a plain `ip -j rule`.
const KINDS: [(&str, &str); 11] = [
    ("link.json", ""),
    ("addr.json", ""),
    ("neigh.json", ""),
    ("nexthop.json", ""),
    ("bucket.json", ""),
    ("rule4.json", "rule.json"),
    ("rule6.json", ""),
    ("route4.json", "route.json"),
    ("route6.json", ""),
    ("sysctl.txt", ""),
    ("kernel.txt", ""),
];

/// The texts of the files, by kind.
struct Files(BTreeMap<&'static str, (String, String)>);

impl Files {
    fn read(paths: &[PathBuf]) -> Result<Files, Error> {
        let mut files = BTreeMap::new();
        for path in paths {
            if path.is_dir() {
                for (kind, other) in KINDS {
                    let names = [kind, other].into_iter().filter(|name| !name.is_empty());
                    let mut found = names.map(|name| path.join(name)).filter(|p| p.exists());
                    if let Some(file) = found.next() {
                        files.insert(kind, text(&file)?);
                    }
                }
                continue;
            }
            let name = path.file_name().and_then(|name| name.to_str());
            let fits = |known: &&(&str, &str)| Some(known.0) == name || Some(known.1) == name;
            let kind = KINDS.iter().find(fits);
            let (kind, _) = kind.ok_or_else(|| Error::Name { file: path.clone() })?;
            files.insert(*kind, text(path)?);
        }
        Ok(Files(files))
    }

    fn get(&self, name: &'static str) -> Result<&(String, String), Error> {
        self.0.get(name).ok_or(Error::Missing { name })
    }

    fn objects(&self, name: &'static str) -> Result<Objects, Error> {
        let (file, text) = self.get(name)?;
        Objects::parse(file, text)
    }
}

/// A file's name and text.
fn text(file: &Path) -> Result<(String, String), Error> {
    let mut text = Vec::new();
    let mut read = || Bounded::new(File::open(file)?, MOST).read_to_end(&mut text);
    read().map_err(|source| Error::Read {
        file: file.to_owned(),
        source,
    })?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((file.display().to_string(), text))
}

/// The snapshot that these files, or the files in these directories, describe.
///
/// # Errors
/// A file is missing, cannot be read, or does not say what it is to say.
pub fn snapshot(paths: &[PathBuf]) -> Result<Snapshot, Error> {
    let files = Files::read(paths)?;
    let names = Lookup::new(Names::built_in(), files.objects("link.json")?)?;
    let mut rib = Rib::detached();
    let mut apply = |event| rib.apply(event);
    let (file, text) = files.get("sysctl.txt")?;
    let sysctls = sysctl::Sysctls::parse(file, text);
    apply(Event::Settings(sysctls.namespace()?));
    let links = links::links(&files.objects("link.json")?, &names)?;
    let devices = sysctls.devices(links.iter().map(|link| link.name.clone()))?;
    for link in links {
        let (index, device) = (link.index, devices.get(&link.name).copied());
        apply(Event::Link(link));
        if let Some(settings) = device {
            apply(Event::Device(index, settings));
        }
    }
    // The kernel tells those of one family before those of the other, ip sorts them by link.
    let mut addresses = links::addresses(&files.objects("addr.json")?, &names)?;
    addresses.sort_by_key(|address| address.local.is_ipv6());
    for address in addresses {
        apply(Event::Address(address));
    }
    links::neighbours(&files.objects("neigh.json")?, &names)?
        .into_iter()
        .for_each(|neighbour| apply(Event::Neighbour(neighbour)));
    routes::nexthops(&files.objects("nexthop.json")?, &names)?
        .into_iter()
        .for_each(|nexthop| apply(Event::Nexthop(nexthop)));
    // Only resilient groups have any, and older versions of ip cannot show them.
    if files.get("bucket.json").is_ok() {
        routes::buckets(&files.objects("bucket.json")?)?
            .into_iter()
            .for_each(|bucket| apply(Event::Bucket(bucket)));
    }
    for (name, family) in [("rule4.json", 4), ("rule6.json", 6)] {
        rules::rules(&files.objects(name)?, &names, family)?
            .into_iter()
            .for_each(|rule| apply(Event::Rule(rule)));
    }
    for (name, v6, sweep) in [
        ("route4.json", false, Sweep::Routes4),
        ("route6.json", true, Sweep::Routes6),
    ] {
        let routes = routes::routes(&files.objects(name)?, &names, v6)?;
        apply(Event::SweepBegin(sweep));
        for route in routes {
            apply(Event::Route(route, RouteOp::Add));
        }
        apply(Event::SweepEnd(sweep));
    }
    let kernel = files.get("kernel.txt").ok();
    Ok(Snapshot {
        kernel: kernel.map(|(_, text)| version(text.trim())),
        ..rib.snapshot()
    })
}

/// The stable version that `uname -rv` tells, as live snapshots have it; what is no version as it stands.
fn version(text: &str) -> String {
    let (release, build) = text.split_once(' ').unwrap_or((text, ""));
    KernelVersion::of_uname(release, build, "")
        .map_or_else(|_| text.to_owned(), |version| version.to_string())
}

#[cfg(test)]
mod tests;
