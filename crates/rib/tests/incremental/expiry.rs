//! Routes that expire: what engines do, beside a model of the kernel.

use super::common::{Mirror, address, compare, link, neighbour, new_rib, route, seen_by_engines};
use proptest::prelude::*;
use raddle_image::{Capacity, Reason};
use raddle_rib::event::{Event, Route, RouteNexthop, RouteOp, RouteTarget, Settings, Sweep};

const CAPACITY: Capacity = Capacity {
    nodes4: 1 << 10,
    leaves4: 1 << 10,
    words6: 1 << 12,
    groups: 64,
    members: 64,
    adjacencies: 64,
    segments: 64,
    templates: 1 << 10,
};

/// The link of the route that expires, and of the less specific one below it.
const EXPIRING: u32 = 2;
const BELOW: u32 = 3;
/// How often it reads routes.
const READING: i64 = 1_000;
/// How late the daemon may look at the clock.
const LATE: i64 = 400;

fn via(index: u32, len: u8) -> Route {
    let hop = RouteNexthop {
        gateway: Some(address(true, 8 * index as u8 + 1)),
        index,
        ..RouteNexthop::default()
    };
    route(address(true, 0), len, RouteTarget::Single(hop))
}

/// The kernel, and a mirror of it.
struct World {
    rib: Mirror,
    now: i64,
    /// When the route expires; none once it is gone.
    expires: Option<i64>,
    read_at: i64,
}

impl World {
    fn new(expires: i64) -> World {
        let mut rib = new_rib(&CAPACITY);
        rib.apply(Event::Settings(Settings::default()));
        for index in 1..=4 {
            rib.apply(Event::Link(link(index, true, true)));
            let gateway = address(true, 8 * index as u8 + 1);
            rib.apply(Event::Neighbour(neighbour(index, gateway)));
        }
        let mut world = World {
            rib,
            now: 0,
            expires: Some(expires),
            read_at: 0,
        };
        world.read(0);
        world
    }

    /// The route as the kernel tells it, and as it is dated so many milliseconds too early.
    fn told(&self, early: i64) -> Option<Route> {
        let left = (self.expires? - self.now) / 10 * 10;
        let expires = (left != 0).then_some(self.now + left - early);
        Some(Route {
            expires,
            ..via(EXPIRING, 64)
        })
    }

    fn read(&mut self, early: i64) {
        self.read_at = self.now;
        self.rib.apply(Event::SweepBegin(Sweep::Routes6));
        let all = [Some(via(BELOW, 48)), self.told(early)];
        for route in all.into_iter().flatten() {
            self.rib.apply(Event::Route(route, RouteOp::Add));
        }
        self.rib.apply(Event::SweepEnd(Sweep::Routes6));
        self.rib.commit();
    }

    fn pass(&mut self, milliseconds: i64) {
        self.now += milliseconds;
        self.rib.apply(Event::Clock(self.now));
        if self.rib.is_dirty() {
            self.rib.commit();
        }
    }

    /// The same, with a reading every second.
    fn pass_reading(&mut self, milliseconds: i64, early: i64) {
        let until = self.now + milliseconds;
        while until - self.read_at >= READING {
            self.pass((self.read_at + READING - self.now).max(0));
            self.check();
            self.read(early);
            self.check();
        }
        self.pass(until - self.now);
        self.check();
    }

    fn collect_garbage(&mut self) {
        if self.expires.is_some_and(|at| at < self.now) {
            self.rib.apply(Event::RouteGone(via(EXPIRING, 64)));
            self.rib.commit();
            self.expires = None;
        }
    }

    /// By which link engines send.
    fn link(&self) -> Result<u32, Reason> {
        compare(&self.rib, [address(true, 7)]);
        let seen = seen_by_engines(&self.rib, 1, address(true, 7)).unwrap()?;
        Ok(seen[0].1.unwrap().0)
    }

