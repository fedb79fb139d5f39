//! The file of `raddle rpc --config`: servers, each in a `[[server]]` of its own. Keys are the names of the command line's
//! options.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use raddle_config::{Address, At, Error, File, OneOrMore, Spanned, Within};
use raddle_rpc::dispatch::Policy;
use serde::de::{Deserializer, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, de};
use thiserror::Error;

use crate::server::{
    HostPort, MAX_CONNECTIONS, MAX_MEMORY, MAX_RECORD, MAX_TABLE, MIN_TABLE, Mark, Numbers, Server,
};

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What is not about servers.
    pub process: Process,
    /// The servers, one at least, that can be served at once.
    pub servers: Vec<Server>,
}

/// What is not about servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// The control socket.
    pub socket: Option<PathBuf>,
    /// Whether the log is in JSON.
    pub log_json: bool,
}

/// What is wrong with servers that the file names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum Mistake {
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

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or what is wrong in it and where.
    pub fn load(path: &Path) -> Result<Config, Error> {
        Config::of(&File::read(path)?)
    }

    /// Reads a file whose text is here.
    ///
    /// # Errors
    /// What is wrong in it, and where.
    pub fn of(file: &File) -> Result<Config, Error> {
        let whole: Whole = file.parse()?;
        let mut servers: Vec<(Server, usize)> = Vec::new();
        for table in whole.server.0 {
            let server = match table.get_ref().server() {
                Some(server) => server,
                None => return Err(file.error_at(At::new(&table, Mistake::Nameless))),
            };
            for (other, before) in &servers {
                let Some(Both { key, what, advice }) = both(&server, other) else {
                    continue;
                };
                let before = *before;
                let mistake = Mistake::Twice {
                    before,
                    what,
                    advice,
                };
                // Where it is what the key is by default, the table itself.
                let of = table.get_ref();
                let at = match key {
                    Key::Listen => of.listen.as_ref().map(Spanned::span),
                    Key::Server => of.server.as_ref().map(Spanned::span),
                    Key::Name => of.name.as_ref().map(Spanned::span),
                };
                return Err(file.error_at(At {
                    error: mistake,
                    span: at.unwrap_or_else(|| table.span()),
                }));
            }
            servers.push((server, file.line_of(&table)));
        }
        if servers.is_empty() {
            return Err(file.error(Mistake::NoServer));
        }
        Ok(Config {
            process: Process {
                metrics: whole.metrics.map(|Address(address)| address),
                socket: whole.socket,
                log_json: whole.log_json,
            },
            servers: servers.into_iter().map(|(server, _)| server).collect(),
        })
    }
}

/// The file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Whole {
    metrics: Option<Address>,
    socket: Option<PathBuf>,
    log_json: bool,
    server: Tables,
}

/// The tables of servers.
#[derive(Default)]
struct Tables(Vec<Spanned<Table>>);

impl<'de> Deserialize<'de> for Tables {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Tables, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Tables;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table [[server]]; a server's keys stand below that")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tables, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                Ok(Tables(all))
            }
        }
        d.deserialize_seq(List)
    }
}

/// A `[[server]]`.
#[derive(Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    rename_all = "kebab-case",
    expecting = "a table [[server]]"
)]
struct Table {
    name: Option<Spanned<String>>,
    listen: Option<Spanned<OneOrMore<Address>>>,
    server: Option<Spanned<Host>>,
    server_addresses: OneOrMore<Ip>,
    local_addresses: OneOrMore<Ip>,
    mount_port: Option<u16>,
    connections: Option<Within<1, { MAX_CONNECTIONS as u32 }>>,
    no_lane: bool,
    policy: Option<Word>,
    no_placement: bool,
    privileged_ports: bool,
    replay_table: Option<Within<MIN_TABLE, MAX_TABLE>>,
    replay_mark: Option<FirstMark>,
    no_replay_routes: bool,
    memory: Option<Within<1, MAX_MEMORY>>,
    max_record: Option<Within<1, MAX_RECORD>>,
}

