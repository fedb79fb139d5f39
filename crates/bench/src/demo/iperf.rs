//! iperf3: running it, and reading what it says.

use std::io::Read;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::fabric::Fabric;
use raddle_exit::Failure;

/// The server's port, iperf3's own.
pub(super) const PORT: u16 = 5201;
/// Seconds between iperf3's figures.
pub(super) const INTERVAL: f64 = 0.1;
/// The congestion control to use, so that figures can be compared from machine to machine: the one
/// that most have as their own.
const CONGESTION: &str = "cubic";
/// How long the server may take to listen, and either side to end after the test.
const PATIENCE: Duration = Duration::from_secs(5);

/// One TCP stream, as iperf3 saw it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stream {
    /// The sender's port.
    pub port: u16,
    /// What arrived, in Mbit/s of payload.
    pub mbits: f64,
    /// Segments sent again.
    pub retransmits: u64,
    /// What arrived in each interval.
    pub received: Vec<Interval>,
    /// Segments sent again in each interval.
    pub resent: Vec<Interval>,
}

/// A figure for a part of the test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    /// Seconds since the test began.
    pub start: f64,
    /// Seconds since the test began.
    pub end: f64,
    /// Mbit/s, or a number of segments.
    pub value: f64,
}

/// A client and a server that run.
pub(super) struct Run {
    server: Process,
    client: Process,
}

impl Run {
    /// Starts a test over `streams` TCP streams; from consecutive source ports on where `ports` has
    /// the first.
    pub(super) fn start(
        fabric: &Fabric,
        streams: u16,
        ports: Option<u16>,
        seconds: u32,
    ) -> Result<Run, Failure> {
        let [sender, receiver] = fabric.hosts;
        let common = [
            "-4",
            "-J",
            "-i",
            &INTERVAL.to_string(),
            "-p",
            &PORT.to_string(),
        ];
        let mut server = fabric.lab.command(receiver, "iperf3")?;
        let mut server = Process::start(server.args(["-s", "-1"]).args(common))?;
        wait_listening(fabric, &mut server)?;
        let mut client = fabric.lab.command(sender, "iperf3")?;
        client
            .args(["-c", &fabric.addresses[1].to_string()])
            .args(common);
        client.args(["-P", &streams.to_string(), "-t", &seconds.to_string()]);
        if has_congestion_control(fabric)? {
            client.args(["-C", CONGESTION]);
        }
        if let Some(first) = ports {
            client.args(["--cport", &first.to_string()]);
        }
        let client = Process::start(&mut client)?;
        Ok(Run { server, client })
    }

    /// Whether the client still sends.
    pub(super) fn is_running(&mut self) -> Result<bool, Failure> {
        self.client.is_running()
    }

    /// Waits for both sides and reads their figures.
    pub(super) fn finish(mut self) -> Result<Vec<Stream>, Failure> {
        let client = self.client.output()?;
        let server = self.server.output()?;
        streams(&client, &server).map_err(|why| Failure::system(format!("iperf3: {why}")))
    }
}

/// A child whose output is read while it runs; ended when dropped.
struct Process {
    child: Child,
    output: Option<JoinHandle<Vec<u8>>>,
}

