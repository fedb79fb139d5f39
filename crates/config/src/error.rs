//! Why a configuration is not taken.

use std::io;
use std::path::PathBuf;

use raddle_text::outside::{shown, shown_in_line};
use thiserror::Error;

use crate::{Mistake, Place};

/// What is wrong with a file, where, and what to do about it.
#[derive(Debug, Error)]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read the configuration {path}: {source}; name another with --config", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It says something that cannot be.
    #[error("{path}: {}{}", placed(.place), shown(&mistake.to_string()), path = .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Where in it, unless it is about the whole.
        place: Option<Box<Place>>,
        /// The key whose value it is in, where reading that found it.
        key: Option<String>,
        /// What.
        #[source]
        mistake: Mistake,
    },
}

fn placed(place: &Option<Box<Place>>) -> String {
    place
        .as_ref()
        .map_or_else(String::new, |place| format!("{place}\n"))
}

impl Error {
    /// Where in the file it is.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Error::Wrong { place, .. } => place.as_deref(),
            Error::Read { .. } => None,
        }
    }

    /// What is wrong in the file, where that is what is wrong.
    pub fn mistake(&self) -> Option<&Mistake> {
        match self {
            Error::Wrong { mistake, .. } => Some(mistake),
            Error::Read { .. } => None,
        }
    }

    /// The same in one line, as for a log: line, column and the key, without the text that they show.
    pub fn one_line(&self) -> String {
        match self {
            Error::Wrong {
                path,
                place: Some(place),
                key,
                mistake,
            } => {
                let Place { line, column, .. } = &**place;
                let path = path.display();
                let key = key
                    .as_ref()
                    .map_or_else(String::new, |key| format!("{key}: "));
                let said = format!("{key}{mistake}");
                format!(
                    "{path}: line {line}, column {column}: {}",
                    shown_in_line(&said)
                )
            }
            whole => whole.to_string(),
        }
    }
}
