//! FPM: streams of a real zebra, and what the server makes of connections that come and go.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use raddle_netlink::codec::{Builder, encode};
use raddle_netlink::fpm::{Frames, Options, Reader, Server, Tallies};
use raddle_rib::Rib;
use raddle_rib::event::{
    Event, Fpm, Nexthop, NexthopKind, Route, RouteNexthop, RouteOp, RouteTarget,
};
use raddle_rib::seg6::{Behaviour, Seg6, Sid};

use crate::captures::hold;

const READER: Reader = Reader { counters: true };

/// What a stream tells, frame by frame.
fn told(stream: &[u8], reader: Reader) -> (Vec<Vec<Fpm>>, Tallies) {
    let (mut frames, mut tallies) = (Frames::default(), Tallies::default());
    let mut all = Vec::new();
    frames.push(stream);
    while let Some(frame) = frames.take().unwrap() {
        let mut events = Vec::new();
        reader.read(frame, &mut tallies, &mut |event| events.push(event));
        all.push(events);
    }
    (all, tallies)
}

/// Streams of zebra 8.4.4 in a fabric of two spines say what the text beside them says.
/// `RADDLE_UPDATE_CAPTURES=1` writes the texts anew.
fn capture(name: &str) -> (Rib, Tallies) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let bytes = std::fs::read(data.join(format!("{name}.bin"))).unwrap();
    let (frames, tallies) = told(&bytes, READER);
    let mut text = String::new();
    let mut rib = Rib::detached();
    for (number, frame) in frames.into_iter().enumerate() {
        for event in frame {
            writeln!(text, "{number} {event:?}").unwrap();
            rib.apply(Event::Fpm(event));
        }
    }
    rib.commit();
    hold(name, &text);
    (rib, tallies)
}

/// The links and weights of a prefix's route.
fn hops(rib: &Rib, prefix: &str) -> Vec<(u32, u16)> {
    let route = rib
        .routes4()
        .find(|route| route.dst == prefix.parse().unwrap());
    let target = route.unwrap().target;
    target
        .hops()
        .iter()
        .map(|hop| (hop.index, hop.weight))
        .collect()
}

#[test]
fn nexthop_groups_of_zebra() {
    let (rib, tallies) = capture("fpm");
    assert_eq!(
        (tallies.frames, tallies.skipped, tallies.malformed),
        (48, 0, 0)
    );
    let messages = tallies.routes + tallies.routes_gone + tallies.nexthops + tallies.nexthops_gone;
    assert_eq!(messages, 57);
    // The link came back, by a group of a new number.
    assert_eq!(hops(&rib, "10.0.200.2/32"), [(2, 1), (3, 1)]);
}

#[test]
fn routes_of_zebra_without_groups() {
    let (rib, tallies) = capture("fpm-no-groups");
    assert_eq!((tallies.frames, tallies.nexthops), (13, 0));
    assert_eq!(hops(&rib, "10.0.200.2/32"), [(3, 1)]);
}

#[test]
fn routes_of_the_older_module() {
    let (rib, tallies) = capture("fpm-old");
    assert_eq!((tallies.frames, tallies.malformed), (15, 0));
    assert_eq!(hops(&rib, "10.0.200.2/32"), [(3, 1)]);
}

fn framed(messages: &[u8]) -> Vec<u8> {
    let length = u16::try_from(messages.len() + 4).unwrap();
    [&[1, 1][..], &length.to_be_bytes(), messages].concat()
}

fn message(event: &Event) -> Vec<u8> {
    let mut builder = Builder::new();
    encode(&mut builder, event, 1).unwrap();
    builder.as_bytes().to_vec()
}

fn frame(events: &[Event]) -> Vec<u8> {
    framed(&events.iter().flat_map(message).collect::<Vec<u8>>())
}

fn hop(index: u32) -> RouteNexthop {
    RouteNexthop {
        gateway: Some(format!("10.0.{index}.1").parse().unwrap()),
        index,
        ..RouteNexthop::default()
    }
}

