//! What is said of mistakes, and where.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::path::PathBuf;

use raddle_config::{Address, At, Error, File, Mistake, OneOrMore, Place, Spanned, Within};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    RoundRobin,
    Hash,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table { segs = [...] }")]
struct Inner {
    segs: Vec<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Outer {
    mode: Option<Mode>,
    max_size: Option<Spanned<usize>>,
    path: Option<PathBuf>,
    name: Option<String>,
    port: Option<u16>,
    on: bool,
    inner: Vec<Spanned<Inner>>,
    listen: OneOrMore<Address>,
    few: Option<Within<1, 8>>,
}

fn wrong(text: &str) -> Error {
    File::new("a.toml", text).parse::<Outer>().unwrap_err()
}

#[test]
fn mistakes_are_named_in_plain_words_at_their_place() {
    for (text, below, said) in [
        (
            "x = 1",
            "x",
            "there is no key 'x' here; there are mode, max-size, path",
        ),
        ("max_size = 1", "max_size", "; max-size may be meant"),
        ("mods = 1", "mods", "; mode may be meant"),
        (
            "[[inner]]\nsegs = []\nlist = 1",
            "list",
            "there is no key 'list' here; there are segs",
        ),
        ("[[inner]]\n", "[[inner]]", "the key 'segs' is missing here"),
        (
            "mode = 'fast'",
            "'fast'",
            "there is no 'fast'; it is one of \"round-robin\", \"hash\"",
        ),
        (
            "mode = 7",
            "7",
            "this is 7, and should be one of \"round-robin\", \"hash\"",
        ),
        ("mode = []", "[]", "this is a list, and should be one of"),
        (
            "max-size = '7'",
            "'7'",
            "this is \"7\", and should be a whole number, 0 or more",
        ),
        (
            "max-size = -7",
            "-7",
            "this is -7, and should be a whole number, 0 or more",
        ),
        (
            "port = 1.5",
            "1.5",
            "this is 1.5, and should be a whole number from 0 to 65535",
        ),
        (
            "port = 70000",
            "70000",
            "this is 70000, and should be a whole number from 0 to 65535",
        ),
        (
            "port = 99999999999999999999",
            "99999999999999999999",
            "this is 99999999999999999999, and should be a whole number from 0 to 65535",
        ),
        (
            "port = 2026-01-01",
            "2026-01-01",
            "this is a date, and should be a whole number",
        ),
        (
            "on = 'yes'",
            "'yes'",
            "this is \"yes\", and should be true or false, without quotes",
        ),
        (
            "name = true",
            "true",
            "this is true, and should be text in quotes",
        ),
        ("path = 1", "1", "this is 1, and should be a path in quotes"),
        (
            "inner = 1",
            "1",
            "this is 1, and should be a list in brackets",
        ),
        (
            "inner = [1]",
            "1",
            "this is 1, and should be a table { segs = [...] }",
        ),
        (
            "inner = [{ segs = [1, 'a'] }]",
            "'a'",
            "this is \"a\", and should be a whole number",
        ),
        (
            "listen = 'a:1'",
            "'a:1'",
            "'a:1' is no ADDRESS:PORT, such as \"127.0.0.1:1234\"",
        ),
        (
            "listen = ['127.0.0.1:1', 'b']",
            "'b'",
            "'b' is no ADDRESS:PORT",
        ),
        (
            "listen = 7",
            "7",
            "this is 7, and should be an ADDRESS:PORT, such as",
        ),
        (
            "listen = {}",
            "{}",
            "this is a table, and should be an ADDRESS:PORT, such as",
        ),
        (
            "few = 9",
            "9",
            "this is 9, and should be a whole number from 1 to 8",
        ),
        (
            "few = 'x'",
            "'x'",
            "this is \"x\", and should be a whole number from 1 to 8",
        ),
        // Of several, the first.
        (
            "port = 'b'\nmode = 'a'",
            "'b'",
            "should be a whole number from 0 to 65535",
        ),
        ("mode\n", "", "key with no value, expected `=`"),
    ] {
        let error = wrong(&format!("\n{text}"));
        assert!(
            error.mistake().unwrap().to_string().contains(said),
            "{text}: {error}"
        );
        let Place {
            line,
            column,
            width,
            text: shown,
        } = error.place().unwrap_or_else(|| panic!("{text}: {error}"));
        let marked: String = shown.chars().skip(column - 1).take(*width).collect();
        assert_eq!(marked, below, "{error}");
        let head = format!("a.toml: line {line}, column {column}");
        assert!(
            error.to_string().starts_with(&format!("{head}\n")),
            "{error}"
        );
        let told = error.one_line();
        assert!(told.starts_with(&format!("{head}: ")), "{told}");
        assert!(
            told.ends_with(&error.mistake().unwrap().to_string()),
            "{told}"
        );
    }
}

/// The line that it stands in is not shown, and may be another one when the log is read.
#[test]
fn one_line_names_the_key() {
    for (text, said) in [
        ("x = 1", "column 1: there is no key 'x' here; "),
        ("few = 0", "column 7: few: this is 0, and "),
        ("mode = 'fast'", "column 8: mode: there is no 'fast'; "),
        (
            "listen = ['b']",
            "column 11: listen: 'b' is no ADDRESS:PORT",
        ),
        ("max-size = []", "column 12: max-size: this is a list"),
        ("inner = [{ segs = [-1] }]", "column 20: segs: this is -1"),
        (
            "inner = [{}]",
            "column 10: inner: the key 'segs' is missing",
        ),
    ] {
        let told = wrong(text).one_line();
        let said = format!("a.toml: line 1, {said}");
        assert!(told.starts_with(&said), "{told}");
    }
}

#[test]
fn what_is_right_is_read() {
    let text = "mode = 'round-robin'\nmax-size = 0x10\nlisten = '127.0.0.1:1'\nfew = 8\non = true\n\
                [[inner]]\nsegs = [1, 2]\n[[inner]]\nsegs = []";
    let file = File::new("a.toml", text);
    let read: Outer = file.parse().unwrap();
    assert!(matches!(read.mode, Some(Mode::RoundRobin)), "{read:?}");
    assert_eq!(read.max_size.unwrap().into_inner(), 16);
    assert_eq!(read.listen.0.len(), 1);
    assert_eq!((read.few, read.on), (Some(Within(8)), true));
    assert_eq!(read.inner[0].get_ref().segs, [1, 2]);
    assert_eq!(file.line_of(&read.inner[1]), 8);
}

#[test]
fn a_later_check_has_its_place() {
    let file = File::new("a.toml", "on = true\nmax-size = 7 # small");
    let read: Outer = file.parse().unwrap();
    let error = file.error_at(At::new(&read.max_size.unwrap(), "too small"));
    assert_eq!(
        error.to_string(),
        "a.toml: line 2, column 12\n  |\n2 | max-size = 7 # small\n  |            ^\ntoo small"
    );
    assert!(matches!(error.mistake(), Some(Mistake::Meaning(_))));
    let whole = file.error("something is missing");
    assert_eq!(whole.to_string(), "a.toml: something is missing");
    assert_eq!(whole.one_line(), whole.to_string());
}

#[test]
fn a_file_may_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.toml");
    assert!(File::read_if_any(&path).unwrap().is_none());
    let error = File::read(&path).unwrap_err().to_string();
    assert!(error.contains("none.toml: No such file"), "{error}");
    assert!(error.ends_with("; name another with --config"), "{error}");
}

#[test]
fn a_file_has_an_end() {
    let error = File::read("/dev/zero".as_ref()).unwrap_err().to_string();
    assert!(
        error.contains("/dev/zero: it has more than 16 MiB"),
        "{error}"
    );
}

#[test]
fn a_terminal_obeys_no_mistake() {
    for text in [
        "\"\\u001b[2J\" = 1",
        "mode = \"\\u009b2J\"",
        "mode = '\u{1b}[2J'",
    ] {
        let error = wrong(text);
        let obeyed = |c: char| c.is_control() && c != '\n';
        assert!(!error.to_string().contains(obeyed), "{text}: {error}");
        assert!(!error.one_line().contains(char::is_control), "{text}");
    }
}
