//! What holds for all packets.

use crate::numbers::numbers;
use std::mem::{offset_of, size_of};

/// Everything that holds for all packets. One in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// [`MAGIC`](super::MAGIC) once the image is complete.
    pub magic: u64,
    /// [`config_flags`].
    pub flags: u32,
    /// Stands for the key: `fib_multipath_hash_seed`, or a number of the kernel's own key; 0 where none is known.
    pub seed: u32,
    /// IPv4 hash policy 0..=3.
    pub policy4: u8,
    /// IPv6 hash policy 0..=3.
    pub policy6: u8,
    /// IPv4 hash fields, for policy 3.
    pub fields4: u16,
    /// IPv6 hash fields.
    pub fields6: u16,
    /// Zero.
    pub pad: [u8; 2],
    /// `CLOCK_MONOTONIC` nanoseconds after which the image is too old to be used; 0 for never.
    pub deadline: u64,
    /// SipHash state (v0..v3) with the key, before any message word.
    pub sip_key: [u64; 4],
    /// SipHash state after the first three message words of a flow key with flow label 0, by
    /// protocol number: what is left to absorb are ports and addresses.
    pub sip_mid: [[u64; 4]; 256],
    /// Key of the SipHash by which flow labels are made of flows' hashes: drawn, so that labels, which everybody on the way sees, tell
    /// nothing of the other key.
    pub label_key: [u64; 2],
    /// Key of the SipHash of the packet inside by which source ports of UDP tunnels are chosen: the kernel's (`hashrnd`) where it is
    /// known, else drawn.
    pub port_key: [u64; 2],
}

/// The part of [`Config`] that is looked at for every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigHead {
    /// [`MAGIC`](super::MAGIC) once the image is complete.
    pub magic: u64,
    /// [`config_flags`].
    pub flags: u32,
    /// Stands for the key: `fib_multipath_hash_seed`, or a number of the kernel's own key; 0 where none is known.
    pub seed: u32,
    /// IPv4 hash policy.
    pub policy4: u8,
    /// IPv6 hash policy.
    pub policy6: u8,
    /// IPv4 hash fields.
    pub fields4: u16,
    /// IPv6 hash fields.
    pub fields6: u16,
    /// See [`Config::deadline`].
    pub deadline: u64,
}

numbers! {
    /// Flags of [`Config`].
    pub mod config_flags: u32, "CONFIG" {
        /// Punt everything.
        HOLD = 1,
        /// The key is known, so multipath choices can be made.
        SEED_KNOWN = 2,
        /// Punt what is in several buffers: the kernel or the driver of an out-link loses what is redirected of that.
        ONE_BUFFER = 4,
    }
}

const _: () = assert!(size_of::<Config>() == 64 + 256 * 32 + 32);
const _: () = assert!(offset_of!(Config, sip_key) == 32 && offset_of!(Config, sip_mid) == 64);
