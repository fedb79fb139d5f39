//! `[fpm]`: routes that a routing daemon tells beside what it tells the kernel.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use raddle_netlink::fpm::{Options, Reader};
use serde::Deserialize;

/// Where zebra looks for somebody to tell its routes to (`FPM_DEFAULT_PORT`).
const PORT: u16 = 2620;
/// The longest grace, in seconds.
const LONGEST: u32 = 3600;

/// `[fpm]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table [fpm] with listen, grace, counters and users, all of which may be left out"
)]
pub(crate) struct Fpm {
    /// The loopback address to listen at.
    pub listen: SocketAddr,
    /// How many seconds what was told stays after the connection has ended.
    pub grace: u32,
    /// Whether SIDs that are told count.
    pub counters: bool,
    /// The users who may tell, beside root: by default FRR's, where there is one.
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

impl Fpm {
    /// What no single value shows to be wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.listen.ip().is_loopback() {
            return Err(format!(
                "listen for FPM at 127.0.0.1 or ::1, and not at {}: it has no access control; zebra has to run in the \
                 same network namespace",
                self.listen
            ));
        }
        if self.listen.port() == 0 {
            return Err(
                "listen for FPM at a port that zebra can be told: 2620 is the usual one".into(),
            );
        }
        let named = self.users.iter().flatten();
        if let Some(unknown) = named.into_iter().find(|name| user(name).is_none()) {
            return Err(format!(
                "users in [fpm]: this machine has no user '{unknown}'"
            ));
        }
        if self.grace > LONGEST {
            return Err(format!(
                "grace is at most {LONGEST} seconds: routes that nobody tells any more lead astray"
            ));
        }
        Ok(())
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

    #[test]
    fn zebra_is_found_by_default() {
        let config: Config = toml::from_str("[fpm]").unwrap();
        let fpm = config.fpm.as_ref().unwrap();
        assert_eq!(fpm.listen.to_string(), "127.0.0.1:2620");
        assert_eq!((fpm.grace, fpm.counters), (60, true));
        assert!(config.may_have_own());
        assert!(!Config::default().may_have_own());
        for (text, said) in [
            ("[fpm]\nlisten = '0.0.0.0:2620'", "no access control"),
            ("[fpm]\ngrace = 3601", "at most 3600"),
            ("[fpm]\nlisten = '127.0.0.1:0'", "a port that zebra"),
            ("[fpm]\nusers = ['no-such-user']", "no user 'no-such-user'"),
        ] {
            let config: Config = toml::from_str(text).unwrap();
            let error = config.check().unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let error = toml::from_str::<Config>("[fpm]\nport = 7").unwrap_err();
        assert!(error.to_string().contains("unknown field `port`"));
    }
}