    /// Engines do as the kernel does, or leave it to the kernel, even if they are told of the time late.
    fn check(&self) {
        let kernel = match self.expires {
            Some(at) if at > self.now => EXPIRING,
            _ => BELOW,
        };
        match self.link() {
            Err(reason) => assert_eq!(reason, Reason::Expiring),
            Ok(link) => {
                assert_eq!(link, kernel);
                assert!(link == BELOW || self.expires.is_some_and(|at| at > self.now + LATE));
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Nothing,
    /// So much is known too early of what is read.
    Read(i64),
    /// A router advertisement.
    Last(i64),
    /// A new route in its place.
    Replace(i64),
    CollectGarbage,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Nothing),
        (0..300i64).prop_map(Step::Read),
        // At least a second, and there is a reading before that.
        (READING + 20..8_000i64).prop_map(Step::Last),
        (10..8_000i64).prop_map(Step::Replace),
        Just(Step::CollectGarbage),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn an_expired_route_is_never_used(
        first in 10..8_000i64,
        early in 0..300i64,
        // Now and then to the very millisecond around its time.
        steps in proptest::collection::vec((prop_oneof![0..3_000i64, Just(-1)], -15..15i64, step()), 1..30),
    ) {
        let mut world = World::new(first);
        world.check();
        for (passes, around, step) in steps {
            let until = world.expires.map_or(0, |at| at + around - world.now).max(0);
            world.pass_reading(if passes < 0 { until } else { passes }, early);
            match step {
                Step::Nothing => {}
                Step::Read(early) => {
                    world.read(early);
                    if world.expires.is_some_and(|at| at - world.now > 1_000) {
                        prop_assert_eq!(world.link(), Ok(EXPIRING));
                    }
                }
                Step::Last(more) => {
                    if let Some(at) = &mut world.expires {
                        // Never less: that no one knows before the next reading.
                        *at = (*at).max(world.now + more);
                    }
                }
                Step::Replace(lasts) => {
                    world.expires = Some(world.now + lasts);
                    let route = world.told(0).unwrap();
                    world.rib.apply(Event::Route(route, RouteOp::Replace));
                    world.rib.commit();
                }
                Step::CollectGarbage => world.collect_garbage(),
            }
            world.check();
        }
    }
}

#[test]
fn a_route_that_lasts_longer_is_used_again() {
    let mut world = World::new(3_000);
    assert!(world.rib.has_expiring());
    assert_eq!(world.link(), Ok(EXPIRING));
    world.pass(2_400);
    assert_eq!(world.link(), Ok(EXPIRING));
    world.pass(100);
    assert_eq!(world.link(), Err(Reason::Expiring));
    // Lasts longer, but nobody says so.
    world.expires = Some(9_000);
    assert_eq!(world.link(), Err(Reason::Expiring));
    world.read(0);
    assert_eq!(world.link(), Ok(EXPIRING));
    // What is read again and again and stays the same is no change.
    for _ in 0..3 {
        world.now += 100;
        world.rib.apply(Event::SweepBegin(Sweep::Routes6));
        for route in [via(BELOW, 48), world.told(40).unwrap()] {
            world.rib.apply(Event::Route(route, RouteOp::Add));
        }
        world.rib.apply(Event::SweepEnd(Sweep::Routes6));
        assert!(!world.rib.is_dirty());
    }
    world.pass(10_000);
    world.read(0);
    assert_eq!(world.link(), Err(Reason::Expiring));
    world.collect_garbage();
    assert_eq!(world.link(), Ok(BELOW));
    assert!(!world.rib.has_expiring());
}

#[test]
fn a_snapshot_knows_what_time_it_is() {
    let mut world = World::new(3_000);
    for expected in [Ok(EXPIRING), Err(Reason::Expiring)] {
        let mut other = new_rib(&CAPACITY);
        world
            .rib
            .snapshot()
            .into_events()
            .for_each(|event| other.apply(event));
        other.commit();
        let seen = seen_by_engines(&other, 1, address(true, 7)).unwrap();
        assert_eq!(seen.map(|seen| seen[0].1.unwrap().0), expected);
        world.pass(2_900);
    }
}
