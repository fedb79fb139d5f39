//! `mp_seed`: the seed that a network namespace goes by (Linux 6.11 and newer).

use std::fs;
use std::net::Ipv4Addr;

use nix::sched::{CloneFlags, unshare};
use raddle_btf::{Btf, KERNEL};
use raddle_netlink::codec::Builder;
use raddle_netlink::codec::number::nlm;
use raddle_netlink::codec::number::rtm::{RTM_NEWLINK, RTM_NEWROUTE};
use raddle_netlink::{RouteQuery, Socket};
use raddle_select::{
    Flow, HashConfig, HashKey, Hasher, Keys, Policy, Seed, choose_plain, keys_of_flow, upper_bounds,
};

use crate::bpf;
use crate::error::Error;
use crate::privilege;

/// There wherever the kernel has such a seed.
pub(crate) const SETTING: &str = "/proc/sys/net/ipv4/fib_multipath_hash_seed";

/// Offsets from a task to the seed of its network namespace: of two pointers, and of the seed.
pub(crate) struct Place([u32; 3]);

/// Where the seed is; none for a kernel that has no such thing.
///
/// # Errors
/// [`Error::NoTypes`].
pub(crate) fn place() -> Result<Option<Place>, Error> {
    let bytes = fs::read(KERNEL).map_err(|e| Error::NoTypes(format!("{KERNEL}: {e}")))?;
    let wrong = || Error::NoTypes(format!("{KERNEL} cannot be made sense of"));
    let btf = Btf::parse(&bytes).ok_or_else(wrong)?;
    let nsproxy = btf.member("task_struct", "nsproxy").ok_or_else(wrong)?;
    let net = btf.member("nsproxy", "net_ns").ok_or_else(wrong)?;
    let ipv4 = btf.member("net", "ipv4").ok_or_else(wrong)?;
    let seed = btf
        .inner(ipv4, "sysctl_fib_multipath_hash_seed")
        .and_then(|both| btf.inner(both, "mp_seed"));
    Ok(seed.map(|seed| Place([nsproxy.offset, net.offset, seed.offset])))
}

/// Reads the seed in a network namespace of its own, where none is set, and proves it there.
pub(crate) fn read(place: Place) -> Result<HashKey, Error> {
    privilege::require(&[privilege::SYS_ADMIN])?;
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|e| Error::system("make a network namespace")(e.into()))?;
        let [word] = bpf::read::<1>(None, &place.0)?;
        let seed = Seed::new(word as u32).ok_or(Error::Unproven("it is zero"))?;
        Oracle::new(Socket::open()?)?.prove(seed.into())?;
        Ok(seed.into())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("raddle-key".into())
            .spawn_scoped(scope, inside)
            .map_err(Error::system("start a thread"))?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Paths of the route that is asked about: as many as bring 6 bits an answer.
const PATHS: u8 = 64;
/// Questions of a proof: 192 bits against the seed's 32.
pub(crate) const QUESTIONS: u8 = 32;

fn gateway(path: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, path + 1)
}

/// Upper bounds of the route's paths.
pub(crate) fn uppers() -> Vec<Option<u32>> {
    upper_bounds(&[Some(1); PATHS as usize])
}

/// What the kernel is asked: which path a flow takes in a network namespace that has nothing but `lo`.
pub(crate) struct Oracle {
    socket: Socket,
}

impl Oracle {
    /// 1. A route of 64 paths of equal weight over `lo`, and one destination for each question.
    /// 2. Policy 0, which a new namespace has, hashes both addresses; that of the sender is not chosen yet, and 0.
    pub(crate) fn new(mut socket: Socket) -> Result<Oracle, raddle_netlink::Error> {
        let mut request = Builder::new();
        request.begin(RTM_NEWLINK, 0, &link_up(LOOPBACK));
        request.end()?;
        socket.request(&mut request, "bring up the loopback link")?;
        request.clear();
        add_route(&mut request);
        request.end()?;
        socket.request(&mut request, "add a route of several paths")?;
        Ok(Oracle { socket })
    }

    /// What is hashed, and the number of the path that is taken; none for an answer that is no path of the route.
    pub(crate) fn ask(
        &mut self,
        question: u8,
    ) -> Result<Option<(Keys, usize)>, raddle_netlink::Error> {
        // Far from each other, so that no bit of the hash counts alone.
        let dst = Ipv4Addr::new(198, 18, question.wrapping_mul(57), question);
        let answer = self.socket.get_route(dst.into(), &RouteQuery::default())?;
        let flow = Flow::new(Ipv4Addr::UNSPECIFIED.into(), dst.into());
        let keys = flow.map(|flow| keys_of_flow(&HashConfig::from(Policy::L3), &flow));
        let path = (0..PATHS).find(|path| answer.gateway == Some(gateway(*path).into()));
        Ok(keys.zip(path.map(usize::from)))
    }

    /// Whether the kernel goes by this key.
    pub(crate) fn prove(&mut self, key: HashKey) -> Result<(), Error> {
        let hasher = Hasher::new(key);
        let uppers = uppers();
        for question in 0..QUESTIONS {
            let Some((keys, path)) = self.ask(question)? else {
                return Err(Error::Unproven("there is no flow to ask about"));
            };
            let choice = choose_plain(&uppers, |_| true, hasher.hash31(&keys));
            if choice.map(|choice| choice.member) != Some(path) {
                return Err(Error::Unproven("the paths of a route"));
            }
        }
        Ok(())
    }
}

/// `lo` has this index in every network namespace.
const LOOPBACK: u32 = 1;

/// `struct ifinfomsg` that brings a link up.
fn link_up(index: u32) -> [u8; 16] {
    let mut head = [0; 16];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    let up = libc::IFF_UP as u32;
    head[8..12].copy_from_slice(&up.to_ne_bytes());
    head[12..16].copy_from_slice(&up.to_ne_bytes());
    head
}

/// 198.18.0.0/15 by all paths. No gateway is looked for (`onlink`): only the choice is asked for.
fn add_route(request: &mut Builder) {
    const RTA_DST: u16 = 1;
    const RTA_GATEWAY: u16 = 5;
    const RTA_MULTIPATH: u16 = 9;
    const RTNH_F_ONLINK: u8 = 4;
    const MAIN: u8 = 254;
    let mut paths = Vec::new();
    for path in 0..PATHS {
        // `struct rtnexthop`, and its gateway.
        paths.extend(16u16.to_ne_bytes());
        paths.extend([RTNH_F_ONLINK, 0]);
        paths.extend(LOOPBACK.to_ne_bytes());
        paths.extend(8u16.to_ne_bytes());
        paths.extend(RTA_GATEWAY.to_ne_bytes());
        paths.extend(gateway(path).octets());
    }
    // Family, lengths of destination and source, TOS, table, static, universe, unicast, flags.
    let head = [2, 15, 0, 0, MAIN, 4, 0, 1, 0, 0, 0, 0];
    request
        .begin(RTM_NEWROUTE, nlm::CREATE | nlm::EXCL, &head)
        .put_ip(RTA_DST, Ipv4Addr::new(198, 18, 0, 0).into())
        .put(RTA_MULTIPATH, &paths);
}