fn route(prefix: &str) -> Route {
    Route {
        dst: prefix.parse().unwrap(),
        target: RouteTarget::Single(hop(1)),
        metric: 20,
        ..Route::default()
    }
}

fn add(route: Route) -> Event {
    Event::Route(route, RouteOp::Replace)
}

/// The weights of the only route of a frame.
fn weights(route: Route) -> Vec<u16> {
    let (frames, _) = told(&frame(&[add(route)]), READER);
    let [Fpm::Route(route)] = &frames[0][..] else {
        panic!("{frames:?}")
    };
    route.target.hops().iter().map(|hop| hop.weight).collect()
}

/// Rule 6.
#[test]
fn weights_of_the_older_module_are_one_too_high() {
    let route = |protocol, weights: [u16; 2]| {
        let hops = weights.map(|weight| RouteNexthop {
            weight,
            ..hop(weight.into())
        });
        Route {
            protocol,
            target: RouteTarget::Multipath(hops.to_vec()),
            ..route("10.9.0.0/16")
        }
    };
    assert_eq!(weights(route(11, [2, 4])), [1, 3]);
    assert_eq!(weights(route(11, [1, 4])), [1, 4]);
    assert_eq!(weights(route(186, [2, 4])), [2, 4]);
}

/// Rules 1, 2, 5 and 7, and what makes no sense among what does.
#[test]
fn what_a_frame_tells() {
    let sid = |counters| {
        let mut sid = Sid::new(Behaviour::End);
        sid.counters = counters;
        Some(Seg6::Sid(sid).encode())
    };
    let with = |encap| Route {
        metric: 0,
        target: RouteTarget::Single(RouteNexthop {
            index: 1,
            encap,
            ..RouteNexthop::default()
        }),
        ..route("fc00::1/128")
    };
    let object = |encap| {
        let (gateway, index) = (None, 1);
        let kind = NexthopKind::Single {
            gateway,
            index,
            encap,
        };
        Nexthop::new(7, 10, kind)
    };
    let special = Route {
        src: Some("2001:db8::/32".parse().unwrap()),
        ..with(None)
    };
    let mut messages = [
        add(with(sid(false))),
        Event::RouteGone(special.clone()),
        add(special),
        Event::Nexthop(object(sid(false))),
        Event::LinkGone(7),
        Event::NexthopGone(7),
        Event::RouteGone(route("10.9.0.0/16")),
    ]
    .iter()
    .flat_map(message)
    .collect::<Vec<u8>>();
    // A message type of SONiC's, one that is cut short, and one that says it is longer than there is.
    for (kind, length) in [(1000u16, 16u32), (24, 20), (24, 400)] {
        messages.extend(length.to_ne_bytes());
        messages.extend(kind.to_ne_bytes());
        messages.extend([0; 10]);
        messages.resize(messages.len() + (length as usize - 16).min(4), 0);
    }
    let stream = framed(&messages);
    let (frames, tallies) = told(&stream, READER);
    let expected = Route {
        metric: 1024,
        ..with(sid(true))
    };
    let gone = Fpm::RouteGone {
        table: 254,
        dst: "10.9.0.0/16".parse().unwrap(),
    };
    let (route, nexthop) = (Fpm::Route(expected), Fpm::Nexthop(object(sid(true))));
    assert_eq!(frames[0], [route, nexthop, Fpm::NexthopGone(7), gone]);
    let expected = Tallies {
        frames: 1,
        routes: 1,
        routes_gone: 1,
        nexthops: 1,
        nexthops_gone: 1,
        skipped: 4,
        malformed: 2,
    };
    assert_eq!(tallies, expected);
    let (frames, _) = told(&stream, Reader { counters: false });
    assert_eq!(frames[0][1], Fpm::Nexthop(object(sid(false))));
}

