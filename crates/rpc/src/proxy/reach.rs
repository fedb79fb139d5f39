//! Connections that are made and closed: whether a server can be reached.

use std::io;
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::core::Ends;

/// How long such a connection may take.
const REACH: Duration = Duration::from_secs(3);

/// Connects, and hangs up.
pub(super) async fn reach((mut local, peer): Ends) -> io::Result<()> {
    let socket = match peer.is_ipv6() {
        true => TcpSocket::new_v6()?,
        false => TcpSocket::new_v4()?,
    };
    socket.set_zero_linger()?;
    // A link-local address keeps its link.
    local.set_port(0);
    socket.bind(local)?;
    timeout(REACH, socket.connect(peer)).await??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};

    use super::*;

    /// The link-local addresses of this machine, and their links.
    fn link_local() -> Vec<SocketAddr> {
        let all = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
        let of = |line: &str| {
            let mut words = line.split_whitespace();
            let ip = Ipv6Addr::from(u128::from_str_radix(words.next()?, 16).ok()?);
            let link = u32::from_str_radix(words.next()?, 16).ok()?;
            let is = ip.is_unicast_link_local();
            is.then(|| SocketAddrV6::new(ip, 0, 0, link).into())
        };
        all.lines().filter_map(of).collect()
    }

    #[test]
    fn servers_at_link_local_addresses_are_reached() {
        let mut all = link_local();
        if all.is_empty() {
            eprintln!("skipped but for 127.0.0.1: this machine has no link-local address");
        }
        all.push(SocketAddr::from(([127, 0, 0, 1], 0)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            for mut local in all {
                let listener = TcpListener::bind(local).unwrap();
                local.set_port(1);
                reach((local, listener.local_addr().unwrap()))
                    .await
                    .unwrap();
            }
        });
    }
}
