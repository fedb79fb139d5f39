//! The answer to [`Command::Routes`].

use raddle_rib::event::Route;
use serde::{Deserialize, Serialize};

use crate::{Answer, Command};

/// Routes that the daemon has and the kernel does not: local SIDs and encapsulations of its configuration, and FPM
/// routes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Routes {
    /// The routes.
    pub routes: Vec<Route>,
    /// How many more there are: there may be millions.
    pub more: u64,
}

impl Answer for Routes {
    const COMMAND: Command = Command::Routes;
}
