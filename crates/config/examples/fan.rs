//! Reads the configuration of a fan from a file, or shows what a mistake in one looks like.

use std::path::Path;

use raddle_config::{At, Error, File, Spanned};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Fan {
    on_at: Spanned<u8>,
    off_at: Spanned<u8>,
}

fn main() {
    let file = match std::env::args().nth(1) {
        Some(path) => File::read(Path::new(&path)),
        None => Ok(File::new(
            "fan.toml",
            "# degrees\non-at = 40\noff-at = 60\n",
        )),
    };
    match file.and_then(|file| fan(&file)) {
        Ok(fan) => println!("on at {}, off at {}", fan.on_at, fan.off_at),
        Err(e) => eprintln!("{e}"),
    }
}

fn fan(file: &File) -> Result<Fan, Error> {
    let fan: Fan = file.parse()?;
    if fan.off_at >= fan.on_at {
        return Err(file.error_at(At::new(
            &fan.off_at,
            "off-at has to be below on-at; lower it",
        )));
    }
    Ok(fan)
}
