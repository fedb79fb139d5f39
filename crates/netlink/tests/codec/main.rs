//! The codec: round trips, another implementation, recorded messages. Needs no privileges.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod captures;
mod events;
mod fpm;
mod oracle;
mod round_trip;
