//! Servers that run what they have got whenever they like: whatever was acknowledged is there at the end.
//!
//! Clients with trees of their own call a server through connections that fail. Each copy of a call that has come to
//! the server waits until a schedule has it run, past any later call and past its connection's end. The server
//! remembers what is non-idempotent by port and XID, as servers do, and slots by their sequence numbers. What becomes of a
//! call that is cut off or repeated is what [`decide`] and [`repeated`] say of its bytes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::message::Call;
use crate::program::{nature, number};

/// What a client asks for; files and names are few, so that calls meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Read(u8),
    Getattr(u8),
    Lookup(u8),
    Readdir,
    Commit(u8),
    Write(u8, u8),
    /// Without a guard.
    Setattr(u8, u8),
    /// The mode, if it was this.
    Guarded(u8, u8, u8),
    Make(u8),
    Remove(u8),
    Rename(u8, u8),
}

/// How a client says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    V3,
    V40,
    /// Under a slot.
    V41,
}

/// What a server keeps of a client's tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tree {
    data: BTreeMap<u8, u8>,
    modes: BTreeMap<u8, u8>,
    names: BTreeSet<u8>,
}

impl Tree {
    /// Runs an operation, and gives its results.
    fn run(&mut self, op: Op) -> Vec<u8> {
        let found = |it: bool| vec![u8::from(it)];
        match op {
            Op::Read(file) => self.data.get(&file).copied().into_iter().collect(),
            Op::Getattr(file) => self.modes.get(&file).copied().into_iter().collect(),
            Op::Lookup(name) => found(self.names.contains(&name)),
            Op::Readdir => self.names.iter().copied().collect(),
            Op::Commit(_) => Vec::new(),
            Op::Write(file, value) => {
                self.data.insert(file, value);
                Vec::new()
            }
            Op::Setattr(file, mode) => {
                self.modes.insert(file, mode);
                Vec::new()
            }
            Op::Guarded(file, was, mode) => {
                let fits = self.modes.get(&file).copied().unwrap_or(0) == was;
                if fits {
                    self.modes.insert(file, mode);
                }
                found(fits)
            }
            Op::Make(name) => found(self.names.insert(name)),
            Op::Remove(name) => found(self.names.remove(&name)),
            Op::Rename(from, to) => {
                let is = self.names.remove(&from);
                if is {
                    self.names.insert(to);
                }
                found(is)
            }
        }
    }
}

/// The class that a call has by its bytes.
fn class(dialect: Dialect, op: Op) -> Class {
    let minor = match dialect {
        Dialect::V3 => return class3(op),
        Dialect::V40 => 0,
        Dialect::V41 => 1,
    };
    let mut operations: Vec<&[u32]> = Vec::new();
    if minor == 1 {
        operations.push(&[53, 1, 2, 3, 4, 5, 6, 7, 0]);
    }
    operations.push(&[22, 4, 7]);
    operations.push(match op {
        Op::Read(_) => &[25, 0, 0, 0, 0, 0, 0, 8],
        Op::Getattr(_) => &[9, 1, 1],
        Op::Lookup(_) => &[15, 1, 0x6100_0000],
        Op::Readdir => &[26, 0, 0, 0, 0, 64, 64, 0],
        Op::Commit(_) => &[5, 0, 0, 0],
        Op::Write(..) => &[38, 0, 0, 0, 0, 0, 0, 2, 4, 1],
        Op::Setattr(..) | Op::Guarded(..) => &[34, 0, 0, 0, 0, 0, 0],
        Op::Make(_) => &[6, 2, 1, 0x6100_0000, 0, 0],
        Op::Remove(_) => &[28, 1, 0x6100_0000],
        Op::Rename(..) => &[29, 1, 0x6100_0000, 1, 0x6200_0000],
    });
    let count = operations.len() as u32;
    let words = [&[0, minor, count], &operations.concat()[..]].concat();
    class_of(4, 1, &words)
}

