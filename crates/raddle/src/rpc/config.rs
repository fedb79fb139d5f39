//! The file of `raddle rpc --config`: servers, each in a `[[server]]` of its own.
//!
//! Keys are the options' names, and the options' own parser reads their values: what the command line takes
//! and refuses, the file does.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use thiserror::Error;
use toml::de::DeTable;

use super::options::{kind, options};
use super::servers::{listen, name};
use crate::cli::{RpcDaemon, RpcProxy};
use crate::error::Failure;

/// The key of the tables of servers.
const SERVER: &str = "server";

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Options beside those of servers.
    pub daemon: RpcDaemon,
    /// The servers, one at least.
    pub servers: Vec<RpcProxy>,
}

/// What is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Mistake {
    /// It is no TOML.
    #[error("{0}")]
    Toml(String),
    /// There is no such key.
    #[error("there is no key '{key}' here; there are {known}")]
    Key { key: String, known: String },
    /// A value of the wrong kind.
    #[error("{key} is {is}, and should be {expected}")]
    Kind {
        key: String,
        is: &'static str,
        expected: &'static str,
    },
    /// A value that the option does not take.
    #[error("{key}: {why}")]
    Value { key: String, why: String },
    /// A table without a server.
    #[error("this [[server]] names none; add server = \"HOST:PORT\"")]
    Nameless,
    /// No table.
    #[error("it has no server: add a table [[server]] with server = \"HOST:PORT\"")]
    NoServer,
    /// Two tables want the same.
    #[error("{what} has been taken by the [[server]] in line {before}; {advice}")]
    Twice {
        before: usize,
        what: String,
        advice: &'static str,
    },
}

/// Reads a file.
pub(super) fn load(path: &Path) -> Result<File, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Failure::usage(format!(
            "cannot read the configuration {}: {e}; name another with --config",
            path.display()
        ))
    })?;
    parse(&text).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))
}

/// # Errors
/// What is wrong, and where: with the line, and a caret below the place.
pub(super) fn parse(text: &str) -> Result<File, String> {
    read(text).map_err(|Wrong { mistake, span }| match span {
        Some(span) => format!("{}\n{mistake}", raddle_config::Place::of(text, span)),
        None => mistake.to_string(),
    })
}

/// What [`parse`] says, in one line: without the text that it shows.
pub(crate) fn in_a_line(said: &str) -> String {
    let shown = |line: &&str| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        rest.starts_with('|')
    };
    let lines: Vec<&str> = said.lines().filter(|line| !shown(line)).collect();
    lines.join(": ")
}

/// A mistake, and its place in the text.
pub(super) struct Wrong {
    pub mistake: Mistake,
    pub span: Option<Range<usize>>,
}

impl Mistake {
    /// With its place.
    pub(super) fn at(self, span: Range<usize>) -> Wrong {
        let span = Some(span);
        Wrong {
            mistake: self,
            span,
        }
    }
}

impl From<Mistake> for Wrong {
    fn from(mistake: Mistake) -> Wrong {
        Wrong {
            mistake,
            span: None,
        }
    }
}

fn read(text: &str) -> Result<File, Wrong> {
    let table = DeTable::parse(text).map_err(|e| Wrong {
        mistake: Mistake::Toml(e.message().trim().to_owned()),
        span: e.span(),
    })?;
    let table = table.get_ref();
    let daemon = options(table, Some(SERVER))?;
    let tables = match table.get(SERVER) {
        None => return Err(Mistake::NoServer.into()),
        Some(value) => value.get_ref().as_array().ok_or_else(|| {
            let mistake = Mistake::Kind {
                key: SERVER.into(),
                is: kind(value),
                expected: "a table [[server]]; a server's keys stand below that",
            };
            mistake.at(value.span())
        })?,
    };
    let mut servers: Vec<(RpcProxy, usize)> = Vec::new();
    for value in tables {
        let line = 1 + text[..value.span().start].matches('\n').count();
        let table = value.get_ref().as_table().ok_or(Mistake::NoServer)?;
        let server: RpcProxy = options(table, None)?;
        if server.server.is_none() {
            return Err(Mistake::Nameless.at(value.span()));
        }
        for (other, before) in &servers {
            apart(&server, other).map_err(|(key, what, advice)| {
                let mistake = Mistake::Twice {
                    before: *before,
                    what,
                    advice,
                };
                // Where it is what the key is by default, the table itself.
                mistake.at(table.get(key).unwrap_or(value).span())
            })?;
        }
        servers.push((server, line));
    }
    if servers.is_empty() {
        return Err(Mistake::NoServer.into());
    }
    Ok(File {
        daemon,
        servers: servers.into_iter().map(|(server, _)| server).collect(),
    })
}

