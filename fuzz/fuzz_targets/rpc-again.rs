//! Any bytes as calls that are repeated: which are the same, and that what is remembered of them is bounded.
#![no_main]

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use raddle_rpc_core::assemble::HEAD;
use raddle_rpc_core::duplicate::{Bounds, Cache, Key, Known};
use raddle_rpc_core::message::Call;

const BOUNDS: Bounds = Bounds {
    entries: 8,
    bytes: 4096,
    time: Duration::from_secs(60),
};
const CLIENT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 700));

type Hasher = BuildHasherDefault<DefaultHasher>;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    // Where it is changed, and pieces of one length that are calls of one client.
    let (at, piece) = (usize::from(*first), 40 + usize::from(*first % 64) * 4);
    key(rest, at);
    let mut cache: Cache<usize, usize> = Cache::new(BOUNDS);
    let (mut now, mut begun) = (Instant::now(), Vec::new());
    for (n, message) in rest.chunks(piece).enumerate() {
        let Some(key) = of(message) else { continue };
        now += Duration::from_secs(u64::from(message[message.len() - 1] % 16));
        match message[message.len() / 2] % 4 {
            0 | 1 => {
                let before = cache.begin(key, n);
                begun.push((key, before, n));
                assert_eq!(cache.find(&key, now), Some(&Known::UnderWay(n)));
            }
            2 => {
                if let Some((key, serial, n)) = begun.pop() {
                    cache.answered((key, serial), n, message.len(), now);
                }
            }
            _ => {
                if let Some((key, serial, _)) = begun.pop() {
                    cache.ended(&key, serial);
                }
            }
        }
        let (entries, bytes) = cache.kept();
        assert!(entries <= BOUNDS.entries && bytes <= BOUNDS.bytes);
    }
    cache.expire(now + BOUNDS.time);
    assert_eq!(cache.kept(), (0, 0));
});

fn of(message: &[u8]) -> Option<Key> {
    from(CLIENT, message)
}

fn from(client: SocketAddr, message: &[u8]) -> Option<Key> {
    let call = Call::parse(message).ok()?;
    let fragment = (message.len() as u64, true);
    Key::new(client, &call, message, fragment, &Hasher::default())
}

/// A key is of the bytes alone; a call that differs has another one, but for what a signature changes.
fn key(message: &[u8], at: usize) {
    let key = of(message);
    assert_eq!(key, of(message));
    // From another port it is another call.
    let elsewhere = from(SocketAddr::new(CLIENT.ip(), CLIENT.port() + 1), message);
    assert!(key.is_none() || key != elsewhere);
    let Ok(call) = Call::parse(message) else {
        return;
    };
    assert!(call.is_signed() || key.is_some());
    let mut other = message.to_vec();
    let Some(byte) = other.get_mut(at) else {
        return;
    };
    *byte ^= 1;
    let Ok(changed) = Call::parse(&other) else {
        return;
    };
    if key.is_some() && !call.is_signed() && at < HEAD {
        assert_ne!(key, of(&other));
    }
    // The sequence number.
    if key.is_some() && call.is_signed() && (40..44).contains(&at) {
        assert!(changed.is_signed());
        assert_eq!(key, of(&other));
    }
}
