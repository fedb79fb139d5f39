//! The end of FPM that daemons connect to.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use raddle_rib::event::Fpm;

use super::frame::{FrameError, Frames};
use super::reader::{Reader, Tallies};
use super::user::owner;
use crate::error::Error;

/// When the daemon has sent nothing for so long, it has sent everything. zebra makes pauses of a second when it has
/// much to tell.
const QUIET: Duration = Duration::from_secs(3);
/// ... and after this long, too: it may never be quiet.
const LONGEST_RESYNC: Duration = Duration::from_secs(300);
/// A daemon that has sent nothing at all yet has so long to begin.
const FIRST: Duration = Duration::from_secs(10);
/// How long nobody is let in when the system has no descriptor for who comes.
const NO_ROOM: Duration = Duration::from_secs(1);
/// Bytes that are read at a time, and at most before others get their turn.
const PIECE: usize = 64 << 10;
const MOST: usize = 256 << 10;
/// Connections that are looked at in one go.
const ACCEPTS: usize = 16;
/// A peer that is gone without a word is noticed after these seconds of silence, and so many questions.
const KEEPALIVE: (u32, u32, u32) = (10, 5, 3);

/// How the server goes about it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The users who may tell routes, beside root. What they tell decides where packets go.
    pub users: Vec<u32>,
    /// How long its routes stay after the connection has ended, unless they are sent again.
    pub grace: Duration,
    /// How frames are read.
    pub reader: Reader,
}

/// What there is to say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// What came.
    pub tallies: Tallies,
    /// Connections that were taken.
    pub connections: u64,
    /// Connections that were turned away: there was one, or the user may not.
    pub refused: u64,
    /// Connections that were ended for what came by them.
    pub broken: u64,
}

/// A daemon that is connected.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    address: SocketAddr,
    since: Instant,
    /// When something last came.
    heard: Option<Instant>,
    /// How much of it was understood.
    received: u64,
    /// It has not sent everything yet.
    resync: bool,
    /// Somebody else was turned away because of it, and the log says so.
    kept_out: bool,
}

impl Peer {
    /// Whether it has sent everything, as far as can be seen.
    fn is_quiet(&self, now: Instant) -> bool {
        let after = |since| now.saturating_duration_since(since);
        match self.heard {
            Some(heard) => after(heard) >= QUIET || after(self.since) >= LONGEST_RESYNC,
            None => after(self.since) >= FIRST,
        }
    }
}

/// Listens for a routing daemon, and takes what it sends.
///
/// 1. Root and the users who were named may connect. One connection at a time. Others are closed at once: two daemons would take each other's routes away. But
///    one that has sent nothing yet makes way.
/// 2. With a connection a resync begins. The daemon has sent everything when nothing has come for three
///    seconds, or after five minutes; ten seconds if it begins with silence.
/// 3. What is left of an earlier connection and has not been sent again goes when the grace period since that
///    ended is over, and not before the daemon has sent everything: it may have to learn its routes first. Connections
///    in between that end before then change nothing about it.
/// 4. Without a connection at the end of the grace period all of it is gone.
/// 5. A stream that is none of frames ends its connection.
/// 6. What a frame says is handed on together, and nothing is published in between: a replacement may be a
///    deletion and a new route.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    options: Options,
    peer: Option<Peer>,
    frames: Frames,
    piece: Vec<u8>,
    /// When the grace is over, if anything may be left of earlier connections.
    until: Option<Instant>,
    /// Nobody is let in before this.
    closed: Option<Instant>,
    /// The log has said that somebody may not connect.
    warned: bool,
    stats: Stats,
}

impl Server {
    /// Listens at this address, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::Io`] when that is not possible.
    pub fn bind(address: SocketAddr, options: Options) -> Result<Server, Error> {
        let failed = |source| Error::Io {
            what: "listen for FPM",
            source,
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Server {
            listener,
            options,
            peer: None,
            frames: Frames::default(),
            piece: vec![0; PIECE],
            until: None,
            closed: None,
            warned: false,
            stats: Stats::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// [`Error::Io`] when the system does not say.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        self.listener.local_addr().map_err(|source| Error::Io {
            what: "learn where FPM is listened for",
            source,
        })
    }

