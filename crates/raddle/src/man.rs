//! Man pages, from the same source as the help.

use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::error::Failure;

/// Writes raddle.8 and a page for each command into `directory`.
pub(crate) fn write(directory: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| {
        Failure::system(format!("cannot write to {}: {e}", directory.display()))
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let command = Cli::command().disable_help_subcommand(true);
    pages(&command, "raddle", directory).map_err(failed)
}

fn pages(command: &clap::Command, name: &str, directory: &Path) -> std::io::Result<()> {
    let page = command
        .clone()
        .name(name.to_owned())
        .bin_name(name.replace('-', " "));
    let mut file = std::fs::File::create(directory.join(format!("{name}.8")))?;
    Man::new(page).section("8").render(&mut file)?;
    for sub in command.get_subcommands() {
        pages(sub, &format!("{name}-{}", sub.get_name()), directory)?;
    }
    Ok(())
}
