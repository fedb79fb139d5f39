//! The server's side of the world: its connections, and the copies of calls that it has got and may run at any moment.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use raddle_rpc_core::assemble::Part;
use raddle_rpc_core::core::{Actions, ClientId, Event, Heard, Made, NextCall, ReplyId};
use raddle_rpc_core::replay::Sent;

use super::World;
use super::wire::{self, FILLING, Op, word};

/// A connection: its transport, and which one of that.
type Connection = (usize, u32);

/// A copy of a call that the server has got.
#[derive(Clone, Copy, Debug)]
struct Copy {
    connection: Connection,
    xid: u32,
    op: Op,
    token: u32,
}

/// A transport's connection.
pub(super) struct Link {
    /// Its own address and port, while it stands.
    up: Option<SocketAddr>,
    serial: u32,
    /// Whether there is something to be written.
    pub(super) woken: bool,
    /// Whether it is to be closed, and why.
    pub(super) closes: Option<&'static str>,
    /// Parts of a large reply that are to come.
    coming: Vec<Part>,
}

/// The server, and what has no other place.
pub(super) struct Server {
    pub(super) links: Vec<Link>,
    copies: Vec<Copy>,
    /// Its calls that have no reply: the connection, the XID, and the session.
    calls: HashMap<(Connection, u32), u32>,
    port: u16,
    xid: u32,
    /// Large replies that clients are in the midst of.
    pub(super) writing: HashMap<ClientId, ReplyId>,
    /// Sessions of which replies have been sent.
    bound: Vec<u32>,
    /// Ports that somebody has.
    ports: HashSet<SocketAddr>,
}

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 2049);

impl Server {
    pub(super) fn new(links: usize) -> Server {
        let link = || Link {
            up: None,
            serial: 0,
            woken: false,
            closes: None,
            coming: Vec::new(),
        };
        Server {
            links: (0..links).map(|_| link()).collect(),
            copies: Vec::new(),
            calls: HashMap::new(),
            port: 1000,
            xid: 0,
            writing: HashMap::new(),
            bound: Vec::new(),
            ports: HashSet::new(),
        }
    }

    /// Whether there are copies that it has not run.
    pub(super) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }
}

impl World {
    /// A connection is made where there is none, or fails to be.
    pub(super) fn connect(&mut self, number: usize, how: u8) {
        if self.server.links[number].up.is_some() {
            return;
        }
        let mut actions = Actions::new();
        let wanted = self.core.wanted(self.now(), number, &mut actions);
        self.act(actions);
        let error = match how % 8 {
            0 => Some(ErrorKind::ConnectionRefused),
            4 => Some(ErrorKind::AddrInUse),
            _ => None,
        };
        if let Some(error) = error {
            return self.tell(Event::NotConnected(number, error, "so".into()));
        }
        let local = match wanted.again {
            Some(again) => again.from,
            None => {
                self.server.port += 1;
                SocketAddr::from(([10, 0, 0, 1], self.server.port))
            }
        };
        assert!(
            self.server.ports.insert(local),
            "two connections have {local}"
        );
        let link = &mut self.server.links[number];
        link.up = Some(local);
        link.serial += 1;
        link.closes = None;
        self.tell(Event::Connected(
            number,
            Made {
                ends: (local, SocketAddr::from(SERVER)),
                out: None,
                back: None,
                attempts: 1,
                detour: wanted.again.is_some() && how % 8 == 7,
            },
        ));
    }

    /// A connection is no more.
    pub(super) fn lose(&mut self, number: usize, why: &str) {
        let link = &mut self.server.links[number];
        let failed = link.closes.take().is_none();
        let Some(local) = link.up.take() else {
            return;
        };
        link.coming.clear();
        link.woken = false;
        self.server.ports.remove(&local);
        self.tell(Event::Lost {
            transport: number,
            why: why.into(),
            failed,
        });
    }

    /// What is to be written goes to the server, or is lost with the connection.
    pub(super) fn write(&mut self, number: usize, how: u8) {
        while self.server.links[number].up.is_some()
            && std::mem::take(&mut self.server.links[number].woken)
        {
            let (mut buffer, mut actions) = (BytesMut::new(), Actions::new());
            let next = self
                .core
                .calls_to_write(self.now(), number, &mut buffer, &mut actions);
            self.act(actions);
            if how.is_multiple_of(16) {
                return self.lose(number, "reset while it is written to");
            }
            for record in wire::records(&buffer) {
                self.comes(number, &record);
            }
            match next {
                NextCall::Nothing => return,
                NextCall::Buffer => {}
                NextCall::Large { call, head, body } => {
                    self.tell(Event::Sent(call, Sent::Part));
                    if how % 16 == 8 {
                        return self.lose(number, "reset within a call");
                    }
                    self.tell(Event::Sent(call, Sent::All));
                    if how % 16 == 9 {
                        return self.lose(number, "reset before a call has come");
                    }
                    let all = std::iter::once(&head[..]).chain(body.iter().map(|b| &b[..]));
                    let stream = all.collect::<Vec<_>>().concat();
                    for record in wire::records(&stream) {
                        self.comes(number, &record);
                    }
                }
            }
            self.server.links[number].woken = true;
        }
    }

