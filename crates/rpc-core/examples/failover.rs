//! A client's MKDIR is with the server when its connection fails: what the core has done about it, step by step.
//!
//!     cargo run -p raddle-rpc-core --example failover

use std::error::Error;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use raddle_rpc_core::assemble::Part;
use raddle_rpc_core::core::{Actions, Config, Core, Ends, Event, Made, Now, Service, User};
use raddle_rpc_core::dispatch::Policy;
use raddle_rpc_core::journal::{Keys, Left, Notes};
use raddle_rpc_core::program::number::NFS;

/// A message of these words.
fn message(words: &[u32]) -> Bytes {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.into()
}

fn at(start: Instant, ms: u64) -> Now {
    Now {
        at: start + Duration::from_millis(ms),
        second: 0,
    }
}

fn made(ends: Ends) -> Made {
    Made {
        ends,
        out: None,
        back: None,
        attempts: 1,
        detour: false,
    }
}

/// What a connection writes now: the XID of the call that it begins with.
fn written(core: &mut Core, now: Now, transport: usize, actions: &mut Actions) -> Option<u32> {
    let mut buffer = BytesMut::new();
    core.calls_to_write(now, transport, &mut buffer, actions);
    let xid = buffer.get(4..8)?;
    Some(u32::from_be_bytes(xid.try_into().ok()?))
}

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let config = Config {
        services: vec![Service {
            programs: vec![],
            connections: 2,
            lanes: 0,
        }],
        policy: Policy::LeastBytes,
        most: 1 << 20,
        memory: 64 << 20,
        patience: Duration::from_secs(30),
        clients: 64,
        port: 2049,
        below: None,
    };
    let journal = (Notes::none(Keys(1, 2)), Left::default());
    let mut core = Core::new((config, None), 0x1000, journal, at(start, 0));
    let mut actions = Actions::new();
    let server = "10.0.0.2:2049".parse()?;
    let ends: [Ends; 2] = [
        ("10.0.0.1:700".parse()?, server),
        ("10.0.0.1:701".parse()?, server),
    ];
    for (transport, ends) in ends.into_iter().enumerate() {
        core.handle(
            at(start, 0),
            Event::Connected(transport, made(ends)),
            &mut actions,
        )?;
    }
    let client = core
        .welcome(
            at(start, 0),
            "127.0.0.1:900".parse()?,
            User::Local(0),
            &mut actions,
        )
        .ok_or("the client is refused")?;

    // XID 7; NFSv3's MKDIR without credentials: a handle, a name, no attributes.
    let mkdir = [
        7,
        0,
        2,
        NFS,
        3,
        9,
        0,
        0,
        0,
        0,
        4,
        1,
        1,
        0x6100_0000,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    let call = Part::Whole(message(&mkdir));
    core.handle(at(start, 1), Event::FromClient(client, call), &mut actions)?;
    println!("after the call: {actions:?}");
    let xid = written(&mut core, at(start, 1), 0, &mut actions).ok_or("nothing is written")?;
    println!("connection 0 writes it with XID {xid:#x}");

    actions.clear();
    let lost = Event::Lost {
        transport: 0,
        why: "reset by the server".into(),
        failed: true,
    };
    core.handle(at(start, 2), lost, &mut actions)?;
    let other = written(&mut core, at(start, 2), 1, &mut actions);
    println!(
        "connection 0 is lost. Written by the other connection: {other:?}, as the server may have run it"
    );
    let wanted = core.wanted(at(start, 3), 0, &mut actions);
    println!("connection 0 is wanted again: {:?}", wanted.again);

    core.handle(
        at(start, 9),
        Event::Connected(0, made(ends[0])),
        &mut actions,
    )?;
    let again = written(&mut core, at(start, 9), 0, &mut actions).ok_or("nothing is written")?;
    println!("from the same port, it is written with XID {again:#x}: the server's cache knows it");

    actions.clear();
    let reply = Part::Whole(message(&[again, 1, 0, 0, 0, 0, 0]));
    core.handle(at(start, 10), Event::FromServer(0, reply), &mut actions)?;
    println!("after the reply: {actions:?}");
    let mut buffer = BytesMut::new();
    core.replies_to_write(at(start, 10), client, &mut buffer, &mut actions);
    println!("the client gets {:02x?}", &buffer[..]);
    Ok(())
}
