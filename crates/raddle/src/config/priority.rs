//! The priority of the threads that follow the kernel.

/// Before whom the daemon's threads that follow the kernel get a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Priority {
    /// Before all that have no real-time priority themselves.
    #[default]
    Realtime,
    /// Before most, most of the time: nice -15.
    Nice,
    /// Before nobody.
    None,
}

impl Priority {
    /// Its name in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Priority::Realtime => "realtime",
            Priority::Nice => "nice",
            Priority::None => "none",
        }
    }
}
