//! Rows about rates and paths.

use std::collections::BTreeSet;
use std::time::Duration;

use raddle_lab::{LinkId, Rate};

use super::load::{self, Kind, OUTSTANDING, transfer};
use super::report::{Must, Unit};
use super::stage::{self, FILES, PROXY, Stage, Way, at};
use super::{LINKS, Row, Trials, WARM, iperf, own};
use crate::cli::RpcServer;
use raddle_exit::Failure;

/// Runs of iperf3 of which the best counts, before the trials and after them.
const RUNS: [u32; 2] = [4, 2];
/// How long one call at a time is made before many are, in the row about that.
const ALONE: Duration = Duration::from_secs(3);

/// What iperf3 has reached, in bytes a second: reading and writing.
#[derive(Debug, Default)]
pub(super) struct Best([Option<f64>; 2]);

impl Best {
    /// The best of so many runs more.
    fn of(
        &mut self,
        trials: &Trials<'_>,
        stage: &Stage,
        kind: Kind,
        runs: u32,
    ) -> Result<f64, Failure> {
        let mut best = self.0[kind as usize].unwrap_or(0.0);
        for _ in 0..runs.min(trials.settings.trials) {
            trials.interrupt.check()?;
            super::progress(&format!("{}: iperf3", trials.row.name()));
            best = best.max(iperf::run(stage, kind, trials.settings.seconds)?);
        }
        self.0[kind as usize] = Some(best);
        Ok(best)
    }
}

/// Reads or writes through the proxy, as a share of iperf3's best.
pub(super) fn shares(
    trials: &mut Trials<'_>,
    stage: &Stage,
    best: &mut Best,
) -> Result<(), Failure> {
    let (kind, options, what, must): (_, &[&str], _, _) = match trials.row {
        Row::AfterOne => (
            Kind::Read,
            &[],
            "reads, 4 connections placed, after a single reader",
            Must::AtLeast(0.97, Some(0.95)),
        ),
        Row::Writes => (
            Kind::Write,
            &[],
            "writes, 4 connections placed",
            Must::AtLeast(0.95, None),
        ),
        Row::RoundRobin => (
            Kind::Read,
            &["--policy", "round-robin", "--no-placement", "--no-lane"],
            "reads, 4 random ports, round robin",
            Must::Nothing,
        ),
        Row::Quarter => (
            Kind::Read,
            &[],
            "reads, one link at a quarter",
            Must::AtLeast(0.93, None),
        ),
        _ => (
            Kind::Read,
            &[],
            "reads, 4 connections placed",
            Must::AtLeast(0.97, Some(0.95)),
        ),
    };
    let slow = LinkId(LINKS as usize - 1);
    // Of the unequal links only.
    let mut other = Best::default();
    let best = match trials.row {
        Row::Quarter => {
            let quarter = Rate::from_bits(trials.settings.rate.bits() / 4);
            let quarter = quarter.map_err(|e| Failure::usage(e.to_string()))?;
            stage.lab.set_rate(slow, Some(quarter))?;
            &mut other
        }
        _ => best,
    };
    best.of(trials, stage, kind, RUNS[0])?;
    let alone = (trials.row == Row::AfterOne).then_some(ALONE);
    let time = trials.settings.time();
    let rates = trials.each(stage, || rate(stage, options, (kind, alone), time))?;
    let best = best.of(trials, stage, kind, RUNS[1])?;
    if trials.row == Row::Quarter {
        stage.lab.restore(slow)?;
    }
    let shares = rates.iter().map(|rate| rate / best).collect();
    trials.line(what, Unit::Share, must, shares);
    let megabits = best * 8.0 / 1e6;
    trials.note(format!("100 % is iperf3's best, {megabits:.1} Mbit/s"));
    Ok(())
}

/// Bytes a second through a proxy, by whose connections one call at a time may have been made before, for so long.
fn rate(
    stage: &Stage,
    options: &[&str],
    (kind, alone): (Kind, Option<Duration>),
    time: Duration,
) -> Result<f64, Failure> {
    let _proxy = stage.proxy(options)?;
    let file = FILES[kind as usize];
    let handle = stage.handle(PROXY, PROXY, file)?;
    if let Some(time) = alone {
        stage.client(|| transfer(PROXY, &handle, (kind, 1), time, false))?;
    }
    let load = (kind, OUTSTANDING);
    let done = stage.client(|| transfer(PROXY, &handle, load, time, false))?;
    Ok(done.rate(WARM, time))
}

