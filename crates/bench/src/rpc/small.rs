//! Rows about small reads and writes at random places, and about a client that takes no replies.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::latency::percentile;
use super::load::{self, FILE, Kind};
use super::report::{Must, Unit};
use super::stage::{FILES, PROXY, Proxy, Stage, bulk};
use super::wire::receive;
use super::xdr::{Call, NFS, READ, READ_HEAD, WRITE};
use super::{LINKS, Trials};
use raddle_exit::Failure;
use raddle_rpc::proxy::TransportState;

/// Bytes of a call, calls outstanding of one client, clients.
const SIZES: [usize; 2] = [4 << 10, 16 << 10];
const DEPTHS: [usize; 2] = [16, 64];
const CLIENTS: [usize; 2] = [1, 4];
/// What is not counted at the start of a measurement, and what is.
const BEFORE: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_secs(1);

/// A connection of the load: to where, from which port if that matters, with how many calls outstanding.
type Line = (SocketAddr, Option<SocketAddr>, usize);

fn connect((to, from, _): Line) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(from) = from {
        socket.set_reuse_address(true)?;
        socket.bind(&from.into())?;
    }
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_nodelay(true)?;
    socket.connect(&to.into())?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(socket.into())
}

/// A call at a random place.
fn call(handle: &[u8], kind: Kind, size: usize, (xid, place): (u32, u64)) -> Vec<u8> {
    let offset = place % (FILE / size as u64) * size as u64;
    let procedure = match kind {
        Kind::Read => READ,
        Kind::Write => WRITE,
    };
    let call = Call::new(xid, NFS, procedure).opaque(handle);
    let call = call.long(offset).word(size as u32);
    match kind {
        Kind::Read => call.record(0),
        // Unstable.
        Kind::Write => call.word(0).opaque(&vec![0x5a; size]).record(0),
    }
}

