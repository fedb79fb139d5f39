#![doc = include_str!("../README.md")]

mod client;
mod clients;
mod counters;
mod error;
mod lock;
mod message;
mod proxies;
mod routes;
mod segments;
mod server;
pub mod status;
#[cfg(test)]
mod tests;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use client::{DAEMON, PROXIES, Session, ask, ask_at};
pub use counters::{Count, Counters, LinkCount, LinkLoss, NexthopCount, ReasonCount, Verdict};
pub use error::{Error, Who};
pub use lock::{Lock, lock, lock_of};
pub use message::{Answer, Command, PROTOCOL, Reply};
pub use proxies::{Proxies, Proxy, ProxyConfig, RefusedConfig, Serving};
pub use routes::Routes;
pub use segments::{CpuCounts, Owner, Segment, SegmentCounts, Segments};
pub use server::{Request, Server, check};
pub use status::Status;

/// Directory of control sockets.
const DIRECTORY: &str = "/run/raddle";
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket's path for this thread's network namespace: by the namespace's inode, which everybody
/// can see of their own. (Who is in the machine's first namespace, ordinary users and confined
/// daemons cannot see.)
pub fn default_path() -> PathBuf {
    let inode = std::fs::metadata("/proc/thread-self/ns/net").map(|ns| ns.ino());
    let name = match inode {
        Ok(inode) => format!("net-{inode}.sock"),
        // A kernel without namespaces.
        Err(_) => "raddle.sock".to_owned(),
    };
    Path::new(DIRECTORY).join(name)
}

/// The path of another socket of this thread's network namespace, such as `rpc`'s.
pub fn path_of(what: &str) -> PathBuf {
    let path = default_path();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{what}-{}", name.trim_start_matches("net-")))
}
