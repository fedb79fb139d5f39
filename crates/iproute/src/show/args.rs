//! The words of a command line, as `ip` takes them: options with one dash, keywords that may be
//! abbreviated to any prefix and are tried in a fixed order.

use std::path::PathBuf;

use super::out::Form;
use super::{Error, Family};

/// Whether `word` is a non-empty prefix of `keyword`.
pub(crate) fn abbreviates(word: &str, keyword: &str) -> bool {
    !word.is_empty() && keyword.starts_with(word)
}

/// The words that are no options, in order.
pub(crate) struct Args<'a> {
    words: std::vec::IntoIter<&'a str>,
}

impl<'a> Args<'a> {
    /// These words.
    pub(crate) fn of(words: Vec<&'a str>) -> Args<'a> {
        Args {
            words: words.into_iter(),
        }
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.words.next()
    }

    /// The value that must follow a keyword.
    pub(crate) fn value(&mut self) -> Result<&'a str, Error> {
        self.next().ok_or(Error::Incomplete)
    }

    /// The value that must follow a keyword, parsed; `why` says what is wrong otherwise.
    pub(crate) fn parsed<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Option<T>,
        why: &'static str,
    ) -> Result<T, Error> {
        let value = self.value()?;
        parse(value).ok_or_else(|| Error::argument(value, why))
    }
}

/// The options before, after or between the words.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) family: Option<Family>,
    pub(crate) details: bool,
    pub(crate) numeric: bool,
    /// The usage is asked for, as `--help`.
    pub(crate) help: bool,
    /// Where the state comes from, if not from the live kernel.
    pub(crate) snapshot: Option<PathBuf>,
    /// What has been counted is printed, too.
    pub(crate) statistics: bool,
    one_line: bool,
    json: bool,
    pretty: bool,
}

impl Options {
    /// The form that the options ask for: `-pretty` only matters to JSON, `-oneline` to text.
    pub(crate) fn form(&self) -> Form {
        match self {
            Options {
                json: true,
                pretty: true,
                ..
            } => Form::Pretty,
            Options { json: true, .. } => Form::Json,
            Options { one_line: true, .. } => Form::OneLine,
            _ => Form::Text,
        }
    }
}

/// The option that takes the state from a file; not `ip`'s, and so not abbreviated.
const SNAPSHOT: &str = "--snapshot";

/// Where the word after the leading options stands.
pub(crate) fn first_word(words: &[String]) -> Option<usize> {
    let mut at = 0;
    while words.get(at)?.starts_with('-') {
        let name = words[at].trim_start_matches('-');
        let takes_value = words[at] == SNAPSHOT || abbreviates(name, "family");
        at += if takes_value { 2 } else { 1 };
    }
    Some(at)
}

/// Separates options from words. Unlike `ip` we take options anywhere.
pub(crate) fn split<'a>(
    words: impl Iterator<Item = &'a str>,
) -> Result<(Options, Args<'a>), Error> {
    let mut options = Options::default();
    let mut rest = Vec::new();
    let mut words = words;
    while let Some(word) = words.next() {
        if let Some(file) = word.strip_prefix(SNAPSHOT) {
            let file = match file.strip_prefix('=') {
                None if file.is_empty() => words.next().ok_or(Error::Incomplete)?,
                None => return Err(Error::Option(word.to_owned())),
                Some(file) => file,
            };
            options.snapshot = Some(file.into());
            continue;
        }
        let Some(name) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            rest.push(word);
            continue;
        };
        match name {
            "4" => options.family = Some(Family::Inet),
            "6" => options.family = Some(Family::Inet6),
            "h" | "help" => options.help = true,
            _ if abbreviates(name, "family") => {
                let family = words.next().ok_or(Error::Incomplete)?;
                options.family = Some(parse_family(family)?);
            }
            _ if abbreviates(name, "details") => options.details = true,
            _ if abbreviates(name, "oneline") => options.one_line = true,
            _ if abbreviates(name, "json") => options.json = true,
            _ if abbreviates(name, "pretty") => options.pretty = true,
            _ if abbreviates(name, "Numeric") => options.numeric = true,
            _ if abbreviates(name, "statistics") || abbreviates(name, "stats") => {
                options.statistics = true;
            }
            _ => return Err(Error::Option(word.to_owned())),
        }
    }
    Ok((options, Args::of(rest)))
}

fn parse_family(family: &str) -> Result<Family, Error> {
    match family {
        "inet" => Ok(Family::Inet),
        "inet6" => Ok(Family::Inet6),
        _ => Err(Error::argument(family, "invalid protocol family")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_snapshots_are_options_like_others() {
        for help in ["-h", "--help", "-help"] {
            assert!(split(["route", help].into_iter()).unwrap().0.help);
        }
        for line in [&["--snapshot", "f", "show"][..], &["show", "--snapshot=f"]] {
            let (options, mut args) = split(line.iter().copied()).unwrap();
            assert_eq!(options.snapshot, Some("f".into()));
            assert_eq!([args.next(), args.next()], [Some("show"), None]);
        }
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, at) in [
            ("route -6", Some(0)),
            ("-6 -j route", Some(2)),
            ("-f inet --snapshot x route", Some(4)),
            ("-6", None),
            ("-f inet", None),
        ] {
            assert_eq!(first_word(&words(line)), at, "{line}");
        }
    }

    #[test]
    fn options_stand_anywhere() {
        let line = [
            "-6", "route", "-js", "--pretty", "show", "-f", "inet", "-d", "x", "-N",
        ];
        let (options, mut args) = split(line.into_iter()).unwrap();
        assert_eq!(options.family, Some(Family::Inet));
        assert_eq!(options.form(), Form::Pretty);
        assert!(options.details && options.numeric && !options.help);
        assert_eq!(
            [args.next(), args.next(), args.next(), args.next()],
            [Some("route"), Some("show"), Some("x"), None]
        );
        assert!(matches!(args.value(), Err(Error::Incomplete)));
        for wrong in [
            &["-x"][..],
            &["-"],
            &["--"],
            &["-f"],
            &["-f", "bridge"],
            &["-jsonx"],
            &["--snapshot"],
            &["--snapshots", "x"],
            &["-snapshot", "x"],
        ] {
            assert!(split(wrong.iter().copied()).is_err(), "{wrong:?}");
        }
    }
}
