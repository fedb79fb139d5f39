//! A configuration file: its text, what it says, and where it says it.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use raddle_text::outside::read_text;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::DeTable;

use crate::de::{Value, Wrong};
use crate::place::line_of;
use crate::{Error, Mistake, Place};

/// A mistake with its place, before the file is at hand to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<E> {
    /// What is wrong.
    pub error: E,
    /// The bytes that say it.
    pub span: Range<usize>,
}

impl<E> At<E> {
    /// What is wrong with a value.
    pub fn new<T>(value: &Spanned<T>, error: E) -> At<E> {
        let span = value.span();
        At { error, span }
    }

    /// The same as another kind of error.
    pub fn into<F: From<E>>(self) -> At<F> {
        At {
            error: self.error.into(),
            span: self.span,
        }
    }
}

/// A file that has been read.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    text: String,
}

impl File {
    /// Bytes that a file has at most.
    pub const MOST: u64 = 16 << 20;

    /// Reads a file that has to be there, of at most [`File::MOST`] bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<File, Error> {
        match read_text(path, File::MOST) {
            Ok(text) => Ok(File::new(path, text)),
            Err(source) => Err(Error::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Reads a file that may be missing.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn read_if_any(path: &Path) -> Result<Option<File>, Error> {
        match File::read(path) {
            Ok(file) => Ok(Some(file)),
            Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A file with this text.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    /// What the file says, as a type that knows its keys. Fields that are [`Spanned`] know where they stand.
    ///
    /// # Errors
    /// It is no TOML, or not what the type takes; with its place.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let table = DeTable::parse(&self.text).map_err(|e| {
            let mistake = Mistake::Syntax(e.message().trim().to_owned());
            self.wrong(mistake, e.span(), None)
        })?;
        let read = T::deserialize(Value::whole(table.into_inner()));
        read.map_err(|Wrong { mistake, span, key }| self.wrong(mistake, span, key))
    }

    /// An error at a place: something that only its meaning shows to be wrong.
    pub fn error_at<E: Into<Box<dyn std::error::Error + Send + Sync>>>(&self, at: At<E>) -> Error {
        self.wrong(Mistake::Meaning(at.error.into()), Some(at.span), None)
    }

    /// An error about the whole: something is not there.
    pub fn error(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.wrong(Mistake::Meaning(error.into()), None, None)
    }

    /// The text as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line, from 1, that a value begins in.
    pub fn line_of<T>(&self, value: &Spanned<T>) -> usize {
        line_of(&self.text, value.span().start)
    }

    fn wrong(&self, mistake: Mistake, span: Option<Range<usize>>, key: Option<String>) -> Error {
        Error::Wrong {
            key,
            path: self.path.clone(),
            place: span.map(|span| Box::new(Place::of(&self.text, span))),
            mistake,
        }
    }
}
