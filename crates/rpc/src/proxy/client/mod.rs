//! A client's connection: which calls it has made, and which replies are to be written.

mod read;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

use super::backchannel::{self, Debts};
use super::call::{Call, Reply};
use super::first;
use super::memory::Share;
use super::own::{Taker, is_own};
use super::peer::{User, user_of};
use super::shared::{Shared, count};
use crate::limits::{Admission, admit};
use crate::trouble::Tell;
use read::{linger, read};
use write::write;

/// Bytes that a read takes at most.
pub(super) const READ: usize = 256 << 10;
/// Replies up to this size are written together.
pub(super) const TOGETHER: usize = 16 << 10;
/// Chunks that a write takes.
pub(super) const SLICES: usize = 64;

/// Bytes of replies that the kernel may hold unsent: what is in there comes before every other reply.
const UNSENT: libc::c_int = 512 << 10;

/// Bytes that have to move within [`crate::proxy::Config::patience`] where a record is under way, unless that ends: a
/// client that is too slow holds memory that others could use.
const PACE: usize = 1 << 20;

/// How fast a client reads or writes.
struct Pace {
    patience: Duration,
    since: tokio::time::Instant,
    moved: usize,
}

impl Pace {
    fn new(patience: Duration) -> Pace {
        Pace {
            patience,
            since: tokio::time::Instant::now(),
            moved: 0,
        }
    }

    /// Counts from now on.
    fn begin(&mut self) {
        *self = Pace::new(self.patience);
    }

    /// So many bytes have moved.
    fn moved(&mut self, bytes: usize) {
        self.moved += bytes;
        if self.moved >= PACE {
            self.begin();
        }
    }

