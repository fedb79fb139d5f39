//! Where the journals of calls lie: beside the socket that only one process has at a time.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use raddle_rpc::journal::{Journal, Keys, Left};
use raddle_rpc::proxy::Service;

use crate::Server;

/// The file of a server's journal: what is no letter, digit, dot or hyphen in its name is written in hexadecimal
/// digits.
fn path_of(journals: &Path, server: &str) -> PathBuf {
    let mut path = OsString::from(journals);
    path.push(".");
    for byte in server.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' => {
                path.push((byte as char).to_string());
            }
            other => path.push(format!("_{other:02x}")),
        }
    }
    path.push(".calls");
    path.into()
}

/// Opens a server's journal. A proxy that cannot have one works, and calls may be run twice when it ends.
pub(crate) fn open(
    options: &Server,
    journals: &Path,
    services: &[Service],
    addresses: &[SocketAddr],
) -> (Journal, Left) {
    let draw = RandomState::new();
    let keys = Keys(draw.hash_one(0), draw.hash_one(1));
    // Numbers count the connections of the first service, then those of the others.
    let of_nfs = services
        .first()
        .map_or(0, |first| first.connections + first.lanes);
    let all: usize = services.iter().map(|of| of.connections + of.lanes).sum();
    let wanted = |number: u16, peer: SocketAddr| {
        let number = usize::from(number);
        let is_known = addresses.iter().any(|address| {
            let port = match number < of_nfs {
                true => address.port(),
                false => options.mount_port.unwrap_or_default(),
            };
            let of_it = address.ip() == peer.ip()
                || options.server_addresses.contains(&peer.ip().to_canonical());
            of_it && port == peer.port()
        });
        number < all && is_known
    };
    let path = path_of(journals, &options.name);
    match Journal::open(&path, keys, wanted) {
        Ok(opened) => opened,
        Err(e) => {
            let why = match e.kind() {
                io::ErrorKind::WouldBlock => "another process uses it".to_owned(),
                _ => e.to_string(),
            };
            tracing::warn!(
                server = display(&options.name),
                "no journal of calls, so that some may be run twice when this process ends: {}: {why}",
                path.display()
            );
            (Journal::none(keys), Left::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_make_names_of_files() {
        let of = |name| path_of(Path::new("/run/raddle/rpc-1"), name);
        assert_eq!(
            of("nas.example"),
            Path::new("/run/raddle/rpc-1.nas.example.calls")
        );
        assert_eq!(
            of("[fe80::1]"),
            Path::new("/run/raddle/rpc-1._5bfe80_3a_3a1_5d.calls")
        );
        assert_eq!(of("../a"), Path::new("/run/raddle/rpc-1..._2fa.calls"));
        assert_eq!(of("a_2fb"), Path::new("/run/raddle/rpc-1.a_5f2fb.calls"));
    }
}
