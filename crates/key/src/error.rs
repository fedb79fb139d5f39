//! Why the key is not known, with what to do about it.

use std::io;

/// Why the kernel's own key is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A privilege is missing.
    #[error(
        "cannot read the kernel's own hash key: {0} is missing; run as root or give the process this capability"
    )]
    NotPermitted(String),
    /// The kernel keeps its memory to itself.
    #[error(
        "cannot read the kernel's own hash key: the kernel is locked down (confidentiality), so nobody may read its memory; \
         set a seed instead (sysctl net.ipv4.fib_multipath_hash_seed, from Linux 6.11 on)"
    )]
    Lockdown,
    /// The kernel's types are not known.
    #[error(
        "cannot read the kernel's own hash key: its types are not known ({0}); the kernel has to be built with \
         CONFIG_DEBUG_INFO_BTF, or a seed has to be set (sysctl net.ipv4.fib_multipath_hash_seed)"
    )]
    NoTypes(String),
    /// There is no such symbol, and no such address in the code.
    #[error(
        "cannot read the key of the kernel's flow hash: neither /proc/kallsyms nor the kernel's code tells where hashrnd is; \
         the kernel has to be built with CONFIG_KALLSYMS_ALL, or be Linux 6.11 or newer, where a seed can be set"
    )]
    NoSymbol,
    /// What was read is not the key.
    #[error(
        "what was read as the kernel's own hash key does not predict what the kernel does ({0}), so it is not used; please \
         report this with the output of uname -a"
    )]
    Unproven(&'static str),
    /// The system refused.
    #[error("cannot read the kernel's own hash key: cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The kernel refused a question or a route.
    #[error("cannot prove the kernel's own hash key: {0}")]
    Netlink(#[from] raddle_netlink::Error),
}

impl Error {
    /// Whether the kernel's memory could not be read, so that the key may be known in another way.
    pub fn is_about_reading(&self) -> bool {
        matches!(
            self,
            Error::NotPermitted(_) | Error::Lockdown | Error::NoTypes(_) | Error::System { .. }
        )
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { what, source }
    }
}
