//! What the tasks share: the core, and what wakes the tasks that have the sockets.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tracing::field::{DisplayValue, display};

use super::internal::Taker;
use super::reach::reach;
use super::watch::Watched;
use super::{Config, Connect};
use crate::core::{Action, Actions, ClientId, Core, Event, Now};
use crate::journal::{Book, Journal, Left, second};
use crate::message::MessageError;
use crate::trouble::Trouble;

/// How often somebody whose share is used up looks whether others have given some back.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// What the tasks of a connection to a server wait for.
pub(super) struct Link {
    pub(super) service: usize,
    pub(super) number: usize,
    pub(super) lane: bool,
    /// There is something to write.
    pub(super) wake: Notify,
    /// It is to be closed, and why.
    pub(super) closes: Notify,
    pub(super) why: Cell<Option<&'static str>>,
    /// The socket, while it is connected.
    pub(super) socket: Cell<Option<Watched>>,
}

/// What the tasks of a client wait for.
#[derive(Default)]
pub(super) struct Socket {
    /// There is something to write.
    pub(super) wake: Notify,
    /// There may be room for more.
    pub(super) room: Notify,
    task: RefCell<Option<AbortHandle>>,
    /// Takes the reply, in place of a connection, where the program itself calls.
    taker: RefCell<Option<Taker>>,
}

impl Socket {
    /// None: what comes goes there.
    pub(super) fn taken_by(taker: Taker) -> Socket {
        Socket {
            taker: RefCell::new(Some(taker)),
            ..Socket::default()
        }
    }

    /// The task that serves it.
    pub(super) fn serve(&self, task: AbortHandle) {
        self.task.replace(Some(task));
    }
}

/// What a proxy consists of.
pub(super) struct Shared {
    core: RefCell<Core>,
    /// An empty one, so that none has to be made for each event.
    actions: Cell<Actions>,
    pub(super) connect: Rc<dyn Connect>,
    pub(super) patience: Duration,
    pub(super) most: u32,
    pub(super) links: Vec<Link>,
    clients: RefCell<HashMap<ClientId, Rc<Socket>>>,
    /// Where non-idempotent calls are noted.
    book: RefCell<Option<Book>>,
    /// Which connections cannot be made, by service.
    pub(super) troubles: RefCell<Vec<Trouble>>,
    calls_freed: Notify,
    replies_freed: Notify,
    end: Notify,
    /// What runs for as long as the proxy does.
    pub(super) tasks: RefCell<Vec<AbortHandle>>,
}

/// Now.
pub(super) fn now() -> Now {
    Now {
        at: Instant::now(),
        second: second(),
    }
}

impl Shared {
    pub(super) fn new(
        config: Config,
        connect: Rc<dyn Connect>,
        start: u32,
        (journal, left): (Journal, Left),
    ) -> Shared {
        let services = config.services.iter().enumerate();
        let links = services.flat_map(|(service, of)| {
            (0..of.connections + of.lanes).map(move |number| Link {
                service,
                number,
                lane: number >= of.connections,
                wake: Notify::new(),
                closes: Notify::new(),
                why: Cell::new(None),
                socket: Cell::new(None),
            })
        });
        let (notes, book) = journal.into_parts();
        let name = connect.server().map(str::to_owned);
        Shared {
            actions: Cell::default(),
            patience: config.patience,
            most: config.most,
            links: links.collect(),
            clients: RefCell::default(),
            book: RefCell::new(book),
            troubles: RefCell::new(vec![Trouble::default(); config.services.len()]),
            calls_freed: Notify::new(),
            replies_freed: Notify::new(),
            end: Notify::new(),
            tasks: RefCell::default(),
            core: RefCell::new(Core::new((config, name), start, (notes, left), now())),
            connect,
        }
    }

    /// Has the core do something, and does what it asks for.
    pub(super) fn with<T>(
        self: &Rc<Self>,
        ask: impl FnOnce(&mut Core, Now, &mut Actions) -> T,
    ) -> T {
        let mut actions = self.actions.take();
        let answer = ask(&mut self.core.borrow_mut(), now(), &mut actions);
        for action in actions.drain(..) {
            self.act(action);
        }
        self.actions.set(actions);
        answer
    }

