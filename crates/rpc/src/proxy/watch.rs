//! Looks after connections that say nothing.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::shared::Shared;
use crate::core::{Event, Heard};

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

impl Watched {
    /// To be used as long as the stream lives.
    pub(super) fn new(stream: &TcpStream) -> Watched {
        Watched {
            fd: stream.as_raw_fd(),
        }
    }

    /// Segments that TCP has sent again.
    pub(super) fn retransmits(self) -> Option<u32> {
        self.info().map(|info| info.tcpi_total_retrans)
    }

    /// `TCP_INFO`.
    fn info(self) -> Option<libc::tcp_info> {
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
        (done == 0).then_some(info)
    }

    /// What the kernel says about it.
    fn heard(self) -> Option<Heard> {
        let info = self.info()?;
        let silent = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
        // While bytes are under way, the kernel has doubled it already; while it probes a window, not.
        let probes = info.tcpi_unacked == 0;
        let doubled = if probes {
            1 << info.tcpi_backoff.min(8)
        } else {
            1_u32
        };
        Some(Heard {
            silent: Duration::from_millis(u64::from(silent)),
            rtt: Duration::from_micros(u64::from(info.tcpi_rtt)),
            repeats: Duration::from_micros(u64::from(info.tcpi_rto)) * doubled,
            // Probes of a window of zero count from the last answer; so do attempts that the own qdisc drops.
            unacknowledged: info.tcpi_unacked > 0 || info.tcpi_probes > 0,
            probed: info.tcpi_probes > 0,
        })
    }
}

/// How often it is asked where they lie.
const REVIEW: Duration = Duration::from_secs(10);

/// Watches all connections for as long as the proxy runs.
pub(super) async fn watch(shared: Rc<Shared>) {
    let mut reviewed = Instant::now();
    loop {
        tokio::time::sleep(TICK).await;
        shared.flush();
        let now = Instant::now();
        let changed = shared.connect.changed();
        if changed || now.saturating_duration_since(reviewed) >= REVIEW {
            reviewed = now;
            let standing = shared.with(|core, _, _| core.standing());
            let review = shared.connect.review(&standing);
            shared.tell(Event::Reviewed(review));
        }
        let heard: Vec<Option<Heard>> = shared
            .links
            .iter()
            .map(|link| link.socket.get()?.heard())
            .collect();
        shared.tell(Event::Tick(&heard));
    }
}