impl Table {
    /// What it says, if it names a server.
    fn server(&self) -> Option<Server> {
        let Host(server) = self.server.as_ref()?.get_ref();
        let usual = Server::new(server.clone());
        let numbers = Numbers::default();
        let ips = |list: &OneOrMore<Ip>| list.0.iter().map(|ip| ip.0).collect();
        let listen: Vec<SocketAddr> = match &self.listen {
            Some(list) => list.get_ref().0.iter().map(|address| address.0).collect(),
            None => Vec::new(),
        };
        Some(Server {
            name: self
                .name
                .as_ref()
                .map_or(usual.name, |name| name.get_ref().clone()),
            listen: match listen.is_empty() {
                true => usual.listen,
                false => listen,
            },
            server: usual.server,
            server_addresses: ips(&self.server_addresses),
            local_addresses: ips(&self.local_addresses),
            mount_port: self.mount_port,
            connections: self
                .connections
                .map_or(usual.connections, |Within(count)| count as u16),
            lane: !self.no_lane,
            policy: self.policy.map_or(usual.policy, Policy::from),
            placement: !self.no_placement,
            privileged_ports: self.privileged_ports,
            replay_routes: (!self.no_replay_routes).then_some(Numbers {
                table: self
                    .replay_table
                    .map_or(numbers.table, |Within(table)| table),
                mark: self
                    .replay_mark
                    .map_or(numbers.mark, |FirstMark(mark)| mark),
            }),
            memory: self.memory.map_or(usual.memory, |Within(mib)| mib),
            max_record: self.max_record.map_or(usual.max_record, |Within(mib)| mib),
        })
    }
}

/// How connections are chosen.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    RoundRobin,
    LeastBytes,
    Hash,
}

impl From<Word> for Policy {
    fn from(word: Word) -> Policy {
        match word {
            Word::RoundRobin => Policy::RoundRobin,
            Word::LeastBytes => Policy::LeastBytes,
            Word::Hash => Policy::Hash,
        }
    }
}

/// A server's name or address, and port.
#[derive(Clone)]
struct Host(HostPort);

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Host, D::Error> {
        d.deserialize_str(Text::of("HOST[:PORT]")).map(Host)
    }
}

/// An address without a port.
#[derive(Clone, Copy)]
struct Ip(IpAddr);

impl<'de> Deserialize<'de> for Ip {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Ip, D::Error> {
        d.deserialize_str(Text::of("ADDRESS")).map(Ip)
    }
}

/// Reads a text of this form; a mistake has the place of the text, also within a list.
struct Text<T> {
    form: &'static str,
    read: PhantomData<T>,
}

impl<T> Text<T> {
    fn of(form: &'static str) -> Text<T> {
        Text {
            form,
            read: PhantomData,
        }
    }
}

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in quotes", self.form)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let wrong = |e| E::custom(format_args!("'{text}' is no {}: {e}", self.form));
        text.parse().map_err(wrong)
    }
}

/// A number, or one in quotes by `0x`.
#[derive(Clone, Copy)]
struct FirstMark(Mark);

impl<'de> Deserialize<'de> for FirstMark {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<FirstMark, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = FirstMark;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mark, 1 to 0xffffff00")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<FirstMark, E> {
                let mark = u32::try_from(number).ok();
                let mark = mark.and_then(|mark| Mark::try_from(mark).ok());
                let wrong = || E::invalid_value(Unexpected::Signed(number), &self);
                mark.map(FirstMark).ok_or_else(wrong)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<FirstMark, E> {
                let wrong = |_| E::invalid_value(Unexpected::Str(text), &self);
                text.parse().map(FirstMark).map_err(wrong)
            }
        }
        d.deserialize_any(Number)
    }
}

/// What two servers cannot both have.
struct Both {
    key: Key,
    what: String,
    advice: &'static str,
}

/// Where it stands.
enum Key {
    Listen,
    Server,
    Name,
}

/// Why two servers cannot be served at once, if they cannot.
fn both(a: &Server, b: &Server) -> Option<Both> {
    let both = |other: &&SocketAddr| b.listen.contains(other);
    if let Some(address) = a.listen.iter().find(both) {
        return Some(Both {
            key: Key::Listen,
            what: format!("listen {address}"),
            advice: "give each server a listen of its own, such as 127.0.0.2:2049",
        });
    }
    if a.server == b.server {
        return Some(Both {
            key: Key::Server,
            what: format!("server {}", a.server),
            advice: "one [[server]] serves all exports, on as many listen addresses as you like",
        });
    }
    (a.name == b.name).then(|| Both {
        key: Key::Name,
        what: format!("name {}", a.name),
        advice: "give one of them another name",
    })
}

/// A file with this text.
#[cfg(test)]
pub(crate) fn parse(text: &str) -> Result<Config, Error> {
    Config::of(&File::new("rpc.toml", text))
}

#[cfg(test)]
mod tests;
