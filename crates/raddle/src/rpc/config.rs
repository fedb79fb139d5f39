//! The file of `raddle rpc --config`: servers, each in a `[[server]]` of its own.
//!
//! Keys are the options' names, and the options' own parser reads their values: what the command line takes
//! and refuses, the file does.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Args, Command};
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::servers::{listen, name};
use crate::cli::{RpcDaemon, RpcProxy};
use crate::config::pointed;
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
        Some(span) => pointed(text, span, &mistake.to_string()),
        None => mistake.to_string(),
    })
}

/// A mistake, and its place in the text.
struct Wrong {
    mistake: Mistake,
    span: Option<Range<usize>>,
}

impl Mistake {
    fn at(self, span: Range<usize>) -> Wrong {
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

/// What a value is, with its article.
fn kind(value: &Spanned<DeValue<'_>>) -> &'static str {
    match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
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

/// The options that a table's keys are.
fn options<T: Args>(table: &DeTable<'_>, beside: Option<&str>) -> Result<T, Wrong> {
    let command = T::augment_args(
        Command::new("")
            .no_binary_name(true)
            .disable_help_flag(true),
    );
    let mut words = Vec::new();
    for (key, value) in table {
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
            let mistake = Mistake::Key {
                key: key.get_ref().to_string(),
                known: known.join(", "),
            };
            return Err(mistake.at(key.span()));
        };
        let own = spelled(&option, arg, value).map_err(|expected| {
            let mistake = Mistake::Kind {
                key: option.clone(),
                is: kind(value),
                expected,
            };
            mistake.at(value.span())
        })?;
        // Each alone, so that the mistake is that value's.
        for word in &own {
            if let Err(e) = command.clone().try_get_matches_from([word]) {
                let mistake = Mistake::Value {
                    key: option,
                    why: why(&e, arg),
                };
                return Err(mistake.at(place(value, word)));
            }
        }
        words.extend(own);
    }
    let matches = command.try_get_matches_from(words);
    let read = matches.and_then(|matches| T::from_arg_matches(&matches));
    read.map_err(|e| Mistake::Toml(e.to_string().trim().to_owned()).into())
}

/// The place of a word of the command line: of a list, that of its member.
fn place(value: &Spanned<DeValue<'_>>, word: &str) -> Range<usize> {
    let said = word.split_once('=').map_or(word, |(_, said)| said);
    let is = |member: &&Spanned<DeValue<'_>>| match member.get_ref() {
        DeValue::String(text) => text == said,
        DeValue::Integer(number) => number.as_str() == said,
        _ => false,
    };
    let member = value
        .get_ref()
        .as_array()
        .and_then(|list| list.iter().find(is));
    member.map_or(value.span(), Spanned::span)
}

/// Why an option does not take its value, and which ones it takes.
fn why(e: &clap::Error, arg: &Arg) -> String {
    let value = e.get(ContextKind::InvalidValue).map(ToString::to_string);
    let value = value.unwrap_or_default();
    if let Some(ContextValue::Strings(valid)) = e.get(ContextKind::ValidValue) {
        return format!("there is no '{value}'; there are {}", valid.join(", "));
    }
    let Some(source) = std::error::Error::source(e) else {
        let said = e.to_string();
        let first = said.lines().next().unwrap_or_default();
        return first.trim_start_matches("error: ").to_owned();
    };
    let source = source.to_string().replace("..=", " to ");
    let form = arg.get_value_names().and_then(<[_]>::first);
    match form.filter(|form| form.contains("ADDRESS")) {
        Some(form) => format!("'{value}' is no {form}: {source}"),
        None => format!("'{value}' cannot be: {source}"),
    }
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
        (DeValue::Array(_), true) if !matches!(arg.get_action(), ArgAction::Append) => {
            Err("one value")
        }
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
