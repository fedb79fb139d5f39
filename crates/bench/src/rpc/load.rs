//! The load: a client of NFSv3 that keeps a number of calls outstanding on one connection, as the kernel's
//! does on a mount, and counts what comes when.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::wire::receive;
use super::xdr::{self, Call, GETATTR, LOOKUP, MNT, MOUNT, NFS, READ, READ_HEAD, WRITE};

/// Bytes of a READ or WRITE.
pub(super) const SIZE: usize = 1 << 20;
/// Bytes of the file that is read and written, from its start to its end and again.
pub(super) const FILE: u64 = 256 << 20;
/// Calls outstanding: twice what the connections of the proxy take on together.
pub(super) const OUTSTANDING: usize = 32;
/// How long bytes are counted together.
pub(super) const BIN: Duration = Duration::from_millis(10);
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// XIDs from here on are those of GETATTRs beside other calls.
const BESIDE: u32 = 1 << 31;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// What came when.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// When it began.
    pub start: Instant,
    /// Bytes of files in each [`BIN`] since.
    pub bins: Vec<u64>,
    /// How long GETATTRs took beside, one at a time, from one second on.
    pub getattrs: Vec<Duration>,
}

impl Measured {
    /// Bytes a second from one time after the start to another.
    pub(super) fn rate(&self, from: Duration, to: Duration) -> f64 {
        let bin = |time: Duration| {
            let bin = time.as_millis() / BIN.as_millis();
            (bin as usize).min(self.bins.len())
        };
        let (from, to) = (bin(from), bin(to));
        let bytes: u64 = self.bins.get(from..to).unwrap_or_default().iter().sum();
        bytes as f64 / ((to.saturating_sub(from)) as f64 * BIN.as_secs_f64())
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn refused(what: &str) -> io::Error {
    io::Error::other(format!("the server refuses {what}"))
}

/// Calls, and waits for the results, whose first word is a status of zero; they are behind it.
fn ask(stream: &mut TcpStream, call: Call, what: &str) -> io::Result<Vec<u8>> {
    stream.write_all(&call.record(0))?;
    let reply = receive(stream, 4096, |_| {})?;
    let results = xdr::results(&reply).filter(|results| xdr::word(results, 0) == Some(0));
    results
        .map(|r| r[4..].to_vec())
        .ok_or_else(|| refused(what))
}

/// The handle of a file: MNT of a path, and LOOKUP in it.
///
/// # Errors
/// What the kernel says, or that the server refuses.
pub(super) fn handle(
    mount: SocketAddr,
    nfs: SocketAddr,
    path: &str,
    name: &str,
) -> io::Result<Vec<u8>> {
    let opaque = |bytes: &[u8], what| {
        let found = xdr::opaque(bytes, 0);
        found.map(|(f, _)| f.to_vec()).ok_or_else(|| refused(what))
    };
    let call = Call::new(1, MOUNT, MNT).opaque(path.as_bytes());
    let root = opaque(&ask(&mut connect(mount)?, call, "MNT")?, "MNT")?;
    let call = Call::new(2, NFS, LOOKUP)
        .opaque(&root)
        .opaque(name.as_bytes());
    opaque(&ask(&mut connect(nfs)?, call, "LOOKUP")?, "LOOKUP")
}

/// How long each of `count` GETATTRs takes, one at a time.
///
/// # Errors
/// What the kernel says, or that the server refuses.
pub(super) fn getattrs(nfs: SocketAddr, handle: &[u8], count: u32) -> io::Result<Vec<Duration>> {
    let mut stream = connect(nfs)?;
    let mut times = Vec::new();
    for xid in 0..count {
        let call = Call::new(xid, NFS, GETATTR).opaque(handle);
        let start = Instant::now();
        ask(&mut stream, call, "GETATTR")?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// How long connecting takes: a round trip.
///
/// # Errors
/// What the kernel says.
pub(super) fn round_trip(address: SocketAddr) -> io::Result<Duration> {
    let start = Instant::now();
    connect(address).map(|_| start.elapsed())
}

/// Reads or writes for a time, with GETATTRs beside on the same connection if wanted.
///
/// # Errors
/// What the kernel says, or that the server refuses.
pub(super) fn transfer(
    nfs: SocketAddr,
    handle: &[u8],
    (kind, outstanding): (Kind, usize),
    time: Duration,
    beside: bool,
) -> io::Result<Measured> {
    let mut stream = connect(nfs)?;
    let out = stream.try_clone()?;
    let (wanted, calls) = channel();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || send(out, handle, kind, &calls));
        let start = Instant::now();
        for _ in 0..outstanding {
            let _ = wanted.send(false);
        }
        if beside {
            let _ = wanted.send(true);
        }
        let measured = replies(&mut stream, kind, &wanted, (start, time));
        drop(wanted);
        let _ = stream.shutdown(Shutdown::Both);
        let _ = sender.join();
        measured
    })
}

/// Takes replies, and has a new call sent for each.
fn replies(
    stream: &mut TcpStream,
    kind: Kind,
    wanted: &Sender<bool>,
    (start, time): (Instant, Duration),
) -> io::Result<Measured> {
    let mut bins = vec![0_u64; (time.as_millis() / BIN.as_millis()) as usize];
    let mut count = |bytes: usize| {
        let bin = start.elapsed().as_millis() / BIN.as_millis();
        if let Some(bin) = bins.get_mut(bin as usize) {
            *bin += bytes as u64;
        }
    };
    let mut getattrs = Vec::new();
    let mut asked = start;
    while start.elapsed() < time {
        let reply = receive(stream, READ_HEAD, &mut count)?;
        let results = xdr::results(&reply).and_then(|results| xdr::word(results, 0));
        if results != Some(0) {
            return Err(refused(&format!("{kind:?} (status {results:?})")));
        }
        let beside = xdr::word(&reply, 0).is_some_and(|xid| xid >= BESIDE);
        if beside {
            if start.elapsed() > super::WARM {
                getattrs.push(asked.elapsed());
            }
            asked = Instant::now();
        } else if kind == Kind::Write {
            count(SIZE);
        }
        let _ = wanted.send(beside);
    }
    Ok(Measured {
        start,
        bins,
        getattrs,
    })
}

/// Sends a call for each that is wanted: GETATTR, or one more of the others.
fn send(
    mut stream: TcpStream,
    handle: &[u8],
    kind: Kind,
    wanted: &Receiver<bool>,
) -> io::Result<()> {
    let data = match kind {
        Kind::Read => Vec::new(),
        Kind::Write => vec![0x5a; SIZE],
    };
    let (mut xid, mut beside_xid, mut offset) = (0_u32, BESIDE, 0);
    while let Ok(beside) = wanted.recv() {
        if beside {
            let call = Call::new(beside_xid, NFS, GETATTR).opaque(handle);
            beside_xid = beside_xid.wrapping_add(1) | BESIDE;
            stream.write_all(&call.record(0))?;
            continue;
        }
        let call = match kind {
            Kind::Read => Call::new(xid, NFS, READ).opaque(handle),
            Kind::Write => Call::new(xid, NFS, WRITE).opaque(handle),
        };
        let call = call.long(offset).word(SIZE as u32);
        xid = xid.wrapping_add(1) & !BESIDE;
        offset = (offset + SIZE as u64) % FILE;
        match kind {
            Kind::Read => stream.write_all(&call.record(0))?,
            Kind::Write => {
                // Unstable, and the length of the data.
                let call = call.word(0).word(SIZE as u32);
                stream.write_all(&call.record(data.len()))?;
                stream.write_all(&data)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_server_is_read_and_written() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        super::super::own::start(&[address]).unwrap();
        let handle = handle(address, address, "/export", "file").unwrap();
        assert_eq!(getattrs(address, &handle, 5).unwrap().len(), 5);
        let time = Duration::from_millis(300);
        for kind in [Kind::Read, Kind::Write] {
            let done = transfer(address, &handle, (kind, 4), time, true).unwrap();
            assert!(done.bins.iter().sum::<u64>() > 4 * SIZE as u64, "{kind:?}");
        }
    }

    #[test]
    fn a_rate_is_of_its_time() {
        let mut bins = vec![0; 100];
        bins[50..].fill(1_000_000);
        let measured = Measured {
            start: Instant::now(),
            bins,
            getattrs: Vec::new(),
        };
        let ms = Duration::from_millis;
        assert_eq!(measured.rate(ms(500), ms(1000)), 1e8);
        assert_eq!(measured.rate(ms(0), ms(1000)), 5e7);
        assert_eq!(measured.rate(ms(700), ms(9000)), 1e8);
    }
}
