//! The servers that are served: each has a proxy of its own, with its own connections, segments and memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use raddle_control::{Proxy, Serving};
use tokio::task::JoinHandle;

use crate::missing::Missing;
use crate::reload::Change;
use crate::served::Served;
use crate::{Error, Server};

/// How long what a new configuration changes waits for that.
const SAID: Duration = Duration::from_secs(5);
/// How often it is looked whether servers have been found at the start, and whether what ends has ended.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

/// All that are served, or should be.
#[derive(Default)]
pub struct Servers {
    served: Vec<Served>,
    missing: Vec<Missing>,
    /// The names of those that end, and what ends them.
    ending: Vec<(String, JoinHandle<()>)>,
    /// What journals' names begin with.
    journals: PathBuf,
    /// Whether it was found out of all that were wanted first whether they can be served.
    started: bool,
    /// What has changed, until it is known which of those can be served.
    change: Option<(Change, Instant)>,
}

impl Servers {
    /// Starts to serve these; journals' names begin with `journals`. One that cannot be served now holds up no others, and is tried again.
    ///
    /// # Errors
    /// Why none of them can be, or what is wrong with one for good (exit code 2).
    pub async fn start(wanted: Vec<Server>, journals: PathBuf) -> Result<Servers, Error> {
        let mut servers = Servers {
            journals,
            ..Servers::default()
        };
        let several = wanted.len() > 1;
        servers.want(wanted).await;
        while servers.missing.iter().any(|missing| missing.why.is_none()) {
            tokio::time::sleep(LOOK).await;
            servers.tend().await;
        }
        let fatal = |failure: &Error| failure.is_usage() || servers.served.is_empty();
        let mut missing = servers.missing.iter_mut();
        let failed = missing.find_map(|missing| {
            let (failure, _) = missing.why.take_if(|(failure, _)| fatal(failure))?;
            Some((missing.options.name.clone(), failure))
        });
        match failed {
            Some((name, failure)) if several => Err(Error::OfServer {
                name,
                source: Box::new(failure),
            }),
            Some((_, failure)) => Err(failure),
            None => {
                servers.started = true;
                servers.missing.iter_mut().for_each(Missing::others_start);
                Ok(servers)
            }
        }
    }

    /// Ends all in order.
    pub async fn drain(mut self) {
        for served in std::mem::take(&mut self.served) {
            self.end(served).await;
        }
        for (_, task) in self.ending.drain(..) {
            let _ = task.await;
        }
    }

    /// Ends one in order while the others go on; its listeners are closed at once.
    async fn end(&mut self, mut served: Served) {
        served.close().await;
        let name = served.options.name.clone();
        let task = tokio::task::spawn_local(served.end());
        self.ending.push((name, task));
    }

    /// Bytes of calls and replies that are kept now.
    pub fn kept(&self) -> usize {
        self.served.iter().map(|served| served.proxy.kept()).sum()
    }

    /// Serves these from now on, and logs what that changes as soon as it is known which of them can be served.
    pub async fn change_to(&mut self, wanted: Vec<Server>) {
        let missing = self.missing.iter().map(|missing| &missing.options);
        let served = self.served.iter().map(|served| &served.options);
        let mut before: Vec<Server> = missing.cloned().collect();
        for options in served {
            // Of one that is to be changed still, what is wanted counts.
            if !before.iter().any(|other| other.name == options.name) {
                before.push(options.clone());
            }
        }
        let change = Change::between(&before, &wanted);
        self.want(wanted).await;
        self.change = Some((change, Instant::now()));
    }

    /// Logs what has changed, once it is known which servers can be served, or takes longer to be found out.
    fn tell_change(&mut self) {
        let asked = self.missing.iter().any(|missing| missing.why.is_none());
        let due = |(_, at): &mut (Change, Instant)| !asked || at.elapsed() > SAID;
        let Some((change, _)) = self.change.take_if(due) else {
            return;
        };
        let missing = self
            .missing
            .iter()
            .map(|missing| (missing.options.name.clone(), missing.said()));
        let refused: Vec<(String, String)> = missing.collect();
        tracing::info!("{}", change.line(&refused));
    }

    /// Those that are as before go on; a changed one goes on as it is until its server has been found, and then
    /// ends and starts.
    async fn want(&mut self, wanted: Vec<Server>) {
        for served in std::mem::take(&mut self.served) {
            match wanted
                .iter()
                .any(|options| options.name == served.options.name)
            {
                true => self.served.push(served),
                false => {
                    tracing::info!(server = display(&served.options.name), "no longer served");
                    self.end(served).await;
                }
            }
        }
        self.missing
            .retain(|missing| wanted.contains(&missing.options));
        for options in wanted {
            let known = self.served.iter().map(|served| &served.options);
            let mut known = known.chain(self.missing.iter().map(|missing| &missing.options));
            if !known.any(|known| *known == options) {
                self.missing.push(Missing::new(options));
            }
        }
    }

    /// Goes on with those that are not served.
    pub async fn tend(&mut self) {
        for missing in &mut self.missing {
            missing.ask(!self.started).await;
        }
        for number in 0..self.missing.len() {
            // Its listeners may be wanted again.
            let missing = &self.missing[number];
            let of = missing.options.name.clone();
            let before = self.served.iter().position(|s| s.options.name == of);
            if let Some(before) = before.filter(|_| missing.found.is_some()) {
                tracing::info!(
                    server = display(&of),
                    "stops, to start again as the configuration has it now"
                );
                let before = self.served.swap_remove(before);
                self.end(before).await;
            }
        }
        self.ending.retain(|(_, task)| !task.is_finished());
        let mut waiting = Vec::new();
        for mut missing in std::mem::take(&mut self.missing) {
            // Its calls and its journal are the former one's until that has ended.
            let ends = self
                .ending
                .iter()
                .any(|(name_of, _)| *name_of == missing.options.name);
            let found = missing.found.take_if(|_| !ends);
            let started = found
                .map(|servers| Served::start(missing.options.clone(), servers, &self.journals));
            match started {
                Some(Ok(served)) => {
                    missing.works();
                    self.served.push(served);
                }
                Some(Err(failure)) => {
                    missing.failed(failure, !self.started);
                    waiting.push(missing);
                }
                None => waiting.push(missing),
            }
        }
        self.missing = waiting;
        self.tell_change();
    }

    /// Why a listener has ended, if one has.
    pub async fn ended(&mut self) -> Option<Error> {
        for served in &mut self.served {
            for task in &mut served.serving {
                if task.is_finished() {
                    return Some(match task.await {
                        Ok(Err(e)) => Error::Accept(e),
                        _ => Error::ListenerEnded,
                    });
                }
            }
        }
        None
    }

    /// What each of them does, by name.
    pub fn status(&self) -> Vec<Proxy> {
        let proxy = |options: &Server, serving| Proxy {
            name: options.name.clone(),
            server: Some(options.server.to_string()),
            listen: options.listen.clone(),
            serving,
        };
        let served = self.served.iter();
        let is_served = |options: &Server| {
            let mut names = self.served.iter().map(|served| &served.options.name);
            names.any(|served| *served == options.name)
        };
        let missing = self
            .missing
            .iter()
            .filter(|missing| !is_served(&missing.options));
        let mut all: Vec<Proxy> = served
            .map(|served| {
                proxy(
                    &served.options,
                    Serving::Yes(Box::new(served.proxy.status())),
                )
            })
            .chain(missing.map(|missing| {
                let not_served = missing.said();
                proxy(&missing.options, Serving::Not { not_served })
            }))
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
