//! The running kernel's version.

use raddle_select::KernelVersion;

/// Why the running kernel's version is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The kernel does not say its name.
    #[error("uname: {0}")]
    Uname(nix::Error),
    /// What it says is no version.
    #[error(transparent)]
    Version(#[from] raddle_select::NotAVersion),
}

/// The running kernel's version: the stable one, also of a distribution whose release says only the ABI.
///
/// # Errors
/// Why it cannot be told.
pub fn running_kernel() -> Result<KernelVersion, KernelError> {
    let names = nix::sys::utsname::uname().map_err(KernelError::Uname)?;
    // Only Ubuntu's kernels have it.
    let signature = std::fs::read_to_string("/proc/version_signature").unwrap_or_default();
    let (release, build) = (names.release(), names.version());
    Ok(KernelVersion::of_uname(
        &release.to_string_lossy(),
        &build.to_string_lossy(),
        &signature,
    )?)
}
