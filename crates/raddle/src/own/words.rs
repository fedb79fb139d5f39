//! Words of an option in iproute2's grammar.

use super::OwnError;

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
    pub(super) fn expect(&mut self, word: &str, want: &'static str) -> Result<(), OwnError> {
        match self.next() {
            Some(next) if next == word => Ok(()),
            Some(next) => {
                let word = next.into();
                Err(OwnError::Word { word, want })
            }
            None => Err(OwnError::Value(word.into())),
        }
    }

    /// The word behind `what`.
    pub(super) fn value(&mut self, what: &str) -> Result<&'a str, OwnError> {
        self.next().ok_or_else(|| OwnError::Value(what.into()))
    }

    pub(super) fn number<N: std::str::FromStr>(&mut self, what: &str) -> Result<N, OwnError> {
        let word = self.value(what)?;
        word.parse().map_err(|_| OwnError::Number(word.into()))
    }

    pub(super) fn address<A: std::str::FromStr>(&mut self, what: &str) -> Result<A, OwnError> {
        let word = self.value(what)?;
        word.parse().map_err(|_| OwnError::Address(word.into()))
    }
}
