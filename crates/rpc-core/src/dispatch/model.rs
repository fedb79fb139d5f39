//! Dispatch in a model: links with a rate and a delay, connections that share them, programs that keep a number of
//! calls outstanding. What policies reach is compared with each other, and with connections without a proxy.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use proptest::prelude::*;

use super::*;

/// Bytes that a link carries for one connection before it is the next one's turn.
const CHUNK: u64 = 32 << 10;
/// What a call and a reply have around the data.
const AROUND: u64 = 150;

/// A link, both ways alike.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Bytes a second.
    rate: f64,
    /// Seconds, both ways together.
    delay: f64,
}

/// A program: so many reads of this size outstanding.
#[derive(Clone, Copy, Debug)]
struct Load {
    size: u64,
    depth: usize,
}

/// How calls get to connections.
#[derive(Clone, Copy, Debug)]
enum By {
    /// A program's calls take the connections in turn, as they come back.
    Plain,
    /// As the proxy does it.
    Dispatch(Policy),
}

#[derive(Clone, Copy, Debug)]
struct Call {
    program: usize,
    want: Want,
    left: u64,
    since: f64,
}

/// What a connection has to get.
#[derive(Default)]
struct Connection {
    link: usize,
    lane: bool,
    /// Replies that the server gives, in this order.
    replies: VecDeque<Call>,
    outstanding: u64,
    large: usize,
    rate: Rate,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// A call is with the server.
    Arrived(usize),
    /// A link has carried a chunk for a connection.
    Carried(usize, usize, u64),
}

