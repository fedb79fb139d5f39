//! What serde and the TOML parser say, in the words of who writes the file.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Visitor};

/// A message in plain words.
///
/// 1. `unknown field`: there is no such key, and which there are. An alias is not named beside its key.
/// 2. `missing field`: the key to add.
/// 3. `unknown variant`: there is no such word, and which there are.
/// 4. `invalid type` and `invalid value`: what stands there, and what should.
/// 5. An address that cannot be read: what one looks like.
/// 6. Everything else is plain: raddle's own messages, and those about TOML.
pub(super) fn plain(message: &str) -> String {
    let unknown = |rest: &str, what: &str| {
        let (name, known) = rest.split_once('`')?;
        Some(format!("there is no {what}'{name}'{}", there_are(known)))
    };
    let said = if let Some(rest) = message.strip_prefix("unknown field `") {
        unknown(rest, "key ")
    } else if let Some(rest) = message.strip_prefix("unknown variant `") {
        unknown(rest, "")
    } else if let Some(rest) = message.strip_prefix("missing field `") {
        let name = rest.trim_end_matches('`');
        Some(format!("the key '{name}' is missing here"))
    } else if let Some((_, rest)) = message.split_once("invalid socket address syntax") {
        Some(format!("this is no {ADDRESS}{rest}"))
    } else {
        let rest = message.strip_prefix("invalid type: ");
        rest.or_else(|| message.strip_prefix("invalid value: "))
            .and_then(|rest| rest.split_once(", expected "))
            .map(|(is, want)| format!("this is {}, and should be {}", found(is), wanted(want)))
    };
    said.unwrap_or_else(|| message.to_owned())
}

const ADDRESS: &str = "ADDRESS:PORT, such as \"127.0.0.1:9409\"; names are not looked up";

/// `; there are a, b`, of names between backquotes.
fn there_are(known: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in known.split('`').skip(1).step_by(2) {
        let same = |other: &&str| other.replace('_', "-") == name.replace('_', "-");
        if !names.iter().any(same) {
            names.push(name);
        }
    }
    match names.as_slice() {
        [] => String::new(),
        names => format!("; there are {}", names.join(", ")),
    }
}

/// What stands there: serde names its own kinds.
fn found(is: &str) -> String {
    match is.split_once(' ').unwrap_or((is, "")) {
        ("string", text) => text.to_owned(),
        ("integer", number) | ("floating", number) => {
            number.trim_start_matches("point ").replace('`', "")
        }
        ("boolean", value) => value.replace('`', ""),
        ("sequence", _) => "a list".to_owned(),
        ("map", _) => "a table".to_owned(),
        _ => is.to_owned(),
    }
}

/// What should stand there: serde names types of Rust.
fn wanted(want: &str) -> String {
    let whole = |most: u64| format!("a whole number from 0 to {most}");
    match want {
        "u8" => whole(u8::MAX.into()),
        "u16" => whole(u16::MAX.into()),
        "u32" => whole(u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "a boolean" => "true or false, without quotes".to_owned(),
        "a string" => "text in quotes".to_owned(),
        "path string" => "a path in quotes".to_owned(),
        "a sequence" => "a list in brackets".to_owned(),
        "socket address" => format!("an {ADDRESS}"),
        want => want.to_owned(),
    }
}

/// Reads one of an option's words, as the command line does.
pub(super) fn word<'de, D: Deserializer<'de>, T: clap::ValueEnum>(d: D) -> Result<T, D::Error> {
    struct Words<T>(PhantomData<T>);

    impl<T: clap::ValueEnum> fmt::Display for Words<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let names = T::value_variants().iter();
            let names = names.filter_map(clap::ValueEnum::to_possible_value);
            let names: Vec<String> = names
                .map(|name| format!("\"{}\"", name.get_name()))
                .collect();
            write!(f, "one of {}", names.join(", "))
        }
    }

    impl<T: clap::ValueEnum> Visitor<'_> for Words<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt::Display::fmt(self, f)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            T::from_str(text, false)
                .map_err(|_| E::custom(format!("there is no '{text}'; it is {self}")))
        }
    }
    d.deserialize_str(Words(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_rust_are_not_named() {
        for (said, plainly) in [
            (
                "unknown field `x`, expected one of `a`, `rx-hash`, `rx_hash`",
                "there is no key 'x'; there are a, rx-hash",
            ),
            (
                "unknown field `x`, expected `a` or `b`",
                "there is no key 'x'; there are a, b",
            ),
            (
                "unknown field `x`, there are no fields",
                "there is no key 'x'",
            ),
            (
                "unknown variant `x`, expected `a` or `b`",
                "there is no 'x'; there are a, b",
            ),
            ("missing field `algo`", "the key 'algo' is missing here"),
            (
                "invalid type: string \"7\", expected usize",
                "this is \"7\", and should be a whole number, 0 or more",
            ),
            (
                "invalid type: floating point `1.5`, expected u16",
                "this is 1.5, and should be a whole number from 0 to 65535",
            ),
            (
                "invalid type: boolean `true`, expected a string",
                "this is true, and should be text in quotes",
            ),
            (
                "invalid type: map, expected a sequence",
                "this is a table, and should be a list in brackets",
            ),
            ("'x' is not a seed", "'x' is not a seed"),
            (
                "key with no value, expected `=`",
                "key with no value, expected `=`",
            ),
        ] {
            assert_eq!(plain(said), plainly);
        }
    }
}
