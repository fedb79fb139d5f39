//! Prints what a mirror says, for those who work on it: `cargo run --example monitor`.

use raddle_netlink::{Error, Mirror};

fn main() -> Result<(), Error> {
    let mut mirror = Mirror::open()?;
    mirror.initial(&mut |event| println!("{event:?}"))?;
    println!("-- initial state complete: {:?}", mirror.stats());
    loop {
        mirror.wait(None)?;
        mirror.poll(&mut |event| println!("{event:?}"))?;
    }
}