fn class3(op: Op) -> Class {
    let (procedure, arguments): (u32, &[u32]) = match op {
        Op::Getattr(_) => (1, &[]),
        Op::Setattr(..) => (2, &[1, 0o644, 0, 0, 0, 0, 0, 0]),
        Op::Guarded(..) => (2, &[1, 0o644, 0, 0, 0, 0, 0, 1, 5, 6]),
        Op::Lookup(_) => (3, &[1, 0x6100_0000]),
        Op::Read(_) => (6, &[0, 0, 8]),
        Op::Write(..) => (7, &[0, 0, 1, 2, 1, 0]),
        Op::Make(_) => (9, &[1, 0x6100_0000, 0, 0, 0, 0, 0, 0]),
        Op::Remove(_) => (12, &[1, 0x6100_0000]),
        Op::Rename(..) => (14, &[1, 0x6100_0000, 4, 7, 1, 0x6200_0000]),
        Op::Readdir => (16, &[0, 0, 0, 0, 64]),
        Op::Commit(_) => (21, &[0, 0, 0]),
    };
    class_of(3, procedure, &[&[4, 7], arguments].concat())
}

fn class_of(version: u32, procedure: u32, words: &[u32]) -> Class {
    let header = Call {
        xid: 1,
        program: number::NFS,
        version,
        procedure,
        flavour: 0,
        arguments: 0,
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    nature(&header, &bytes).class
}

/// A copy of a call, at the server or on its way there.
#[derive(Clone, Copy, Debug)]
struct Copy {
    client: usize,
    op: Op,
    class: Class,
    /// The number of the call among its client's, which is that of its slot, too.
    number: u32,
    port: usize,
    /// Which connection of the port.
    connection: u32,
    xid: u32,
}

#[derive(Default)]
struct Server {
    trees: Vec<Tree>,
    /// Replies to what is non-idempotent, by port and XID.
    cache: BTreeMap<(usize, u32), Vec<u8>>,
    /// The last number of each client's slot, and the reply.
    slots: Vec<(u32, Vec<u8>)>,
}

impl Server {
    /// Runs a copy, unless it is known; none where its slot has gone on.
    fn run(&mut self, copy: &Copy) -> Option<Vec<u8>> {
        let tree = &mut self.trees[copy.client];
        match copy.class {
            Class::Slot => {
                let slot = &mut self.slots[copy.client];
                if copy.number < slot.0 {
                    return None;
                }
                if copy.number > slot.0 {
                    *slot = (copy.number, tree.run(copy.op));
                }
                Some(slot.1.clone())
            }
            class if class.is_non_idempotent() => {
                let known = self.cache.entry((copy.port, copy.xid));
                Some(known.or_insert_with(|| tree.run(copy.op)).clone())
            }
            _ => Some(tree.run(copy.op)),
        }
    }
}

/// What happens next; numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client calls, if it waits for nothing; the call may be lost on its way.
    Call(usize, Op, bool),
    /// The server runs a copy; its reply comes, or is lost.
    Run(usize, bool),
    /// A port's connection fails; what goes out for its calls may be lost again.
    Fail(usize, bool),
    /// A call goes out again by the connection that it has.
    Repeat(usize, bool),
    /// A client connects again from its port and repeats its call.
    Return(usize, bool),
    /// The next reply to a client is lost between the proxy and it.
    Deaf(usize),
}

const CLIENTS: usize = 3;
const PORTS: usize = 2;

