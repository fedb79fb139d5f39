//! Where in a text something is wrong: the line, and a caret below what is meant.

use std::fmt;
use std::ops::Range;

/// A place in a configuration, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// How many characters are meant, at least one.
    pub width: usize,
    /// The line's text.
    pub text: String,
}

impl Place {
    /// Where these bytes of a text are. Of what goes on below, the first line; behind the end, the end.
    pub(crate) fn of(text: &str, span: Range<usize>) -> Place {
        let at = span.start.min(text.len());
        let before = text.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let shown = text.get(start..).unwrap_or_default();
        let shown = shown.lines().next().unwrap_or_default();
        let end = span.end.clamp(at, start + shown.len().max(at - start));
        let count = |range: Range<usize>| text.get(range).unwrap_or_default().chars().count();
        Place {
            line: line_of(text, at),
            column: count(start..at) + 1,
            width: count(at..end).max(1),
            text: shown.to_owned(),
        }
    }
}

/// The line, from 1, that a byte is in.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// `line 2, column 5`, the line itself, and a caret below.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
            line,
            column,
            width,
            text,
        } = self;
        let margin = " ".repeat(line.to_string().len());
        // A tab is as wide above as below.
        let before = text.chars().take(column.saturating_sub(1));
        let before: String = before.map(|c| if c == '\t' { c } else { ' ' }).collect();
        let carets = "^".repeat(*width);
        // What a terminal would obey is as wide as what stands for it, so the caret stays where it is.
        let obeyed = |c: char| c.is_control() && c != '\t';
        let text = text.replace(obeyed, "\u{fffd}");
        writeln!(f, "line {line}, column {column}")?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{line} | {text}")?;
        write!(f, "{margin} | {before}{carets}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_stands_below_the_place() {
        let of = |text, span| Place::of(text, span).to_string();
        assert_eq!(
            of("a = 1\nb = 'é' # x\n", 10..14),
            "line 2, column 5\n  |\n2 | b = 'é' # x\n  |     ^^^"
        );
        // Of a value of several lines, the first; at the end of the text, the end.
        let list = "list = [\n 1,\n]";
        assert!(of(list, 7..list.len()).ends_with("\n  |        ^"));
        assert!(of("a", 9..9).starts_with("line 1, column 2\n"));
        // Nothing is obeyed.
        let obeyed = of("a = '\u{1b}[2J'", 5..6);
        assert!(
            obeyed.ends_with("\n1 | a = '\u{fffd}[2J'\n  |      ^"),
            "{obeyed}"
        );
        // Tabs are as wide below.
        assert!(of("\ta\t= 1", 5..6).ends_with("\n1 | \ta\t= 1\n  | \t \t  ^"));
    }

    /// Fields are public.
    #[test]
    fn any_place_is_shown() {
        let place = |column| Place {
            line: 0,
            column,
            width: 1,
            text: "a".into(),
        };
        assert!(place(0).to_string().ends_with("| ^"));
        assert!(place(usize::MAX).to_string().ends_with("|  ^"));
    }
}
