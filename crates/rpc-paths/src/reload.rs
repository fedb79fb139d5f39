//! The configuration file's being read: what has changed by it, and when it was refused.

use std::path::PathBuf;
use std::time::Instant;

use raddle_control::{ProxyConfig, RefusedConfig};

use crate::Server;

/// The file, and how reading it went.
#[derive(Clone, Debug)]
pub(crate) struct Reads {
    file: PathBuf,
    /// When what holds was read.
    read: Instant,
    /// When it was read last and refused, and why; what was read before holds.
    refused: Option<(Instant, String)>,
}

impl Reads {
    /// It has been read for the first time.
    pub(crate) fn first(file: PathBuf, now: Instant) -> Reads {
        Reads {
            file,
            read: now,
            refused: None,
        }
    }

    /// It has been read again.
    pub(crate) fn again(&mut self, now: Instant) {
        (self.read, self.refused) = (now, None);
    }

    /// It was read again and refused, and why.
    pub(crate) fn refused(&mut self, why: String, now: Instant) {
        self.refused = Some((now, why));
    }

    /// What is to be said of it.
    pub(crate) fn said(&self, now: Instant) -> ProxyConfig {
        let seconds = |at: Instant| now.saturating_duration_since(at).as_secs();
        ProxyConfig {
            file: self.file.display().to_string(),
            read_seconds: seconds(self.read),
            refused: self.refused.as_ref().map(|(at, why)| RefusedConfig {
                seconds: seconds(*at),
                why: why.clone(),
            }),
        }
    }
}

/// What another configuration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    pub unchanged: Vec<String>,
}

impl Change {
    /// From what there was to what is wanted.
    pub(crate) fn between(before: &[Server], wanted: &[Server]) -> Change {
        let mut change = Change::default();
        for options in wanted {
            let old = before.iter().find(|old| old.name == options.name);
            let list = match old {
                None => &mut change.added,
                Some(old) if old == options => &mut change.unchanged,
                Some(_) => &mut change.changed,
            };
            list.push(options.name.clone());
        }
        let gone = before
            .iter()
            .filter(|old| !wanted.iter().any(|options| options.name == old.name));
        change.removed = gone.map(|old| old.name.clone()).collect();
        change
    }

    /// In a line; `refused` are those that are wanted and not served, and why.
    pub(crate) fn line(&self, refused: &[(String, String)]) -> String {
        let refused: Vec<String> = refused
            .iter()
            .map(|(name, why)| format!("{name} ({why})"))
            .collect();
        let lists = [
            ("added", &self.added),
            ("changed", &self.changed),
            ("removed", &self.removed),
            ("unchanged", &self.unchanged),
            ("not served", &refused),
        ];
        let said = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let said: Vec<String> = said
            .map(|(what, list)| format!("{what}: {}", list.join(", ")))
            .collect();
        format!("configuration read again; {}", said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::parse;

    fn servers(of: &str) -> Vec<Server> {
        let tables = of.split(' ').enumerate().map(|(i, of)| {
            let (name, connections) = of.split_once('=').unwrap();
            format!(
                "[[server]]\nserver = '{name}:2049'\nlisten = '127.0.0.{i}:1'\nconnections = {connections}\n"
            )
        });
        parse(&tables.collect::<String>()).unwrap().servers
    }

    #[test]
    fn a_line_names_what_has_changed() {
        let change = Change::between(&servers("a=1 b=1 c=1"), &servers("a=1 b=2 d=1 e=1"));
        let refused = [(
            "e".to_owned(),
            "cannot listen on 127.0.0.3:1: Permission denied".to_owned(),
        )];
        assert_eq!(
            change.line(&refused),
            "configuration read again; added: d, e; changed: b; removed: c; unchanged: a; \
             not served: e (cannot listen on 127.0.0.3:1: Permission denied)"
        );
        let same = Change::between(&servers("a=1"), &servers("a=1"));
        assert_eq!(same.line(&[]), "configuration read again; unchanged: a");
    }

    #[test]
    fn a_refused_file_leaves_what_was_read_before() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut reads = Reads::first("/etc/raddle/rpc.toml".into(), start);
        reads.refused("line 3".into(), at(10));
        let said = reads.said(at(12));
        assert_eq!(said.read_seconds, 12);
        let refused = said.refused.unwrap();
        assert_eq!((refused.seconds, refused.why.as_str()), (2, "line 3"));
        reads.again(at(20));
        let said = reads.said(at(21));
        assert_eq!((said.read_seconds, said.refused), (1, None));
    }
}
