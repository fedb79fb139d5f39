//! Where a command takes the routing state from: the live kernel or a snapshot file.

use std::fs::File;
use std::io::{self, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Once;

use clap::Args;
use raddle_control::{Answer, Routes, Session, Status};
use raddle_explain::Machine;
use raddle_netlink::Mirror;
use raddle_plan::bonds::Bonds;
use raddle_preflight::running_kernel;
use raddle_rib::event::{Event, Route, RouteOp};
use raddle_rib::{Rib, Snapshot};
use raddle_select::{Brings, Brought, Flow, KernelVersion, Steering};
use raddle_text::outside::Bounded;

use crate::error::Failure;
use crate::machine::ThisMachine;
use raddle_daemon::{AlgoRule, Config, algo_rules};

/// Bytes of a snapshot that are read at most: some ten million routes.
const MOST: u64 = 4 << 30;

/// Rules of the daemon that a command goes by.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AlgoArgs {
    /// With routes spread as by run --mp-algo, for packets that come in by a link [default: as the daemon here does]
    #[arg(long, value_name = "WHAT=ALGO")]
    pub mp_algo: Vec<AlgoRule>,
    /// With routes spread as by this configuration of the daemon
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl AlgoArgs {
    /// Whether the command line names any.
    pub(crate) fn given(&self) -> bool {
        self.config.is_some() || !self.mp_algo.is_empty()
    }

    /// Those of the configuration, and those of the command line behind them, as for the daemon.
    ///
    /// # Errors
    /// The configuration cannot be read.
    pub(crate) fn rules(&self) -> Result<Vec<AlgoRule>, Failure> {
        let mut rules = match &self.config {
            Some(file) => Config::load(Some(file))?.mp_algos,
            None => Vec::new(),
        };
        rules.extend(self.mp_algo.iter().cloned());
        Ok(rules)
    }
}

/// A mirror of the live kernel, or of the snapshot in `file`, that drives no engine.
pub(crate) fn mirror(file: Option<&Path>) -> Result<Rib, Failure> {
    let mut rib = Rib::detached();
    fill(&mut rib, file)?;
    Ok(rib)
}

/// As [`mirror`], and which kernel the snapshot is of, if it says.
pub(crate) fn mirror_and_kernel(
    file: Option<&Path>,
) -> Result<(Rib, Option<KernelVersion>), Failure> {
    let Some(file) = file else {
        return Ok((mirror(None)?, running_kernel().ok()));
    };
    let snapshot = read(file)?;
    let kernel = snapshot
        .kernel
        .as_deref()
        .and_then(|text| text.parse().ok());
    let mut rib = Rib::detached();
    snapshot.into_events().for_each(|event| rib.apply(event));
    Ok((rib, kernel))
}

/// A mirror to predict choices by: [`mirror`], with the kernel's own key where that is needed and can be read.
pub(crate) fn mirror_with_key(
    file: Option<&Path>,
) -> Result<(Rib, Option<KernelVersion>), Failure> {
    let (mut rib, kernel) = mirror_and_kernel(file)?;
    if file.is_none() {
        // Who asks for a hash is told that there is no key.
        let _ = know_key(&mut rib);
    }
    Ok((rib, kernel))
}

/// What the live machine tells of its bonds; nothing of a snapshot's.
pub(crate) fn bonds(rib: &Rib, file: Option<&Path>) -> Bonds {
    let machine = ThisMachine::default();
    match file {
        None => Bonds::told(rib, |bond| machine.bond(bond)),
        Some(_) => Bonds::default(),
    }
}

/// Has a mirror of the live kernel go by the kernel's own key where no seed is set: as it can be read, or as
/// `raddle key find` has found it.
///
/// # Errors
/// Why there is none to go by, and what to do about it.
pub(crate) fn know_key(rib: &mut Rib) -> Result<(), String> {
    raddle_key::know_or_recall(rib).map_err(|why| {
        let finds = raddle_key::can_be_found() && why.is_about_reading();
        let advice = match finds {
            true => "; or run raddle key find, which needs no privilege",
            false => "",
        };
        format!("{why}{advice}")
    })
}

/// Fills a mirror with the live kernel's state, or a snapshot's.
pub(crate) fn fill(rib: &mut Rib, file: Option<&Path>) -> Result<(), Failure> {
    match file {
        None => Mirror::open()?.initial(&mut |event| rib.apply(event))?,
        Some(file) => read(file)?.into_events().for_each(|event| rib.apply(event)),
    }
    Ok(())
}

/// The daemon of this network namespace, as this command asks it.
static DAEMON: Session = Session::new(None);

/// Why the daemon of this network namespace cannot be asked, where one runs and cannot.
pub(crate) fn unasked() -> Option<String> {
    let asked = DAEMON.ask_if_any::<Status>();
    asked.err().map(|e| e.to_string())
}

/// What the daemon of this network namespace answers; none where none runs, or it cannot be asked, which is told once.
pub(crate) fn of_daemon<A: Answer>() -> Option<A> {
    static TOLD: Once = Once::new();
    DAEMON.ask_if_any().unwrap_or_else(|e| {
        TOLD.call_once(|| {
            eprintln!(
                "raddle: what the daemon here has besides the kernel (mp-algo rules, SIDs and routes of its own, counters) is \
                 left out: {e}"
            );
        });
        None
    })
}

/// The rules by which the daemon of this network namespace spreads routes otherwise than the kernel; none
/// where no daemon answers.
pub(crate) fn algos_of_daemon() -> Vec<AlgoRule> {
    let status: Option<Status> = of_daemon();
    let rules = status.iter().flat_map(|status| &status.mp_algos);
    rules.filter_map(|rule| rule.parse().ok()).collect()
}

/// The routes that the daemon of this network namespace has and the kernel does not: static SIDs and
/// encapsulations, and FPM routes; none where no daemon answers.
pub(crate) fn static_routes_of_daemon() -> Vec<Route> {
    let Routes { routes, more } = of_daemon().unwrap_or_default();
    if more > 0 {
        eprintln!(
            "raddle: {more} more FPM routes are left out here: the daemon lists no more at a time"
        );
    }
    routes
}

/// The same as what brings them about.
pub(crate) fn static_of_daemon() -> Vec<Event> {
    let add = |route| Event::Route(route, RouteOp::Add);
    static_routes_of_daemon().into_iter().map(add).collect()
}

/// Has predictions go by the hash that packets bring along which come in by this link of the live machine, and tells where
/// they may bring one that cannot be predicted.
///
/// 1. What raddle forwards here goes by what raddle goes by: seed and fields, or a NIC's hash that it reads.
/// 2. What comes in by a veth may be a socket's behind its other end, by a hash of its own.
/// 3. Receive packet steering of some queues, by a key that is not known, or that cannot be seen.
/// 4. A NIC's hash of which it is not known how it is made.
pub(crate) fn set_brings(rib: &mut Rib, file: Option<&Path>, iif: Option<&str>) {
    let (None, Some(link)) = (file, iif.and_then(|name| rib.link_named(name))) else {
        return;
    };
    let settings = rib.settings();
    let counts = settings.hash_policy4 == 1 || settings.hash_policy6 == 1;
    let (index, name, kind) = (link.index, link.name.clone(), link.kind.clone());
    let machine = ThisMachine::default();
    let marks = machine.marks(link);
    let mut brings = marks.brings(link);
    if marks.ours == Some(true) {
        brings.software = None;
    }
    if marks.ours == Some(false) {
        if counts && !brings.is_nothing() {
            eprintln!(
                "raddle: by seed and fields, as raddle run forwards here what comes in by {name}; what it leaves to the kernel goes \
                 by a hash that packets bring along"
            );
        }
        return;
    }
    let tell = |what: &str| {
        if counts {
            eprintln!(
                "raddle: {what}; with policy 1 the kernel chooses by that hash, and packets that come in by {name} may go elsewhere"
            );
        }
    };
    if kind.as_deref() == Some("veth") {
        tell(
            "sockets behind the other end of a veth (TCP, connected UDP; of IPv6 all that make flow labels) give their packets a hash of their own, and what is forwarded \
             there keeps the hash that a NIC or rps_cpus gave it",
        );
    }
    match (marks.steering, &brings.software) {
        (Some(Steering::Partly), _) => {
            tell("packets of some queues are steered by a hash (rps_cpus)")
        }
        (Some(Steering::On), None) if marks.ours.is_none() => {
            let why = machine
                .no_software_key()
                .unwrap_or("this is no NIC and no veth");
            tell(&format!(
                "packets are steered by a hash (rps_cpus) that is not known: {why}"
            ));
        }
        (Some(Steering::On), Some(_)) if settings.hash_policy6 == 1 => {
            tell(
                "IPv6 packets with a flow label are steered by a hash of that, not of their ports (rps_cpus)",
            );
        }
        (None, _) => tell(
            "whether packets are steered by a hash (rps_cpus) cannot be seen: /sys is another network namespace's (ip netns exec \
             mounts the right one)",
        ),
        _ => {}
    }
    // What a NIC would do with an ordinary flow tells whether it is known.
    let sample = Flow::new(Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into());
    if let (Some(nic), Some(flow)) = (&brings.nic, sample) {
        let nic = Brings {
            nic: Some(nic.clone()),
            software: None,
        };
        for proto in [6, 17] {
            if let Brought::Unknown(why) = nic.of_flow(&flow.ports(proto, 1, 1)) {
                tell(&format!("the NIC gives a hash with packets, and {why}"));
                break;
            }
        }
    }
    rib.set_brings(index, brings);
}

/// Has a state's routes spread as the command line says, else, for the live state, as the daemon here does.
/// Such rules are about packets that come in by a link (`iif`); the kernel, which sends this machine's own,
/// has none.
pub(crate) fn set_algos(
    rib: &mut Rib,
    args: &AlgoArgs,
    file: Option<&Path>,
    iif: Option<&str>,
) -> Result<(), Failure> {
    let given = args.given();
    if iif.is_none() {
        // A configuration without such rules says nothing that would not hold.
        return match given && !args.rules()?.is_empty() {
            true => Err(Failure::usage(
                "rules (--mp-algo, --config) are about packets that come in by a link, which is to be named: \
                 iif LINK, or --iif LINK",
            )),
            false => Ok(()),
        };
    }
    let rules = match (given, file) {
        (true, _) => args.rules()?,
        (false, Some(_)) => Vec::new(),
        (false, None) => {
            let rules = algos_of_daemon();
            if !rules.is_empty() {
                let list: Vec<String> = rules.iter().map(ToString::to_string).collect();
                eprintln!(
                    "raddle: by the rules of the daemon here (mp-algo {})",
                    list.join(" ")
                );
            }
            rules
        }
    };
    rib.set_algos(algo_rules(&rules));
    Ok(())
}

fn read(file: &Path) -> Result<Snapshot, Failure> {
    let name = file.display();
    let unread = |e: io::Error| Failure::usage(format!("cannot read the snapshot {name}: {e}"));
    let opened = File::open(file).map_err(unread)?;
    // As it is read, so that what is none has no room to fill.
    let text = BufReader::with_capacity(1 << 16, Bounded::new(opened, MOST));
    let snapshot: Snapshot = serde_json::from_reader(text).map_err(|e| match e.is_io() {
        true => unread(e.into()),
        false => Failure::usage(format!(
            "{name} is not a snapshot: {e}; make one with raddle snapshot"
        )),
    })?;
    if snapshot.format != Snapshot::FORMAT {
        return Err(Failure::usage(format!(
            "{name} has the format '{}', not '{}': make it anew with this version",
            snapshot.format,
            Snapshot::FORMAT
        )));
    }
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_refused_as_soon_as_it_is_none() {
        let error = read("/dev/zero".as_ref()).unwrap_err().to_string();
        assert!(error.contains("/dev/zero is not a snapshot"), "{error}");
        let error = read("/no/such".as_ref()).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read the snapshot /no/such: No such"),
            "{error}"
        );
    }

    #[test]
    fn rules_want_an_input_link() {
        let args = AlgoArgs {
            mp_algo: vec!["nhid:100=l4".parse().unwrap()],
            config: None,
        };
        let set = |iif| set_algos(&mut Rib::detached(), &args, None, iif);
        let error = set(None).unwrap_err().to_string();
        assert!(error.contains("packets that come in by a link"), "{error}");
        assert!(set(Some("eth1")).is_ok());
    }
}