/// Reads or writes by one connection for a time; bytes that are done after [`BEFORE`].
fn one(
    mut stream: TcpStream,
    handle: &[u8],
    (kind, size, depth): (Kind, usize, usize),
    seed: u64,
) -> io::Result<usize> {
    // SplitMix64's increment: all places, in no order that anybody expects.
    let mut place = seed;
    let mut next = |xid: u32| {
        place = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (place ^ (place >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
        call(handle, kind, size, (xid, mixed))
    };
    let start = Instant::now();
    for xid in 0..depth as u32 {
        stream.write_all(&next(xid))?;
    }
    let (mut xid, mut done) = (depth as u32, 0);
    loop {
        receive(&mut stream, READ_HEAD, |_| {})?;
        let now = start.elapsed();
        if now >= BEFORE + TIME {
            let _ = stream.shutdown(Shutdown::Both);
            return Ok(done);
        }
        done += if now >= BEFORE { size } else { 0 };
        stream.write_all(&next(xid))?;
        xid = xid.wrapping_add(1);
    }
}

/// The same by several at once: bytes a second.
fn all(stage: &Stage, handle: &[u8], what: (Kind, usize), lines: &[Line]) -> Result<f64, Failure> {
    let bytes = stage.client(|| {
        let streams = lines.iter().copied().map(connect);
        let streams: Vec<TcpStream> = streams.collect::<io::Result<_>>()?;
        std::thread::scope(|scope| {
            let each = streams.into_iter().zip(lines).enumerate();
            let all: Vec<_> = each
                .map(|(n, (stream, line))| {
                    let what = (what.0, what.1, line.2);
                    scope.spawn(move || one(stream, handle, what, n as u64 + 1))
                })
                .collect();
            let broken = |_| Err(io::Error::other("the load broke off"));
            let done = all.into_iter().map(|one| one.join().unwrap_or_else(broken));
            done.sum::<io::Result<usize>>()
        })
    })?;
    Ok(bytes as f64 / TIME.as_secs_f64())
}

/// Own addresses of connections on links of their own.
fn ports(proxy: &Proxy) -> Result<Vec<SocketAddr>, Failure> {
    let local = bulk(proxy.status()?).map(|transport| match transport.state {
        TransportState::Up { local, .. } => Some(local),
        TransportState::Down { .. } => None,
    });
    let known: Option<Vec<SocketAddr>> = local.collect();
    known.ok_or_else(|| Failure::system("raddle rpc does not say where its connections are"))
}

/// Small calls through the proxy, as a share of plain connections from the same ports; and by outstanding bytes, as a
/// share of round robin.
pub(super) fn small(trials: &mut Trials<'_>, stage: &Stage) -> Result<(), Failure> {
    let kinds = [Kind::Read, Kind::Write].into_iter();
    let kinds = kinds.flat_map(|kind| SIZES.map(|size| (kind, size)));
    let shapes = kinds.flat_map(|what| DEPTHS.map(|depth| (what, depth)));
    let shapes: Vec<_> = shapes
        .flat_map(|(what, depth)| CLIENTS.map(|clients| (what, depth, clients)))
        .collect();
    let figures = trials.each(stage, || {
        let from = ports(&stage.proxy(&["--no-lane"])?)?;
        let handles = FILES.map(|file| stage.handle(stage.mount(), stage.nfs(), file));
        let [read, written] = handles;
        let handles = [read?, written?];
        let through = |options: &[&str]| -> Result<Vec<f64>, Failure> {
            let _proxy = stage.proxy(options)?;
            let rates = shapes.iter().map(|(what, depth, clients)| {
                let lines = vec![(PROXY, None, *depth); *clients];
                all(stage, &handles[what.0 as usize], *what, &lines)
            });
            rates.collect()
        };
        let plain = shapes.iter().map(|(what, depth, clients)| {
            let depth = depth * clients / LINKS as usize;
            let line = |from: &SocketAddr| (stage.nfs(), Some(*from), depth);
            let lines: Vec<Line> = from.iter().map(line).collect();
            all(stage, &handles[what.0 as usize], *what, &lines)
        });
        let plain: Vec<f64> = plain.collect::<Result<_, _>>()?;
        let (least, turns) = (through(&[])?, through(&["--policy", "round-robin"])?);
        let share = |of: &[f64]| -> Vec<f64> { least.iter().zip(of).map(|(l, o)| l / o).collect() };
        Ok([share(&plain), share(&turns), plain.clone()])
    })?;
    let column = |n: usize, i: usize| figures.iter().map(|f| f[n][i]).collect::<Vec<f64>>();
    for (i, ((kind, size), depth, clients)) in shapes.iter().enumerate() {
        let kind = match kind {
            Kind::Read => "reads",
            Kind::Write => "writes",
        };
        let what = format!(
            "{kind} of {} KiB, {clients} x {depth} outstanding",
            size >> 10
        );
        let must = Must::AtLeast(0.95, None);
        let of = format!("{what}, of 4 plain connections");
        trials.line(of, Unit::Share, must, column(0, i));
        let of = format!("{what}, of round robin");
        trials.line(of, Unit::Share, must, column(1, i));
    }
    trials.note("plain connections are from the ports that the proxy found, so on links of their own both ways");
    Ok(())
}

/// READs of a client that never takes a reply.
const UNREAD: u32 = 2000;
/// How long its calls may take to be taken no more.
const PATIENCE: Duration = Duration::from_secs(30);

/// GETATTRs of others beside a client that takes no replies, and before.
pub(super) fn stuck(trials: &mut Trials<'_>, stage: &Stage) -> Result<(), Failure> {
    const CALLS: u32 = 2000;
    let figures = trials.each(stage, || {
        let proxy = stage.proxy(&[])?;
        let handle = stage.handle(PROXY, PROXY, FILES[0])?;
        let p99 = || -> Result<f64, Failure> {
            let times = stage.client(|| load::getattrs(PROXY, &handle, CALLS))?;
            Ok(percentile(&times, 0.99))
        };
        let before = p99()?;
        let stuck = stage.client(|| connect((PROXY, None, 0)))?;
        stuck.set_write_timeout(Some(PATIENCE))?;
        let calls: Vec<u8> = (0..UNREAD)
            .flat_map(|xid| {
                let call = Call::new(xid, NFS, READ).opaque(&handle);
                call.long(0).word(load::SIZE as u32).record(0)
            })
            .collect();
        let mut out = stuck.try_clone()?;
        let asking = std::thread::spawn(move || out.write_all(&calls));
        // Until all that was taken of it is answered.
        let start = Instant::now();
        let mut kept = 0;
        loop {
            let status = proxy.status()?;
            let now = status.kept_bytes.1;
            let calls = status.transports.iter().map(|t| t.outstanding_calls);
            let open: usize = calls.sum();
            if now > 0 && now == kept && open == 0 {
                break;
            }
            if start.elapsed() > PATIENCE {
                return Err(Failure::system(
                    "the client that takes no replies is served on and on",
                ));
            }
            kept = now;
            std::thread::sleep(Duration::from_millis(100));
        }
        let beside = p99()?;
        let _ = stuck.shutdown(Shutdown::Both);
        let _ = asking.join();
        Ok([beside / before, beside, before])
    })?;
    let rows = [
        "GETATTR p99 beside a client that takes no replies, of that before",
        "GETATTR p99 beside it",
        "GETATTR p99 before",
    ];
    for (n, what) in rows.into_iter().enumerate() {
        let (unit, must) = match n {
            0 => (Unit::Ratio, Must::AtMost(2.0, None)),
            _ => (Unit::Microseconds, Must::Nothing),
        };
        let column = figures.iter().map(|f| f[n]).collect();
        trials.line(what, unit, must, column);
    }
    Ok(())
}