/// Rule 8.
#[test]
fn a_sid_that_makes_no_sense_takes_the_old_one_away() {
    let broken = |kind| {
        let data = vec![1, 2, 3];
        Some(raddle_rib::event::Encap { kind, data })
    };
    let with = |kind| Route {
        target: RouteTarget::Single(RouteNexthop {
            encap: broken(kind),
            ..hop(1)
        }),
        ..route("10.9.0.0/16")
    };
    let (gateway, index) = (None, 1);
    let object = NexthopKind::Single {
        gateway,
        index,
        encap: broken(7),
    };
    let object = Event::Nexthop(Nexthop::new(7, 10, object));
    let (frames, tallies) = told(&frame(&[add(with(5)), add(with(7)), object]), READER);
    let gone = Fpm::RouteGone {
        table: 254,
        dst: "10.9.0.0/16".parse().unwrap(),
    };
    assert_eq!(frames[0], [gone.clone(), gone, Fpm::NexthopGone(7)]);
    assert_eq!((tallies.malformed, tallies.routes), (3, 0));
    // Of other tunnels nobody here knows what they mean.
    let (frames, tallies) = told(&frame(&[add(with(1))]), READER);
    assert_eq!((frames[0].len(), tallies.routes), (1, 1));
}

/// A server on a port of its own, with a clock that we turn.
struct World {
    server: Server,
    now: Instant,
    told: Vec<Fpm>,
}

