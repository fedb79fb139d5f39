//! Says where in a configuration something is wrong: the line, and a caret below what is meant.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake, with the line that it is in and a caret below its place.
pub(crate) fn pointed(text: &str, span: Range<usize>, what: &str) -> String {
    let at = span.start.min(text.len());
    let before = text.get(..at).unwrap_or_default();
    let (line, start) = (
        1 + before.matches('\n').count(),
        before.rfind('\n').map_or(0, |newline| newline + 1),
    );
    let shown = text.get(start..).unwrap_or_default();
    let shown = shown.lines().next().unwrap_or_default();
    let column = before.get(start..).unwrap_or_default().chars().count();
    // Of what goes on below, the first line.
    let end = span.end.clamp(at, start + shown.len().max(at - start));
    let long = text.get(at..end).unwrap_or_default().chars().count();
    let (margin, carets) = (" ".repeat(line.to_string().len()), "^".repeat(long.max(1)));
    format!(
        "line {line}, column {}\n{margin} |\n{line} | {shown}\n{margin} | {}{carets}\n{what}",
        column + 1,
        " ".repeat(column),
    )
}

/// What [`pointed`] says, in one line: without the text that it shows.
pub(crate) fn in_a_line(said: &str) -> String {
    let shown = |line: &&str| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        rest.starts_with('|')
    };
    let lines: Vec<&str> = said.lines().filter(|line| !shown(line)).collect();
    lines.join(": ")
}

/// What is wrong in a table, where only the table is known.
///
/// 1. A value that the message quotes: `'psk' is no flavour`.
/// 2. A key that it names and the table has: `End has no use for table`.
/// 3. A value that it names: `10.0.0.0/8 is not IPv6`.
/// 4. Otherwise the table itself: something is missing in it.
///
/// `head` is where the table begins.
pub(super) fn culprit(text: &str, head: usize, message: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let tables = root
        .get_ref()
        .values()
        .filter_map(|value| value.get_ref().as_array());
    let mut tables = tables.flat_map(|list| list.iter());
    let table = tables.find(|value| value.span().start == head)?;
    let mut all = Found::default();
    all.of(table);
    // The outermost come first; of several, what is written last may be the repeated one.
    let named = |word: &str| contains_word(message, word);
    let quoted = all
        .values
        .iter()
        .find(|(value, _)| message.contains(&format!("'{value}'")));
    let key = || all.keys.iter().find(|(key, _)| named(key));
    let value = || all.values.iter().find(|(value, _)| named(value));
    quoted
        .or_else(key)
        .or_else(value)
        .map(|(_, span)| span.clone())
}

/// The value of the key that a message about the whole begins with: `deadline is at least 1 second`.
pub(super) fn key_of(text: &str, message: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let mut all = Found::default();
    all.table(root.get_ref());
    let begins = |key: &str| message.split_whitespace().next() == Some(key);
    let found = all.keys.into_iter().find(|(key, _)| begins(key));
    found.map(|(_, span)| span)
}

/// Whether a text has a word, with no letter or digit beside it.
fn contains_word(text: &str, word: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            edge(text[..at].chars().next_back()) && edge(text[at + word.len()..].chars().next())
        })
}

/// Keys with the places of their values, and values with theirs.
#[derive(Debug, Default)]
struct Found {
    keys: Vec<(String, Range<usize>)>,
    values: Vec<(String, Range<usize>)>,
}

impl Found {
    fn of(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(table),
            DeValue::Array(list) => list.iter().for_each(|value| self.of(value)),
            DeValue::String(text) => self.values.push((text.to_string(), value.span())),
            DeValue::Integer(number) => {
                self.values.push((number.as_str().to_owned(), value.span()));
            }
            _ => {}
        }
    }

    fn table(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            let key = key.get_ref().to_string();
            self.keys.push((key, value.span()));
            self.of(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_stands_below_the_place() {
        assert_eq!(
            pointed("a = 1\nb = 'é' # x\n", 10..14, "b is no letter"),
            "line 2, column 5\n  |\n2 | b = 'é' # x\n  |     ^^^\nb is no letter"
        );
        let said = pointed("a = 1\nb = 'é' # x\n", 10..14, "b is no letter");
        assert_eq!(in_a_line(&said), "line 2, column 5: b is no letter");
        assert_eq!(in_a_line("no file"), "no file");
        // Of a value of several lines, the first; at the end of the text, the end.
        let list = "list = [\n 1,\n]";
        assert!(pointed(list, 7..list.len(), "x").contains("\n  |        ^\n"));
        assert!(pointed("a", 9..9, "x").starts_with("line 1, column 2\n"));
    }

    #[test]
    fn words_stand_alone() {
        assert!(contains_word("no use for nh4; leave it out", "nh4"));
        assert!(!contains_word("no use for nh46", "nh4"));
        assert!(!contains_word("segs", ""));
    }
}
