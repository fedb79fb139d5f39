//! The words of a command line, as `ip` takes them: options with one dash, keywords that may be
//! abbreviated to any prefix and are tried in a fixed order.

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

/// Separates options from words. Unlike `ip` we take options anywhere.
pub(crate) fn split<'a>(
    words: impl Iterator<Item = &'a str>,
) -> Result<(Options, Args<'a>), Error> {
    let mut options = Options::default();
    let mut rest = Vec::new();
    let mut words = words;
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            rest.push(word);
            continue;
        };
        match name {
            "4" => options.family = Some(Family::Inet),
            "6" => options.family = Some(Family::Inet6),
            _ if abbreviates(name, "family") => {
                let family = words.next().ok_or(Error::Incomplete)?;
                options.family = Some(parse_family(family)?);
            }
            _ if abbreviates(name, "details") => options.details = true,
            _ if abbreviates(name, "oneline") => options.one_line = true,
            _ if abbreviates(name, "json") => options.json = true,
            _ if abbreviates(name, "pretty") => options.pretty = true,
            _ if abbreviates(name, "Numeric") => options.numeric = true,
            _ => return Err(Error::Option(word.to_owned())),
        }
    }
    Ok((
        options,
        Args {
            words: rest.into_iter(),
        },
    ))
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
    fn options_stand_anywhere() {
        let line = [
            "-6", "route", "-js", "--pretty", "show", "-f", "inet", "-d", "x", "-N",
        ];
        let (options, mut args) = split(line.into_iter()).unwrap();
        assert_eq!(options.family, Some(Family::Inet));
        assert_eq!(options.form(), Form::Pretty);
        assert!(options.details && options.numeric);
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
        ] {
            assert!(split(wrong.iter().copied()).is_err(), "{wrong:?}");
        }
    }
}
