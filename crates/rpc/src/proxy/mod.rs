//! The proxy: many clients, several connections to a server, every reply to the call that it answers.
//!
//! One thread, one task for each direction of each connection; what they share, they borrow for a moment, and
//! nothing waits while it borrows.

mod backchannel;
mod beside;
mod call;
mod client;
mod duplicates;
mod memory;
mod own;
mod peer;
mod places;
mod pressure;
mod shared;
mod status;
mod transport;
mod waiting;
mod watch;

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::dispatch::Policy;
use crate::journal::{Journal, Keys, Left};
pub(crate) use own::{Lost, Message};
use shared::Shared;
pub use status::{ClientStatus, Counters, Ended, Held, Status, TransportState, TransportStatus};

/// How a proxy works.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is served; the first takes every program that no other names.
    pub services: Vec<Service>,
    /// Which connection a call takes.
    pub policy: Policy,
    /// Longest record, in bytes; less than 2^31.
    pub most: u32,
    /// Bytes of calls, and as many of replies, that may be kept at once. A call begins only where there is room for
    /// it, unless its user has next to nothing: one record may come on top. A reply that has begun is always finished,
    /// so that one for each connection to a server may.
    pub memory: usize,
    /// How long a client or a server may stall within a record, or a client not take a reply.
    pub patience: Duration,
    /// Most clients at once, of which one user has half at most ([`crate::limits`]).
    pub clients: usize,
    /// The port that the portmapper's questions are answered with.
    pub port: u16,
    /// Clients have to come from a port below this one; others are refused.
    pub below: Option<u16>,
}

/// A server, or a port of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The programs that go there; of the first service those that no other has.
    pub programs: Vec<u32>,
    /// Connections for all calls, at least 1.
    pub connections: usize,
    /// Connections more, for small calls.
    pub lanes: usize,
}

/// Which connection is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The service's number.
    pub service: usize,
    /// The connection's number within it; those for small calls come last.
    pub number: usize,
    /// Whether it is kept for small calls.
    pub lane: bool,
    /// The connection that it has to take the place of, for calls that must not be run twice.
    pub again: Option<Again>,
}

/// A connection that is made again from the same address and port, so that the server knows its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// Own address and port.
    pub from: SocketAddr,
    /// The server's.
    pub to: SocketAddr,
    /// Whether it said nothing any more; otherwise it was reset or closed.
    pub silent: bool,
    /// How often it has been tried since it failed.
    pub round: u32,
}

/// A connection that was made.
#[derive(Debug)]
pub struct Connected {
    /// The socket.
    pub stream: TcpStream,
    /// The link that it goes out by, if known.
    pub out: Option<String>,
    /// The link that it comes back by, if known.
    pub back: Option<String>,
    /// Connections that were made to find it.
    pub attempts: u32,
    /// Whether it goes another way than routing would have it: it is kept for the calls that are held, and no
    /// longer.
    pub detour: bool,
}

/// A connection that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The service's number.
    pub service: usize,
    /// The connection's number within it.
    pub number: usize,
    /// Whether it is kept for small calls.
    pub lane: bool,
    /// Own address and port.
    pub local: SocketAddr,
    /// The server's.
    pub peer: SocketAddr,
    /// Whether it, or another one of its service, is being made anew: none is moved meanwhile.
    pub moves: bool,
    /// Whether it has the port of an earlier process, whose calls may come back to it: it is not moved meanwhile.
    pub expects: bool,
}

/// What has become of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// The links that they go out by now, in the order of the question; may be shorter.
    pub links: Vec<Option<String>>,
    /// The links that they come back by now, likewise.
    pub back: Vec<Option<String>>,
    /// One that would lie better if it were made anew. It is, when its calls have their replies.
    pub again: Option<usize>,
}

/// Makes the connections to servers; the proxy contacts nobody but by this.
pub trait Connect {
    /// Makes one.
    fn connect(&self, wanted: Wanted) -> Pin<Box<dyn Future<Output = io::Result<Connected>> + '_>>;

    /// Whether the connections that stand are to be looked at now, before the next round; asked every 50 ms.
    fn changed(&self) -> bool {
        false
    }

    /// What log lines call the server; nothing where there can be only one.
    fn server(&self) -> Option<&str> {
        None
    }

    /// What log lines call a connection.
    fn name(&self, service: usize, number: usize, _lane: bool) -> String {
        match service {
            0 => number.to_string(),
            _ => format!("{service}/{number}"),
        }
    }

    /// What there is to say about where connections lie, and why not elsewhere.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Looks at the connections that stand; asked every 10 seconds, and when something has changed.
    fn review(&self, standing: &[Standing]) -> Review;

