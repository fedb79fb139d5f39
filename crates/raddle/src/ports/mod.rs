//! `raddle ports`: source ports with which connections cover all paths, a certificate that can be
//! checked, and how the connections that there are lie on the paths.

mod audit;
mod certificate;
mod plan;
mod range;
#[cfg(test)]
mod tests;
mod verify;

use crate::cli;
use crate::error::Failure;

/// Runs the command.
pub(crate) fn run(command: &cli::Ports) -> Result<(), Failure> {
    match command {
        cli::Ports::Plan(args) => plan::run(args),
        cli::Ports::Verify(args) => verify::run(args),
        cli::Ports::Audit(args) => audit::run(args),
    }
}
