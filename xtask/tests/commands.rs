//! Commands are found in documents.

use xtask::commands::{calls, command_lines};

#[test]
fn commands_are_found_in_blocks_and_in_text() {
    let text = "```sh\nraddle a \\\n  b\n```\n```console\n$ raddle c\nraddle 0.1.0\n```\nSay `raddle d` or `e`.\n```text\nraddle f\n```";
    let found = ["raddle a    b", "raddle c", "raddle d", "e"];
    assert_eq!(command_lines(text), found);
}

#[test]
fn calls_are_of_one_program() {
    let line =
        "sudo raddle run & target/release/raddle-bench demo --out x | raddle-benchmark; raddle";
    let words = |all: &[&str]| all.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    assert_eq!(calls(line, "raddle"), [words(&["run"]), words(&[])]);
    assert_eq!(
        calls(line, "raddle-bench"),
        [words(&["demo", "--out", "x"])]
    );
}
