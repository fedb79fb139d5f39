//! What others have written is read to a limit, and obeyed by no terminal.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use raddle_text::outside::{
    Bounded, Line, LinkName, TextError, TooLong, line, line_if_any, lines, link_name,
    open_or_stdin, read_text, shown, shown_in_line,
};
use serde::Deserialize;

#[test]
fn no_more_is_read_than_may_be_there() {
    let read = |text: &'static str, most| io::read_to_string(Bounded::new(text.as_bytes(), most));
    assert_eq!(read("", 0).unwrap(), "");
    assert_eq!(read("abc", 3).unwrap(), "abc");
    assert_eq!(read("abc", u64::MAX).unwrap(), "abc");
    let error = read("abcd", 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    assert!(error.to_string().starts_with("it has more than 3 bytes"));
    let said = TooLong { most: 16 << 20 }.to_string();
    assert!(said.starts_with("it has more than 16 MiB"), "{said}");
    // By single bytes, too, and again when it was an error.
    let mut bytes = Bounded::new(&b"abc"[..], 2);
    let mut one = [0];
    assert_eq!((bytes.read(&mut one).unwrap(), one), (1, *b"a"));
    assert_eq!((bytes.read(&mut one).unwrap(), one), (1, *b"b"));
    assert!(bytes.read(&mut one).is_err());
}

#[test]
fn files_without_an_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.txt");
    std::fs::write(&file, "abc").unwrap();
    assert_eq!(read_text(&file, 3).unwrap(), "abc");
    let cut = read_text(&file, 2).unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::FileTooLarge);
    let endless = read_text(Path::new("/dev/zero"), 1 << 20).unwrap_err();
    assert_eq!(endless.kind(), ErrorKind::FileTooLarge);
    let none = read_text(&folder.path().join("none"), 9).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    let opened = io::read_to_string(open_or_stdin(&file).unwrap());
    assert_eq!(opened.unwrap(), "abc");
}

#[test]
fn links_have_names_as_the_kernel_takes_them() {
    let name = |text: &str| LinkName::try_from(text.to_owned()).map(String::from);
    for good in [
        "a",
        "eth0",
        "eth0.100",
        "...",
        "123456789012345",
        "é",
        "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
    ] {
        assert_eq!(name(good).as_deref(), Ok(good));
    }
    for bad in [
        "",
        ".",
        "..",
        "a b",
        "a\n",
        "a/b",
        "a:b",
        "\u{1b}[2J",
        "\u{9b}2J",
        "\u{7f}",
        "1234567890123456",
    ] {
        let error = name(bad).unwrap_err();
        assert_eq!(error, TextError::LinkName(bad.to_owned()));
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
}

#[test]
fn lines_have_nothing_that_a_terminal_obeys() {
    let line = |text: &str| Line::try_from(text.to_owned()).map(String::from);
    assert_eq!(line("a b: é/ü").as_deref(), Ok("a b: é/ü"));
    for bad in ["a\u{1b}[2J", "a\nb", "a\tb", "\u{85}", "\0"] {
        let error = line(bad).unwrap_err();
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
    assert_eq!(shown("a\n\tb é"), "a\n\tb é");
    assert_eq!(shown_in_line("a\n\tb"), "a\\u{a}\\u{9}b");
    assert_eq!(shown("a\u{1b}[2J\r\u{9b}"), "a\\u{1b}[2J\\u{d}\\u{9b}");
}

#[derive(Debug, Deserialize)]
struct All {
    #[serde(deserialize_with = "link_name")]
    link: String,
    #[serde(deserialize_with = "line")]
    one: String,
    #[serde(default, deserialize_with = "line_if_any")]
    any: Option<String>,
    #[serde(deserialize_with = "lines")]
    list: Vec<String>,
}

#[test]
fn they_are_refused_where_they_are_read() {
    let good = r#"{"link": "a", "one": "b", "any": "c", "list": ["d"]}"#;
    let read: All = serde_json::from_str(good).unwrap();
    let All {
        link,
        one,
        any,
        list,
    } = read;
    assert_eq!(
        (&*link, &*one, any.as_deref(), list),
        ("a", "b", Some("c"), vec!["d".to_owned()])
    );
    let without = good.replace(r#""any": "c", "#, "");
    assert_eq!(serde_json::from_str::<All>(&without).unwrap().any, None);
    for letter in ["a", "b", "c", "d"] {
        let bad = good.replace(&format!("\"{letter}\""), r#""\u001b[2J""#);
        let error = serde_json::from_str::<All>(&bad).unwrap_err().to_string();
        assert!(
            error.contains("control characters") && error.contains("line 1"),
            "{error}"
        );
    }
}
