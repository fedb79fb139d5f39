//! What happened to links, in order: whom the kernel gave shares last, and which IPv4 routes it took away without a word,
//! follows from that until routes are read again.

/// Something that happened to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// It went.
    Gone,
    /// It went down, or lost its last IPv4 address: IPv4 routes that had no other link are taken away, and nexthops over it
    /// are marked as dead (`fib_sync_down_dev`).
    Down,
    /// It came up, or got an IPv4 address: that mark goes (`fib_sync_up`).
    Up,
    /// It came up or went down, or its carrier came or went: shares are cut anew.
    Changed,
    /// `ignore_routes_with_linkdown` changed while it had no carrier: shares are not cut anew.
    SettingChanged,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct History {
    log: Vec<(u32, Happened)>,
    /// How long the log was when the last complete dump of IPv4 routes began, and when the one began that runs.
    read: usize,
    reading: Option<usize>,
}

impl History {
    pub(super) fn note(&mut self, link: u32, what: Happened) {
        self.log.push((link, what));
    }

    pub(super) fn reading_begins(&mut self) {
        self.reading = Some(self.log.len());
    }

    pub(super) fn reading_ends(&mut self) {
        if let Some(began) = self.reading.take() {
            self.read = began;
        }
    }

    /// The last of these that happened to a link from there on.
    fn last(&self, from: usize, link: u32, of: &[Happened]) -> Option<Happened> {
        let of_link = self.log[from..].iter().filter(|(on, _)| *on == link);
        let mut wanted = of_link.map(|(_, what)| *what).filter(|w| of.contains(w));
        wanted.next_back()
    }

    /// Whether IPv4 routes over this link may have gone without a word.
    pub(super) fn took_routes(&self, link: u32) -> bool {
        let down = [Happened::Gone, Happened::Down];
        self.last(self.read, link, &down).is_some()
    }

    /// Whether nexthops over it live again that were read as dead.
    pub(super) fn is_back(&self, link: u32) -> bool {
        let of = [Happened::Gone, Happened::Down, Happened::Up];
        self.last(self.read, link, &of) == Some(Happened::Up)
    }

    /// Whether the kernel's marks of nexthops over it may be others than were read.
    pub(super) fn has_changed(&self, link: u32) -> bool {
        let of = [Happened::Gone, Happened::Changed];
        self.last(self.read, link, &of) == Some(Happened::Changed)
    }

    /// Whether shares were cut by another setting than there is now.
    pub(super) fn is_cut_otherwise(&self, link: u32) -> bool {
        let of = [Happened::Gone, Happened::Changed, Happened::SettingChanged];
        self.last(0, link, &of) == Some(Happened::SettingChanged)
    }
}
