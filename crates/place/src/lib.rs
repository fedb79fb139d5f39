//! Placing connections: programs on a cgroup give sockets source ports, when they connect, by which the kernel's own hash sends each along
//! the path that has the fewest connections to that destination.
//!
//! [`Place`] follows the kernel's routes and compiles them into the image that the programs read, as the daemon does for forwarded packets;
//! what is different for this machine's own is in `rib`. [`cgroup`] has the cgroups, [`ports`] which ports may be taken.
//!
//! Nothing is denied, and nothing waits for this process: where it ends, in whatever way, the kernel takes the programs off, and
//! connections are as without it.

pub mod cgroup;
mod error;
pub mod ports;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use raddle_image::{Capacity, Placed};
use raddle_netlink::Mirror;
use raddle_rib::Rib;
use raddle_select::SourcePreference;
use raddle_xdp::Placer;

pub use error::Error;

/// How often is looked after what nobody announces.
const ROUND: Duration = Duration::from_secs(1);

/// The programs and the state that they go by.
pub struct Place {
    placer: Placer,
    rib: Rib,
    mirror: Mirror,
    netns: u64,
    /// Which ports may be taken, as they were told last.
    ports: ports::Ports,
    next_round: Instant,
}

impl Place {
    /// Loads the programs, reads the routes of this thread's network namespace and the kernel's hash key. Nothing is attached yet.
    ///
    /// # Errors
    /// Missing privileges, an old kernel, no memory.
    ///
    /// # Minimum kernel version
    /// 6.1
    pub fn start(capacity: &Capacity) -> Result<Place, Error> {
        let placer = Placer::load(capacity)?;
        let mut mirror = Mirror::open()?;
        let mut rib = Rib::new(placer.memory(), capacity, wait_for_readers);
        rib.set_own(SourcePreference::of(raddle_preflight::running_kernel()?));
        mirror.initial(&mut |event| rib.apply(event))?;
        if let Err(why) = raddle_key::know(&mut rib) {
            tracing::warn!("nothing is placed while the kernel's hash key is not known: {why}");
        }
        rib.commit();
        let place = Place {
            netns: raddle_xdp::netns_cookie().map_err(Error::Namespace)?,
            ports: ports::Ports::read()?,
            placer,
            rib,
            mirror,
            next_round: Instant::now() + ROUND,
        };
        place.placer.set(&place.ports.placing(place.netns));
        Ok(place)
    }

    /// Has sockets of a cgroup and those below it placed from now on.
    ///
    /// # Errors
    /// Missing privileges, or another program there that allows none beside it.
    pub fn attach(&mut self, cgroup: BorrowedFd<'_>) -> Result<(), Error> {
        Ok(self.placer.attach(cgroup)?)
    }

    /// Why connections cannot be placed by the namespace's settings, for each family.
    pub fn hindrances(&self) -> Vec<String> {
        let settings = self.rib.settings();
        let families = [
            ("ipv4", settings.hash_policy4, settings.hash_fields4),
            ("ipv6", settings.hash_policy6, settings.hash_fields6),
        ];
        let hinders = families
            .into_iter()
            .filter(|(_, policy, fields)| !sees_ports(*policy, *fields));
        hinders
            .map(|(family, policy, _)| {
                format!(
                    "net.{family}.fib_multipath_hash_policy is {policy}: all connections between two addresses take one path, \
                     whatever their ports; sysctl -w net.{family}.fib_multipath_hash_policy=1"
                )
            })
            .collect()
    }

    /// Follows the kernel until `stop` can be read.
    ///
    /// # Errors
    /// The kernel's notifications cannot be read any more.
    pub fn follow(&mut self, stop: BorrowedFd<'_>) -> Result<(), Error> {
        loop {
            let timeout = self.next_round.saturating_duration_since(Instant::now());
            let mut fds = [self.mirror.fd(), stop].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            // A signal may interrupt it: the loop looks again at everything anyway.
            let _ = ppoll(&mut fds, Some(TimeSpec::from(timeout)), None);
            if fds[1].any() == Some(true) {
                return Ok(());
            }
            self.catch_up()?;
            if Instant::now() >= self.next_round {
                self.round();
                self.next_round = Instant::now() + ROUND;
            }
        }
    }

    fn catch_up(&mut self) -> Result<(), Error> {
        let rib = &mut self.rib;
        let batch = self.mirror.poll(&mut |event| rib.apply(event))?;
        if batch.recovered {
            rib.refresh();
        }
        if rib.is_dirty() && !batch.sweeping {
            rib.commit();
        }
        Ok(())
    }

    /// What nobody announces: which ports may be taken.
    fn round(&mut self) {
        match ports::Ports::read() {
            Ok(ports) if ports != self.ports => {
                self.placer.set(&ports.placing(self.netns));
                self.ports = ports;
            }
            Ok(_) => {}
            Err(e) => tracing::warn!("{e}"),
        }
    }

    /// What has become of connections so far, those outcomes that there were.
    pub fn outcomes(&self) -> Vec<(Placed, u64)> {
        let outcomes = self.placer.outcomes().into_iter();
        outcomes.filter(|(_, count)| *count > 0).collect()
    }
}

/// Whether the kernel's hash goes over source ports.
fn sees_ports(policy: u8, fields: u32) -> bool {
    /// `FIB_MULTIPATH_HASH_FIELD_SRC_PORT`.
    const SRC_PORT: u32 = 1 << 4;
    policy == 1 || (policy == 3 && fields & SRC_PORT != 0)
}

/// The programs run in RCU read sections.
fn wait_for_readers() {
    if let Err(e) = raddle_xdp::grace() {
        tracing::error!("cannot wait for the programs that read the image: {e}");
        // Longer than any runs.
        std::thread::sleep(Duration::from_millis(100));
    }
}
