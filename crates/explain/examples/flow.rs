//! Explains a flow by a snapshot, offline: `cargo run -p raddle-explain --example flow [SNAPSHOT DST [from SRC]
//! [iif LINK] ...]`. Without words it takes a snapshot and a flow of the tests.

use std::borrow::Cow;
use std::error::Error;
use std::process::ExitCode;

use raddle_explain::{FlowWords, Images, Names, Question, Surroundings, View, answer, render};
use raddle_rib::{Rib, Snapshot};

const SNAPSHOT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/topologies/net/state.json"
);
const FLOW: &str = "198.18.0.9 from 10.0.0.7 iif in0 ipproto udp sport 1000 dport 53";

/// Tables and protocols have no names here.
struct Numbers;

impl Names for Numbers {
    fn table(&self, number: u32) -> Cow<'_, str> {
        number.to_string().into()
    }

    fn protocol(&self, number: u8) -> Cow<'_, str> {
        number.to_string().into()
    }
}

fn main() -> ExitCode {
    match explain() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("flow: {e}");
            ExitCode::FAILURE
        }
    }
}

fn explain() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let file = words.next().unwrap_or_else(|| SNAPSHOT.to_owned());
    let mut words: Vec<String> = words.collect();
    if words.is_empty() {
        words = FLOW.split(' ').map(str::to_owned).collect();
    }
    let flow = FlowWords::parse(&words)?;
    let snapshot: Snapshot = serde_json::from_slice(&std::fs::read(file)?)?;
    let kernel = snapshot.kernel.as_deref();
    let around = Surroundings {
        kernel: kernel.and_then(|kernel| kernel.parse().ok()),
        ..Surroundings::default()
    };
    let mut rib = Rib::detached();
    snapshot.into_events().for_each(|event| rib.apply(event));
    let images = Images::default();
    let view = View::new(&rib, &Numbers, &around, &images);
    let question = Question {
        words: &flow,
        packet: None,
    };
    print!("{}", render(&answer(view, question)));
    Ok(())
}
