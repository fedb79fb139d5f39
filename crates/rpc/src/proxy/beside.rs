//! Connections beside those that say nothing: whether a server can be reached.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::TcpSocket;
use tokio::time::timeout;

/// Connections that are made to find out whether a server can be reached.
#[derive(Default)]
pub(super) struct Beside {
    /// When the last one was begun, and when the first one was since there was an answer.
    begun: Cell<Option<(Instant, Instant)>>,
    /// When the last answer came.
    answered: Cell<Option<Instant>>,
}

/// How long such a connection may take.
const REACH: Duration = Duration::from_secs(3);
/// How often one is made, in the first two seconds and later.
const REACHES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
const SOON: Duration = Duration::from_secs(2);

impl Beside {
    /// How long ago there was an answer.
    pub(super) fn heard(&self, now: Instant) -> Option<Duration> {
        let answered = self.answered.get()?;
        Some(now.saturating_duration_since(answered))
    }

    /// Makes one from this address to that one, from any port, unless it is too soon. Several at once take several
    /// links.
    pub(super) fn reach(self: &Rc<Self>, ends: (SocketAddr, SocketAddr), now: Instant) {
        let begun = self.begun.get();
        let since = |at: Instant| now.saturating_duration_since(at);
        let first = begun.map(|(_, first)| first).filter(|at| {
            let answered = self.answered.get();
            answered.is_none_or(|answered| answered < *at)
        });
        let first = first.unwrap_or(now);
        let every = if since(first) < SOON {
            REACHES.0
        } else {
            REACHES.1
        };
        if begun.is_some_and(|(last, _)| since(last) < every) {
            return;
        }
        self.begun.set(Some((now, first)));
        let beside = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if reach(ends).await.is_ok() {
                beside.answered.set(Some(Instant::now()));
            }
        });
    }
}

/// Connects, and hangs up.
async fn reach((mut local, peer): (SocketAddr, SocketAddr)) -> io::Result<()> {
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
    use std::net::{Ipv6Addr, SocketAddrV6, TcpListener};

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
