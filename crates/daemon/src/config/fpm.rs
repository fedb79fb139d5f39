//! `[fpm]`: routes that a routing daemon sends beside those that it gives the kernel.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use raddle_netlink::fpm::{Options, Reader};

/// Where zebra looks for somebody to tell its routes to (`FPM_DEFAULT_PORT`).
const PORT: u16 = 2620;
/// The longest grace, in seconds.
const LONGEST: u32 = 3600;

/// `[fpm]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fpm {
    /// The loopback address to listen at.
    pub listen: SocketAddr,
    /// How many seconds FPM routes stay after the connection has ended.
    pub grace: u32,
    /// Whether SIDs of FPM routes count.
    pub counters: bool,
    /// The users who may send routes, beside root: by default FRR's, where there is one.
    pub users: Option<Vec<String>>,
}

/// The user that FRR's daemons run as.
const FRR: &str = "frr";

impl Default for Fpm {
    fn default() -> Fpm {
        Fpm {
            listen: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT)),
            grace: 60,
            counters: true,
            users: None,
        }
    }
}

/// What is wrong with it, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FpmInvalid {
    /// Others could send routes.
    #[error(
        "listen for FPM at 127.0.0.1 or ::1, and not at {0}: it has no access control; zebra has to run in the same \
         network namespace"
    )]
    NotLoopback(SocketAddr),
    /// Nobody could be told where.
    #[error("listen for FPM at a port that zebra can be told: {PORT} is the usual one")]
    NoPort,
    /// A user that there is not.
    #[error("users in [fpm]: this machine has no user '{name}'")]
    NoUser {
        /// Which of them.
        place: usize,
        /// Its name.
        name: String,
    },
    /// A grace that is too long.
    #[error("grace is at most {LONGEST} seconds: routes that nobody tells any more lead astray")]
    Grace,
}

impl Fpm {
    /// What no single value shows to be wrong.
    pub(super) fn check(&self) -> Result<(), FpmInvalid> {
        if !self.listen.ip().is_loopback() {
            return Err(FpmInvalid::NotLoopback(self.listen));
        }
        if self.listen.port() == 0 {
            return Err(FpmInvalid::NoPort);
        }
        let mut named = self.users.iter().flatten().enumerate();
        if let Some((place, name)) = named.find(|(_, name)| user(name).is_none()) {
            let name = name.clone();
            return Err(FpmInvalid::NoUser { place, name });
        }
        match self.grace > LONGEST {
            true => Err(FpmInvalid::Grace),
            false => Ok(()),
        }
    }

    /// The same for who listens.
    pub(crate) fn options(&self) -> Options {
        let users = match &self.users {
            Some(names) => names.iter().filter_map(|name| user(name)).collect(),
            None => user(FRR).into_iter().collect(),
        };
        Options {
            users,
            grace: Duration::from_secs(self.grace.into()),
            reader: Reader {
                counters: self.counters,
            },
        }
    }
}

/// The number of the user with this name.
fn user(name: &str) -> Option<u32> {
    let user = nix::unistd::User::from_name(name).ok().flatten();
    user.map(|user| user.uid.as_raw())
}
#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::tests::{parsed, refused};

    #[test]
    fn zebra_is_found_by_default() {
        let config = parsed("[fpm]");
        let fpm = config.fpm.as_ref().unwrap();
        assert_eq!(fpm.listen.to_string(), "127.0.0.1:2620");
        assert_eq!((fpm.grace, fpm.counters), (60, true));
        assert!(config.may_have_statics());
        assert!(!Config::default().may_have_statics());
        for (text, said) in [
            ("[fpm]\nlisten = '0.0.0.0:2620'", "no access control"),
            ("[fpm]\ngrace = 3601", "at most 3600"),
            ("[fpm]\nlisten = '127.0.0.1:0'", "a port that zebra"),
            ("[fpm]\nusers = ['no-such-user']", "no user 'no-such-user'"),
        ] {
            let error = refused(text).to_string();
            assert!(error.contains(said), "{error}");
        }
        let error = refused("[fpm]\nport = 7").to_string();
        assert!(
            error.contains("there is no key 'port' here; there are listen, grace, counters, users"),
            "{error}"
        );
    }
}
