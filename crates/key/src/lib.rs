//! The kernel's own key of multipath choices: the one that it goes by while no seed is set
//! (`net.ipv4.fib_multipath_hash_seed`). It is read from the kernel's memory, and proven before it is used.
//!
//! * Since Linux 6.11 it is a seed of 32 bits, drawn at boot, the same for all network namespaces: `mp_seed`.
//! * Before, it is `hashrnd` of the flow dissector, 128 bits, drawn when first used, one for the machine.
//!
//! Without privilege the seed is searched for ([`find()`]) and kept in a file that its owner alone may read ([`cache`]).
//!
//! Who has the key can steer flows: it goes into no log and no other file.

mod bpf;
pub mod cache;
mod code;
mod error;
mod find;
mod hashrnd;
mod mp_seed;
mod namespace;
mod privilege;
mod symbols;

pub use error::Error;
pub use find::{FindError, can_be_found, find, set_seed};
pub use namespace::{Forbidden, NamespaceError};

use raddle_rib::Rib;
use raddle_select::{HashKey, KeyKind};

/// Reads the kernel's own key and proves it. Takes some 50 milliseconds; neither the network namespace of the caller nor
/// any of its settings is touched.
///
/// 1. A kernel whose types have `mp_seed` goes by that, whatever its version: it is read from the running task's network
///    namespace, which is one made for this, and has to predict 32 answers of `RTM_GETROUTE` over 64 paths there.
/// 2. Any other goes by `hashrnd`: each symbol of that name is read, and has to give the flow hashes (all 32 bits) that the
///    kernel computes of random frames. One such hash comes first: until then the key is zero.
/// 3. What proves wrong is not the key.
///
/// # Errors
/// [`Error::NotPermitted`] without `CAP_BPF`, `CAP_PERFMON`, and `CAP_SYS_ADMIN` (1) or `CAP_SYSLOG` (2);
/// [`Error::Lockdown`]; what else there is to say.
///
/// # Minimum kernel version
/// 5.14, for programs that run without an event.
pub fn read() -> Result<HashKey, Error> {
    privilege::require(&[privilege::BPF, privilege::PERFMON])?;
    match mp_seed::place() {
        Ok(Some(place)) => mp_seed::read(place),
        Ok(None) => hashrnd::read(),
        // Without types, the setting tells which key it is.
        Err(why) if std::path::Path::new(mp_seed::SETTING).exists() => Err(why),
        Err(_) => hashrnd::read(),
    }
}

/// The key of the hash that the kernel gives to packets without one ([`raddle_select::Brings`]), as receive packet steering
/// asks for, read and proved as [`read`] does.
///
/// # Errors
/// As [`read`]: [`Error::NotPermitted`] without `CAP_BPF`, `CAP_PERFMON`, `CAP_NET_ADMIN` and `CAP_SYSLOG`.
///
/// # Minimum kernel version
/// 5.14.
pub fn read_software_key() -> Result<HashKey, Error> {
    privilege::require(&[privilege::BPF, privilege::PERFMON])?;
    hashrnd::read()
}

/// Has a mirror of the live kernel go by the kernel's own key where no seed is set: reads it, unless that has been done.
///
/// # Errors
/// Why there is none to go by, as [`read`].
pub fn know(rib: &mut Rib) -> Result<(), Error> {
    if rib.key_kind() == KeyKind::Unknown {
        rib.set_kernel_key(Some(read()?));
    }
    Ok(())
}

/// As [`know`], for who may lack the privilege to read the key: then the one that [`find()`] has found and [`cache`] has kept
/// will do.
///
/// # Errors
/// Why it cannot be read, where none is kept either.
pub fn know_or_recall(rib: &mut Rib) -> Result<(), Error> {
    let Err(why) = know(rib) else { return Ok(()) };
    // A file that is not as it should be is as good as none: `raddle key find` says what is wrong with it.
    match cache::recall() {
        Ok(Some(seed)) => {
            rib.set_kernel_key(Some(seed.into()));
            Ok(())
        }
        Ok(None) | Err(_) => Err(why),
    }
}
