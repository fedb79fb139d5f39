//! A table of the configuration as options of the command line, which read its values.

use std::ops::Range;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Args, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::config::{Mistake, Wrong};

/// What a value is, with its article.
pub(super) fn kind(value: &Spanned<DeValue<'_>>) -> &'static str {
    match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The options that a table's keys are.
pub(super) fn options<T: Args>(table: &DeTable<'_>, beside: Option<&str>) -> Result<T, Wrong> {
    let command = T::augment_args(
        Command::new("")
            .no_binary_name(true)
            .disable_help_flag(true),
    );
    let mut words = Vec::new();
    for (key, value) in table {
        if Some(key.get_ref().as_ref()) == beside {
            continue;
        }
        // As in the daemon's file, whose keys have underscores.
        let option = key.get_ref().replace('_', "-");
        let arg = command
            .get_arguments()
            .find(|arg| arg.get_long() == Some(&option));
        let Some(arg) = arg else {
            let known = command.get_arguments().filter_map(Arg::get_long);
            let known: Vec<&str> = known.chain(beside).collect();
            let mistake = Mistake::Key {
                key: key.get_ref().to_string(),
                known: known.join(", "),
            };
            return Err(mistake.at(key.span()));
        };
        let own = spelled(&option, arg, value).map_err(|expected| {
            let mistake = Mistake::Kind {
                key: option.clone(),
                is: kind(value),
                expected,
            };
            mistake.at(value.span())
        })?;
        // Each alone, so that the mistake is that value's.
        for word in &own {
            if let Err(e) = command.clone().try_get_matches_from([word]) {
                let mistake = Mistake::Value {
                    key: option,
                    why: why(&e, arg),
                };
                return Err(mistake.at(place(value, word)));
            }
        }
        words.extend(own);
    }
    let matches = command.try_get_matches_from(words);
    let read = matches.and_then(|matches| T::from_arg_matches(&matches));
    read.map_err(|e| Mistake::Toml(e.to_string().trim().to_owned()).into())
}

/// The place of a word of the command line: of a list, that of its member.
fn place(value: &Spanned<DeValue<'_>>, word: &str) -> Range<usize> {
    let said = word.split_once('=').map_or(word, |(_, said)| said);
    let is = |member: &&Spanned<DeValue<'_>>| match member.get_ref() {
        DeValue::String(text) => text == said,
        DeValue::Integer(number) => number.as_str() == said,
        _ => false,
    };
    let member = value
        .get_ref()
        .as_array()
        .and_then(|list| list.iter().find(is));
    member.map_or(value.span(), Spanned::span)
}

/// Why an option does not take its value, and which ones it takes.
fn why(e: &clap::Error, arg: &Arg) -> String {
    let value = e.get(ContextKind::InvalidValue).map(ToString::to_string);
    let value = value.unwrap_or_default();
    if let Some(ContextValue::Strings(valid)) = e.get(ContextKind::ValidValue) {
        return format!("there is no '{value}'; there are {}", valid.join(", "));
    }
    let Some(source) = std::error::Error::source(e) else {
        let said = e.to_string();
        let first = said.lines().next().unwrap_or_default();
        return first.trim_start_matches("error: ").to_owned();
    };
    let source = source.to_string().replace("..=", " to ");
    let form = arg.get_value_names().and_then(<[_]>::first);
    match form.filter(|form| form.contains("ADDRESS")) {
        Some(form) => format!("'{value}' is no {form}: {source}"),
        None => format!("'{value}' cannot be: {source}"),
    }
}

/// A key as words of the command line, or what its value should be.
fn spelled(
    option: &str,
    arg: &Arg,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<String>, &'static str> {
    let takes = arg.get_action().takes_values();
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(format!("--{option}={text}")),
        DeValue::Integer(number) if number.radix() == 10 => {
            Some(format!("--{option}={}", number.as_str()))
        }
        _ => None,
    };
    match (value.get_ref(), takes) {
        (DeValue::Boolean(true), false) => Ok(vec![format!("--{option}")]),
        (DeValue::Boolean(false), false) => Ok(Vec::new()),
        (_, false) => Err("true or false"),
        (DeValue::Array(_), true) if !matches!(arg.get_action(), ArgAction::Append) => {
            Err("one value")
        }
        (DeValue::Array(list), true) => {
            let words = list.iter().map(|value| one(value.get_ref()));
            words.collect::<Option<_>>().ok_or("a list of strings")
        }
        (value, true) => Ok(vec![one(value).ok_or("a string or a number")?]),
    }
}
