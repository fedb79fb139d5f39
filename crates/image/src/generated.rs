//! The files that are made from this crate.

use std::io;

use crate::{header, reasons_table};

/// Between these the table of reasons stands.
const TABLE: [&str; 2] = ["<!-- reasons: generated -->\n", "<!-- end of reasons -->\n"];

/// The files that are made from this crate, by their paths from the project's root, as they have to be. Of those that
/// are made in part, the rest is what `read` says of them.
///
/// # Errors
/// A file cannot be read, or has no marks around what is made.
pub fn generated(
    read: impl Fn(&str) -> io::Result<String>,
) -> io::Result<Vec<(&'static str, String)>> {
    let path = "docs/reasons.md";
    let text = read(path)?;
    let text = between(&text, TABLE, &reasons_table());
    let text = text.ok_or_else(|| io::Error::other(format!("{path}: no marks")))?;
    Ok(vec![("crates/xdp/bpf/image.h", header()), (path, text)])
}

/// A text of which what stands between two marks is another; none where it has no such marks.
pub fn between(text: &str, [before, after]: [&str; 2], made: &str) -> Option<String> {
    let (head, rest) = text.split_once(before)?;
    let (_, tail) = rest.split_once(after)?;
    Some(format!("{head}{before}\n{made}\n{after}{tail}"))
}
