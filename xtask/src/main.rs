//! `cargo xtask generate` writes the files that are made from the code; a test holds them against it.
//! `cargo xtask support RECORD RUN PART,...` says what a run of these parts has shown less than the record, and
//! `cargo xtask record RECORD RUN` writes into the record what the run has shown; all are files of [`xtask::support`].

use std::io;
use std::path::Path;
use std::process::ExitCode;

use xtask::support::{Record, less, renewed};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match *words.as_slice() {
        ["generate"] => generate().map(|()| ExitCode::SUCCESS),
        ["support", record, run, parts] => support(record, run, parts),
        ["record", record, run] => renew(record, run).map(|()| ExitCode::SUCCESS),
        _ => {
            eprintln!(
                "usage: cargo xtask generate\n       cargo xtask support RECORD RUN PART,..."
            );
            return ExitCode::from(2);
        }
    };
    result.unwrap_or_else(|e| {
        eprintln!("xtask: {e}");
        ExitCode::from(3)
    })
}

fn read(path: &str) -> io::Result<Record> {
    let record = Record::parse(&std::fs::read_to_string(path)?);
    record.map_err(|why| io::Error::other(format!("{path}: {why}")))
}

/// Writes what the run has shown into the record, which need not be there yet, and what is made of it.
fn renew(record: &str, run: &str) -> io::Result<()> {
    let before = Path::new(record).exists().then(|| read(record));
    std::fs::write(record, renewed(before.transpose()?.as_ref(), &read(run)?))?;
    generate()
}

/// Says what the run has shown less than the record; 1 where there is something.
fn support(record: &str, run: &str, parts: &str) -> io::Result<ExitCode> {
    let parts: Vec<&str> = parts.split(',').collect();
    let less = less(&read(record)?, &read(run)?, &parts);
    for what in &less {
        println!("{what}");
    }
    Ok(ExitCode::from(u8::from(!less.is_empty())))
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
