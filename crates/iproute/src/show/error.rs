//! What can be wrong with a command line, in `ip`'s words.

use std::io;

/// Why there is nothing to show. The text is the whole line for stderr.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option that is not known.
    #[error("Option \"{0}\" is unknown, try \"raddle route help\".")]
    Option(String),
    /// No object of this name.
    #[error("Object \"{0}\" is unknown, try \"raddle help\".")]
    Object(String),
    /// No command of this name.
    #[error("Command \"{word}\" is unknown, try \"raddle {object} help\".")]
    Command {
        /// The object.
        object: &'static str,
        /// What was said in place of a command.
        word: String,
    },
    /// The line ends where a value is due.
    #[error("Command line is not complete. Try option \"help\"")]
    Incomplete,
    /// A value that makes no sense.
    #[error("Error: argument \"{value}\" is wrong: {why}")]
    Argument {
        /// The value.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Something that is neither a keyword nor a prefix.
    #[error("Error: {expected} prefix is expected rather than \"{value}\".")]
    Prefix {
        /// `inet`, `inet6` or `any valid`.
        expected: &'static str,
        /// What stands there.
        value: String,
    },
    /// No link has this name.
    #[error("Cannot find device \"{0}\"")]
    Device(String),
    /// No nexthop object has this id.
    #[error("Error: nexthop id {0} does not exist.")]
    NoNexthop(u32),
    /// A nexthop object that has no buckets.
    #[error("Error: nexthop id {0} is not a resilient group.")]
    NotResilient(u32),
    /// A resilient group that has only so many buckets.
    #[error("Error: bucket index out of bounds: the group has {0} buckets, from 0.")]
    NoBucket(u16),
    /// Binary output to a terminal.
    #[error("Not sending a binary stream to a terminal: redirect it to a file")]
    Terminal,
    /// A route that has no message.
    #[error("Error: a route cannot be written as a netlink message: {0}")]
    Dump(String),
    /// A route with a weight that no message has room for.
    #[error(
        "Error: {dst} has a path of weight {weight}, and the messages of a dump have room for 256: divide the \
         weights of its paths by a common number, or save the other routes by selectors"
    )]
    Weight {
        /// The route's destination.
        dst: ipnet::IpNet,
        /// The weight.
        weight: u16,
    },
    /// The output cannot be written.
    #[error("Cannot write: {0}")]
    Write(io::Error),
}

impl Error {
    /// Whether something is asked for that is not there, and the command line is not wrong. (`ip` exits with 255 for
    /// some of these.)
    pub fn is_absent(&self) -> bool {
        matches!(
            self,
            Error::NoNexthop(_) | Error::NotResilient(_) | Error::NoBucket(_)
        )
    }

    pub(crate) fn argument(value: &str, why: &'static str) -> Error {
        Error::Argument {
            value: value.to_owned(),
            why,
        }
    }
}
