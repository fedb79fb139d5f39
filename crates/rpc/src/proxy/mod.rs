//! The proxy: many clients, several connections to a server, every reply to the call that it answers.
//!
//! What is decided, and what is known of calls, is in [`crate::core`], which has no sockets and no clock. This is its
//! driver: one thread, one task for each direction of each connection. They tell the core what has happened, do what it
//! asks for, and write what it gives them; nothing waits while it borrows the core.

mod client;
mod internal;
mod peer;
mod reach;
mod shared;
mod transport;
mod watch;

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

pub use crate::core::status::{
    ClientStatus, Counters, Ended, Held, Status, TransportState, TransportStatus,
};
pub use crate::core::{Again, Config, Review, Service, Standing, Wanted};
use crate::journal::{Journal, Keys, Left};
pub(crate) use internal::{Lost, Message};
use shared::Shared;

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

    /// The same, with a journal of non-idempotent calls, and what an earlier process has left in it.
    pub fn resume(
        config: Config,
        connect: Rc<dyn Connect>,
        start: u32,
        journal: (Journal, Left),
    ) -> Proxy {
        let shared = Rc::new(Shared::new(config, connect, start, journal));
        let mut tasks = shared.tasks.borrow_mut();
        for number in 0..shared.links.len() {
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
        self.shared.look(|core| core.connected_clients() == 0)
    }

    /// Bytes of calls and of replies that are kept now.
    pub fn kept(&self) -> usize {
        let (calls, replies) = self.shared.look(|core| core.kept());
        calls + replies
    }

    /// Ends it: connections to servers and of clients are closed, and calls have no reply any more. The journal is
    /// another's from then on, and the connections' ports are as soon as [`Proxy::is_stopped`] says so.
    pub fn stop(&self) {
        for task in &*self.shared.tasks.borrow() {
            task.abort();
        }
        // Tasks have what they share until they are polled, which is too late for who opens the journal now.
        self.shared.close_book();
        self.shared.end_clients();
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
        let mut status = self.shared.with(|core, now, _| core.status(now));
        status.notes = self.shared.connect.notes();
        for (link, of) in self.shared.links.iter().zip(&mut status.transports) {
            let again = link.socket.get().and_then(|socket| socket.retransmits());
            of.tcp_retransmits = again.unwrap_or(0);
        }
        status
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
