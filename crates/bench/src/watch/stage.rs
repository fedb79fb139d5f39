//! Where it is measured: `source -- router == sink`, with `raddle run` on the router.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use raddle_control::Counters;
use raddle_lab::{Chain, HashPolicy, Lab, ScopedLab, UpOptions};
use serde_json::Value;

use super::bpf;
use super::kinds::{Change, Kind};
use super::packet::Packets;
use super::stream::{self, FLOWS, Shape};
use crate::program;
use raddle_exit::Failure;

/// How long the daemon may take to forward again.
const PATIENCE: Duration = Duration::from_secs(20);
/// Frames by which it is found out whether it does, and how many a second.
const PROBES: usize = 10 * FLOWS;
const PROBE_RATE: u32 = 20_000;

/// The network and the daemon; removed and ended when dropped.
pub(super) struct Stage {
    daemon: Option<(Child, JoinHandle<String>)>,
    lab: ScopedLab,
    program: String,
    macs: [[u8; 6]; 2],
    /// The first sink's, as tools write it.
    sink_mac: String,
    pub(super) source: Packets,
    pub(super) sinks: [Packets; 2],
}

/// A change that only has to be let go.
pub(super) enum Prepared {
    Tool(Child, &'static str),
    Setting(File, &'static str),
    Program(bpf::Hook, OwnedFd),
}

/// A change that was made.
pub(super) struct Made {
    pub(super) start: Instant,
    pub(super) end: Instant,
    /// What is there for as long as this lives.
    _keep: Option<OwnedFd>,
}

impl Stage {
    /// Builds it, and waits until raddle forwards.
    pub(super) fn up() -> Result<Stage, Failure> {
        let chain = Chain {
            links: 2,
            policy: HashPolicy::L4,
            ..Chain::default()
        };
        let topology = chain.topology();
        let topology = topology.map_err(|e| Failure::usage(e.to_string()))?;
        let program = program::raddle()?.to_string_lossy().into_owned();
        let name = format!("bench-watch-{}", std::process::id());
        let lab = Lab::up(&name, &topology, UpOptions::default())?.scoped();
        let open = |node: &str, link: &str| lab.within(node, || Packets::open(link));
        let sink_mac = mac(&lab, "sink", "router")?;
        let mut stage = Stage {
            source: open("source", "router")??,
            sinks: [open("sink", "router")??, open("sink", "router-2")??],
            macs: [
                bytes(&mac(&lab, "router", "source")?),
                bytes(&mac(&lab, "source", "router")?),
            ],
            daemon: None,
            sink_mac,
            program,
            lab,
        };
        let second = mac(&stage.lab, "sink", "router-2")?;
        stage.run("ip neigh replace 10.2.1.2 lladdr {mac} dev sink nud permanent")?;
        stage.run(&format!(
            "ip neigh replace 10.2.2.2 lladdr {second} dev sink-2 nud permanent"
        ))?;
        stage.daemon = Some(stage.spawn()?);
        stage.ready(&stage.shape(false, 46))?;
        Ok(stage)
    }

    fn spawn(&self) -> Result<(Child, JoinHandle<String>), Failure> {
        let mut command = self.lab.command("router", &self.program)?;
        let mut child = command
            .arg("run")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::system(format!("cannot start raddle: {e}")))?;
        let pipe = child.stderr.take();
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            // What there is of a log that breaks off is better than nothing.
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut log));
            String::from_utf8_lossy(&log).into_owned()
        });
        Ok((child, log))
    }

    /// The frames that are sent for a kind.
    pub(super) fn shape(&self, stranger: bool, length: usize) -> Shape {
        let source = match stranger {
            true => Ipv4Addr::new(172, 16, 0, 9),
            false => Ipv4Addr::new(10, 1, 1, 2),
        };
        Shape {
            macs: self.macs,
            source,
            length,
        }
    }

    /// Waits until all frames of this shape go through raddle.
    pub(super) fn ready(&self, shape: &Shape) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = self.forwarded();
            stream::arrived(&self.sinks, 0)?;
            let never = AtomicBool::new(false);
            stream::send(&self.source, shape, PROBE_RATE, PROBES, &never)?;
            std::thread::sleep(Duration::from_millis(5));
            let ways = stream::arrived(&self.sinks, PROBES)?;
            let arrived = ways.iter().flatten().count();
            let said = match (before, self.forwarded()) {
                (Ok(before), Ok(after)) if arrived == PROBES && after - before >= PROBES as u64 => {
                    return Ok(());
                }
                (Ok(before), Ok(after)) => format!(
                    "of {PROBES} frames {arrived} arrived, {} through it",
                    after - before
                ),
                (_, Err(why)) | (Err(why), _) => why.to_string(),
            };
            if Instant::now() > deadline {
                return Err(Failure::system(format!("raddle does not forward: {said}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Packets that raddle has forwarded so far.
    fn forwarded(&self) -> Result<u64, Failure> {
        let output = self
            .lab
            .output("router", &[&self.program, "counters", "-j"])?;
        let counters: Counters = serde_json::from_slice(&output.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Failure::system(format!("raddle counters: {said}"))
        })?;
        Ok(counters.nexthops.iter().map(|n| n.count.packets).sum())
    }

    /// Runs a command on the router; its complaint is ours.
    pub(super) fn run(&self, command: &str) -> Result<(), Failure> {
        let command = command.replace("{mac}", &self.sink_mac);
        let words: Vec<&str> = command.split(' ').collect();
        let output = self.lab.output("router", &words)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or_default();
        Err(Failure::system(format!("'{command}' fails: {said}")))
    }

    /// Starts what will make the change, so that neither a start nor a look-up of names is part of it.
    pub(super) fn prepare(&self, kind: &Kind) -> Result<Prepared, Failure> {
        match kind.change {
            Change::Tool(words, input) => {
                let mut words = words.split(' ');
                let mut command: Command = self
                    .lab
                    .command("router", words.next().unwrap_or_default())?;
                let child = command
                    .args(words)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()?;
                Ok(Prepared::Tool(child, input))
            }
            Change::Setting(path, value) => {
                let open = || {
                    let path = format!("/proc/sys/net/{path}");
                    File::options().write(true).open(path)
                };
                Ok(Prepared::Setting(self.lab.within("router", open)??, value))
            }
            Change::Program(hook) => Ok(Prepared::Program(hook, bpf::load(hook)?)),
        }
    }

    /// Lets it go.
    pub(super) fn make(&self, prepared: Prepared) -> Result<Made, Failure> {
        match prepared {
            Prepared::Tool(mut child, input) => {
                let mut pipe = child.stdin.take();
                let start = Instant::now();
                if let Some(pipe) = &mut pipe {
                    pipe.write_all(format!("{input}\n").as_bytes())?;
                }
                drop(pipe);
                let output = child.wait_with_output()?;
                let end = Instant::now();
                if !output.status.success() {
                    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                    return Err(Failure::system(format!("'{input}' fails: {said}")));
                }
                Ok(made(start, end, None))
            }
            Prepared::Setting(mut file, value) => {
                let start = Instant::now();
                file.write_all(value.as_bytes())?;
                Ok(made(start, Instant::now(), None))
            }
            Prepared::Program(hook, program) => self.lab.within("router", || {
                let link = crate::router::index_of("source")?;
                let start = Instant::now();
                let attached = bpf::attach(hook, &program, link)?;
                Ok(made(start, Instant::now(), Some(attached)))
            })?,
        }
    }
}

fn made(start: Instant, end: Instant, keep: Option<OwnedFd>) -> Made {
    Made {
        start,
        end,
        _keep: keep,
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Some((mut child, log)) = self.daemon.take() else {
            return;
        };
        let ended = matches!(child.try_wait(), Ok(Some(_)));
        let _ = child.kill();
        let _ = child.wait();
        let log = log.join().unwrap_or_default();
        if ended {
            eprintln!("raddle-bench: raddle ended; its log:\n{log}");
        }
    }
}

fn mac(lab: &Lab, node: &str, link: &str) -> Result<String, Failure> {
    let output = lab.output(node, &["ip", "-j", "link", "show", link])?;
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let mac = shown[0]["address"].as_str().map(str::to_owned);
    mac.ok_or_else(|| Failure::system(format!("{node} has no link {link}")))
}

fn bytes(mac: &str) -> [u8; 6] {
    let mut bytes = [0; 6];
    for (byte, text) in bytes.iter_mut().zip(mac.split(':')) {
        *byte = u8::from_str_radix(text, 16).unwrap_or(0);
    }
    bytes
}
