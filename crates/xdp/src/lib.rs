//! The XDP engine: forwards by the image inside the kernel, before the network stack.
//!
//! [`Engine`] loads the program (`bpf/raddle.bpf.c`), maps the image's memory into this process,
//! so that whatever `rib` stores is what the program reads, and attaches it to links.
//!
//! A link that is attached is held by this process: when the process ends, in whatever way, the
//! kernel detaches the program and forwards by itself. That is the default because it can never
//! leave a program behind that forwards by an image nobody keeps. [`Engine::pin`] is the other
//! choice: the program goes on without a daemon until the image's deadline passes, and
//! [`Engine::recover`] takes it over again.
//!
//! # Minimum kernel version
//! 6.1. Native mode of multi-buffer frames needs 5.18, and links need 5.9.

mod attach;
pub mod bench;
mod counters;
mod engine;
mod error;
mod features;
mod grace;
mod losses;
mod mapping;
mod object;
mod pin;
mod room;
mod rx_hash;
mod sys;
mod test_run;
mod wanted;

pub use attach::{AttachedMode, Mode};
pub use counters::{Counter, Counters, SegmentCounts};
pub use engine::{Engine, LoadOptions, ProgramSize, Srv6Plan, Srv6Programs};
pub use error::{Error, NoLosses, NoRxHash, Result};
pub use features::{
    Features, can_receive_redirects, features, has_own_program, has_program, offers_rx_hash,
};
pub use grace::grace;
pub use losses::{Loss, Losses};
pub use pin::pins_are_dead;
pub use room::check_capacity;
pub use test_run::{NO_ADJACENCY, TestOutput, Verdict};
pub use wanted::WantedPlaces;
