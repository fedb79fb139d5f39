//! Servers that are wanted, and not served yet.

use std::time::{Duration, Instant};

use raddle_rpc::trouble::{Tell, Trouble};
use tokio::task::JoinHandle;
use tracing::field::display;

use super::resolve;
use super::servers::name;
use crate::cli::RpcProxy;
use crate::error::Failure;

/// How soon a server that cannot be served is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(10);
/// What is said of one whose server's name is not known to have an address yet.
const ASKED: &str = "its name is being asked for";

/// One that is not served yet.
pub(super) struct Missing {
    pub args: RpcProxy,
    /// Why not, and when it was tried last.
    pub why: Option<(Failure, Instant)>,
    /// How often it failed, which is not told each time.
    pub trouble: Trouble,
    /// Its addresses are asked for.
    pub asked: Option<JoinHandle<Result<resolve::Servers, Failure>>>,
}

impl Missing {
    /// One that nothing is known of.
    pub(super) fn new(args: RpcProxy) -> Missing {
        Missing {
            args,
            why: None,
            trouble: Trouble::default(),
            asked: None,
        }
    }

    /// Why it is not served.
    pub(super) fn said(&self) -> String {
        let why = self.why.as_ref();
        why.map_or_else(|| ASKED.into(), |(why, _)| why.to_string())
    }

    /// It cannot be served now; at the start nothing is logged, as that may end with this failure, which is printed
    /// then.
    pub(super) fn failed(&mut self, failure: Failure, starts: bool) {
        if !starts {
            self.tell(&failure);
        }
        self.why = Some((failure, Instant::now()));
    }

    /// Others are served, and it is tried again.
    pub(super) fn others_start(&mut self) {
        if let Some((failure, at)) = self.why.take() {
            self.tell(&failure);
            self.why = Some((failure, at));
        }
    }

    /// Logs it, but not each time.
    fn tell(&mut self, failure: &Failure) {
        let (server, again) = (display(name(&self.args)), AGAIN.as_secs());
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
