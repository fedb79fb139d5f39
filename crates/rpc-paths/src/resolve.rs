//! The addresses of the server, and the own ones that connections are made from.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Socket, Type};

use crate::{Error, Server};

/// Ports that servers take for root's, of which the kernel's own NFS client takes its.
pub(crate) const PRIVILEGED: (u16, u16) = (665, 1023);

/// With privileged ports, clients have one, too: below this one.
pub(crate) const CLIENTS_BELOW: u16 = 1024;

/// The first port that everybody may use, if it can be read.
fn unprivileged_from() -> Option<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").ok()?;
    text.trim().parse().ok()
}

/// The addresses of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// What its name stands for, one or several, the preferred one first. They may be several machines: one of
    /// them is taken.
    pub named: Vec<SocketAddr>,
    /// More addresses of that one.
    pub more: Vec<IpAddr>,
    /// Own addresses.
    local: Vec<IpAddr>,
}

/// The addresses of the server.
///
/// # Errors
/// The addresses make no sense (exit code 2), or the name cannot be found (3), which may be so until the network
/// is up.
pub(crate) async fn addresses(options: &Server) -> Result<Addresses, Error> {
    check(Addresses {
        named: named(options.server.as_str()).await?,
        more: options.server_addresses.clone(),
        local: options.local_addresses.clone(),
    })
}

async fn named(server: &str) -> Result<Vec<SocketAddr>, Error> {
    let resolved = tokio::net::lookup_host(server).await.map_err(|e| {
        let server = server.to_owned();
        match e.kind() {
            io::ErrorKind::InvalidInput => Error::NoName { server, source: e },
            _ => Error::NotFound { server, source: e },
        }
    })?;
    let mut named: Vec<SocketAddr> = Vec::new();
    for address in resolved {
        if !named.contains(&address) {
            named.push(address);
        }
    }
    match named.is_empty() {
        true => Err(Error::NoAddress(server.to_owned())),
        false => Ok(named),
    }
}

/// That addresses fit together.
///
/// 1. All further addresses of the server are of one family, and the name has one of it; others of the name are
///    not taken.
/// 2. Own addresses are of it, too.
fn check(mut servers: Addresses) -> Result<Addresses, Error> {
    let local = &servers.local;
    let given = servers.more.first().map(|a| (a, "--server-addresses"));
    let given = given.or(local.first().map(|a| (a, "--local-addresses")));
    if let Some((first, option)) = given {
        let v6 = first.is_ipv6();
        if !servers.named.iter().any(|a| a.is_ipv6() == v6) {
            return Err(Error::OtherFamily {
                option,
                address: *first,
                server: servers.named[0].ip(),
            });
        }
        servers.named.retain(|a| a.is_ipv6() == v6);
        let more = servers.more.iter().map(|a| (a, "--server-addresses"));
        let local = local.iter().map(|a| (a, "--local-addresses"));
        if let Some((other, of)) = more.chain(local).find(|(a, _)| a.is_ipv6() != v6) {
            return Err(Error::TwoFamilies {
                option: of,
                address: *other,
                first: (option, *first),
            });
        }
    }
    Ok(servers)
}

/// Whether a socket may have this address and port.
fn bind(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.bind(&address.into())
}

/// That own addresses are this machine's, and privileged ports may be used.
///
/// # Errors
/// Which address is not (exit code 2), or that the capability is missing (3).
pub(crate) fn check_local(options: &Server, servers: &Addresses) -> Result<(), Error> {
    for address in &options.local_addresses {
        if let Err(e) = bind(SocketAddr::new(*address, 0)) {
            return Err(match e.raw_os_error() {
                Some(libc::EADDRNOTAVAIL) => Error::NotLocal(*address),
                _ => Error::Bind {
                    address: *address,
                    source: e,
                },
            });
        }
    }
    if !options.privileged_ports {
        return Ok(());
    }
    if let Some(start) = unprivileged_from().filter(|start| *start < CLIENTS_BELOW) {
        return Err(Error::PortsOfEverybody(start));
    }
    let any: IpAddr = match servers.named[0].is_ipv6() {
        true => [0_u16; 8].into(),
        false => [0_u8; 4].into(),
    };
    let refused = (PRIVILEGED.0..=PRIVILEGED.1)
        .map(|port| bind(SocketAddr::new(any, port)))
        .find_map(|bound| match bound {
            Ok(()) => Some(None),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Some(Some(e)),
            Err(_) => None,
        });
    match refused.flatten() {
        Some(e) => Err(Error::PrivilegedPorts { source: e }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(named: &[&str], more: &[&str], local: &[&str]) -> Addresses {
        Addresses {
            local: local.iter().map(|a| a.parse().unwrap()).collect(),
            named: named.iter().map(|a| a.parse().unwrap()).collect(),
            more: more.iter().map(|a| a.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn families_are_not_mixed() {
        let both = ["[2001:db8::2]:2049", "10.0.0.2:2049"];
        let checked = check(servers(&both, &["10.0.1.2"], &["10.0.0.1"])).unwrap();
        assert_eq!(checked.named, servers(&both[1..], &[], &[]).named);
        assert_eq!(check(servers(&both, &[], &[])).unwrap().named.len(), 2);
        let wrong = |named: &[&str], more: &[&str], local: &[&str]| {
            let failure = check(servers(named, more, local)).unwrap_err();
            assert!(failure.is_usage());
            failure.to_string()
        };
        assert_eq!(
            wrong(&both[1..], &["2001:db8::3"], &[]),
            "--server-addresses 2001:db8::3 is an IPv6 address, and the server, 10.0.0.2, has none: name \
             addresses of one family"
        );
        assert_eq!(
            wrong(&both, &["10.0.1.2", "2001:db8::3"], &[]),
            "--server-addresses 2001:db8::3 is an IPv6 address, and --server-addresses 10.0.1.2 an IPv4 one: \
             name addresses of one family"
        );
        assert!(wrong(&both[..1], &[], &["10.0.0.1"]).starts_with("--local-addresses 10.0.0.1 is"));
    }

    #[test]
    fn an_address_needs_a_port() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let failure = runtime.block_on(named("nas.example")).unwrap_err();
        assert!(failure.is_usage());
        let named = runtime.block_on(named("127.0.0.1:2049")).unwrap();
        assert_eq!(named, ["127.0.0.1:2049".parse().unwrap()]);
    }
}
