//! raddle on the routers of the fabric.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raddle_control::status::State;
use raddle_control::{Counters, NexthopCount, Status};
use raddle_lab::HashPolicy;

use super::fabric::Fabric;
use crate::program;
use raddle_exit::Failure;

/// How long a daemon may take to start, to follow, to stop.
const PATIENCE: Duration = Duration::from_secs(10);
const ROUND: Duration = Duration::from_millis(20);

/// `raddle run` on every leaf and spine; stopped when dropped.
pub(super) struct Daemons<'a> {
    fabric: &'a Fabric,
    program: PathBuf,
    running: Vec<Daemon>,
}

/// IPv4 packets that a router has forwarded. The kernel counts those that it merged on receipt as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forwarded {
    /// By raddle.
    pub raddle: u64,
    /// By the kernel.
    pub kernel: u64,
}

impl Forwarded {
    /// raddle's share of what was forwarded since `before`.
    pub(super) fn share_since(&self, before: &Forwarded) -> f64 {
        let raddle = self.raddle.saturating_sub(before.raddle);
        let kernel = self.kernel.saturating_sub(before.kernel);
        raddle as f64 / (raddle + kernel).max(1) as f64
    }
}

/// `ForwDatagrams` of the text of `/proc/net/snmp`: a line of names, then one of numbers.
fn forwarded_by_kernel(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let at = names.split(' ').position(|name| name == "ForwDatagrams");
    at.and_then(|at| numbers.split(' ').nth(at)?.parse().ok())
        .unwrap_or(0)
}

struct Daemon {
    node: String,
    child: Child,
    log: Option<JoinHandle<String>>,
}

impl<'a> Daemons<'a> {
    /// Starts them, and waits until all forward.
    pub(super) fn start(fabric: &'a Fabric) -> Result<Daemons<'a>, Failure> {
        let mut daemons = Daemons {
            fabric,
            program: program::raddle()?,
            running: Vec::new(),
        };
        for node in &fabric.routers {
            let daemon = daemons.spawn(node)?;
            daemons.running.push(daemon);
        }
        daemons.wait("start", |status| status.state == State::Forwarding)?;
        Ok(daemons)
    }

    fn spawn(&self, node: &str) -> Result<Daemon, Failure> {
        let program = self.program.to_string_lossy();
        // All routers share this machine with the hosts. What a router of its own does beside its
        // forwarding, such as verifying a program, must not take the hosts' share.
        let mut command = self.fabric.lab.command(node, "nice")?;
        command.args(["-n", "10", &program, "run"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| Failure::system(format!("cannot start raddle on {node}: {e}")))?;
        let log = child.stderr.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut log = Vec::new();
                // What there is of a log that breaks off is better than nothing.
                let _ = pipe.read_to_end(&mut log);
                String::from_utf8_lossy(&log).into_owned()
            })
        });
        Ok(Daemon {
            node: node.to_owned(),
            child,
            log,
        })
    }

    /// Waits until all daemons have noticed the kernel's hash policy.
    pub(super) fn wait_policy(&mut self, policy: HashPolicy) -> Result<(), Failure> {
        let wanted = policy.sysctl();
        self.wait("notice the hash policy", |status| {
            status.settings.hash_policy4 == wanted
        })
    }

    /// What the sender's leaf has forwarded so far.
    pub(super) fn forwarded(&self) -> Result<Forwarded, Failure> {
        let snmp = || std::fs::read_to_string("/proc/thread-self/net/snmp");
        let snmp = self.fabric.lab.within(self.fabric.leaf, snmp)??;
        Ok(Forwarded {
            raddle: self.sent()?,
            kernel: forwarded_by_kernel(&snmp),
        })
    }

    /// How many packets raddle on the sender's leaf has sent to the spines.
    fn sent(&self) -> Result<u64, Failure> {
        let program = self.program.to_string_lossy();
        let leaf = self.fabric.leaf;
        let output = self
            .fabric
            .lab
            .output(leaf, &[&program, "counters", "-j"])?;
        let counters: Counters = serde_json::from_slice(&output.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Failure::system(format!("raddle counters on {leaf} failed: {said}"))
        })?;
        let leads_to_spine = |nexthop: &&NexthopCount| {
            self.fabric
                .links
                .iter()
                .any(|link| link.name == nexthop.dev)
        };
        let to_spines = counters.nexthops.iter().filter(leads_to_spine);
        Ok(to_spines.map(|nexthop| nexthop.count.packets).sum())
    }

    fn wait(&mut self, what: &str, done: impl Fn(&Status) -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        let program = self.program.to_string_lossy();
        for daemon in &mut self.running {
            while !daemon
                .status(self.fabric, &program)?
                .is_some_and(|status| done(&status))
            {
                if daemon.child.try_wait()?.is_some() || Instant::now() > deadline {
                    return Err(daemon.failed(what));
                }
                std::thread::sleep(ROUND);
            }
        }
        Ok(())
    }

    /// Stops them, and waits until the kernel forwards again.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        for daemon in &mut self.running {
            loop {
                match daemon.child.try_wait()? {
                    Some(status) if status.success() => break,
                    None if Instant::now() < deadline => std::thread::sleep(ROUND),
                    _ => return Err(daemon.failed("stop")),
                }
            }
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) {
        for daemon in &mut self.running {
            if matches!(daemon.child.try_wait(), Ok(None)) {
                // It has not been waited for, so the number is still its own.
                let _ = kill(Pid::from_raw(daemon.child.id().cast_signed()), signal);
            }
        }
    }
}

impl Drop for Daemons<'_> {
    fn drop(&mut self) {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        for daemon in &mut self.running {
            while matches!(daemon.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(ROUND);
            }
            // One that has ended cannot be killed, and need not be.
            let _ = daemon.child.kill();
            let _ = daemon.child.wait();
        }
    }
}

impl Daemon {
    /// What the daemon says of itself; none while it does not answer.
    fn status(&self, fabric: &Fabric, program: &str) -> Result<Option<Status>, Failure> {
        let output = fabric.lab.output(&self.node, &[program, "status", "-j"])?;
        Ok(serde_json::from_slice(&output.stdout).ok())
    }

    /// The failure, with what the daemon logged last.
    fn failed(&mut self, what: &str) -> Failure {
        // It has ended, or shall: the log is complete only then.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self
            .log
            .take()
            .and_then(|log| log.join().ok())
            .unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        let last: Vec<String> = last.iter().rev().map(|line| format!("  {line}")).collect();
        let node = &self.node;
        Failure::system(format!(
            "raddle on {node} did not {what}:\n{}",
            last.join("\n")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_raddle() {
        let before = Forwarded {
            raddle: 5,
            kernel: 100,
        };
        let after = Forwarded {
            raddle: 995,
            kernel: 110,
        };
        assert!((after.share_since(&before) - 0.99).abs() < 1e-9);
        assert!(before.share_since(&before).abs() < 1e-9);
    }

    #[test]
    fn the_kernel_is_read() {
        let snmp = "Ip: Forwarding DefaultTTL ForwDatagrams InUnknownProtos\nIp: 1 64 321 0\n\
                    Icmp: InMsgs\nIcmp: 7\n";
        assert_eq!(forwarded_by_kernel(snmp), 321);
        assert_eq!(forwarded_by_kernel("Ip: Forwarding\n"), 0);
        assert_eq!(forwarded_by_kernel("Ip: Forwarding\nIp: 1\n"), 0);
    }
}