fn op() -> impl Strategy<Value = Op> {
    let (file, value) = (0..2_u8, 0..3_u8);
    prop_oneof![
        1 => file.clone().prop_map(Op::Read),
        1 => file.clone().prop_map(Op::Getattr),
        1 => value.clone().prop_map(Op::Lookup),
        1 => Just(Op::Readdir),
        1 => file.clone().prop_map(Op::Commit),
        4 => (file.clone(), any::<u8>()).prop_map(|(f, v)| Op::Write(f, v)),
        3 => (file.clone(), value.clone()).prop_map(|(f, v)| Op::Setattr(f, v)),
        1 => (file, value.clone(), value.clone()).prop_map(|(f, w, v)| Op::Guarded(f, w, v)),
        2 => value.clone().prop_map(Op::Make),
        2 => value.clone().prop_map(Op::Remove),
        1 => (value.clone(), value).prop_map(|(a, b)| Op::Rename(a, b)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let lost = || prop::bool::weighted(0.3);
    prop_oneof![
        6 => (0..CLIENTS, op(), lost()).prop_map(|(c, op, lost)| Step::Call(c, op, lost)),
        6 => (any::<usize>(), lost()).prop_map(|(i, lost)| Step::Run(i, lost)),
        3 => (0..PORTS, lost()).prop_map(|(p, lost)| Step::Fail(p, lost)),
        1 => (0..CLIENTS, lost()).prop_map(|(c, lost)| Step::Repeat(c, lost)),
        1 => (0..CLIENTS, lost()).prop_map(|(c, lost)| Step::Return(c, lost)),
        1 => (0..CLIENTS).prop_map(Step::Deaf),
    ]
}

/// A call that its client waits for.
#[derive(Clone, Debug)]
struct Waits {
    copy: Copy,
    /// What it has to be answered.
    expected: Vec<u8>,
    /// The reply, where it has come and its client has not got it.
    kept: Option<Vec<u8>>,
}

struct World {
    server: Server,
    /// Copies that have come to the server and wait.
    copies: Vec<Copy>,
    /// The connections of the ports.
    connections: [u32; PORTS],
    /// The trees as they are after what was acknowledged.
    acknowledged: Vec<Tree>,
    waits: Vec<Option<Waits>>,
    numbers: Vec<u32>,
    deaf: BTreeSet<usize>,
    xid: u32,
}

fn dialect(client: usize) -> Dialect {
    [Dialect::V3, Dialect::V40, Dialect::V41][client % 3]
}

impl World {
    fn new() -> World {
        let trees = vec![Tree::default(); CLIENTS];
        World {
            server: Server {
                trees: trees.clone(),
                slots: vec![(0, Vec::new()); CLIENTS],
                ..Server::default()
            },
            copies: Vec::new(),
            connections: [0; PORTS],
            acknowledged: trees,
            waits: vec![None; CLIENTS],
            numbers: vec![0; CLIENTS],
            deaf: BTreeSet::new(),
            xid: 0,
        }
    }

    /// Sends the copy that a client waits for, by a port and its present connection.
    fn send(&mut self, client: usize, port: usize, xid: Option<u32>, lost: bool) {
        self.xid += 1;
        let (connection, fresh) = (self.connections[port], self.xid);
        let Some(waits) = &mut self.waits[client] else {
            return;
        };
        waits.copy.port = port;
        waits.copy.connection = connection;
        waits.copy.xid = xid.unwrap_or(fresh);
        if !lost {
            self.copies.push(waits.copy);
        }
    }

    fn call(&mut self, client: usize, op: Op, lost: bool) {
        if self.waits[client].is_some() {
            return;
        }
        self.numbers[client] += 1;
        let copy = Copy {
            client,
            op,
            class: class(dialect(client), op),
            number: self.numbers[client],
            port: 0,
            connection: 0,
            xid: 0,
        };
        // What it is answered when it is run once, after all that was acknowledged.
        let expected = self.acknowledged[client].run(op);
        self.waits[client] = Some(Waits {
            copy,
            expected,
            kept: None,
        });
        let port = self.xid as usize % PORTS;
        self.send(client, port, None, lost);
    }

    /// Has a copy run; its reply comes if its connection stands.
    fn run(&mut self, index: usize, lost: bool) -> Result<(), TestCaseError> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let copy = self.copies.swap_remove(index % self.copies.len());
        let reply = self.server.run(&copy);
        let stands = self.connections[copy.port] == copy.connection;
        let waits = &mut self.waits[copy.client];
        // By port and XID the proxy knows which call a reply is for.
        let is = |of: &Waits| (of.copy.port, of.copy.xid) == (copy.port, copy.xid);
        if lost || !stands || !waits.as_ref().is_some_and(|of| is(of) && of.kept.is_none()) {
            return Ok(());
        }
        prop_assert!(
            reply.is_some(),
            "a slot went on before its call had a reply: {copy:?}"
        );
        if let (Some(waits), true) = (&mut *waits, self.deaf.remove(&copy.client)) {
            waits.kept = reply;
            return Ok(());
        }
        self.answer(copy.client, reply.unwrap_or_default())
    }

    fn answer(&mut self, client: usize, reply: Vec<u8>) -> Result<(), TestCaseError> {
        if let Some(waits) = self.waits[client].take() {
            prop_assert_eq!(reply, waits.expected, "{:?}", waits.copy);
        }
        Ok(())
    }

    fn fail(&mut self, port: usize, lost: bool) {
        let before = self.connections[port];
        self.connections[port] += 1;
        for client in 0..CLIENTS {
            let on = |of: &&Waits| of.kept.is_none() && of.copy.port == port;
            let Some(waits) = self.waits[client].as_ref().filter(on) else {
                continue;
            };
            assert_eq!(waits.copy.connection, before);
            let xid = waits.copy.xid;
            let cut = Cut {
                sent: Sent::All,
                class: waits.copy.class,
                signed: false,
                answered: false,
                wanted: true,
            };
            match decide(&cut).0 {
                Action::Elsewhere => self.send(client, (port + 1) % PORTS, None, lost),
                Action::SamePort => self.send(client, port, Some(xid), lost),
                other => panic!("{other:?} for {cut:?}"),
            }
        }
    }

    fn repeat(&mut self, client: usize, lost: bool) {
        let under_way = self.waits[client].as_ref().filter(|of| of.kept.is_none());
        if let Some(Copy { port, xid, .. }) = under_way.map(|of| of.copy) {
            self.send(client, port, Some(xid), lost);
        }
    }

    /// The client connects again, and repeats what it waits for.
    fn come_back(&mut self, client: usize, lost: bool) -> Result<(), TestCaseError> {
        let Some(waits) = self.waits[client].as_mut() else {
            return Ok(());
        };
        let kept = waits.kept.take();
        let meant = match waits.copy.class.is_non_idempotent() {
            true => came_again(kept.is_some()),
            // It is sent, whatever is known.
            false => Meant::Other,
        };
        match (meant, kept) {
            (Meant::Wait, None) => Ok(()),
            (Meant::Answer, Some(reply)) => self.answer(client, reply),
            (Meant::Other, _) => {
                let port = self.xid as usize % PORTS;
                self.send(client, port, None, lost);
                Ok(())
            }
            (other, kept) => panic!("{other:?} with {kept:?}"),
        }
    }
}

/// What a repetition from the same address and port is taken for.
fn came_again(answered: bool) -> Meant {
    let progress = match answered {
        true => Progress::Answered(true),
        false => Progress::UnderWay,
    };
    let (meant, _) = repeated(&Repeated {
        progress,
        signed: false,
    });
    meant
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn what_was_acknowledged_is_there_at_the_end(
        steps in proptest::collection::vec(step(), 0..200), rest in proptest::collection::vec(any::<usize>(), 40),
    ) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Call(client, op, lost) => world.call(client, op, lost),
                Step::Run(index, lost) => world.run(index, lost)?,
                Step::Fail(port, lost) => world.fail(port, lost),
                Step::Repeat(client, lost) => world.repeat(client, lost),
                Step::Return(client, lost) => world.come_back(client, lost)?,
                Step::Deaf(client) => drop(world.deaf.insert(client)),
            }
        }
        // Nothing is lost any more: all clients get their replies, and late copies are run in any order.
        world.deaf.clear();
        for client in 0..CLIENTS {
            world.come_back(client, false)?;
        }
        for port in 0..PORTS {
            world.fail(port, false);
        }
        let mut order = rest.into_iter().cycle();
        while !world.copies.is_empty() {
            world.run(order.next().unwrap_or(0), false)?;
        }
        prop_assert!(world.waits.iter().all(Option::is_none));
        prop_assert_eq!(world.server.trees, world.acknowledged);
    }
}

/// The shortest way to lose a write: cut off, sent elsewhere, acknowledged, overwritten, and the first copy last.
#[test]
fn a_late_copy_of_a_write_finds_its_call_known() -> Result<(), TestCaseError> {
    for client in 0..CLIENTS {
        let mut world = World::new();
        world.call(client, Op::Write(0, 1), false);
        world.fail(0, false);
        world.run(1, false)?;
        world.call(client, Op::Write(0, 2), false);
        world.run(1, false)?;
        world.run(0, false)?;
        assert_eq!(world.server.trees, world.acknowledged);
    }
    Ok(())
}
