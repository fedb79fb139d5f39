//! `cargo xtask generate` writes the files that are made from the code; a test holds them against it.

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("generate"), None) => match generate() {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("xtask: {e}");
                ExitCode::from(3)
            }
        },
        _ => {
            eprintln!("usage: cargo xtask generate");
            ExitCode::from(2)
        }
    }
}

/// Writes what is not as it has to be.
fn generate() -> io::Result<()> {
    for (path, text) in xtask::generated()? {
        let file = xtask::root().join(path);
        if std::fs::read_to_string(&file).ok().as_ref() != Some(&text) {
            std::fs::write(&file, text)?;
            println!("{path}");
        }
    }
    Ok(())
}