    /// Waits until a socket is ready.
    ///
    /// # Errors
    /// `TimedOut` when it is not in time.
    async fn ready(&self, ready: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        match timeout_at(self.since + self.patience, ready).await {
            Ok(ready) => ready,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// A client.
pub(super) struct Client {
    pub peer: SocketAddr,
    /// Who it is.
    pub user: User,
    /// Its shares of what may be kept of calls and of replies.
    pub of_calls: Rc<Share>,
    pub of_replies: Rc<Share>,
    /// When it has sent or taken something last, and whether a record of it is coming.
    moved: Cell<Instant>,
    receives: Cell<bool>,
    /// When its connection ended.
    closed: Cell<Option<Instant>>,
    /// Replies that it was given and that are not written.
    owed: Cell<usize>,
    /// Bytes of replies that it has taken.
    took: Cell<u64>,
    /// Replies that wait to be written: small ones, which do not wait for all the others.
    small: RefCell<VecDeque<Rc<Reply>>>,
    large: RefCell<VecDeque<Rc<Reply>>>,
    /// The reply that is being written.
    writing: RefCell<Option<Rc<Reply>>>,
    wake: Notify,
    /// Its calls without a reply, by its own XIDs.
    pub pending: RefCell<HashMap<u32, Rc<Call>>>,
    task: RefCell<Option<AbortHandle>>,
    pub calls: Cell<u64>,
    /// Calls of servers that it owes replies to.
    pub debts: Debts,
    /// Takes the reply, in place of a connection, where the program itself calls.
    taker: RefCell<Option<Taker>>,
}

impl Client {
    /// One with this address, and nothing else yet.
    pub(super) fn new(
        shared: &Shared,
        (peer, user): (SocketAddr, User),
        taker: Option<Taker>,
    ) -> Rc<Client> {
        let [calls, replies] = shared.kept_by(user);
        Rc::new(Client {
            peer,
            user,
            of_calls: shared.calls.share(&calls),
            of_replies: shared.replies.share(&replies),
            moved: Cell::new(Instant::now()),
            receives: Cell::new(false),
            closed: Cell::new(None),
            owed: Cell::new(0),
            took: Cell::new(0),
            small: RefCell::default(),
            large: RefCell::default(),
            writing: RefCell::default(),
            wake: Notify::new(),
            pending: RefCell::default(),
            task: RefCell::default(),
            calls: Cell::new(0),
            debts: Debts::default(),
            taker: RefCell::new(taker),
        })
    }

    /// Whether its connection is over.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// For how long its connection has been over.
    pub(super) fn closed_for(&self) -> Option<Duration> {
        self.closed.get().map(|at| at.elapsed())
    }

    /// Whether replies wait for it to take them.
    pub(super) fn is_owed(&self) -> bool {
        self.owed.get() > 0
    }

    /// Bytes of replies that it has taken.
    pub(super) fn took(&self) -> u64 {
        self.took.get()
    }

    /// For how long nothing has been under way for it; none while something is.
    fn idle(&self) -> Option<Duration> {
        let nothing = self.owed.get() == 0 && !self.receives.get();
        let idle = nothing && self.pending.borrow().is_empty();
        idle.then(|| self.moved.get().elapsed())
    }

    /// Whether a reply may be passed on while it comes: nothing else is to be said, or expected, meanwhile
    /// that it would hold up.
    pub(super) fn waits_for_one(&self) -> bool {
        !is_own(self.peer)
            && self.pending.borrow().len() <= 1
            && self.small.borrow().is_empty()
            && self.large.borrow().is_empty()
    }

    /// Whether it has a reply to all that it has called, as far as the proxy can tell.
    fn is_satisfied(&self) -> bool {
        self.pending.borrow().is_empty() && self.owed.get() == 0
    }

    /// Something of a reply has come.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Has a reply written, behind others of its kind.
    pub(super) fn reply(&self, reply: Rc<Reply>) {
        if self.is_closed() {
            return;
        }
        if let Some(taker) = self.taker.borrow_mut().take() {
            let _ = taker.send(Ok(reply));
            return;
        }
        self.owed.set(self.owed.get() + 1);
        match reply.is_small() {
            true => self.small.borrow_mut().push_back(reply),
            false => self.large.borrow_mut().push_back(reply),
        }
        self.wake();
    }

    /// Whether a reply has been given to be written, and comes meanwhile.
    pub(super) fn passes_on(&self, reply: &Rc<Reply>) -> bool {
        let is = |other: &Rc<Reply>| Rc::ptr_eq(other, reply);
        self.writing.borrow().as_ref().is_some_and(is) || self.large.borrow().iter().any(is)
    }

    /// Takes back a reply that nothing was written of.
    pub(super) fn retract(&self, reply: &Rc<Reply>) {
        for queue in [&self.small, &self.large] {
            let mut queue = queue.borrow_mut();
            let before = queue.len();
            queue.retain(|r| !Rc::ptr_eq(r, reply));
            self.owed.set(self.owed.get() - (before - queue.len()));
        }
    }

    /// A call has got its reply.
    pub(super) fn done(&self, call: &Rc<Call>) {
        let mut pending = self.pending.borrow_mut();
        let xid = call.header.xid;
        if pending.get(&xid).is_some_and(|of| Rc::ptr_eq(of, call)) {
            pending.remove(&xid);
        }
    }

    /// Ends the connection. Its calls are forgotten as far as they were not sent.
    pub(super) fn disconnect(&self, shared: &Shared, why: &str) {
        if self.is_closed() {
            return;
        }
        self.closed.set(Some(Instant::now()));
        if is_own(self.peer) {
            for (_, call) in self.pending.borrow_mut().drain() {
                call.abandon();
            }
            if let Some(taker) = self.taker.borrow_mut().take() {
                let _ = taker.send(Err(why.to_owned()));
            }
            return;
        }
        tracing::debug!(server = shared.server(), client = %self.peer, "client's connection closed: {why}");
        self.small.borrow_mut().clear();
        self.large.borrow_mut().clear();
        // Its calls may keep it for long, until there is room to read their replies.
        self.writing.take();
        backchannel::gone(shared, self);
        let calls = std::mem::take(&mut *self.pending.borrow_mut());
        drop(calls);
        shared
            .clients
            .borrow_mut()
            .retain(|_, c| !std::ptr::eq(&**c, self));
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
    }
}

/// Whether a client of this user is taken in; one that is idle may have to go.
fn is_welcome(shared: &Shared, user: User) -> bool {
    let clients: Vec<_> = shared.clients.borrow().values().cloned().collect();
    let connected: Vec<_> = clients.iter().map(|c| (c.user, c.idle())).collect();
    match admit(shared.config.clients, &user, &connected) {
        Admission::Welcome => true,
        Admission::InPlaceOf(number) => {
            let idle = &clients[number];
            shared.ended(
                idle.peer,
                "it was idle, and its user has the most connections",
            );
            idle.disconnect(shared, "idle, to make room");
            true
        }
        Admission::Refused => false,
    }
}

/// Takes a client in, or refuses it where there are too many.
pub(super) fn welcome(shared: &Rc<Shared>, stream: TcpStream, peer: SocketAddr) {
    // Before it could have one closed that is idle.
    if let Some(below) = shared.config.below.filter(|below| peer.port() >= *below) {
        return stranger(shared, peer, below);
    }
    let user = user_of(stream.local_addr().unwrap_or(peer), peer);
    if !is_welcome(shared, user) {
        count(&shared.counts.refused);
        let most = shared.config.clients;
        shared.tell(
            peer,
            &format!(
                "client refused: its user has its share of {most} connections, and none is idle"
            ),
        );
        return;
    }
    let _ = stream.set_nodelay(true);
    // The kernel may know better what it can hold; then small replies wait for more.
    let _ = keep_unsent_small(&stream);
    count(&shared.counts.clients);
    let number = shared.counts.clients.get();
    let client = Client::new(shared, (peer, user), None);
    shared
        .clients
        .borrow_mut()
        .insert(number, Rc::clone(&client));
    let task = tokio::task::spawn_local(serve(Rc::clone(shared), Rc::clone(&client), stream));
    *client.task.borrow_mut() = Some(task.abort_handle());
}

/// Says that a client was refused for its port, but not each time.
fn stranger(shared: &Shared, peer: SocketAddr, below: u16) {
    count(&shared.counts.refused);
    let told = shared.strangers.borrow_mut().failed(0, Instant::now());
    let times = match told {
        None => return,
        Some(Tell::First) => 1,
        Some(Tell::Still { times, .. }) => times,
    };
    tracing::warn!(server = shared.server(), client = %peer, times,
        "client refused: port {} is not below {below}, so that it may be any user's program, and the server takes the \
         proxy's calls for root's; mount as root, without noresvport", peer.port());
}

/// Has the kernel take no more than [`UNSENT`] bytes before it has sent them (`TCP_NOTSENT_LOWAT`).
fn keep_unsent_small(stream: &TcpStream) -> io::Result<()> {
    let bytes: libc::c_int = UNSENT;
    // SAFETY: the value is an integer of the length that is told, and lives through the call.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

async fn serve(shared: Rc<Shared>, client: Rc<Client>, stream: TcpStream) {
    let (reader, writer) = stream.into_split();
    let why = first(
        read(&shared, &client, &reader),
        write(&shared, &client, writer),
    )
    .await;
    if shared.ends() && !why.is_bad {
        linger(&reader).await;
    }
    if why.is_bad {
        shared.ended(client.peer, &why.text);
    }
    client.disconnect(&shared, &why.text);
}

/// Why a connection ends.
struct End {
    text: String,
    is_bad: bool,
}

impl End {
    fn bad(text: impl ToString) -> End {
        End {
            text: text.to_string(),
            is_bad: true,
        }
    }

    fn of(error: &io::Error) -> End {
        End {
            text: error.to_string(),
            is_bad: false,
        }
    }
}
