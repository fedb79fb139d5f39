//! Commands in the documents are commands of the program.

use clap::{Command, CommandFactory};
use xtask::commands::{Unknown, calls, in_documents, known};

use super::Cli;
use raddle_iproute::show::options_first;

/// Commands of `ip(8)`'s nouns: what follows is theirs.
const NOUNS: [&str; 4] = ["route", "nexthop", "neigh", "sr"];

fn is_known(program: &Command, words: &[String]) -> Result<(), Unknown> {
    match options_first(words) {
        Some(_) => Ok(()),
        None => known(program, words, &NOUNS),
    }
}

#[test]
fn commands_in_the_documents_exist() {
    let mut program = Cli::command();
    program.build();
    let calls = in_documents("raddle").unwrap();
    assert!(calls.len() > 100, "{} commands were found", calls.len());
    let wrong = calls.iter().filter_map(|call| {
        let why = is_known(&program, &call.words).err()?;
        Some(format!("{}: {why}", call.place))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_does_not_exist_is_found() {
    let mut program = Cli::command();
    program.build();
    let wrong = |line: &str| {
        let calls = calls(line, "raddle");
        assert!(!calls.is_empty(), "{line}");
        calls.iter().any(|call| is_known(&program, call).is_err())
    };
    for line in [
        "raddle weave",
        "sudo raddle run --fast",
        "ip route; raddle lab lift",
        "raddle lab exec -n a leaf1 -- raddle explain --why 10.0.0.1",
        "PATH=x target/release/raddle ports plan --dports 1",
    ] {
        assert!(wrong(line), "{line}");
    }
    for line in [
        "raddle run --link eth0 --fpm=127.0.0.1:1   # --fast",
        "raddle -s -d sr show fc00::1 | tail -1",
        "raddle route show --frobnicate",
        "raddle lab exec leaf1 -- ip route --anything",
        "raddle explain --inner '10.0.9.1 from --x' fc00::1 &",
        "raddle help explain",
    ] {
        assert!(!wrong(line), "{line}");
    }
}
