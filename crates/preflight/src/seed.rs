//! The seed of the kernel's choices among several paths: whether it can be set.

use std::path::Path;

use raddle_select::KernelVersion;

/// Where it is set.
///
/// # Minimum kernel version
/// 6.11
pub const SETTING: &str = "/proc/sys/net/ipv4/fib_multipath_hash_seed";

/// What there is to say where the seed cannot be set; behind "this kernel".
pub const CANNOT_BE_SET: &str = KernelVersion::WITHOUT_HASH_SEED;

/// Whether the running kernel has a seed that can be set. The setting itself is looked for:
/// distributions bring such things to older versions.
pub fn can_be_set() -> bool {
    Path::new(SETTING).exists()
}
