//! Servers that are wanted, and not served yet.

use std::time::{Duration, Instant};

use raddle_rpc::trouble::{Tell, Trouble};
use tokio::task::JoinHandle;
use tracing::field::display;

use crate::resolve;
use crate::{Error, Server};

/// How soon a server that cannot be served is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// What is said of one whose server's name is not known to have an address yet.
const ASKED: &str = "its name is being asked for";
/// What is said of one that waits for its former self.
const ENDS: &str = "its calls under way are answered first";

/// One that is not served yet.
pub(crate) struct Missing {
    pub options: Server,
    /// Why not, and when it was tried last.
    pub why: Option<(Error, Instant)>,
    /// How often it failed, which is not told each time.
    trouble: Trouble,
    /// Its addresses are asked for.
    asked: Option<JoinHandle<Result<resolve::Addresses, Error>>>,
    /// Its addresses, once they are known.
    pub found: Option<resolve::Addresses>,
}

impl Missing {
    /// One that nothing is known of.
    pub(crate) fn new(options: Server) -> Missing {
        Missing {
            options,
            why: None,
            trouble: Trouble::default(),
            asked: None,
            found: None,
        }
    }

    /// Asks for its addresses if that is due, within a [`tokio::task::LocalSet`], and takes them in once they are
    /// there; at the start failures are not logged.
    pub(crate) async fn ask(&mut self, starts: bool) {
        let due = self.why.as_ref().is_none_or(|(_, at)| at.elapsed() > AGAIN);
        match &mut self.asked {
            None if due && self.found.is_none() => {
                let options = self.options.clone();
                let asked = async move { resolve::addresses(&options).await };
                self.asked = Some(tokio::task::spawn_local(asked));
            }
            Some(asked) if asked.is_finished() => {
                match asked.await {
                    Ok(Ok(servers)) => self.found = Some(servers),
                    Ok(Err(failure)) => self.failed(failure, starts),
                    Err(e) => self.failed(e.into(), starts),
                }
                self.asked = None;
            }
            _ => {}
        }
    }

    /// It is served.
    pub(crate) fn works(&mut self) {
        let server = display(&self.options.name);
        match self.trouble.works(0, Instant::now()) {
            None => tracing::info!(server, "served"),
            Some((times, time)) => {
                let seconds = time.as_secs();
                tracing::info!(
                    server,
                    "served, after {seconds} s and {times} attempts in vain"
                );
            }
        }
    }

    /// Why it is not served.
    pub(crate) fn said(&self) -> String {
        match (&self.found, &self.why) {
            (Some(_), _) => ENDS.into(),
            (None, Some((why, _))) => why.to_string(),
            (None, None) => ASKED.into(),
        }
    }

    /// It cannot be served now; at the start nothing is logged, as that may end with this failure, which is printed
    /// then.
    pub(crate) fn failed(&mut self, failure: Error, starts: bool) {
        if !starts {
            self.tell(&failure);
        }
        self.why = Some((failure, Instant::now()));
    }

    /// Others are served, and it is tried again.
    pub(crate) fn others_start(&mut self) {
        if let Some((failure, at)) = self.why.take() {
            self.tell(&failure);
            self.why = Some((failure, at));
        }
    }

    /// Logs it, but not each time.
    fn tell(&mut self, failure: &Error) {
        let (server, again) = (display(&self.options.name), AGAIN.as_secs());
        match self.trouble.failed(0, Instant::now()) {
            None => {}
            Some(Tell::First) => tracing::error!(
                server,
                "not served: {failure}; if others are, it is tried again every {again} s"
            ),
            Some(Tell::Still { times, time }) => {
                let seconds = time.as_secs();
                tracing::error!(
                    server,
                    "still not served after {seconds} s and {times} attempts: {failure}"
                );
            }
        }
    }
}
