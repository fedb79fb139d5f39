//! Programs, connections and a server around a core, driven by steps: whatever comes late, twice, in another order or
//! never, what is promised holds.
//!
//! 1. A reply reaches a program at most once for each time that it has called, is that to its own call, and comes by the
//!    connection that it called by last.
//! 2. Of a call that must not be run twice the server gets copies from one port and with one XID alone, so that its
//!    cache knows them; any other is counted as run again.
//! 3. What is kept of calls is bounded, by one record on top.
//! 4. A small call takes the lane only while a large one is under way on another connection, or no other stands; or its
//!    XID is another one's there, where calls are signed.
//! 5. A server's call reaches the program whose session it names, and the reply the connection that called.
//! 6. When nothing fails any more, every program that is connected gets every reply; and when all are gone, nothing of
//!    them is left.
#![allow(clippy::unwrap_used, reason = "what a test assumes is as it says")]

mod server;
pub(crate) mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use raddle_rpc_core::assemble::Part;
use raddle_rpc_core::core::{Action, Actions, ClientId, Config, Core, Event, Now, Service, User};
use raddle_rpc_core::dispatch::Policy;
use raddle_rpc_core::journal::{Keys, Left, Notes};

use server::Server;
use wire::{FILLING, Op, word};

/// Programs at once.
const PROGRAMS: usize = 4;
/// Bytes that may be kept.
const MEMORY: usize = 4 << 20;
/// How long all may take, so that nothing that is remembered is forgotten.
const TIME: Duration = Duration::from_secs(60);

/// What happens next: which kind, and three numbers that choose among what there is.
pub(crate) type Step = [u8; 4];

/// A call that a program has made.
#[derive(Clone, Copy, Debug)]
struct Said {
    op: Op,
    xid: u32,
    token: u32,
}

/// A call that a program waits for the reply to, or has waited.
#[derive(Clone, Copy, Debug)]
struct Waits {
    token: u32,
    /// How often it has called and got no reply.
    calls: u32,
    /// Whether it has called since it got a reply.
    due: bool,
}

/// A program, by its port.
struct Program {
    address: SocketAddr,
    /// Its connection.
    client: Option<ClientId>,
    /// What it waits for by this connection, by XID.
    waits: BTreeMap<u32, Waits>,
    /// Its last calls, answered or not.
    said: Vec<Said>,
    xid: u32,
    /// Whether there is something to be read.
    woken: bool,
    /// What has come of a large reply.
    reading: Vec<u8>,
}

/// All of it.
pub(crate) struct World {
    core: Core,
    start: Instant,
    time: Duration,
    server: Server,
    programs: Vec<Program>,
    /// The token of the next call, and the port of the next program.
    token: u32,
    port: u16,
    /// Whether calls are signed: these keep their XIDs, and take the lane where others have them.
    signs: bool,
    /// The sequence number of the last call that was signed.
    sequence: u32,
    /// The ports and XIDs under which the server got each call that must not be run twice, by program and token.
    copies: HashMap<(SocketAddr, u32), BTreeSet<(SocketAddr, u32)>>,
    /// Who has made which call, by token.
    callers: HashMap<u32, SocketAddr>,
    /// Who has which session.
    sessions: HashMap<u32, SocketAddr>,
    /// Bytes outstanding on each connection.
    outstanding: Vec<u64>,
}

fn program(port: u16) -> Program {
    Program {
        address: SocketAddr::from(([10, 0, 0, 7], port)),
        client: None,
        waits: BTreeMap::new(),
        said: Vec::new(),
        xid: 1,
        woken: false,
        reading: Vec::new(),
    }
}

impl World {
    /// One with connections and a policy by this number.
    pub(crate) fn new(kind: u8) -> World {
        let config = Config {
            services: vec![Service {
                programs: Vec::new(),
                connections: 1 + usize::from(kind % 3),
                lanes: usize::from(kind / 3 % 2),
            }],
            policy: [Policy::LeastBytes, Policy::RoundRobin, Policy::Hash]
                [usize::from(kind / 6 % 3)],
            most: 1 << 20,
            memory: MEMORY,
            patience: Duration::from_secs(30),
            clients: 64,
            port: 2049,
            below: None,
        };
        let start = Instant::now();
        let now = Now {
            at: start,
            second: 1000,
        };
        let journal = (Notes::none(Keys(1, 2)), Left::default());
        let core = Core::new((config, None), u32::MAX - 3, journal, now);
        let transports = core.transports();
        World {
            core,
            start,
            time: Duration::ZERO,
            server: Server::new(transports),
            programs: (0..PROGRAMS).map(|i| program(700 + i as u16)).collect(),
            token: 0,
            signs: kind >= 128,
            sequence: 0,
            port: 800,
            copies: HashMap::new(),
            callers: HashMap::new(),
            sessions: HashMap::new(),
            outstanding: vec![0; transports],
        }
    }

