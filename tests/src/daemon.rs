//! The daemon, and other invocations of the program.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::{World, raddle};

/// How long a daemon may take to start or stop: debug builds on busy machines.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long a program may run that is to end by itself.
const ENDS: Duration = Duration::from_secs(300);

/// For a daemon on a machine that is too busy for the deadline of two seconds, whose packets shall be counted exactly.
pub const PATIENT: [&str; 2] = ["--deadline", "60"];

/// What a program that has ended said.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Outcome {
    /// Runs a command to its end.
    ///
    /// # Panics
    /// When it has not ended after five minutes, which is none of what is tested; it is killed then.
    pub fn of(command: &mut Command) -> Outcome {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let mut pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || {
            let mut text = (Vec::new(), Vec::new());
            pipes.0.read_to_end(&mut text.0).unwrap();
            pipes.1.read_to_end(&mut text.1).unwrap();
            text
        });
        let status = wait(&mut child, ENDS);
        if status.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let (stdout, stderr) = reader.join().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(stdout), text(stderr));
        match status {
            Some(status) => Outcome {
                code: status.code(),
                stdout,
                stderr,
            },
            None => panic!("{command:?} did not end within {ENDS:?}:\n{stdout}{stderr}"),
        }
    }
}

/// Runs `raddle` with these arguments to its end.
///
/// # Panics
/// When it has not ended after five minutes.
pub fn run(arguments: &[&str]) -> Outcome {
    Outcome::of(Command::new(raddle()).args(arguments))
}

/// As [`run`], and what it printed.
///
/// # Panics
/// Also when it ends with another exit code than 0.
pub fn fine(arguments: &[&str]) -> String {
    let outcome = run(arguments);
    assert_eq!(outcome.code, Some(0), "{arguments:?}: {}", outcome.stderr);
    outcome.stdout
}

/// `raddle run` on the router; killed when dropped.
#[derive(Debug)]
pub struct Daemon<'a> {
    world: &'a World,
    child: Child,
    folder: TempDir,
    ready: Duration,
}

impl<'a> Daemon<'a> {
    /// Starts it and waits until it says that it is ready, as it would say to systemd.
    ///
    /// # Panics
    /// When it ends instead, with what it said.
    pub fn start(world: &'a World, arguments: &[&str]) -> Daemon<'a> {
        let folder = tempfile::tempdir().unwrap();
        let notify = folder.path().join("notify");
        let socket = UnixDatagram::bind(&notify).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        // The first call of a test builds the program, which is not the daemon's time.
        let mut command = world.command(&[&["run"], arguments].concat());
        let start = Instant::now();
        let child = command
            .env("NOTIFY_SOCKET", &notify)
            .env("RUST_LOG", "raddle=debug")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut daemon = Daemon {
            world,
            child,
            folder,
            ready: Duration::ZERO,
        };
        let mut message = [0; 256];
        loop {
            if let Ok(n) = socket.recv(&mut message)
                && message[..n].windows(7).any(|w| w == b"READY=1")
            {
                break;
            }
            let ended = daemon.child.try_wait().unwrap();
            assert!(
                ended.is_none() && start.elapsed() < PATIENCE,
                "raddle run {arguments:?} is not ready, {ended:?}:\n{}",
                daemon.log()
            );
        }
        daemon.ready = start.elapsed();
        daemon
    }

    /// How long it took from its start until it was ready.
    pub fn ready_after(&self) -> Duration {
        self.ready
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Its answer to `raddle status`.
    pub fn status(&self) -> Value {
        self.world.raddle_json(&["status", "-j"])
    }

    /// Its answer to `raddle counters`.
    pub fn counters(&self) -> Value {
        self.world.raddle_json(&["counters", "-j"])
    }

    /// Packets that it has forwarded so far.
    pub fn forwarded(&self) -> u64 {
        let counters = self.counters();
        let nexthops = counters["nexthops"].as_array().unwrap();
        nexthops
            .iter()
            .map(|n| n["packets"].as_u64().unwrap())
            .sum()
    }

    /// Packets that came in on links that it forwards from.
    pub fn received(&self) -> u64 {
        let counters = self.counters();
        let links = counters["links"].as_array().unwrap().iter();
        links
            .filter_map(|link| link["received"]["packets"].as_u64())
            .sum()
    }

    /// Packets that it has left to the kernel or dropped for a reason.
    pub fn reason(&self, name: &str) -> u64 {
        let counters = self.counters();
        let mut reasons = counters["reasons"].as_array().unwrap().iter();
        let reason = reasons.find(|r| r["reason"] == name);
        reason.unwrap_or_else(|| panic!("no reason {name}"))["packets"]
            .as_u64()
            .unwrap()
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS"))
            .unwrap();
        1024 * line
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    }

    /// Ends it with SIGTERM; it has to end well.
    pub fn terminate(mut self) {
        self.signal(Signal::SIGTERM);
        let status = wait(&mut self.child, PATIENCE);
        assert!(
            status.is_some_and(|s| s.success()),
            "after SIGTERM: {status:?}\n{}",
            self.log()
        );
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        let _ = wait(&mut self.child, PATIENCE);
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it in mid-air (SIGSTOP), as if it hung; it ends well only after [`Daemon::resume`].
    pub fn suspend(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Sends SIGHUP, as `systemctl reload` of many services does.
    pub fn hang_up(&self) {
        self.signal(Signal::SIGHUP);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("raddle's log:\n{}", self.log());
        }
    }
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return Some(status),
            None if start.elapsed() > limit => return None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
