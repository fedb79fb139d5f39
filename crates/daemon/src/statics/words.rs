//! Words of an option in iproute2's grammar.

use serde::Deserialize;

use super::StaticError;
use raddle_iproute::Names;

/// A routing table, named or numbered as in `ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "TableWord")]
pub(super) struct Table(pub u32);

/// How the configuration has one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a table is a number, or a name in quotes")]
enum TableWord {
    Number(u32),
    Name(String),
}

impl TryFrom<TableWord> for Table {
    type Error = StaticError;

    fn try_from(word: TableWord) -> Result<Table, StaticError> {
        match word {
            TableWord::Number(number) => Ok(Table(number)),
            TableWord::Name(name) => name.parse(),
        }
    }
}

impl std::str::FromStr for Table {
    type Err = StaticError;

    fn from_str(word: &str) -> Result<Table, StaticError> {
        let number = word.parse().ok();
        let number = number.or_else(|| Names::load().table_number(word));
        number
            .map(Table)
            .ok_or_else(|| StaticError::Table(word.into()))
    }
}

pub(super) struct Words<'a>(std::iter::Peekable<std::str::SplitWhitespace<'a>>);

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Words<'a> {
        Words(text.split_whitespace().peekable())
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// Takes the next word if it is this one.
    pub(super) fn take(&mut self, word: &str) -> bool {
        self.0.next_if(|next| *next == word).is_some()
    }

    /// Takes the next word, which has to be this one.
    pub(super) fn expect(&mut self, word: &str, want: &'static str) -> Result<(), StaticError> {
        match self.next() {
            Some(next) if next == word => Ok(()),
            Some(next) => {
                let word = next.into();
                Err(StaticError::Word { word, want })
            }
            None => Err(StaticError::Value(word.into())),
        }
    }

    /// The word behind `what`.
    pub(super) fn value(&mut self, what: &str) -> Result<&'a str, StaticError> {
        self.next().ok_or_else(|| StaticError::Value(what.into()))
    }

    pub(super) fn number<N: std::str::FromStr>(&mut self, what: &str) -> Result<N, StaticError> {
        let word = self.value(what)?;
        word.parse().map_err(|_| StaticError::Number(word.into()))
    }

    /// A table by number or by name, as everywhere in `ip`.
    pub(super) fn table(&mut self, what: &str) -> Result<u32, StaticError> {
        self.value(what)?.parse::<Table>().map(|table| table.0)
    }

    pub(super) fn address<A: std::str::FromStr>(&mut self, what: &str) -> Result<A, StaticError> {
        let word = self.value(what)?;
        word.parse().map_err(|_| StaticError::Address(word.into()))
    }
}
