//! `raddle snapshot`: writes routing state to a file, for replay and explain elsewhere.

use raddle_iproute::import;
use raddle_preflight::running_kernel;
use raddle_rib::Snapshot;

use crate::cli;
use crate::error::Failure;
use crate::source::mirror;

/// Runs `raddle snapshot`: writes the state of the live kernel, or of output of `ip`, to a file, or to
/// standard output.
pub(crate) fn save(args: &cli::Snapshot) -> Result<(), Failure> {
    let snapshot = if args.from_ip.is_empty() {
        Snapshot {
            kernel: running_kernel().ok().map(|version| version.to_string()),
            ..mirror(None)?.snapshot()
        }
    } else {
        import::snapshot(&args.from_ip).map_err(|e| Failure::usage(e.to_string()))?
    };
    let text = serde_json::to_string(&snapshot).map_err(|e| Failure::system(e.to_string()))?;
    match &args.file {
        None => println!("{text}"),
        Some(file) => std::fs::write(file, text + "\n").map_err(|e| {
            Failure::system(format!("cannot write the snapshot {}: {e}", file.display()))
        })?,
    }
    Ok(())
}
