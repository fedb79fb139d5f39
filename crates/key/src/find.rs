//! Finding the seed without privilege: by what the kernel answers in a namespace of one's own.

use raddle_key_search::{Found, Observation, Progress, Search};
use raddle_select::Seed;

use crate::error::Error;
use crate::mp_seed::{Oracle, QUESTIONS, SETTING, uppers};
use crate::namespace::{self, NamespaceError};

/// Why the seed was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// There is no seed.
    #[error(
        "the kernel's own hash key cannot be searched for: it has 128 bits before Linux 6.11; root can read it (raddle run, sudo \
         raddle explain)"
    )]
    NoSeed,
    /// There is no namespace to ask in.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// No seed fits.
    #[error(
        "no seed gives what this kernel does, so it chooses otherwise than Linux 6.11 and newer; please report this with the \
         output of uname -a"
    )]
    NotFound,
    /// The search was ended.
    #[error("the search was ended before it had found anything")]
    Ended,
}

/// An oracle in a network namespace of one's own.
///
/// # Errors
/// [`FindError::NoSeed`], [`FindError::Namespace`].
pub(crate) fn oracle() -> Result<Oracle, FindError> {
    if !can_be_found() {
        return Err(FindError::NoSeed);
    }
    let made = Oracle::new(namespace::socket()?);
    made.map_err(|e| match e.errno() {
        // The namespace is there, and its privileges are not: AppArmor's way.
        Some(errno @ (libc::EPERM | libc::EACCES)) => namespace::forbidden(errno).into(),
        _ => FindError::Namespace(e.into()),
    })
}

/// Whether the kernel has a seed, which [`find`] finds.
///
/// # Minimum kernel version
/// 6.11.
pub fn can_be_found() -> bool {
    std::path::Path::new(SETTING).exists()
}

/// Finds the kernel's own seed, without privilege and whether or not a seed is set: which path the kernel gives to 32 flows in
/// a network namespace made for this tells which of all seeds it is. Takes up to a minute of all processors; `go_on` is told
/// how far the search is, and ends it with false.
///
/// # Errors
/// [`FindError`].
///
/// # Minimum kernel version
/// 6.11.
pub fn find(go_on: impl FnMut(Progress) -> bool) -> Result<Seed, FindError> {
    let search = Search::new(observe(&mut oracle()?)?);
    match search.run(go_on) {
        Found::One(seed) => Ok(seed),
        Found::Ended => Err(FindError::Ended),
        Found::None | Found::Several { .. } => Err(FindError::NotFound),
    }
}

/// The seed that is set in this network namespace, which everybody on the machine may read; none where none is, or there is
/// no such setting.
pub fn set_seed() -> Option<Seed> {
    let text = std::fs::read_to_string(SETTING).ok()?;
    Seed::new(text.trim().parse().ok()?)
}

/// What the kernel answers.
pub(crate) fn observe(oracle: &mut Oracle) -> Result<Vec<Observation>, FindError> {
    let uppers = uppers();
    let mut observations = Vec::new();
    for question in 0..QUESTIONS {
        let answer = oracle.ask(question).map_err(NamespaceError::from)?;
        let Some((keys, path)) = answer else {
            return Err(FindError::NotFound);
        };
        observations.push(Observation::of_member(&keys, &uppers, |member| {
            member == path
        }));
    }
    Ok(observations)
}

/// Whether the kernel goes by this seed.
pub(crate) fn is_right(seed: Seed) -> Result<bool, FindError> {
    match oracle()?.prove(seed.into()) {
        Ok(()) => Ok(true),
        Err(Error::Netlink(e)) => Err(FindError::Namespace(e.into())),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all seeds near the one that root reads, that one.
    #[test]
    fn what_is_found_is_what_is_read() {
        let key = match crate::read() {
            Ok(key) if std::path::Path::new(SETTING).exists() => key,
            Ok(_) => return eprintln!("skipped: this kernel has no seed"),
            Err(e) => return eprintln!("skipped: {e}"),
        };
        let mut oracle = match oracle() {
            Ok(oracle) => oracle,
            Err(e) => return eprintln!("skipped: {e}"),
        };
        let observations = observe(&mut oracle).unwrap();
        let (low, high) = (
            key.number().saturating_sub(5000),
            key.number().saturating_add(5000),
        );
        let found = Search::new(observations).among(low..high).run(|_| true);
        let Found::One(seed) = found else {
            panic!("no seed was found");
        };
        assert!(key == seed.into());
        assert!(is_right(seed).unwrap());
        let other = Seed::new(seed.get() ^ 2).unwrap();
        assert!(!is_right(other).unwrap());
        match std::env::var_os("RADDLE_SEARCH_ALL") {
            Some(_) => assert!(find(|_| true).unwrap() == seed),
            None => eprintln!("RADDLE_SEARCH_ALL=1 has every seed tried"),
        }
    }
}