    /// A message is with the server.
    fn comes(&mut self, number: usize, message: &[u8]) {
        let link = &self.server.links[number];
        let Some(local) = link.up else {
            return;
        };
        let (connection, xid) = ((number, link.serial), word(message, 0));
        if word(message, 1) == 1 {
            let session = self.server.calls.remove(&(connection, xid));
            assert!(session.is_some(), "a reply to no call of this connection");
            // Or there is nobody any more.
            let named = (message.len() == 28).then(|| word(message, 6));
            assert!(named.is_none() || named == session);
            return;
        }
        let Some((op, token)) = wire::parse(message) else {
            return;
        };
        if op.is_non_idempotent() {
            let ports = self.copies.entry((self.callers[&token], token));
            ports.or_default().insert((local, xid));
        }
        self.server.copies.push(Copy {
            connection,
            xid,
            op,
            token,
        });
    }

    /// The server runs a copy; the reply comes if the connection stands, as a whole or in parts, or is lost with it.
    pub(super) fn serve(&mut self, which: usize, how: u8) {
        if self.server.copies.is_empty() {
            return;
        }
        let which = which % self.server.copies.len();
        let copy = self.server.copies.remove(which);
        let (number, serial) = copy.connection;
        let link = &mut self.server.links[number];
        if link.up.is_none() || link.serial != serial {
            return;
        }
        if how.is_multiple_of(16) {
            return self.lose(number, "reset before a reply");
        }
        if !link.coming.is_empty() {
            // It comes behind.
            return self.server.copies.push(copy);
        }
        if copy.op == Op::CreateSession {
            self.server.bound.push(copy.token);
            self.sessions.insert(copy.token, self.callers[&copy.token]);
        }
        let head = wire::reply(copy.op, copy.xid, copy.token);
        let is_large = copy.op == Op::Read || how % 16 == 2;
        if is_large && copy.op != Op::CreateSession {
            let part = |from: usize, to: usize| Part::Data(Bytes::from_static(&FILLING[from..to]));
            let half = FILLING.len() / 2;
            let start = Part::Start {
                head,
                rest: FILLING.len() as u32,
                last: true,
            };
            link.coming = vec![Part::End, part(half, FILLING.len()), part(0, half)];
            return self.tell(Event::FromServer(number, start));
        }
        self.tell(Event::FromServer(number, Part::Whole(head)));
    }

    /// More of a large reply comes.
    pub(super) fn go_on(&mut self, number: usize) {
        if let Some(part) = self.server.links[number].coming.pop() {
            self.tell(Event::In(number, 4096));
            self.tell(Event::FromServer(number, part));
        }
    }

    /// The server calls a client back.
    pub(super) fn call_back(&mut self, session: usize, link: usize) {
        let sessions = &self.server.bound;
        let Some(session) = sessions.get(session % sessions.len().max(1)).copied() else {
            return;
        };
        let number = link % self.server.links.len();
        let link = &self.server.links[number];
        if link.up.is_none() || !link.coming.is_empty() {
            return;
        }
        let connection = (number, link.serial);
        self.server.xid += 1;
        let xid = self.server.xid;
        self.server.calls.insert((connection, xid), session);
        let call = wire::call_back(xid, session);
        self.tell(Event::FromServer(number, Part::Whole(call)));
    }

    /// It is looked at the connections, of which one may be silent.
    pub(super) fn tick(&mut self, silent: u8) {
        let heard: Vec<Option<Heard>> = (0..)
            .zip(&self.server.links)
            .map(|(number, link)| {
                let is = silent == number;
                link.up.map(|_| Heard {
                    silent: Duration::from_secs(if is { 5 } else { 0 }),
                    rtt: Duration::from_millis(1),
                    repeats: Duration::from_millis(200),
                    unacknowledged: is,
                    probed: false,
                })
            })
            .collect();
        self.tell(Event::Tick(&heard));
    }
}
