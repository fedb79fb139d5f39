//! Changes of a view, seen by a look-up between each two stores.

use proptest::prelude::*;

use super::*;
use crate::adjacency::Ports;
use crate::event::{Event, Route, RouteKind, RouteOp};
use crate::guards::Zones;
use raddle_fib::{Fib4, FibError, Heap4};
use raddle_image::{Capacity, Memory};

/// A table that notes, after each of its changes, what every address leads to.
struct Watched {
    entries: HashMap<Prefix<u32>, u32>,
    answers: Vec<[u32; ADDRESSES]>,
}

/// Addresses that tests tell apart: the last 4 bits.
const ADDRESSES: usize = 16;

impl Watched {
    fn answer(&self, address: u32) -> u32 {
        (0..=32)
            .rev()
            .find_map(|len| self.entries.get(&Prefix::new(address, len)))
            .copied()
            .unwrap_or(0)
    }

    fn now(&self) -> [u32; ADDRESSES] {
        std::array::from_fn(|i| self.answer(i as u32))
    }
}

impl Lpm<u32> for Watched {
    fn create_table(&mut self, _: bool) -> Result<TableId, FibError> {
        Fib4::new(std::sync::Arc::new(Heap4::new(1, 64, 64)), Box::new(|| ())).create_table()
    }

    fn drop_table(&mut self, _: TableId) {
        self.entries.clear();
    }

    fn insert(&mut self, _: TableId, p: Prefix<u32>, v: u32) -> Result<Option<u32>, FibError> {
        let before = self.entries.insert(p, v);
        self.answers.push(self.now());
        Ok(before)
    }

    fn remove(&mut self, _: TableId, p: Prefix<u32>) -> Result<Option<u32>, FibError> {
        let before = self.entries.remove(&p);
        self.answers.push(self.now());
        Ok(before)
    }

    fn replace_all(&mut self, _: TableId, routes: Vec<(Prefix<u32>, u32)>) -> Result<(), FibError> {
        self.entries = routes.into_iter().collect();
        self.answers.push(self.now());
        Ok(())
    }
}

/// A route of table main that leads to one of a few groups.
fn route(addr: u32, len: u8, to: usize) -> Route {
    let kinds = [
        RouteKind::Unreachable,
        RouteKind::Prohibit,
        RouteKind::Blackhole,
    ];
    let prefix = Prefix::<u32>::new(addr, len);
    Route {
        dst: ipnet::IpNet::new(prefix.addr.to_ip(), len).unwrap(),
        kind: kinds[to],
        ..Route::default()
    }
}

fn routes() -> impl Strategy<Value = Vec<Route>> {
    // A default route, so that an address that falls through leads astray and not nowhere.
    let some = (0..ADDRESSES as u32, 28..=32u8, 0..3usize);
    proptest::collection::vec(some, 0..12).prop_map(|list| {
        let mut routes: HashMap<_, Route> = HashMap::new();
        for (addr, len, to) in list {
            let route = route(addr, len, to);
            routes.insert(route.dst, route);
        }
        routes.into_values().chain([route(0, 0, 0)]).collect()
    })
}

proptest! {
    #[test]
    fn a_lookup_gives_the_old_answer_or_the_new_one(before in routes(), after in routes()) {
        let capacity = Capacity { groups: 64, members: 16, adjacencies: 16, ..Capacity::default() };
        let memory = Memory::heap(&Capacity { nodes4: 64, leaves4: 64, words6: 64, ..capacity });
        let ports = Ports::default();
        let mut state = State::default();
        let mut groups = Groups::new(&capacity);
        let mut lpm = Watched { entries: HashMap::new(), answers: Vec::new() };
        let mut view: View<u32, Watched> = View::new(Lookup::plain([254]), lpm.create_table(true).unwrap());
        for route in &before {
            state.apply(Event::Route(route.clone(), RouteOp::Add));
        }
        let publish = |state: &State, run: &mut dyn FnMut(&Publish<'_>)| {
            run(&Publish { state, ports: &ports, zones: &Zones::default(), memory: &memory, grace: &|| () });
        };
        publish(&state, &mut |at| {
            view.rebuild(&mut lpm, &mut groups, &at.state.v4, at);
        });
        let old = lpm.now();
        state.v4.changed = Changed::default();
        for route in &before {
            state.apply(Event::RouteGone(route.clone()));
        }
        for route in &after {
            state.apply(Event::Route(route.clone(), RouteOp::Add));
        }
        lpm.answers.clear();
        publish(&state, &mut |at| {
            view.update(&mut lpm, &mut groups, &at.state.v4, &[], at);
        });
        let new = lpm.now();
        for seen in &lpm.answers {
            for i in 0..ADDRESSES {
                prop_assert!(
                    seen[i] == old[i] || seen[i] == new[i],
                    "address {}: {} is neither {} nor {}", i, seen[i], old[i], new[i]
                );
            }
        }
    }
}
