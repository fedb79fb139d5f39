//! Lines on the socket: a question is one, and so is its answer.
//!
//! A question is `{"protocol":1,"command":"status"}`, an answer `{"protocol":1,"status":{...}}`, or
//! `{"protocol":1,"error":"why not"}`. Both sides use the types of this crate; [`PROTOCOL`] grows where
//! one side would not understand what the other means: a field that is new is `#[serde(default)]`, or another version.
//! `golden/` has answers of this version, which have to be understood as long as it stands.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Who};

/// The version of questions and answers.
pub const PROTOCOL: u32 = 1;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// What the daemon does: [`Status`](crate::Status).
    Status,
    /// Packets and bytes: [`Counters`](crate::Counters).
    Counters,
    /// SIDs and encapsulations as the engine has them, with their counters: [`Segments`](crate::Segments).
    Segments,
    /// Routes that the kernel does not have: [`Routes`](crate::Routes).
    Routes,
    /// What the proxies of `raddle rpc` do: [`Proxies`](crate::Proxies).
    Rpc,
}

impl Command {
    /// As in a question; the key of its answer.
    pub fn name(self) -> &'static str {
        match self {
            Command::Status => "status",
            Command::Counters => "counters",
            Command::Segments => "segments",
            Command::Routes => "routes",
            Command::Rpc => "rpc",
        }
    }
}

/// A type that answers a command. Whoever answers and whoever asks have the same.
pub trait Answer: Serialize + DeserializeOwned {
    /// What it answers.
    const COMMAND: Command;
}

/// What a line says of its version, whatever else it says.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Head {
    #[serde(default)]
    pub(crate) protocol: u64,
}

/// A line that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// The version by which it is to be answered; 0 where none is named.
    #[serde(default)]
    pub(crate) protocol: u32,
    /// What is asked.
    pub(crate) command: Command,
}

impl Question {
    pub(crate) fn of(command: Command) -> Question {
        Question {
            protocol: PROTOCOL,
            command,
        }
    }

    /// Without the newline.
    pub(crate) fn line(self) -> String {
        let (protocol, command) = (self.protocol, self.command.name());
        format!(r#"{{"protocol":{protocol},"command":"{command}"}}"#)
    }
}

/// An answer, as the line that it is, or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(String);

impl Reply {
    /// The answer to the command that `A` answers.
    pub fn of<A: Answer>(answer: &A) -> Reply {
        match serde_json::to_string(answer) {
            Ok(body) => Reply(format!(
                r#"{{"protocol":{PROTOCOL},"{}":{body}}}"#,
                A::COMMAND.name()
            )),
            // Of a type that has no form in JSON: maps whose keys are no text.
            Err(e) => Reply::error(&format!("the answer cannot be written: {e}")),
        }
    }

    /// Why there is no answer.
    pub fn error(why: &str) -> Reply {
        Reply(serde_json::json!({ "protocol": PROTOCOL, "error": why }).to_string())
    }

    /// A question that is for somebody else.
    pub fn not_mine(command: Command, who: Who) -> Reply {
        let (command, who) = (command.name(), who.name);
        Reply::error(&format!(
            "this is the control socket of the {who}, which does not answer '{command}'"
        ))
    }

    pub(crate) fn from_line(line: String) -> Reply {
        Reply(line)
    }

    /// Without the newline.
    pub(crate) fn line(&self) -> &str {
        &self.0
    }

    /// Reads it; `who` has given it.
    ///
    /// # Errors
    /// [`Error::Said`] where it says why there is no answer, [`Error::Version`], and [`Error::Nonsense`].
    pub fn read<A: Answer>(&self, who: Who) -> Result<A, Error> {
        let nonsense = |e: serde_json::Error| Error::Nonsense {
            who,
            why: e.to_string(),
        };
        let mut value: Value = serde_json::from_str(&self.0).map_err(nonsense)?;
        let theirs = value.get("protocol").and_then(Value::as_u64).unwrap_or(0);
        let error = value.get("error").and_then(Value::as_str);
        // Whatever the version, an error is text. That of who has no version and does not know the command:
        let unknown = |error: &str| theirs == 0 && error.starts_with("not a request");
        if let Some(error) = error.filter(|error| !unknown(error)) {
            return Err(Error::Said(error.to_owned()));
        }
        if theirs != u64::from(PROTOCOL) {
            let theirs = u32::try_from(theirs).unwrap_or(u32::MAX);
            return Err(Error::Version { who, theirs });
        }
        let name = A::COMMAND.name();
        match value.get_mut(name).map(Value::take) {
            Some(body) => serde_json::from_value(body).map_err(nonsense),
            None => Err(Error::Nonsense {
                who,
                why: format!("it has no '{name}'"),
            }),
        }
    }
}
