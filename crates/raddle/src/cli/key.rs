//! `raddle key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What there is to do with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Find the hash seed by which this kernel chooses while none is set, without privilege, and keep it for this user
    /// until the machine starts again (Linux 6.11)
    #[command(after_help = FIND_HELP)]
    Find(KeyFind),
}

const FIND_HELP: &str = "\
All 2^32 seeds are tried, which takes up to a minute of two processors. Then explain, ports, what-if and spread predict
this machine for the same user. Who has the key can send flows that all take one path: it is shown with --show-key only.

A file of --observations says what another router (Linux 6.11 or later) did with flows, some 20 over 4 links:

  policy = 1                # its fib_multipath_hash_policy; with 3 say
                            # fields = N, too: its fib_multipath_hash_fields

  [[route]]                 # paths in its own order; any number of routes
  paths = [ { link = \"eth1\" }, { link = \"eth2\", weight = 2 } ]
  flows = [
    { src = \"10.0.0.1\", dst = \"198.18.0.9\", proto = 6, sport = 40000, dport = 443, took = \"eth1\" },
  ]

With --out, explain --peers, ports plan --peers and spread --tier router=FILE,... go by what is found. Routes may say what they are to there:
to = [ \"198.18.0.0/15\" ].";

/// `raddle key find`.
#[derive(Debug, Args)]
pub(crate) struct KeyFind {
    /// Find the seed of another router, by the links that flows took there; nothing is kept
    #[arg(long, value_name = "FILE")]
    pub observations: Option<PathBuf>,
    /// Write the file of --observations once more, with the seed, for its owner alone (mode 0600): the router as other
    /// commands take it
    #[arg(short, long, value_name = "FILE", requires = "observations")]
    pub out: Option<PathBuf>,
    /// JSON instead of text: the seed is there with --show-key
    #[arg(short, long)]
    pub json: bool,
    /// Print the key
    #[arg(long)]
    pub show_key: bool,
}
