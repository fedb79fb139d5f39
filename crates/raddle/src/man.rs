//! Man pages, from the same source as the help.

use std::io::Write;
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
    let extra = command.get_after_help().map(ToString::to_string);
    let page = page.after_help(clap::builder::Resettable::Reset);
    Man::new(page).section("8").render(&mut file)?;
    if let Some(extra) = extra {
        file.write_all(as_it_is("EXTRA", &extra).as_bytes())?;
    }
    for sub in command.get_subcommands() {
        pages(sub, &format!("{name}-{}", sub.get_name()), directory)?;
    }
    Ok(())
}

/// A section whose lines stay as they are.
fn as_it_is(title: &str, text: &str) -> String {
    let mut section = format!(".SH {title}\n.nf\n");
    for line in text.lines() {
        // No line is taken for a request of roff's.
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        section.push_str(&format!("\\&{line}\n"));
    }
    section + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines() {
        assert_eq!(
            as_it_is("EXTRA", ".a -4\n  \\b"),
            ".SH EXTRA\n.nf\n\\&.a \\-4\n\\&  \\eb\n.fi\n"
        );
    }
}