/// libnfs's nfs-cat through the proxy, eight at once; by the links' own counters.
pub(super) fn tools(trials: &mut Trials<'_>, stage: &Stage) -> Result<(), Failure> {
    const AT_ONCE: u32 = 8;
    if stage.server == RpcServer::Own {
        trials.note("not measured: nfs-cat wants a whole server, such as nfs-ganesha");
        return Ok(());
    }
    let url = format!(
        "nfs://{}{}/{}?nfsport={port}&mountport={port}",
        PROXY.ip(),
        stage.export().display(),
        FILES[0],
        port = PROXY.port(),
    );
    let script = format!("nfs-cat '{url}' >/dev/null");
    let carried = || -> Result<u64, Failure> {
        let counters = stage.lab.counters()?;
        Ok(counters.iter().map(|link| link.to[0].bytes).sum())
    };
    if stage::tool(&stage.lab, "client", &["nfs-cat"], "libnfs-utils")
        .and_then(|mut tool| Ok(tool.wait()?))
        .is_err()
    {
        trials.note("not measured: nfs-cat is not there; apt-get install libnfs-utils");
        return Ok(());
    }
    let full = trials.settings.rate.bits() as f64 / 8.0 * f64::from(LINKS);
    let time = Duration::from_secs(trials.settings.seconds.into());
    let shares = trials.each(stage, || {
        let _proxy = stage.proxy(&[])?;
        let readers = (0..AT_ONCE)
            .map(|_| {
                stage::tool(
                    &stage.lab,
                    "client",
                    &["sh", "-c", &format!("exec {script}")],
                    "dash",
                )
            })
            .collect::<Result<Vec<_>, _>>()?;
        std::thread::sleep(WARM);
        let before = carried()?;
        std::thread::sleep(time);
        let after = carried()?;
        for mut reader in readers {
            let _ = reader.kill();
            let _ = reader.wait();
        }
        Ok((after - before) as f64 / time.as_secs_f64() / full)
    })?;
    let what = "reads by libnfs, 8 x nfs-cat";
    trials.line(what, Unit::Share, Must::Nothing, shares);
    trials.note("100 % are the links' rates, by what the links count (frames, not payload)");
    Ok(())
}

/// Reads over loopback with the proxy on a core of its own, server and client on the others.
pub(super) fn loopback(trials: &mut Trials<'_>, stage: &Stage) -> Result<(), Failure> {
    let server = at(std::net::Ipv4Addr::LOCALHOST, 12049);
    let Some((one, rest)) = stage::cpus() else {
        trials.note("not measured: there is only one CPU");
        return Ok(());
    };
    let this = nix::unistd::Pid::from_raw(0);
    // Threads are where the one is that starts them.
    stage.client(|| {
        stage::pin(this, &rest).map_err(|e| std::io::Error::other(e.to_string()))?;
        own::start(&[server])
    })?;
    let time = trials.settings.time();
    let address = server.to_string();
    let read = |through| {
        stage.client(|| {
            stage::pin(this, &rest).map_err(|e| std::io::Error::other(e.to_string()))?;
            let handle = load::handle(through, through, "/", FILES[0])?;
            transfer(through, &handle, (Kind::Read, OUTSTANDING), time, false)
        })
    };
    let gigabits = |done: load::Measured| done.rate(WARM, time) * 8.0 / 1e9;
    let figures = trials.each(stage, || {
        let direct = gigabits(read(server)?);
        let proxy = stage.proxy_to(&["--server", &address, "--no-placement"])?;
        proxy.pin(&one)?;
        let before = proxy.ran()?;
        let through = gigabits(read(PROXY)?);
        let after = proxy.ran()?;
        let [busy, waited] = [0, 1].map(|n| (after[n] - before[n]) / time.as_secs_f64());
        Ok([through, through / busy, waited, direct])
    })?;
    let column = |n: usize| figures.iter().map(|f| f[n]).collect::<Vec<_>>();
    let must = Must::AtLeast(12.0, None);
    let what = "reads over loopback, proxy on one core, own server";
    trials.line(what, Unit::Gigabits, must, column(0));
    let rows = [
        ("for each second that the proxy ran", Unit::Gigabits),
        ("time that others kept it from its core", Unit::Share),
        ("reads over loopback, no proxy", Unit::Gigabits),
    ];
    for (n, (what, unit)) in rows.into_iter().enumerate() {
        trials.line(what, unit, Must::Nothing, column(n + 1));
    }
    Ok(())
}

/// Distinct paths of eight connections over eight links, each way.
pub(super) fn eight(trials: &mut Trials<'_>, stage: &Stage) -> Result<(), Failure> {
    let distinct = |links: Vec<String>| links.into_iter().collect::<BTreeSet<_>>().len() as f64;
    let time = WARM + Duration::from_millis(500);
    let figures = trials.each(stage, || {
        let proxy = stage.proxy(&["-n", "8"])?;
        let (out, back) = (proxy.links(Way::Out)?, proxy.links(Way::Back)?);
        let handle = stage.handle(PROXY, PROXY, FILES[0])?;
        let before = stage.lab.counters()?;
        let load = (Kind::Read, 2 * OUTSTANDING);
        stage.client(|| transfer(PROXY, &handle, load, time, false))?;
        let after = stage.lab.counters()?;
        let carried = |(after, before): (&raddle_lab::LinkCounters, &raddle_lab::LinkCounters)| {
            after.to[0].bytes - before.to[0].bytes
        };
        let carried: Vec<u64> = after.iter().zip(&before).map(carried).collect();
        // Half of an even share.
        let enough = carried.iter().sum::<u64>() / (2 * carried.len() as u64);
        let used = carried.iter().filter(|bytes| **bytes >= enough).count();
        Ok([distinct(out), distinct(back), used as f64])
    })?;
    let all = Must::AtLeast(8.0, Some(8.0));
    let rows = [
        "8 connections, 8 links: distinct ways out",
        "distinct ways back",
        "links that carried half of an even share or more",
    ];
    for (n, what) in rows.into_iter().enumerate() {
        let column = figures.iter().map(|f| f[n]).collect();
        trials.line(what, Unit::Count, all, column);
    }
    let (ip, port) = (stage.ip, stage.nfs().port());
    trials.note(format!(
        "ways to {ip} port {port} as raddle rpc status tells them, links as they count"
    ));
    Ok(())
}