    /// It is given up, as nothing is heard of it while others are; all of which that is found at once are named
    /// before the first is closed.
    fn silent(&self, _service: usize, _number: usize) {}

    /// It is no longer used.
    fn closed(&self, service: usize, number: usize);
}

/// A running proxy. It lives in a [`tokio::task::LocalSet`].
#[derive(Clone)]
pub struct Proxy {
    shared: Rc<Shared>,
}

impl Proxy {
    /// Starts connecting to the servers, within a [`tokio::task::LocalSet`]. `start` is where XIDs start;
    /// draw it.
    pub fn start(config: Config, connect: Rc<dyn Connect>, start: u32) -> Proxy {
        let mut draw = RandomState::new().build_hasher();
        let first = draw.finish();
        draw.write_u32(start);
        let journal = Journal::none(Keys(first, draw.finish()));
        Proxy::resume(config, connect, start, (journal, Left::default()))
    }

    /// The same, with a journal of calls that count, and what an earlier process has left in it.
    pub fn resume(
        config: Config,
        connect: Rc<dyn Connect>,
        start: u32,
        journal: (Journal, Left),
    ) -> Proxy {
        let shared = Rc::new(Shared::new(config, connect, start, journal));
        let mut tasks = shared.tasks.borrow_mut();
        for number in 0..shared.transports.len() {
            let driven = transport::drive(Rc::clone(&shared), number);
            tasks.push(tokio::task::spawn_local(driven).abort_handle());
        }
        let watched = watch::watch(Rc::clone(&shared));
        tasks.push(tokio::task::spawn_local(watched).abort_handle());
        drop(tasks);
        Proxy { shared }
    }

    /// Takes no more calls of clients; who has a reply to each is disconnected in order. [`Proxy::is_drained`] says when
    /// that is all of them, and [`Proxy::stop`] waits for none.
    pub fn drain(&self) {
        self.shared.end();
    }

    /// Whether no client is connected any more.
    pub fn is_drained(&self) -> bool {
        self.shared.clients.borrow().is_empty()
    }

    /// Bytes of calls and of replies that are kept now.
    pub fn kept(&self) -> usize {
        self.shared.calls.used() + self.shared.replies.used()
    }

    /// Ends it: connections to servers and of clients are closed, and calls have no reply any more. The journal is
    /// another's from then on, and the connections' ports are as soon as [`Proxy::is_stopped`] says so.
    pub fn stop(&self) {
        for task in &*self.shared.tasks.borrow() {
            task.abort();
        }
        // Tasks have what they share until they are polled, which is too late for who opens the journal now.
        let keys = self.shared.journal.borrow().keys();
        self.shared.journal.replace(Journal::none(keys));
        let clients: Vec<_> = self.shared.clients.borrow().values().cloned().collect();
        for client in clients {
            client.disconnect(&self.shared, "the proxy stops");
        }
    }

    /// Whether its connections to servers are closed, after [`Proxy::stop`].
    pub fn is_stopped(&self) -> bool {
        let tasks = self.shared.tasks.borrow();
        tasks.iter().all(AbortHandle::is_finished)
    }

    /// Serves clients of this listener until it fails.
    ///
    /// # Errors
    /// What accepting says, but for what passes by itself.
    pub async fn serve(&self, listener: TcpListener) -> io::Result<()> {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => client::welcome(&self.shared, stream, peer),
                Err(e) => match passes(&e) {
                    ControlFlow::Break(()) => return Err(e),
                    ControlFlow::Continue(wait) => tokio::time::sleep(wait).await,
                },
            }
        }
    }

    /// What it does now.
    pub fn status(&self) -> Status {
        status::of(&self.shared)
    }
}

/// Whether accepting can go on, and after which time.
fn passes(error: &io::Error) -> ControlFlow<(), Duration> {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, OutOfMemory};
    match (error.kind(), error.raw_os_error()) {
        (ConnectionAborted | ConnectionReset | Interrupted, _) => {
            ControlFlow::Continue(Duration::ZERO)
        }
        // EMFILE, ENFILE, ENOBUFS.
        (OutOfMemory, _) | (_, Some(24 | 23 | 105)) => {
            ControlFlow::Continue(Duration::from_millis(100))
        }
        _ => ControlFlow::Break(()),
    }
}

/// Whichever of two is done first; the other one is dropped.
pub(crate) async fn first<T>(a: impl Future<Output = T>, b: impl Future<Output = T>) -> T {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(|context| {
        if let Poll::Ready(done) = a.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        b.as_mut().poll(context)
    })
    .await
}
