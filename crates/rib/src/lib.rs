//! The mirrored routing state and its meaning.
//!
//! [`event`] has the typed facts that the kernel (or a snapshot) tells us; [`image`] is the
//! compiled form that every engine reads.

pub mod event;
pub mod image;
mod reason;

pub use reason::Reason;