    /// Looks at the core.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        look(&mut self.core.borrow_mut())
    }

    /// Tells the core what has happened.
    pub(super) fn handle(self: &Rc<Self>, event: Event<'_>) -> Result<(), MessageError> {
        self.with(|core, now, actions| core.handle(now, event, actions))
    }

    /// Tells it what cannot make no sense.
    pub(super) fn tell(self: &Rc<Self>, event: Event<'_>) {
        let _ = self.handle(event);
    }

    /// A client's connection has ended; whether this is to be remembered.
    pub(super) fn end_client(self: &Rc<Self>, client: ClientId, why: &str, bad: bool) {
        self.tell(Event::ClientEnds { client, why, bad });
    }

    fn act(self: &Rc<Self>, action: Action) {
        match action {
            Action::WriteCalls(number) => self.links[number].wake.notify_one(),
            Action::WriteReplies(client) => {
                if let Some(socket) = self.clients.borrow().get(&client) {
                    socket.wake.notify_one();
                }
            }
            Action::Room(client) => {
                if let Some(socket) = self.clients.borrow().get(&client) {
                    socket.room.notify_one();
                }
            }
            Action::RoomForCalls => self.calls_freed.notify_one(),
            Action::RoomForReplies => self.replies_freed.notify_one(),
            Action::Answer(client, stream) => self.answer(client, Ok(stream)),
            Action::NoAnswer(client, why) => self.answer(client, Err(why)),
            Action::Disconnect(client) => {
                let socket = self.clients.borrow_mut().remove(&client);
                if let Some(task) = socket.and_then(|socket| socket.task.take()) {
                    task.abort();
                }
            }
            Action::Close(number, why) => {
                let link = &self.links[number];
                link.why.set(Some(why));
                link.closes.notify_one();
            }
            Action::Silent(number) => {
                let link = &self.links[number];
                self.connect.silent(link.service, link.number);
            }
            Action::Beside(ends) => {
                let shared = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    if reach(ends).await.is_ok() {
                        shared.tell(Event::Reached);
                    }
                });
            }
        }
    }

    fn answer(&self, client: ClientId, answer: Result<Vec<bytes::Bytes>, String>) {
        let socket = self.clients.borrow_mut().remove(&client);
        if let Some(taker) = socket.and_then(|socket| socket.taker.take()) {
            let _ = taker.send(answer);
        }
    }

    /// What wakes the tasks of a client.
    pub(super) fn enter(&self, client: ClientId, socket: Socket) -> Rc<Socket> {
        let socket = Rc::new(socket);
        let mut clients = self.clients.borrow_mut();
        clients.insert(client, Rc::clone(&socket));
        socket
    }

    /// Ends the connections of all clients; internal calls have no answer any more.
    pub(super) fn end_clients(self: &Rc<Self>) {
        let clients: Vec<_> = self.clients.borrow().keys().copied().collect();
        for client in clients {
            let socket = self.clients.borrow().get(&client).cloned();
            if let Some(socket) = socket {
                socket.taker.take();
            }
            self.end_client(client, "the proxy stops", false);
        }
    }

    /// Takes no more calls.
    pub(super) fn end(self: &Rc<Self>) {
        self.tell(Event::Drain);
        self.end.notify_waiters();
    }

    /// Whether no more calls are taken.
    pub(super) fn ends(&self) -> bool {
        self.look(|core| core.ends())
    }

    /// Waits until no more calls are taken.
    pub(super) async fn told_to_end(&self) -> std::io::Result<()> {
        // Made first, so that it hears of what comes meanwhile.
        let told = self.end.notified();
        if !self.ends() {
            told.await;
        }
        Ok(())
    }

    /// Waits until another call may begin, whoever makes it.
    pub(super) async fn room_for_calls(&self) {
        while self.look(Core::calls_are_full) {
            self.calls_freed.notified().await;
        }
        // Who waits behind us looks for room, too.
        self.calls_freed.notify_one();
    }

    /// Waits until there is room for another reply, and makes some: all connections to servers wait meanwhile.
    pub(super) async fn room_for_replies(self: &Rc<Self>) {
        while self.look(Core::replies_are_full) {
            let _ = timeout(LOOK, self.replies_freed.notified()).await;
            if self.look(Core::replies_are_full) {
                self.with(|core, now, actions| core.relieve(now, actions));
            }
        }
        self.replies_freed.notify_one();
    }

    /// Has what was noted outlive this process, and what has no reply yet; before any of it is sent.
    pub(super) fn flush(self: &Rc<Self>) {
        let book = self.book.borrow();
        let Some(book) = &*book else {
            return;
        };
        let now = now();
        let written = self.look(|core| {
            let notes = core.notes(now);
            match notes.is_empty() {
                true => Ok(false),
                false => book.write(notes, now.second),
            }
        });
        match written {
            Ok(false) => {}
            Ok(true) => tracing::info!(server = self.server(), "calls are noted again"),
            Err(e) => tracing::error!(
                server = self.server(),
                "calls are not noted, and may be run twice if this process ends; it is tried again in a minute: {e}"
            ),
        }
    }

    /// Lets go of the journal: it is another's.
    pub(super) fn close_book(&self) {
        self.look(Core::forget_notes);
        self.book.take();
    }

    /// What log lines call the server.
    pub(super) fn server(&self) -> Option<DisplayValue<&str>> {
        self.connect.server().map(display)
    }

    /// What log lines call a connection.
    pub(super) fn name(&self, link: &Link) -> String {
        self.connect.name(link.service, link.number, link.lane)
    }
}