impl World {
    fn new(grace: u64) -> World {
        let options = Options {
            users: vec![nix::unistd::geteuid().as_raw()],
            grace: Duration::from_secs(grace),
            reader: READER,
        };
        World {
            server: Server::bind("127.0.0.1:0".parse().unwrap(), options).unwrap(),
            now: Instant::now(),
            told: Vec::new(),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address().unwrap()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }

    /// Polls until this was told, or for good.
    fn until(&mut self, done: impl Fn(&World) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done(self) {
            assert!(Instant::now() < end, "{:?}", self.told);
            self.poll();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn poll(&mut self) {
        let before = self.told.len() as u64;
        let (told, now) = (&mut self.told, self.now);
        let count = self.server.poll(now, &mut |event| told.push(event));
        assert_eq!(count, told.len() as u64 - before);
    }

    fn after(&mut self, milliseconds: u64) -> Vec<Fpm> {
        self.now += Duration::from_millis(milliseconds);
        self.poll();
        std::mem::take(&mut self.told)
    }

    fn has_told(&self, count: usize) -> bool {
        self.told.len() >= count
    }
}

fn tell(stream: &mut TcpStream, prefix: &str) {
    stream.write_all(&frame(&[add(route(prefix))])).unwrap();
}

/// Rule 2.
#[test]
fn a_resync_ends_when_it_is_quiet() {
    let mut world = World::new(60);
    let mut zebra = world.connect();
    world.until(|w| w.has_told(1));
    assert_eq!(world.told, [Fpm::ResyncBegin]);
    world.told.clear();
    assert_eq!(world.after(9_900), []);
    tell(&mut zebra, "10.1.0.0/16");
    world.until(|w| w.has_told(1));
    world.told.clear();
    assert_eq!(world.after(2_900), []);
    assert!(world.server.peer().unwrap().1);
    // Half a frame is something, too.
    let stream = frame(&[add(route("10.2.0.0/16"))]);
    zebra.write_all(&stream[..20]).unwrap();
    // It comes when it comes: nothing shows that it has been read.
    for _ in 0..50 {
        world.poll();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(world.after(2_900), []);
    zebra.write_all(&stream[20..]).unwrap();
    world.until(|w| w.has_told(1));
    assert_eq!(world.server.grace_left(world.now), None);
    world.told.clear();
    assert_eq!(world.after(2_900), []);
    assert_eq!(world.after(200), [Fpm::ResyncEnd]);
    assert_eq!(world.after(5_000), []);
    assert!(!world.server.peer().unwrap().1);
}

/// Rules 3 and 4: a daemon that was started again tells what it is connected to at once, and learns the rest.
#[test]
fn what_is_left_stays_for_the_grace() {
    let mut world = World::new(60);
    let mut zebra = world.connect();
    tell(&mut zebra, "10.1.0.0/16");
    world.until(|w| w.has_told(2));
    world.told.clear();
    assert_eq!(world.after(3_100), [Fpm::ResyncEnd]);
    drop(zebra);
    world.until(|w| w.server.peer().is_none());
    assert_eq!(world.after(10_000), []);
    // Who says nothing changes nothing, and makes way.
    let _silent = world.connect();
    world.until(|w| w.has_told(1));
    world.told.clear();
    let mut zebra = world.connect();
    tell(&mut zebra, "10.1.0.0/16");
    world.until(|w| w.has_told(2));
    world.told.clear();
    assert_eq!(world.after(30_000), []);
    // It fails, and the grace is still that of the first time.
    drop(zebra);
    world.until(|w| w.server.peer().is_none());
    let mut zebra = world.connect();
    tell(&mut zebra, "10.1.0.0/16");
    world.until(|w| w.has_told(2));
    world.told.clear();
    assert_eq!(world.after(19_000), []);
    assert_eq!(world.after(1_100), [Fpm::ResyncEnd]);
    // It goes for good.
    drop(zebra);
    world.until(|w| w.server.peer().is_none());
    assert_eq!(world.after(59_900), []);
    assert_eq!(world.after(200), [Fpm::ResyncBegin, Fpm::ResyncEnd]);
    assert_eq!(world.after(100_000), []);
}

#[test]
fn a_resync_without_rest_ends_too() {
    let mut world = World::new(60);
    let mut zebra = world.connect();
    world.until(|w| w.has_told(1));
    for _ in 0..301 {
        tell(&mut zebra, "10.1.0.0/16");
        let before = world.server.stats().tallies.frames;
        world.until(|w| w.server.stats().tallies.frames > before);
        world.after(1_000);
    }
    assert!(!world.server.peer().unwrap().1);
}

/// Rule 1. A daemon that is gone makes room at once.
#[test]
fn one_daemon_at_a_time() {
    let mut world = World::new(60);
    let mut first = world.connect();
    tell(&mut first, "10.1.0.0/16");
    world.until(|w| w.has_told(2));
    let mut second = world.connect();
    world.until(|w| w.server.stats().refused == 1);
    assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(world.server.peer().unwrap().0, first.local_addr().unwrap());
    drop(first);
    let third = world.connect();
    world.until(|w| w.server.stats().connections == 2);
    assert_eq!(world.server.peer().unwrap().0, third.local_addr().unwrap());
}

/// Rule 5.
#[test]
fn what_is_no_fpm_ends_the_connection() {
    let mut world = World::new(0);
    let mut other = world.connect();
    tell(&mut other, "10.1.0.0/16");
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    world.until(|w| w.server.stats().broken == 1);
    assert!(world.server.peer().is_none());
    // Without any grace what it told is gone at once.
    let Fpm::Route(told) = &world.told[1] else {
        panic!("{:?}", world.told)
    };
    assert_eq!(told.dst, "10.1.0.0/16".parse().unwrap());
    world.until(|w| w.has_told(4));
    assert_eq!(world.told[2..], [Fpm::ResyncBegin, Fpm::ResyncEnd]);
    // Half a frame is none, and does not go before what the next one tells.
    let mut zebra = world.connect();
    zebra
        .write_all(&frame(&[add(route("10.2.0.0/16"))])[..20])
        .unwrap();
    world.until(|w| w.server.peer().is_some());
    drop(zebra);
    world.until(|w| w.server.peer().is_none());
    world.told.clear();
    let mut zebra = world.connect();
    tell(&mut zebra, "10.3.0.0/16");
    world.until(|w| w.server.stats().tallies.routes == 2);
    assert_eq!(world.server.stats().broken, 1);
}
