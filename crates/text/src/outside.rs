//! Text from outside: what a file, another machine or another person has written. It may have no end, and it may have
//! control characters in it, which a terminal obeys.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Deserializer};
use thiserror::Error;

/// Reads so many bytes of what may have no end. Where there is one more, that is an error
/// ([`io::ErrorKind::FileTooLarge`]), so that nobody takes the beginning for the whole.
#[derive(Debug)]
pub struct Bounded<R> {
    input: R,
    most: u64,
    left: u64,
}

/// The error that [`Bounded`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it has more than {}, which is the most that is read of such a file; name the right one", size(.most))]
pub struct TooLong {
    /// Bytes that it may have.
    pub most: u64,
}

fn size(bytes: &u64) -> String {
    match bytes.is_multiple_of(1 << 20) {
        true => format!("{} MiB", bytes >> 20),
        false => format!("{bytes} bytes"),
    }
}

impl<R> Bounded<R> {
    /// At most so many bytes of this input.
    pub fn new(input: R, most: u64) -> Bounded<R> {
        Bounded {
            input,
            most,
            left: most,
        }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One more than may be there shows that more is there.
        let room = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX);
        let room = room.min(buffer.len());
        let count = self.input.read(&mut buffer[..room])?;
        match self.left.checked_sub(count as u64) {
            Some(left) => {
                self.left = left;
                Ok(count)
            }
            None => {
                let error = TooLong { most: self.most };
                Err(io::Error::new(io::ErrorKind::FileTooLarge, error))
            }
        }
    }
}

/// The text of a file of at most so many bytes.
///
/// # Errors
/// It cannot be read, is no UTF-8, or is longer ([`TooLong`]).
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    io::read_to_string(Bounded::new(File::open(path)?, most))
}

/// Opens a file; `-` is standard input.
///
/// # Errors
/// There is no such file, or it is not for us.
pub fn open_or_stdin(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    Ok(match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path)?),
    })
}

/// A text as it may be printed: control characters but for newlines and tabs are escaped (`\u{1b}`).
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control() && !matches!(c, '\n' | '\t'))
}

/// A text as it may be printed in a line: all control characters are escaped.
pub fn shown_in_line(text: &str) -> Cow<'_, str> {
    escaped(text, char::is_control)
}

fn escaped(text: &str, obeyed: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&obeyed) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match obeyed(c) {
            true => safe.extend(c.escape_unicode()),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Why a text is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// It has control characters in it.
    #[error("{0:?} has control characters in it, which a terminal would obey; take them out")]
    Control(String),
    /// It cannot be the name of a link.
    #[error(
        "{0:?} is not the name of a link: that has 1 to {most} bytes, no '/', no ':', no blanks and no control characters",
        most = LinkName::MOST
    )]
    LinkName(String),
}

/// A text without control characters: one line, and nothing that a terminal obeys.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Line(String);

impl TryFrom<String> for Line {
    type Error = TextError;

    fn try_from(text: String) -> Result<Line, TextError> {
        match text.contains(char::is_control) {
            false => Ok(Line(text)),
            true => Err(TextError::Control(text)),
        }
    }
}

impl From<Line> for String {
    fn from(line: Line) -> String {
        line.0
    }
}

/// The name of a link, as the kernel has them (`dev_valid_name`): not empty, shorter than 16 bytes, neither `.` nor `..`, no
/// slash, colon or blank. The kernel allows control characters; this does not.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct LinkName(String);

impl LinkName {
    /// Bytes that one has at most: `IFNAMSIZ`, less the zero at the end.
    pub const MOST: usize = 15;
}

impl TryFrom<String> for LinkName {
    type Error = TextError;

    fn try_from(name: String) -> Result<LinkName, TextError> {
        let refused = |c: char| c.is_control() || c.is_ascii_whitespace() || matches!(c, '/' | ':');
        // A name that is no UTF-8 is known with one such character for one or more of its bytes.
        let bytes = |c: char| match c {
            char::REPLACEMENT_CHARACTER => 1,
            c => c.len_utf8(),
        };
        let fits = (1..=LinkName::MOST).contains(&name.chars().map(bytes).sum());
        match fits && !matches!(&*name, "." | "..") && !name.contains(refused) {
            true => Ok(LinkName(name)),
            false => Err(TextError::LinkName(name)),
        }
    }
}

impl From<LinkName> for String {
    fn from(name: LinkName) -> String {
        name.0
    }
}

/// For serde's `deserialize_with`: a `String` that is a [`LinkName`].
///
/// # Errors
/// [`TextError::LinkName`].
pub fn link_name<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    LinkName::deserialize(d).map(String::from)
}

/// For serde's `deserialize_with`: a `String` that is a [`Line`].
///
/// # Errors
/// [`TextError::Control`].
pub fn line<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Line::deserialize(d).map(String::from)
}

/// As [`line()`], of a text that may be missing; the field has to be `default`, too.
///
/// # Errors
/// [`TextError::Control`].
pub fn line_if_any<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Line>::deserialize(d)?.map(String::from))
}

/// As [`line()`], of a list.
///
/// # Errors
/// [`TextError::Control`].
pub fn lines<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    let lines = Vec::<Line>::deserialize(d)?;
    Ok(lines.into_iter().map(String::from).collect())
}