/// Whether two servers can be served at once; the key, what both have, and what to do.
pub(super) fn apart(
    a: &RpcProxy,
    b: &RpcProxy,
) -> Result<(), (&'static str, String, &'static str)> {
    let both = |other: &SocketAddr| listen(b).contains(other);
    if let Some(address) = listen(a).iter().find(|address| both(address)) {
        let advice = "give each server a listen of its own, such as 127.0.0.2:2049";
        return Err(("listen", format!("listen {address}"), advice));
    }
    if a.server == b.server {
        let server = a.server.as_deref().unwrap_or_default();
        let advice = "one [[server]] serves all exports, on as many listen addresses as you like";
        return Err(("server", format!("server {server}"), advice));
    }
    if name(a) == name(b) {
        let advice = "give one of them another name";
        return Err(("name", format!("name {}", name(a)), advice));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RpcPolicy;

    #[test]
    fn the_example_of_the_package_is_read() {
        let text = include_str!("../../../../packaging/rpc.toml");
        assert_eq!(parse(text).unwrap().servers.len(), 1);
        // Every key that it explains is one.
        let all: String = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(key) if key.contains(" = ") && !key.starts_with(' ') => key,
                Some(key) if key.starts_with("[[") => key,
                Some(_) => "",
                None => line,
            })
            .fold(String::new(), |all, line| all + line + "\n");
        let file = parse(&all).unwrap();
        assert_eq!(file.servers.len(), 2, "{file:?}");
        assert!(file.daemon.metrics.is_some());
    }

    #[test]
    fn servers_have_the_options_of_the_command_line() {
        let file = parse(
            "log-json = true\n[[server]]\nserver = 'a:2049'\nlisten = ['127.0.0.1:2049', '127.0.0.1:111']\n\
             connections = 8\npolicy = 'round-robin'\nno-lane = true\nmax_record = 4\n\
             [[server]]\nserver = 'b:2049'\nlisten = '127.0.0.2:2049'\nno-lane = false\n",
        )
        .unwrap();
        assert!(file.daemon.log_json);
        let [a, b] = file.servers.as_slice() else {
            panic!("{file:?}");
        };
        assert_eq!((a.connections, a.max_record, a.listen.len()), (8, 4, 2));
        assert!(a.no_lane && !b.no_lane);
        assert_eq!(
            (a.policy, b.policy),
            (RpcPolicy::RoundRobin, RpcPolicy::LeastBytes)
        );
        assert_eq!((name(a), name(b)), ("a".into(), "b".into()));
    }

    #[test]
    fn mistakes_have_their_place() {
        let one = "[[server]]\nserver = 'a:1'\n";
        let with = |more: &str| format!("{one}{more}");
        for (text, line, below, said) in [
            (
                "server = 'a:1'",
                1,
                "'a:1'",
                "server is a string, and should be a table",
            ),
            (
                "[[server]]\nlisten = '127.0.0.1:1'",
                1,
                "[[server]]",
                "this [[server]] names none",
            ),
            (
                "x = 1\n[[server]]\nserver = 'a:1'",
                1,
                "x",
                "there is no key 'x' here; there are metrics",
            ),
            (
                &with("mount = 1"),
                3,
                "mount",
                "there is no key 'mount' here; there are name, listen",
            ),
            (
                &with("connections = 0"),
                3,
                "0",
                "connections: '0' cannot be: 0 is not in 1 to 1024",
            ),
            (
                &with("mount-port = 70000"),
                3,
                "70000",
                "mount-port: '70000' cannot be: 70000 is not in 0 to 65535",
            ),
            // Behind the rule of table main, which knows a way to every server.
            (
                &with("replay-table = 32703"),
                3,
                "32703",
                "32703 is not in 256 to 32702",
            ),
            (
                &with("replay-mark = 0"),
                3,
                "0",
                "a mark is 1 to 0xffffff00",
            ),
            (
                &with("policy = 'fast'"),
                3,
                "'fast'",
                "policy: there is no 'fast'; there are round-robin, least-bytes, hash",
            ),
            (
                &with("no-lane = 1"),
                3,
                "1",
                "no-lane is an integer, and should be true or false",
            ),
            (
                &with("memory = true"),
                3,
                "true",
                "memory is true or false, and should be a string or a number",
            ),
            (
                &with("listen = ['127.0.0.1:7', 'a']"),
                3,
                "'a'",
                "listen: 'a' is no ADDRESS:PORT: invalid socket address syntax",
            ),
            (
                &with("memory = [1, 2]"),
                3,
                "[1, 2]",
                "memory is a list, and should be one value",
            ),
            (
                &with("[[server]]\nserver = 'b:1'"),
                3,
                "[[server]]",
                "listen 127.0.0.1:2049 has been taken by the [[server]] in line 1",
            ),
            (
                &with("[[server]]\nlisten = '127.0.0.2:1'\nserver = 'a:1'"),
                5,
                "'a:1'",
                "server a:1 has been taken",
            ),
            (
                &with("[[server]]\nlisten = '127.0.0.2:1'\nserver = 'a:2'"),
                3,
                "[[server]]",
                "name a has been taken",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
            assert!(error.starts_with(&format!("line {line}, ")), "{error}");
            let lines: Vec<&str> = error.lines().collect();
            let at = lines[3].find('^').unwrap();
            let marked = &lines[2][at..at + lines[3].matches('^').count()];
            assert_eq!(marked, below, "{error}");
        }
        for text in ["", "server = []"] {
            assert!(parse(text).unwrap_err().contains("it has no server"));
        }
        assert!(
            parse("[[server]\n")
                .unwrap_err()
                .starts_with("line 1, column")
        );
    }
}