/// Seconds as an order.
fn at(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

struct Model {
    by: By,
    now: f64,
    start: Instant,
    links: Vec<Link>,
    /// Whether a link is carrying; whose turn is next.
    carrying: Vec<(bool, usize)>,
    connections: Vec<Connection>,
    dispatch: Dispatch,
    waiting: VecDeque<Call>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: Vec<Event>,
    coming: Vec<VecDeque<Call>>,
    turn: usize,
    /// Bytes of small calls and of large ones that are done, of which this is since the start of counting.
    done: [u64; 2],
    /// How long the small calls took.
    small: Vec<f64>,
}

impl Model {
    /// A connection on each link, and the lane on the first; plain ones have none.
    fn new(by: By, links: &[Link]) -> Model {
        let policy = match by {
            By::Plain => Policy::RoundRobin,
            By::Dispatch(policy) => policy,
        };
        let lane = matches!(by, By::Dispatch(_)).then_some((0, true));
        let on = (0..links.len()).map(|link| (link, false)).chain(lane);
        let connections: Vec<Connection> = on
            .map(|(link, lane)| Connection {
                link,
                lane,
                ..Connection::default()
            })
            .collect();
        Model {
            by,
            now: 0.0,
            start: Instant::now(),
            carrying: vec![(false, 0); links.len()],
            links: links.to_vec(),
            coming: connections.iter().map(|_| VecDeque::new()).collect(),
            connections,
            dispatch: Dispatch::new(policy),
            waiting: VecDeque::new(),
            events: BinaryHeap::new(),
            what: Vec::new(),
            turn: 0,
            done: [0; 2],
            small: Vec::new(),
        }
    }

    fn later(&mut self, seconds: f64, event: Event) {
        let number = self.what.len() as u64;
        self.what.push(event);
        self.events.push(Reverse((at(self.now + seconds), number)));
    }

    fn call(&mut self, program: usize, size: u64) {
        let want = Want {
            bytes: size + 2 * AROUND,
            file: None,
        };
        let call = Call {
            program,
            want,
            left: size + AROUND,
            since: self.now,
        };
        let free = self.waiting.is_empty();
        if !((free || !want.is_large()) && self.assign(call)) {
            self.waiting.push_back(call);
        }
    }

    fn assign(&mut self, call: Call) -> bool {
        let now = self.start + Duration::from_nanos(at(self.now));
        let chosen = match self.by {
            By::Plain => {
                self.turn += 1;
                Some(self.turn % self.connections.len())
            }
            By::Dispatch(_) => {
                let loads: Vec<super::Load> = self
                    .connections
                    .iter()
                    .map(|of| super::Load {
                        up: true,
                        lane: of.lane,
                        outstanding: of.outstanding,
                        large: of.large > 0,
                        window: of.rate.window(),
                        rate: of.rate.per_second(now),
                    })
                    .collect();
                self.dispatch.choose(&loads, call.want)
            }
        };
        let Some(chosen) = chosen else {
            return false;
        };
        let of = &mut self.connections[chosen];
        of.outstanding += call.want.bytes;
        of.large += usize::from(call.want.is_large());
        let delay = self.links[of.link].delay;
        self.coming[chosen].push_back(call);
        self.later(delay, Event::Arrived(chosen));
        true
    }

    /// Has a link carry the next chunk: connections take turns.
    fn carry(&mut self, link: usize) {
        let (carrying, turn) = self.carrying[link];
        let count = self.connections.len();
        let order = (0..count).map(|i| (turn + i) % count);
        let has = |i: &usize| {
            let of = &self.connections[*i];
            of.link == link && !of.replies.is_empty()
        };
        let Some(next) = order.filter(|_| !carrying).find(has) else {
            return;
        };
        let bytes = CHUNK.min(self.connections[next].replies[0].left);
        self.carrying[link] = (true, next + 1);
        let time = bytes as f64 / self.links[link].rate;
        self.later(time, Event::Carried(link, next, bytes));
    }

    /// A chunk has come; its call's program makes the next one when it was the last.
    fn carried(&mut self, link: usize, number: usize, bytes: u64, loads: &[Load]) {
        self.carrying[link].0 = false;
        let now = self.start + Duration::from_nanos(at(self.now));
        let of = &mut self.connections[number];
        of.rate.moved(bytes, of.outstanding, now);
        of.replies[0].left -= bytes;
        if of.replies[0].left == 0
            && let Some(call) = of.replies.pop_front()
        {
            of.outstanding -= call.want.bytes;
            of.large -= usize::from(call.want.is_large());
            of.rate.left(of.outstanding);
            self.done[usize::from(call.want.is_large())] += call.want.bytes;
            if !call.want.is_large() {
                self.small.push(self.now - call.since);
            }
            while let Some(next) = self.waiting.pop_front() {
                if !self.assign(next) {
                    self.waiting.push_front(next);
                    break;
                }
            }
            self.call(call.program, loads[call.program].size);
        }
        self.carry(link);
    }

    /// Bytes a second of small calls and of large ones, after a second to get up to speed; and the 99th percentile
    /// of how long small ones took.
    fn run(mut self, loads: &[Load], seconds: f64) -> ([f64; 2], f64) {
        for (program, load) in loads.iter().enumerate() {
            for _ in 0..load.depth {
                self.call(program, load.size);
            }
        }
        let mut counts = false;
        while let Some(Reverse((time, number))) = self.events.pop() {
            self.now = time as f64 / 1e9;
            if self.now > 1.0 && !counts {
                counts = true;
                self.done = [0; 2];
                self.small.clear();
            }
            if self.now > 1.0 + seconds {
                break;
            }
            match self.what[number as usize] {
                Event::Arrived(number) => {
                    let call = self.coming[number].pop_front();
                    self.connections[number].replies.extend(call);
                    self.carry(self.connections[number].link);
                }
                Event::Carried(link, number, bytes) => self.carried(link, number, bytes, loads),
            }
        }
        self.small.sort_by(f64::total_cmp);
        let p99 = self.small.get(self.small.len() * 99 / 100).copied();
        let rates = self.done.map(|bytes| bytes as f64 / seconds);
        (rates, p99.unwrap_or(0.0))
    }
}

fn rates(by: By, links: &[Link], loads: &[Load]) -> [f64; 2] {
    Model::new(by, links).run(loads, 1.0).0
}

fn sum(rates: [f64; 2]) -> f64 {
    rates[0] + rates[1]
}

const LEAST: By = By::Dispatch(Policy::LeastBytes);
const TURNS: By = By::Dispatch(Policy::RoundRobin);

/// 200 Mbit/s.
const FAST: Link = Link {
    rate: 25e6,
    delay: 200e-6,
};

#[test]
fn small_calls_use_all_links() {
    for (size, depth, programs) in itertools(&[4 << 10, 16 << 10], &[16, 64], &[1, 4]) {
        let loads = vec![Load { size, depth }; programs];
        let plain = sum(rates(By::Plain, &[FAST; 4], &loads));
        for by in [LEAST, TURNS] {
            let share = sum(rates(by, &[FAST; 4], &loads)) / plain;
            assert!(share > 0.97, "{by:?} {loads:?}: {share}");
        }
    }
}

/// All combinations.
fn itertools(a: &[u64], b: &[usize], c: &[usize]) -> Vec<(u64, usize, usize)> {
    let pairs = |a: u64| {
        b.iter()
            .flat_map(move |b| c.iter().map(move |c| (a, *b, *c)))
    };
    a.iter().flat_map(|a| pairs(*a)).collect()
}

/// A GETATTR at a time, beside reads that fill all links, waits for no more than what its link has of others.
#[test]
fn a_small_call_does_not_wait_behind_large_ones() {
    let large = Load {
        size: 1 << 20,
        depth: 32,
    };
    let small = Load {
        size: 200,
        depth: 1,
    };
    let model = Model::new(LEAST, &[FAST; 4]);
    let (rates, p99) = model.run(&[large, small], 2.0);
    let turn = 2.0 * CHUNK as f64 / FAST.rate;
    assert!(p99 < FAST.delay + 2.0 * turn, "{p99}");
    assert!(sum(rates) > 0.99 * 4.0 * FAST.rate, "{rates:?}");
}

/// Paths of equal cost: as long as each other, and maybe not as fast.
fn links() -> impl Strategy<Value = Vec<Link>> {
    let rates = prop_oneof![
        (2..=6_usize).prop_map(|count| vec![25e6; count]),
        proptest::collection::vec(prop_oneof![Just(25e6), 5e6..50e6], 2..=6),
    ];
    (rates, 0.0001..0.01_f64).prop_map(|(rates, delay)| {
        let link = |rate| Link { rate, delay };
        rates.into_iter().map(link).collect()
    })
}

fn loads() -> impl Strategy<Value = Vec<Load>> {
    let size = prop_oneof![
        Just(4 << 10),
        Just(16 << 10),
        Just(1 << 20),
        200..200_000_u64
    ];
    let load = (size, prop_oneof![Just(1), Just(16), Just(64), 1..64_usize]);
    let load = load.prop_map(|(size, depth)| Load { size, depth });
    proptest::collection::vec(load, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn least_bytes_is_never_behind_round_robin(links in links(), loads in loads()) {
        // With fewer, it is chance whether a slow link has one of them.
        prop_assume!(loads.iter().map(|load| load.depth).sum::<usize>() >= 2 * links.len());
        let [least, turns] = [LEAST, TURNS].map(|by| sum(rates(by, &links, &loads)));
        prop_assert!(least > 0.9 * turns, "{} of {turns}", least / turns);
    }
}