impl Process {
    fn start(command: &mut std::process::Command) -> Result<Process, Failure> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let failed = |e| Failure::system(format!("cannot run iperf3: {e}"));
        let mut child = command.spawn().map_err(failed)?;
        // Its report is longer than a pipe holds, and comes before it ends.
        let output = child.stdout.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                // A report that breaks off is told from its text.
                let _ = pipe.read_to_end(&mut bytes);
                bytes
            })
        });
        Ok(Process { child, output })
    }

    fn is_running(&mut self) -> Result<bool, Failure> {
        Ok(self.child.try_wait()?.is_none())
    }

    fn output(&mut self) -> Result<Vec<u8>, Failure> {
        let deadline = Instant::now() + PATIENCE;
        while self.is_running()? && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.is_running()? {
            self.child.kill()?;
        }
        self.child.wait()?;
        Ok(self
            .output
            .take()
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_listening(fabric: &Fabric, server: &mut Process) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    let sockets = || std::fs::read_to_string("/proc/thread-self/net/tcp");
    while !is_listening(&fabric.lab.within(fabric.hosts[1], sockets)??, PORT) {
        if !server.is_running()? || Instant::now() > deadline {
            let said = String::from_utf8_lossy(&server.output()?).trim().to_owned();
            return Err(Failure::system(format!(
                "the iperf3 server does not listen: {said}"
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether the sender's kernel has the congestion control; the machine's own does as well.
fn has_congestion_control(fabric: &Fabric) -> Result<bool, Failure> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = fabric
        .lab
        .within(fabric.hosts[0], || std::fs::read_to_string(path))??;
    Ok(available
        .split_ascii_whitespace()
        .any(|name| name == CONGESTION))
}

/// Whether the text of `/proc/net/tcp` has a socket that listens on the port.
fn is_listening(sockets: &str, port: u16) -> bool {
    let local = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        // State 0A is TCP_LISTEN.
        words.next().is_some_and(|word| word.ends_with(&local)) && words.nth(1) == Some("0A")
    })
}

/// What iperf3 -J writes, as far as it is read here.
#[derive(Deserialize)]
struct Report {
    error: Option<String>,
    #[serde(default)]
    start: Start,
    #[serde(default)]
    intervals: Vec<Figures>,
    #[serde(default)]
    end: End,
}

#[derive(Default, Deserialize)]
struct Start {
    #[serde(default)]
    connected: Vec<Connected>,
}

#[derive(Deserialize)]
struct Connected {
    socket: i64,
    local_port: u16,
    remote_port: u16,
}

#[derive(Deserialize)]
struct Figures {
    streams: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    socket: i64,
    start: f64,
    end: f64,
    bits_per_second: f64,
    #[serde(default)]
    retransmits: u64,
}

#[derive(Default, Deserialize)]
struct End {
    #[serde(default)]
    streams: Vec<Ends>,
}

#[derive(Deserialize)]
struct Ends {
    sender: Option<Figure>,
    receiver: Option<Figure>,
}

/// Puts the two sides' reports together: the receiver knows what arrived, the sender what it had to
/// send again.
fn streams(client: &[u8], server: &[u8]) -> Result<Vec<Stream>, String> {
    let (client, server) = (report(client, "client")?, report(server, "server")?);
    let mut streams = Vec::new();
    for connected in &client.start.connected {
        let port = connected.local_port;
        let missing =
            || format!("the server's report has nothing about the stream from port {port}");
        let accepted = server
            .start
            .connected
            .iter()
            .find(|c| c.remote_port == port);
        let accepted = accepted.ok_or_else(missing)?.socket;
        let mut arrived = server
            .end
            .streams
            .iter()
            .filter_map(|s| s.receiver.as_ref());
        let arrived = arrived
            .rfind(|f| f.socket == accepted)
            .ok_or_else(missing)?;
        let mut sent = client.end.streams.iter().filter_map(|s| s.sender.as_ref());
        let sent = sent.rfind(|f| f.socket == connected.socket);
        streams.push(Stream {
            port,
            mbits: arrived.bits_per_second / 1e6,
            retransmits: sent.map_or(0, |f| f.retransmits),
            received: intervals(&server, accepted, |f| f.bits_per_second / 1e6),
            resent: intervals(&client, connected.socket, |f| f.retransmits as f64),
        });
    }
    if streams.is_empty() {
        Err("no stream was connected".into())
    } else {
        Ok(streams)
    }
}

fn report(text: &[u8], side: &str) -> Result<Report, String> {
    let report: Report = serde_json::from_slice(text)
        .map_err(|e| format!("the {side}'s report makes no sense ({e})"))?;
    match report.error {
        Some(error) => Err(format!("the {side} says: {error}")),
        None => Ok(report),
    }
}

/// A stream's intervals, without the scrap that may come last.
fn intervals(report: &Report, socket: i64, value: fn(&Figure) -> f64) -> Vec<Interval> {
    let all = report.intervals.iter().flat_map(|figures| &figures.streams);
    let own = all.filter(|f| f.socket == socket && f.end - f.start > INTERVAL / 2.0);
    own.map(|f| Interval {
        start: f.start,
        end: f.end,
        value: value(f),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(socket: i64, at: f64, mbits: f64, retransmits: u64) -> serde_json::Value {
        json!({ "socket": socket, "start": at, "end": at + 0.1, "seconds": 0.1, "bytes": 1,
                "bits_per_second": mbits * 1e6, "retransmits": retransmits, "sender": true })
    }

    #[test]
    fn the_sides_are_joined_by_port() {
        let client = json!({
            "start": { "connected": [
                { "socket": 5, "local_host": "10.1.1.2", "local_port": 40001, "remote_port": 5201 },
                { "socket": 7, "local_host": "10.1.1.2", "local_port": 40002, "remote_port": 5201 },
            ] },
            "intervals": [{ "streams": [figure(5, 0.0, 900.0, 2), figure(7, 0.0, 100.0, 0)] }],
            "end": { "streams": [
                { "sender": figure(5, 0.0, 800.0, 3), "receiver": figure(5, 0.0, 1.0, 0) },
                { "sender": figure(7, 0.0, 90.0, 0), "receiver": figure(7, 0.0, 1.0, 0) },
            ] },
        });
        // The server's sockets have other numbers, and may come in another order.
        let server = json!({
            "start": { "connected": [
                { "socket": 9, "local_port": 5201, "remote_port": 40002 },
                { "socket": 5, "local_port": 5201, "remote_port": 40001 },
            ] },
            "intervals": [
                { "streams": [figure(9, 0.0, 80.0, 0), figure(5, 0.0, 700.0, 0)] },
                { "streams": [{ "socket": 5, "start": 0.1, "end": 0.103, "bits_per_second": 1.0 }] },
            ],
            "end": { "streams": [
                { "sender": null, "receiver": figure(9, 0.0, 81.0, 0) },
                { "receiver": figure(5, 0.0, 701.0, 0) },
            ] },
        });
        let got = streams(client.to_string().as_bytes(), server.to_string().as_bytes()).unwrap();
        let interval = |value| {
            vec![Interval {
                start: 0.0,
                end: 0.1,
                value,
            }]
        };
        assert_eq!(
            got,
            [
                Stream {
                    port: 40001,
                    mbits: 701.0,
                    retransmits: 3,
                    received: interval(700.0),
                    resent: interval(2.0),
                },
                Stream {
                    port: 40002,
                    mbits: 81.0,
                    retransmits: 0,
                    received: interval(80.0),
                    resent: interval(0.0),
                },
            ]
        );
    }

    #[test]
    fn failures_are_told() {
        let error = json!({ "start": { "connected": [] }, "end": {}, "error": "no route" });
        let error = error.to_string();
        assert_eq!(
            streams(error.as_bytes(), b"{}").unwrap_err(),
            "the client says: no route"
        );
        assert!(
            streams(b"{}", b"")
                .unwrap_err()
                .contains("the server's report")
        );
        assert_eq!(
            streams(b"{}", b"{}").unwrap_err(),
            "no stream was connected"
        );
        let lonely = json!({ "start": { "connected": [
            { "socket": 5, "local_port": 40001, "remote_port": 5201 }] } });
        assert!(
            streams(lonely.to_string().as_bytes(), b"{}")
                .unwrap_err()
                .contains("40001")
        );
    }

    #[test]
    fn a_listening_socket_is_found() {
        let text = "  sl  local_address rem_address   st tx_queue\n   \
                    0: 00000000:1451 00000000:0000 0A 00000000:00000000\n   \
                    1: 0100007F:1F90 0100007F:1451 01 00000000:00000000\n";
        assert!(is_listening(text, 0x1451));
        assert!(!is_listening(text, 0x1f90));
        assert!(!is_listening("", 1));
    }
}
