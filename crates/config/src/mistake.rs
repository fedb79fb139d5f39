//! What may be wrong in a configuration, in the words of who writes it.

use std::fmt;

use serde::de::{Expected, Unexpected};
use thiserror::Error;

/// What is wrong, and what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Mistake {
    /// It is no TOML.
    #[error("{0}")]
    Syntax(String),
    /// There is no such key.
    #[error("there is no key '{key}' here{}", there_are(.key, .known))]
    UnknownKey {
        /// What stands there.
        key: String,
        /// What could.
        known: &'static [&'static str],
    },
    /// A key that cannot be left out.
    #[error("the key '{0}' is missing here")]
    MissingKey(&'static str),
    /// There is no such word.
    #[error("there is no '{word}'; it is {}", one_of(.known))]
    UnknownWord {
        /// What stands there.
        word: String,
        /// What could.
        known: &'static [&'static str],
    },
    /// A value of the wrong kind, or beyond what its kind has.
    #[error("this is {is}, and should be {wanted}")]
    Kind {
        /// What stands there.
        is: String,
        /// What should.
        wanted: String,
    },
    /// A value that its type does not take, in that type's words.
    #[error("{0}")]
    Value(String),
    /// What the configuration is of does not take it.
    #[error("{0}")]
    Meaning(Box<dyn std::error::Error + Send + Sync>),
}

impl Mistake {
    pub(crate) fn kind(is: Unexpected<'_>, wanted: &dyn Expected) -> Mistake {
        Mistake::Kind {
            is: found(is),
            wanted: plain(&wanted.to_string()),
        }
    }

    pub(crate) fn no_word(is: Unexpected<'_>, known: &'static [&'static str]) -> Mistake {
        Mistake::Kind {
            is: found(is),
            wanted: one_of(known).to_string(),
        }
    }
}

/// How much alike a key that nobody knows and one that is known have to be, from 0 to 1.
const ALIKE: f64 = 0.85;

/// `; there are a, b`, and which of them is meant where one is much like what stands there.
fn there_are(key: &str, known: &[&str]) -> String {
    if known.is_empty() {
        return String::new();
    }
    // Others have underscores between words.
    let key = key.replace('_', "-");
    let rated = known
        .iter()
        .map(|name| (strsim::jaro_winkler(&key, name), name));
    let meant = rated
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let meant = meant.map_or_else(String::new, |(_, name)| format!("; {name} may be meant"));
    format!("; there are {}{meant}", known.join(", "))
}

/// `one of "a", "b"`.
fn one_of(known: &[&str]) -> impl fmt::Display {
    let quoted: Vec<String> = known.iter().map(|word| format!("\"{word}\"")).collect();
    format!("one of {}", quoted.join(", "))
}

/// What stands there.
fn found(is: Unexpected<'_>) -> String {
    match is {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => format!("{number:?}"),
        Unexpected::Str(text) => format!("{text:?}"),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        Unexpected::Other(what) => what.to_owned(),
        is => is.to_string(),
    }
}

/// What should stand there. The types of Rust say of themselves what they are; these are the words for who does not know
/// them.
fn plain(wanted: &str) -> String {
    let whole = |most: u64| format!("a whole number from 0 to {most}");
    match wanted {
        "u8" => whole(u8::MAX.into()),
        "u16" => whole(u16::MAX.into()),
        "u32" => whole(u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "a boolean" => "true or false, without quotes".to_owned(),
        "a string" => "text in quotes".to_owned(),
        "path string" => "a path in quotes".to_owned(),
        "a sequence" => "a list in brackets".to_owned(),
        wanted => wanted.to_owned(),
    }
}
