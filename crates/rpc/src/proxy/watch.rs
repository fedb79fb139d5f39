//! Looks after connections that say nothing.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::Standing;
use super::beside::Beside;
use super::shared::Shared;
use super::transport::State;
use crate::liveness::{Signs, Verdict, judge};

/// How often connections are looked at.
const TICK: Duration = Duration::from_millis(50);

/// After which time without a word TCP asks whether the other side is there, and how often from then on. It also
/// keeps firewalls between from forgetting a connection that is not used.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(2));
/// How long TCP goes on by itself when nothing is acknowledged. The kernel counts a server that takes nothing for
/// so long (a window of zero), too, so it must not be short.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Has the kernel ask about a connection that is not used, and give one up that is dead.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let (time, interval) = KEEP_ALIVE;
    let keep_alive = TcpKeepalive::new().with_time(time).with_interval(interval);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keep_alive)?;
    socket.set_tcp_user_timeout(Some(GIVE_UP))
}

/// A connection's socket, to ask the kernel about while reader and writer have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    fd: RawFd,
}

/// What the kernel says about a connection.
#[derive(Clone, Copy, Debug)]
struct Heard {
    silent: Duration,
    rtt: Duration,
    /// How long TCP waits before it sends again.
    repeats: Duration,
    unacknowledged: bool,
    /// Whether a keep-alive, or a probe of its window, has no answer.
    probed: bool,
    retransmits: u32,
}

impl Watched {
    /// To be used as long as the stream lives.
    pub(super) fn new(stream: &TcpStream) -> Watched {
        Watched {
            fd: stream.as_raw_fd(),
        }
    }

    /// Segments that TCP has sent again.
    pub(super) fn retransmits(self) -> Option<u32> {
        self.heard().map(|heard| heard.retransmits)
    }

    /// `TCP_INFO`.
    fn heard(self) -> Option<Heard> {
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which the value has; zeros are one of this type.
        let (done, info) = unsafe {
            let done = libc::getsockopt(
                self.fd,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            );
            (done, info.assume_init())
        };
        let silent = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
        // While bytes are under way, the kernel has doubled it already; while it probes a window, not.
        let probes = info.tcpi_unacked == 0;
        let doubled = if probes {
            1 << info.tcpi_backoff.min(8)
        } else {
            1_u32
        };
        (done == 0).then(|| Heard {
            silent: Duration::from_millis(u64::from(silent)),
            rtt: Duration::from_micros(u64::from(info.tcpi_rtt)),
            repeats: Duration::from_micros(u64::from(info.tcpi_rto)) * doubled,
            // Probes of a window of zero count from the last answer; so do attempts that the own qdisc drops.
            unacknowledged: info.tcpi_unacked > 0 || info.tcpi_probes > 0,
            probed: info.tcpi_probes > 0,
            retransmits: info.tcpi_total_retrans,
        })
    }
}

/// How often it is asked where they lie.
const REVIEW: Duration = Duration::from_secs(10);

/// Watches all connections for as long as the proxy runs.
pub(super) async fn watch(shared: Rc<Shared>) {
    let mut reviewed = Instant::now();
    let beside: Rc<Beside> = Rc::default();
    loop {
        tokio::time::sleep(TICK).await;
        let now = Instant::now();
        shared.duplicates.expire();
        shared.forget_left();
        shared.flush();
        let changed = shared.connect.changed();
        if changed || now.saturating_duration_since(reviewed) >= REVIEW {
            reviewed = now;
            review(&shared);
        }
        for transport in &shared.transports {
            let stands = transport.watched().is_some();
            if stands && transport.drains.get() && !transport.is_waiting() && !transport.expects() {
                let detour = matches!(&*transport.state.borrow(), State::Up(up) if up.detour);
                transport.fail(match detour {
                    true => "closed: the calls that it went around a silent link for are answered",
                    false => "closed, to be made again where fewer connections lie",
                });
            }
            transport.repeat();
        }
        let heard: Vec<Option<Heard>> = shared
            .transports
            .iter()
            .map(|transport| transport.watched()?.heard())
            .collect();
        for (number, transport) in shared.transports.iter().enumerate() {
            let Some(own) = heard[number] else {
                continue;
            };
            // Also those of other services: it is the same machine, and a service may have one connection.
            let others = heard.iter().enumerate().filter(|(i, _)| *i != number);
            let others = others.filter_map(|(_, heard)| Some((*heard)?.silent)).min();
            let asked = transport.asked(now);
            let signs = Signs {
                outstanding: transport.is_waiting() || own.probed,
                silent: own.silent,
                rtt: own.rtt,
                unacknowledged: own.unacknowledged,
                asked,
                others,
                beside: beside.heard(now),
                repeats: own.repeats,
            };
            match judge(&signs) {
                Verdict::Fine => {}
                Verdict::Ask => {
                    let all = shared.transports.iter().zip(&heard);
                    let stand = all.filter(|(_, heard)| heard.is_some());
                    stand.for_each(|(transport, _)| transport.ask(now));
                }
                Verdict::Beside => {
                    if let State::Up(up) = &*transport.state.borrow() {
                        beside.reach((up.local, up.peer), now);
                    }
                }
                Verdict::Dead => {
                    shared.connect.silent(transport.service, transport.number);
                    let heard = others.is_some_and(|others| asked.is_some_and(|at| others < at));
                    transport.is_silent(heard);
                }
            }
        }
    }
}

/// Has it looked at where connections lie, and one drained that would lie better elsewhere. One that is being
/// moved is waited for.
fn review(shared: &Shared) {
    let mut standing = Vec::new();
    let mut transports = Vec::new();
    for transport in &shared.transports {
        if let State::Up(up) = &*transport.state.borrow() {
            standing.push(Standing {
                service: transport.service,
                number: transport.number,
                lane: transport.lane,
                local: up.local,
                peer: up.peer,
                moves: shared.is_moving(transport.service),
                expects: transport.expects(),
            });
            transports.push(transport);
        }
    }
    let review = shared.connect.review(&standing);
    let links = review.links.into_iter().zip(review.back);
    for (transport, (out, back)) in transports.iter().zip(links) {
        if let State::Up(up) = &mut *transport.state.borrow_mut() {
            (up.out, up.back) = (out, back);
        }
    }
    if let Some(number) = review.again
        && let Some(transport) = transports.get(number)
        && !transport.expects()
    {
        transport.drains.set(true);
    }
}
