//! Network namespaces other than our own: to find the far end of a veth pair, or what is stacked
//! upon a link of ours.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use raddle_rib::event::{Event, Link, Rule};

use super::Error;
use super::talk::Talk;
use crate::codec::number::rtm::{RTM_GETLINK, RTM_GETRULE};
use crate::codec::number::{INET, INET6};
use crate::codec::{Builder, DecodeError, Decoded, Message, decode_message};

const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
/// Where `ip netns` keeps its namespaces.
const NAMED: &str = "/var/run/netns";

/// How a command gets into a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the one we are in.
    Here,
    /// It has a name (`ip netns`).
    Named(String),
    /// A process is in it.
    Process(u32),
}

impl Place {
    /// `command` so that it runs there.
    pub fn command(&self, command: &str) -> String {
        match self {
            Place::Here => command.to_owned(),
            Place::Named(name) => format!("ip netns exec {name} {command}"),
            Place::Process(pid) => format!("nsenter -t {pid} -n {command}"),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Here => f.write_str("this namespace"),
            Place::Named(name) => write!(f, "namespace {name}"),
            Place::Process(pid) => write!(f, "the namespace of process {pid}"),
        }
    }
}

/// A network namespace, held open.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    /// How to get there.
    pub place: Place,
}

impl Namespace {
    /// The calling thread's.
    ///
    /// # Errors
    /// [`Error::Io`] without `/proc`.
    pub fn current() -> Result<Namespace, Error> {
        let file = File::open("/proc/thread-self/ns/net")
            .map_err(|e| Error::io("open our network namespace", e))?;
        Ok(Namespace {
            file,
            place: Place::Here,
        })
    }

    /// All that can be found, our own first, then those with a name, then those of processes.
    /// What may not be opened is left out.
    ///
    /// Costs a few system calls for every process.
    ///
    /// # Errors
    /// [`Error::Io`] without `/proc`.
    pub fn all() -> Result<Vec<Namespace>, Error> {
        let mut found = vec![Namespace::current()?];
        let mut seen: HashSet<_> = found.iter().filter_map(Namespace::identity).collect();
        let mut add = |path: &Path, place: Place| {
            // Looking is cheaper than opening, and most processes share a namespace.
            let identity = std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
            if identity.is_some_and(|identity| seen.insert(identity))
                && let Ok(file) = File::open(path)
            {
                found.push(Namespace { file, place });
            }
        };
        for entry in std::fs::read_dir(NAMED).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            add(&entry.path(), Place::Named(name));
        }
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            if let Ok(pid) = entry.file_name().to_string_lossy().parse() {
                add(&entry.path().join("ns/net"), Place::Process(pid));
            }
        }
        Ok(found)
    }

    fn identity(&self) -> Option<(u64, u64)> {
        self.file.metadata().ok().map(|m| (m.dev(), m.ino()))
    }

    /// The number by which the calling thread's namespace refers to this one in
    /// [`Link::lower_netns`]; none while it has never had to.
    ///
    /// # Errors
    /// [`Error::Refused`] when this is no network namespace.
    pub fn id(&self) -> Result<Option<i32>, Error> {
        let what = "ask for the id of a network namespace";
        let Some(mut talk) = Talk::open(libc::NETLINK_ROUTE, what)? else {
            return Ok(None);
        };
        let mut request = Builder::new();
        request
            .begin(RTM_GETNSID, 0, &[0; 4])
            .put_u32(NETNSA_FD, self.file.as_raw_fd() as u32);
        request.end()?;
        let id = talk.ask(&mut request, what, decode_id)?;
        Ok(id.filter(|&id| id >= 0))
    }

    /// Runs `job` in the namespace, on a thread of its own, so that the caller stays where it is.
    ///
    /// # Errors
    /// [`Error::Denied`] without `CAP_SYS_ADMIN` there; whatever `job` returns.
    pub fn run<T: Send>(&self, job: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        if self.place == Place::Here {
            return job();
        }
        let what = "enter a network namespace";
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("raddle-netns".into())
                .spawn_scoped(scope, || {
                    setns(&self.file, CloneFlags::CLONE_NEWNET)
                        .map_err(|e| Error::io(what, e.into()))?;
                    job()
                })
                .map_err(|e| Error::io(what, e))?;
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// The links of the calling thread's namespace.
///
/// # Errors
/// [`Error::Decode`] for an answer that makes no sense.
pub fn links() -> Result<Vec<Link>, Error> {
    let what = "list links";
    let Some(mut talk) = Talk::open(libc::NETLINK_ROUTE, what)? else {
        return Ok(Vec::new());
    };
    let mut request = Builder::new();
    request.begin(RTM_GETLINK, 0, &[0; 16]).end()?;
    talk.dump(&mut request, what, |message| {
        match decode_message(message)? {
            Decoded::Event(Event::Link(link)) => Ok(Some(link)),
            _ => Ok(None),
        }
    })
}

/// The routing rules of the calling thread's namespace, IPv4 first.
///
/// # Errors
/// [`Error::Decode`] for an answer that makes no sense.
pub fn rules() -> Result<Vec<Rule>, Error> {
    let what = "list routing rules";
    let Some(mut talk) = Talk::open(libc::NETLINK_ROUTE, what)? else {
        return Ok(Vec::new());
    };
    let mut rules = Vec::new();
    for family in [INET, INET6] {
        let mut head = [0; 12];
        head[0] = family;
        let mut request = Builder::new();
        request.begin(RTM_GETRULE, 0, &head).end()?;
        let told = talk.dump(&mut request, what, |message| {
            match decode_message(message)? {
                Decoded::Event(Event::Rule(rule)) => Ok(Some(rule)),
                _ => Ok(None),
            }
        });
        match told {
            // A kernel without this family, or without rules.
            Err(e) if e.errno() == Some(libc::EOPNOTSUPP) => {}
            told => rules.extend(told?),
        }
    }
    Ok(rules)
}

pub(super) fn decode_id(message: &Message<'_>) -> Result<Option<i32>, DecodeError> {
    if message.kind != RTM_NEWNSID {
        return Ok(None);
    }
    let (_, attributes) = message.split::<1>("rtgenmsg")?;
    for a in attributes {
        let a = a?;
        if a.kind == NETNSA_NSID {
            return Ok(Some(a.u32("NETNSA_NSID")? as i32));
        }
    }
    Ok(None)
}
