//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The `raddle` program of the profile that this test was built with; built first if it is not up
/// to date. `RADDLE_BINARY` names another one, such as an installed one.
///
/// # Panics
/// When it cannot be built.
pub fn raddle() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("RADDLE_BINARY") {
        Some(path) => path.into(),
        None => build(&["raddle"]),
    })
}

/// The `raddle-bench` program likewise, and with it the `raddle` beside it, which it measures; that of `RADDLE_BINARY`, where there is one
/// beside it.
///
/// # Panics
/// When one of them cannot be built.
pub fn raddle_bench() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let beside = std::env::var_os("RADDLE_BINARY").map(PathBuf::from);
        let beside = beside.map(|raddle| raddle.with_file_name("raddle-bench"));
        match beside.filter(|bench| bench.exists()) {
            Some(bench) => bench,
            None => build(&["raddle-bench", "raddle"]),
        }
    })
}

/// Builds these programs, and says where the first one is. A test executable is `target/PROFILE/deps/NAME-HASH`.
fn build(programs: &[&str]) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let release = folder.file_name().is_some_and(|name| name == "release");
    // Cargo knows whether they are up to date, and several tests that ask at once wait for each other.
    // The whole workspace's features, as in `cargo test --workspace`: with others it would build most
    // dependencies again.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--workspace"])
        .args(programs.iter().flat_map(|program| ["--bin", program]))
        .arg("--target-dir")
        .arg(folder.parent().unwrap())
        .args(release.then_some("--release"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let status = cargo.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "{programs:?} cannot be built: {status:?}"
    );
    let binary = folder.join(programs[0]);
    assert!(
        binary.exists(),
        "no {} in {}",
        programs[0],
        folder.display()
    );
    binary
}
