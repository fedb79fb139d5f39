//! The file of `raddle rpc --config`: servers, each in a `[[server]]` of its own.
//!
//! Keys are the options' names, and the options' own parser reads their values: what the command line takes
//! and refuses, the file does.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use clap::{Arg, Args, Command};
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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
    #[error("line {line}: there is no key '{key}' here; there are {known}")]
    Key {
        line: usize,
        key: String,
        known: String,
    },
    /// A value of the wrong kind.
    #[error("line {line}: {key} is a {is}, and should be {expected}")]
    Kind {
        line: usize,
        key: String,
        is: &'static str,
        expected: &'static str,
    },
    /// A value that the option does not take.
    #[error("line {line}: {key}: {why}")]
    Value {
        line: usize,
        key: String,
        why: String,
    },
    /// A table without a server.
    #[error("line {0}: this [[server]] names none; add server = \"HOST:PORT\"")]
    Nameless(usize),
    /// No table.
    #[error("it has no server: add a table [[server]] with server = \"HOST:PORT\"")]
    NoServer,
    /// Two tables want the same.
    #[error("line {line}: {what} has been taken by the [[server]] in line {before}; {advice}")]
    Twice {
        line: usize,
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

pub(super) fn parse(text: &str) -> Result<File, Mistake> {
    let line = |span: Range<usize>| 1 + text[..span.start].matches('\n').count();
    let table = DeTable::parse(text).map_err(|e| Mistake::Toml(e.to_string().trim().to_owned()))?;
    let table = table.get_ref();
    let daemon = options(table, &line, Some(SERVER))?;
    let tables = match table.get(SERVER) {
        None => return Err(Mistake::NoServer),
        Some(value) => value.get_ref().as_array().ok_or_else(|| Mistake::Kind {
            line: line(value.span()),
            key: SERVER.into(),
            is: value.get_ref().type_str(),
            expected: "a table [[server]]; a server's keys stand below that",
        })?,
    };
    let mut servers: Vec<(RpcProxy, usize)> = Vec::new();
    for value in tables {
        let at = line(value.span());
        let table = value.get_ref().as_table().ok_or(Mistake::NoServer)?;
        let server: RpcProxy = options(table, &line, None)?;
        if server.server.is_none() {
            return Err(Mistake::Nameless(at));
        }
        for (other, before) in &servers {
            apart(&server, other).map_err(|(what, advice)| Mistake::Twice {
                line: at,
                before: *before,
                what,
                advice,
            })?;
        }
        servers.push((server, at));
    }
    if servers.is_empty() {
        return Err(Mistake::NoServer);
    }
    Ok(File {
        daemon,
        servers: servers.into_iter().map(|(server, _)| server).collect(),
    })
}

/// Whether two servers can be served at once; what both have, and what to do.
pub(super) fn apart(a: &RpcProxy, b: &RpcProxy) -> Result<(), (String, &'static str)> {
    let both = |other: &SocketAddr| listen(b).contains(other);
    if let Some(address) = listen(a).iter().find(|address| both(address)) {
        let advice = "give each server a listen of its own, such as 127.0.0.2:2049";
        return Err((format!("listen {address}"), advice));
    }
    if a.server == b.server {
        let server = a.server.as_deref().unwrap_or_default();
        let advice = "one [[server]] serves all exports, on as many listen addresses as you like";
        return Err((format!("server {server}"), advice));
    }
    if name(a) == name(b) {
        return Err((format!("name {}", name(a)), "give one of them another name"));
    }
    Ok(())
}

/// The options that a table's keys are.
fn options<T: Args>(
    table: &DeTable<'_>,
    line: &impl Fn(Range<usize>) -> usize,
    beside: Option<&str>,
) -> Result<T, Mistake> {
    let command = T::augment_args(
        Command::new("")
            .no_binary_name(true)
            .disable_help_flag(true),
    );
    let mut words = Vec::new();
    for (key, value) in table {
        let at = line(key.span());
        if Some(key.get_ref().as_ref()) == beside {
            continue;
        }
        // As in the daemon's file, whose keys have underscores.
        let option = key.get_ref().replace('_', "-");
        let arg = command
            .get_arguments()
            .find(|arg| arg.get_long() == Some(&option));
        let Some(arg) = arg else {
            let known = command.get_arguments().filter_map(Arg::get_long);
            let known: Vec<&str> = known.chain(beside).collect();
            return Err(Mistake::Key {
                line: at,
                key: key.get_ref().to_string(),
                known: known.join(", "),
            });
        };
        let own = spelled(&option, arg, value).map_err(|expected| Mistake::Kind {
            line: at,
            key: option.clone(),
            is: value.get_ref().type_str(),
            expected,
        })?;
        // Alone, so that the mistake is that line's.
        if let Err(e) = command.clone().try_get_matches_from(&own) {
            let said = e.to_string();
            let why = said.lines().next().unwrap_or_default();
            return Err(Mistake::Value {
                line: at,
                key: option,
                why: why.trim_start_matches("error: ").to_owned(),
            });
        }
        words.extend(own);
    }
    let matches = command.try_get_matches_from(words);
    let read = matches.and_then(|matches| T::from_arg_matches(&matches));
    read.map_err(|e| Mistake::Toml(e.to_string().trim().to_owned()))
}

/// A key as words of the command line, or what its value should be.
fn spelled(
    option: &str,
    arg: &Arg,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<String>, &'static str> {
    let takes = arg.get_action().takes_values();
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(format!("--{option}={text}")),
        DeValue::Integer(number) if number.radix() == 10 => {
            Some(format!("--{option}={}", number.as_str()))
        }
        _ => None,
    };
    match (value.get_ref(), takes) {
        (DeValue::Boolean(true), false) => Ok(vec![format!("--{option}")]),
        (DeValue::Boolean(false), false) => Ok(Vec::new()),
        (_, false) => Err("true or false"),
        (DeValue::Array(list), true) => {
            let words = list.iter().map(|value| one(value.get_ref()));
            words.collect::<Option<_>>().ok_or("a list of strings")
        }
        (value, true) => Ok(vec![one(value).ok_or("a string or a number")?]),
    }
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
    fn mistakes_have_their_line_and_key() {
        let one = "[[server]]\nserver = 'a:1'\n";
        for (text, said) in [
            ("", "it has no server"),
            ("server = []", "it has no server"),
            (
                "server = 'a:1'",
                "line 1: server is a string, and should be a table",
            ),
            (
                "[[server]]\nlisten = '127.0.0.1:1'",
                "line 1: this [[server]] names none",
            ),
            (
                "x = 1\n[[server]]\nserver = 'a:1'",
                "line 1: there is no key 'x' here; there are metrics",
            ),
            (
                &format!("{one}mount = 1"),
                "line 3: there is no key 'mount' here; there are name, listen",
            ),
            (
                &format!("{one}connections = 0"),
                "line 3: connections: invalid value '0'",
            ),
            // Behind the rule of table main, which knows a way to every server.
            (
                &format!("{one}replay-table = 32703"),
                "line 3: replay-table: invalid value '32703'",
            ),
            (
                &format!("{one}policy = 'fast'"),
                "line 3: policy: invalid value 'fast'",
            ),
            (
                &format!("{one}no-lane = 1"),
                "line 3: no-lane is a integer, and should be true or false",
            ),
            (
                &format!("{one}memory = true"),
                "line 3: memory is a boolean, and should be a string or a number",
            ),
            (
                &format!("{one}listen = ['a']"),
                "line 3: listen: invalid value 'a'",
            ),
            (
                &format!("{one}memory = [1, 2]"),
                "line 3: memory: the argument '--memory <MIB>' cannot be used",
            ),
            (
                &format!("{one}[[server]]\nserver = 'b:1'"),
                "line 3: listen 127.0.0.1:2049 has been taken by the [[server]] in line 1",
            ),
            (
                &format!("{one}[[server]]\nlisten = '127.0.0.2:1'\nserver = 'a:1'"),
                "line 3: server a:1 has been taken",
            ),
            (
                &format!("{one}[[server]]\nlisten = '127.0.0.2:1'\nserver = 'a:2'"),
                "line 3: name a has been taken",
            ),
            ("[[server]\n", "TOML parse error at line 1"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