    /// Readable when [`Server::poll`] has something to do, but for what time brings: it is to be called
    /// every second or so besides.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let peer = self.peer.as_ref().map(|peer| peer.stream.as_fd());
        let listener = self.closed.is_none().then(|| self.listener.as_fd());
        listener.into_iter().chain(peer)
    }

    /// The daemon that is connected, and whether it is still telling everything.
    pub fn peer(&self) -> Option<(SocketAddr, bool)> {
        self.peer.as_ref().map(|peer| (peer.address, peer.resync))
    }

    /// How long what earlier connections sent stays, if anything may be left of it.
    pub fn grace_left(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now))
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Hands on what has come; never waits. Takes some milliseconds at most. How many things were handed on.
    pub fn poll(&mut self, now: Instant, sink: &mut dyn FnMut(Fpm)) -> u64 {
        let mut count = 0;
        let mut sink = |fpm| {
            count += 1;
            sink(fpm);
        };
        // Who is gone makes room.
        self.read(now, &mut sink);
        if self.accept(now, &mut sink) {
            self.read(now, &mut sink);
        }
        self.watch(now, &mut sink);
        count
    }

    /// Rules 1 and 2. Whether a daemon has come.
    fn accept(&mut self, now: Instant, sink: &mut dyn FnMut(Fpm)) -> bool {
        if self.closed.take_if(|until| *until <= now).is_none() && self.closed.is_some() {
            return false;
        }
        let mut came = false;
        for _ in 0..ACCEPTS {
            let (stream, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::warn!("FPM: nobody can be let in for now: {error}");
                    self.closed = Some(now + NO_ROOM);
                    break;
                }
            };
            if !self.is_allowed(address) || self.turn_away(address) {
                continue;
            }
            if let Err(error) = prepare(&stream) {
                tracing::warn!("FPM: {address} cannot be listened to: {error}");
                continue;
            }
            self.stats.connections += 1;
            tracing::info!("FPM: {address} is connected");
            self.frames.clear();
            self.peer = Some(Peer {
                stream,
                address,
                since: now,
                heard: None,
                received: 0,
                resync: true,
                kept_out: false,
            });
            came = true;
            sink(Fpm::ResyncBegin);
        }
        came
    }

    /// Rule 1: by who has the other end.
    fn is_allowed(&mut self, address: SocketAddr) -> bool {
        let ours = self.listener.local_addr().ok();
        let user = ours.and_then(|ours| owner(address, ours));
        if user.is_some_and(|user| user == 0 || self.options.users.contains(&user)) {
            return true;
        }
        self.stats.refused += 1;
        // Everybody can make it say this: once is enough.
        if !std::mem::replace(&mut self.warned, true) {
            match user {
                Some(user) => {
                    tracing::warn!("FPM: user {user} may not send routes (users in [fpm])")
                }
                None => tracing::info!("FPM: {address} was gone before it was let in"),
            }
        }
        false
    }

    /// Rule 1.
    fn turn_away(&mut self, address: SocketAddr) -> bool {
        let Some(peer) = self.peer.as_mut().filter(|peer| peer.received > 0) else {
            return false;
        };
        self.stats.refused += 1;
        if !std::mem::replace(&mut peer.kept_out, true) {
            let known = peer.address;
            tracing::warn!("FPM: {address} and others are turned away while {known} is connected");
        }
        true
    }

    fn read(&mut self, now: Instant, sink: &mut dyn FnMut(Fpm)) {
        let Some(peer) = &mut self.peer else { return };
        let mut read = 0;
        let why = loop {
            if read >= MOST {
                return;
            }
            match peer.stream.read(&mut self.piece) {
                Ok(0) => break "it has closed the connection".to_owned(),
                Ok(length) => {
                    read += length;
                    peer.heard = Some(now);
                    self.frames.push(&self.piece[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => break error.to_string(),
            }
            let tallies = &mut self.stats.tallies;
            let error: Option<FrameError> = loop {
                match self.frames.take() {
                    Ok(Some(frame)) => {
                        let received = &mut peer.received;
                        self.options.reader.read(frame, tallies, &mut |event| {
                            *received += 1;
                            sink(event);
                        });
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            if let Some(error) = error {
                self.stats.broken += 1;
                break error.to_string();
            }
        };
        let address = peer.address;
        if peer.received > 0 {
            let until = *self.until.get_or_insert(now + self.options.grace);
            let grace = until.saturating_duration_since(now).as_secs();
            tracing::warn!("FPM: {address} is gone: {why}; what it sent stays for {grace} s");
        } else {
            tracing::info!("FPM: {address} is gone, and has sent nothing: {why}");
        }
        self.peer = None;
        self.frames.clear();
    }

    /// What time brings: rules 2 to 4.
    fn watch(&mut self, now: Instant, sink: &mut dyn FnMut(Fpm)) {
        let is_over = self.until.is_none_or(|until| until <= now);
        match &mut self.peer {
            Some(peer) if peer.resync && is_over && peer.is_quiet(now) => {
                peer.resync = false;
                self.until = None;
                match peer.received {
                    0 => tracing::warn!(
                        "FPM: {} has sent nothing that is understood: is it zebra -M dplane_fpm_nl?",
                        peer.address
                    ),
                    _ => tracing::info!("FPM: {} has sent its routes", peer.address),
                }
                sink(Fpm::ResyncEnd);
            }
            None if is_over && self.until.take().is_some() => {
                tracing::warn!("FPM: nobody has come back: what was sent is dropped");
                sink(Fpm::ResyncBegin);
                sink(Fpm::ResyncEnd);
            }
            _ => {}
        }
    }
}

/// A peer that is gone must not keep its place for ever.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    let (idle, interval, count) = KEEPALIVE;
    stream.set_nonblocking(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &idle)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &interval)?;
    setsockopt(stream, sockopt::TcpKeepCount, &count)?;
    Ok(())
}
