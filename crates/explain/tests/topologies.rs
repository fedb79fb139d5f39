//! Answers to the letter. Each folder with a `question` below `tests/topologies` is a case; it is asked about the
//! nearest `state.json`, its own or that of a folder above, and the answer has to be its `expected.txt` and
//! `expected.json`. `RADDLE_BLESS=1` writes both anew; read the difference before you commit it.
//!
//! A question has a key and its value on each line; `#` begins a comment.
//!
//! | key | value |
//! |---|---|
//! | `flow` | the words that `raddle explain` takes; for `hex`, the input link alone |
//! | `hex` | a packet, as `--hex` takes it |
//! | `srh`, `inner` | what a packet of the flow carries, as `--srh` and `--inner` take it |
//! | `both` | nothing: the other direction is asked about, too |
//! | `kernel` | its version, in place of the state's |
//! | `policy`, `fields`, `seed` | `fib_multipath_hash_policy`, `_fields` and `_seed`, in place of the state's |
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use raddle_explain::{
    Answer, Carried, FlowWords, Images, Names, Packet, Question, Surroundings, View, answer, both,
    render,
};
use raddle_rib::{Rib, Snapshot};

/// A case that is read.
struct Case {
    state: Snapshot,
    flow: Vec<String>,
    hex: Option<String>,
    srh: Option<String>,
    inner: Option<String>,
    both: bool,
}

/// The names that answers have.
struct WellKnown;

impl Names for WellKnown {
    fn table(&self, number: u32) -> Cow<'_, str> {
        match number {
            253 => "default".into(),
            254 => "main".into(),
            255 => "local".into(),
            other => other.to_string().into(),
        }
    }

    fn protocol(&self, number: u8) -> Cow<'_, str> {
        match number {
            2 => "kernel".into(),
            4 => "static".into(),
            186 => "bgp".into(),
            other => other.to_string().into(),
        }
    }
}

fn number(text: &str) -> u32 {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

impl Case {
    fn read(folder: &Path) -> Case {
        let mut above = folder.ancestors().map(|folder| folder.join("state.json"));
        let state = above.find(|file| file.exists()).unwrap();
        let mut case = Case {
            state: serde_json::from_slice(&fs::read(&state).unwrap())
                .unwrap_or_else(|e| panic!("{}: {e}", state.display())),
            flow: Vec::new(),
            hex: None,
            srh: None,
            inner: None,
            both: false,
        };
        let text = fs::read_to_string(folder.join("question")).unwrap();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            let settings = &mut case.state.settings;
            match key {
                "" => {}
                "flow" => case.flow = value.split_whitespace().map(str::to_owned).collect(),
                "hex" => case.hex = Some(value.to_owned()),
                "srh" => case.srh = Some(value.to_owned()),
                "inner" => case.inner = Some(value.to_owned()),
                "both" => case.both = true,
                "kernel" => case.state.kernel = Some(value.to_owned()),
                "policy" => {
                    settings.hash_policy4 = value.parse().unwrap();
                    settings.hash_policy6 = settings.hash_policy4;
                }
                "fields" => {
                    settings.hash_fields4 = number(value);
                    settings.hash_fields6 = settings.hash_fields4;
                }
                "seed" => settings.hash_seed = number(value),
                other => panic!("{}: '{other}' is not a key", folder.display()),
            }
        }
        case
    }

    fn answer(self) -> Answer {
        let kernel = self.state.kernel.as_ref().map(|text| text.parse().unwrap());
        let around = Surroundings {
            kernel,
            ..Surroundings::default()
        };
        let mut rib = Rib::detached();
        self.state.into_events().for_each(|event| rib.apply(event));
        let carried = Carried::parse(self.srh.as_deref(), self.inner.as_deref()).unwrap();
        let (words, packet) = match self.hex {
            Some(hex) => {
                let packet = Packet::of_hex(&hex).unwrap();
                let iif = FlowWords::parse_input(&self.flow).unwrap();
                (packet.words(&iif), Some(packet))
            }
            None => {
                let words = FlowWords::parse(&self.flow).unwrap();
                let carries = !carried.is_empty();
                let packet = carries.then(|| carried.packet(&words).unwrap());
                (words, packet)
            }
        };
        let images = Images::default();
        let view = View::new(&rib, &WellKnown, &around, &images);
        let question = Question {
            words: &words,
            packet: packet.as_ref(),
        };
        match self.both {
            true => both(view, question).unwrap(),
            false => answer(view, question),
        }
    }
}

/// All folders with a question, by name.
fn cases(folder: &Path, found: &mut Vec<PathBuf>) {
    let has = |name: &str| folder.join(name).exists();
    if has("question") {
        found.push(folder.to_owned());
    } else {
        let orphan = has("expected.txt") || has("expected.json");
        assert!(
            !orphan,
            "{}: an answer without a question",
            folder.display()
        );
    }
    let entries = fs::read_dir(folder).unwrap();
    let mut inside: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    inside.retain(|path| path.is_dir());
    inside.sort();
    for folder in inside {
        cases(&folder, found);
    }
}

/// The first line that is another one.
fn difference(expected: &str, is: &str) -> String {
    let mut lines = (1..).zip(expected.lines().zip(is.lines()));
    match lines.find(|(_, (expected, is))| expected != is) {
        Some((number, (expected, is))) => {
            format!("line {number}:\n  expected: {expected}\n  is:       {is}")
        }
        None => "one ends before the other".to_owned(),
    }
}

#[test]
fn answers_are_those_that_are_expected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/topologies");
    let mut all = Vec::new();
    cases(&root, &mut all);
    assert!(all.len() > 50, "{} cases", all.len());
    let bless = std::env::var_os("RADDLE_BLESS").is_some();
    assert!(
        !bless || std::env::var_os("CI").is_none(),
        "RADDLE_BLESS in CI would pass anything"
    );
    let mut wrong = String::new();
    for folder in &all {
        let answer = std::panic::catch_unwind(|| Case::read(folder).answer());
        let Ok(answer) = answer else {
            let place = folder.strip_prefix(&root).unwrap().display();
            let _ = writeln!(wrong, "{place}: it panicked, see above");
            continue;
        };
        let json = serde_json::to_string_pretty(&answer).unwrap() + "\n";
        for (name, is) in [("expected.txt", render(&answer)), ("expected.json", json)] {
            let file = folder.join(name);
            if bless {
                fs::write(&file, &is).unwrap();
                continue;
            }
            let expected = fs::read_to_string(&file).unwrap_or_default();
            if expected != is {
                let place = file.strip_prefix(&root).unwrap().display();
                let _ = writeln!(wrong, "{place}, {}", difference(&expected, &is));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong}RADDLE_BLESS=1 writes the answers as they are"
    );
}