    fn now(&self) -> Now {
        Now {
            at: self.start + self.time,
            second: 1000 + self.time.as_secs() as u32,
        }
    }

    /// Tells the core something, and does what it asks for.
    fn tell(&mut self, event: Event<'_>) {
        let mut actions = Actions::new();
        self.core
            .handle(self.now(), event, &mut actions)
            .expect("all of it makes sense");
        self.act(actions);
        self.check();
    }

    fn act(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::WriteCalls(number) => self.server.links[number].woken = true,
                Action::WriteReplies(client) => {
                    if let Some(program) = self.program_of(client) {
                        self.programs[program].woken = true;
                    }
                }
                Action::Disconnect(client) => {
                    if let Some(program) = self.program_of(client) {
                        self.programs[program].gone();
                    }
                }
                Action::Close(number, why) => self.server.links[number].closes = Some(why),
                Action::Answer(..) | Action::NoAnswer(..) => {
                    panic!("nobody has made an internal call")
                }
                Action::Silent(_)
                | Action::Beside(_)
                | Action::Room(_)
                | Action::RoomForCalls
                | Action::RoomForReplies => {}
            }
        }
    }

    fn program_of(&self, client: ClientId) -> Option<usize> {
        self.programs
            .iter()
            .position(|of| of.client == Some(client))
    }

    /// What holds at any moment.
    fn check(&mut self) {
        let (calls, _) = self.core.kept();
        assert!(
            calls <= MEMORY + (32 << 10),
            "{calls} bytes of calls are kept"
        );
        let loads = self.core.loads(self.now());
        let bulk = || loads.iter().filter(|load| load.up && !load.lane);
        for (load, before) in loads.iter().zip(&mut self.outstanding) {
            let more = load.lane && load.up && load.outstanding > *before;
            *before = load.outstanding;
            assert!(
                !more || self.signs || bulk().count() == 0 || bulk().any(|load| load.large),
                "a call takes the lane: {loads:?}"
            );
        }
        let more = self
            .copies
            .values()
            .map(|ports| ports.len() - 1)
            .sum::<usize>();
        let counted = self.core.status(self.now()).counters.run_again;
        let twice = || self.copies.iter().filter(|(_, ports)| ports.len() > 1);
        assert!(
            more as u64 <= counted,
            "{counted} calls are counted as run again, and these were sent as two: {:?}",
            twice().collect::<Vec<_>>()
        );
    }

    /// Does what a step says, as far as that is possible.
    pub(crate) fn step(&mut self, [kind, a, b, c]: Step) {
        let program = usize::from(a) % PROGRAMS;
        let link = usize::from(a) % self.server.links.len();
        match kind % 21 {
            0 | 1 => self.enter(program, b),
            2..=5 => self.call(program, Op::of(b, self.signs)),
            6 => self.repeat(program, usize::from(b)),
            7 => self.leave(program),
            8..=10 => self.write(link, b),
            11..=13 => self.serve(usize::from(a), b),
            14 => self.go_on(link),
            15 => self.read(program, b),
            16 => self.lose(link, "reset"),
            17 => self.connect(link, b),
            18 => self.call_back(usize::from(a), usize::from(b)),
            19 => self.break_off(program, b),
            _ => self.wait(Duration::from_millis(u64::from(a) * u64::from(b) / 16), c),
        }
        for number in 0..self.server.links.len() {
            if let Some(why) = self.server.links[number].closes.filter(|_| c % 4 != 0) {
                self.lose(number, why);
            }
        }
    }

    /// A program connects, from the port that it had or from another; it may be a new one, that numbers its calls as
    /// the last one did.
    fn enter(&mut self, number: usize, how: u8) {
        if self.programs[number].client.is_some() {
            return;
        }
        if how.is_multiple_of(8) {
            self.port += 1;
            self.programs[number] = program(self.port);
        }
        if how % 8 == 1 {
            let port = self.programs[number].address.port();
            self.programs[number] = program(port);
        }
        let peer = self.programs[number].address;
        let mut actions = Actions::new();
        let user = User::Local(number as u32 / 2);
        let client = self.core.welcome(self.now(), peer, user, &mut actions);
        self.act(actions);
        self.programs[number].client = Some(client.expect("there are few"));
    }

    fn leave(&mut self, number: usize) {
        if let Some(client) = self.programs[number].client {
            self.tell(Event::ClientEnds {
                client,
                why: "it leaves",
                bad: false,
            });
            assert!(self.programs[number].client.is_none());
        }
    }

    /// A program's connection ends within a call: behind its head, or in the midst of its data.
    fn break_off(&mut self, number: usize, how: u8) {
        let Some(client) = self.programs[number].client else {
            return;
        };
        if !self.core.has_room_for_call(client, FILLING.len()) {
            return;
        }
        let head = wire::call(Op::LargeWrite, self.programs[number].xid, 0, 0);
        let start = Part::Start {
            head,
            rest: FILLING.len() as u32,
            last: true,
        };
        self.tell(Event::FromClient(client, start));
        if how.is_multiple_of(2) {
            let half = &FILLING[..FILLING.len() / 2];
            self.tell(Event::FromClient(
                client,
                Part::Data(Bytes::from_static(half)),
            ));
        }
        self.leave(number);
    }

    fn call(&mut self, number: usize, op: Op) {
        let token = self.token + 1;
        // No two programs give signed calls one XID: a server may answer each copy of such a call, and the second reply
        // would be the other program's, which knows by the signature that it is not.
        let xid = match op {
            Op::Signed => 1 << 28 | token,
            _ => self.programs[number].xid,
        };
        let said = Said { op, xid, token };
        if self.say(number, said) {
            self.token += 1;
            let of = &mut self.programs[number];
            of.xid += 1;
            of.said.push(said);
            if of.said.len() > 8 {
                of.said.remove(0);
            }
        }
    }

    /// A program calls once more, whether it has its reply or not.
    fn repeat(&mut self, number: usize, which: usize) {
        let of = &self.programs[number];
        if let Some(said) = of.said.get(which % of.said.len().max(1)).copied() {
            self.say(number, said);
        }
    }

    /// Makes a call, if the proxy reads it.
    fn say(&mut self, number: usize, said: Said) -> bool {
        let Some(client) = self.programs[number].client else {
            return false;
        };
        let rest = match said.op {
            Op::LargeWrite => FILLING.len(),
            _ => 0,
        };
        if !self.core.has_room_for_call(client, rest) || !self.core.has_room_for_replies(client) {
            return false;
        }
        let of = &mut self.programs[number];
        let waits = of.waits.entry(said.xid).or_insert(Waits {
            token: said.token,
            calls: 0,
            due: true,
        });
        waits.calls += 1;
        waits.due = true;
        self.callers.insert(said.token, of.address);
        self.sequence += 1;
        let head = wire::call(said.op, said.xid, said.token, self.sequence);
        if rest == 0 {
            self.tell(Event::FromClient(client, Part::Whole(head)));
            return true;
        }
        let start = Part::Start {
            head,
            rest: rest as u32,
            last: true,
        };
        let data = Part::Data(Bytes::from_static(&FILLING));
        for part in [start, data, Part::End] {
            self.tell(Event::FromClient(client, part));
        }
        true
    }

    /// A program takes what there is for it, or a part.
    fn read(&mut self, number: usize, how: u8) {
        let Some(client) = self.programs[number].client else {
            return;
        };
        while std::mem::take(&mut self.programs[number].woken) {
            let (mut buffer, mut actions) = (BytesMut::new(), Actions::new());
            // Where it is in the midst of a reply, it goes on with that.
            let next = match self.server.writing.remove(&client) {
                Some(reply) => Some((0, Some(reply))),
                None => self
                    .core
                    .replies_to_write(self.now(), client, &mut buffer, &mut actions)
                    .map(|next| (next.small, next.large)),
            };
            self.act(actions);
            let Some((replies, large)) = next else {
                break;
            };
            self.programs[number].woken = true;
            self.tell(Event::Took {
                client,
                bytes: buffer.len(),
                replies,
            });
            for record in wire::records(&buffer) {
                self.gets(number, &record);
            }
            if let Some(reply) = large
                && !self.read_large(number, client, reply, how)
            {
                self.server.writing.insert(client, reply);
                self.programs[number].woken = how.is_multiple_of(4);
                break;
            }
        }
    }

    /// Takes what is here of a large reply; whether that was all.
    fn read_large(
        &mut self,
        number: usize,
        client: ClientId,
        reply: raddle_rpc_core::core::ReplyId,
        how: u8,
    ) -> bool {
        let Some((chunks, complete)) = self.core.chunks(reply) else {
            return true;
        };
        let here: Vec<u8> = chunks.iter().flatten().copied().collect();
        // Only a part of it.
        let taken = match how % 4 {
            0 => here.len() / 2,
            _ => here.len(),
        };
        self.programs[number].reading.extend(&here[..taken]);
        self.tell(Event::TookOf(client, reply, taken));
        if taken < here.len() || !complete {
            return false;
        }
        self.tell(Event::TookAll(client, reply));
        let stream = std::mem::take(&mut self.programs[number].reading);
        for record in wire::records(&stream) {
            self.gets(number, &record);
        }
        true
    }

    /// A program gets a message.
    fn gets(&mut self, number: usize, message: &[u8]) {
        let of = &mut self.programs[number];
        let xid = word(message, 0);
        if word(message, 1) == 0 {
            let session = wire::session_of(message);
            assert_eq!(self.sessions.get(&session), Some(&of.address));
            let answer = wire::answer(xid, session);
            if let Some(client) = of.client {
                self.tell(Event::FromClient(client, Part::Whole(answer)));
            }
            return;
        }
        let token = wire::token_of(message);
        let waits = of.waits.get_mut(&xid);
        let waits = waits.filter(|waits| waits.token == token && waits.calls > 0);
        let Some(waits) = waits else {
            panic!(
                "{} gets a reply to {xid}, {token}: {:?}",
                of.address, of.waits
            );
        };
        waits.calls -= 1;
        waits.due = false;
    }

    /// Time goes on; which connection is silent is in a number.
    fn wait(&mut self, time: Duration, silent: u8) {
        self.time = (self.time + time).min(TIME);
        self.tick(silent);
    }

    /// Whatever was begun is ended, and nothing fails any more; then all that was promised is there.
    pub(crate) fn settle(&mut self) {
        for _ in 0..400 {
            self.time += Duration::from_millis(50);
            for link in 0..self.server.links.len() {
                if let Some(why) = self.server.links[link].closes {
                    self.lose(link, why);
                }
                self.connect(link, 1);
                self.write(link, 1);
                self.go_on(link);
            }
            while self.server.has_copies() {
                self.serve(0, 1);
                (0..self.server.links.len()).for_each(|link| self.go_on(link));
            }
            for program in 0..PROGRAMS {
                self.read(program, 1);
            }
            self.tick(u8::MAX);
            if self.is_settled() {
                break;
            }
        }
        for of in &self.programs {
            assert!(!of.is_due(), "{:?} get no reply", of.waits);
        }
        (0..PROGRAMS).for_each(|program| self.leave(program));
        self.tick(u8::MAX);
        assert_eq!((self.core.known(), self.core.kept()), ((0, 0, 0), (0, 0)));
        assert_eq!(self.core.expected(), 0, "bytes of calls that never come");
    }

    fn is_settled(&self) -> bool {
        self.core.known().0 == 0 && !self.programs.iter().any(Program::is_due)
    }
}

impl Program {
    /// Whether it has no reply to what it has called.
    fn is_due(&self) -> bool {
        self.client.is_some() && self.waits.values().any(|waits| waits.due)
    }

    /// Its connection is closed.
    fn gone(&mut self) {
        self.client = None;
        self.waits.clear();
        self.reading.clear();
        self.woken = false;
    }
}

/// Does all these steps, and ends.
pub(crate) fn run(kind: u8, steps: impl IntoIterator<Item = Step>) {
    let mut world = World::new(kind);
    for link in 0..world.server.links.len() {
        world.connect(link, 1);
    }
    for program in 0..PROGRAMS {
        world.enter(program, 2);
    }
    steps.into_iter().for_each(|step| world.step(step));
    world.settle();
}
