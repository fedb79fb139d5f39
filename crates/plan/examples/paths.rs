//! What moves when a link fails, and which source ports cover all paths: `cargo run -p raddle-plan --example paths
//! [LINK]`, for a destination behind four links, `eth1` to `eth4`, of a state that is made here.

use std::error::Error;
use std::net::IpAddr;
use std::process::ExitCode;

use raddle_plan::bonds::Bonds;
use raddle_plan::{ports, what_if};
use raddle_rib::Rib;
use raddle_rib::event::{Event, Link, Route, RouteNexthop, RouteOp, RouteTarget, Rule, Settings};

fn main() -> ExitCode {
    match paths() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("paths: {e}");
            ExitCode::FAILURE
        }
    }
}

fn paths() -> Result<(), Box<dyn Error>> {
    let link = std::env::args().nth(1).unwrap_or_else(|| "eth4".to_owned());
    let rib = four_links()?;
    // There are none.
    let bonds = Bonds::default();
    let dst = IpAddr::from([198, 51, 100, 7]);

    let question = what_if::Question {
        dst,
        iif: None,
        packets: raddle_plan::paths::packets_to(dst),
        changes: vec![what_if::Change::LinkDown(link)],
    };
    let report = what_if::answer(&rib, &bonds, &question, None, None)?;
    println!("{}", report.text(true));

    let question = ports::Question {
        dport: 2049,
        from: Some(IpAddr::from([192, 0, 2, 1])),
        ..ports::Question::new(dst, 4)
    };
    print!("{}", ports::plan(&rib, None, &bonds, &question)?);
    Ok(())
}

/// 198.51.100.0/24 by a multipath route over `eth1` to `eth4`, hashed by addresses and ports.
fn four_links() -> Result<Rib, Box<dyn Error>> {
    let mut rib = Rib::detached();
    rib.apply(Event::Settings(Settings {
        hash_policy4: 1,
        hash_seed: 12345,
        ..Settings::default()
    }));
    rib.apply(Event::Rule(Rule {
        family: 4,
        priority: 32766,
        table: 254,
        action: 1,
        ..Rule::default()
    }));
    let nexthop = |index: u32| RouteNexthop {
        gateway: Some(IpAddr::from([10, 0, index as u8, 1])),
        index,
        weight: 1,
        ..RouteNexthop::default()
    };
    for index in 1..=4 {
        rib.apply(Event::Link(Link {
            index,
            name: format!("eth{index}"),
            flags: 0x1_0041,
            ..Link::default()
        }));
    }
    let route = Route {
        dst: "198.51.100.0/24".parse()?,
        target: RouteTarget::Multipath((1..=4).map(nexthop).collect()),
        ..Route::default()
    };
    rib.apply(Event::Route(route, RouteOp::Add));
    Ok(rib)
}
