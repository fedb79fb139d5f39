//! Options that are one of a few words, each with what the help says of it.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use raddle_daemon::{Conntrack, Mode, OnExit, Priority, RxHash};

/// A parser of words: values, their names, and what the help says of each.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    words: [(T, &'static str); N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let shown = words.map(|(value, help)| PossibleValue::new(name(value)).help(help));
    PossibleValuesParser::new(shown).try_map(move |word| {
        let mut values = words.into_iter().map(|(value, _)| value);
        // Others are refused before.
        values
            .find(|value| name(*value) == word)
            .ok_or("no such word")
    })
}

pub(super) fn mode() -> impl TypedValueParser<Value = Mode> {
    let words = [
        (Mode::Auto, "In the driver where it can, generic otherwise"),
        (Mode::Native, "In the driver, or not at all"),
        (
            Mode::Generic,
            "In the network stack: works everywhere, and is slow",
        ),
    ];
    one_of(words, Mode::name)
}

pub(super) fn on_exit() -> impl TypedValueParser<Value = OnExit> {
    let words = [
        (
            OnExit::Detach,
            "They are detached, at whatever way it ends, and the kernel forwards",
        ),
        (
            OnExit::Keep,
            "They stay and forward by the last state for a bounded time, so that a new daemon can take over under \
             traffic; then they punt everything",
        ),
    ];
    one_of(words, OnExit::name)
}

pub(super) fn conntrack() -> impl TypedValueParser<Value = Conntrack> {
    let words = [
        (
            Conntrack::Forward,
            "They are forwarded past the kernel's table of connections",
        ),
        (
            Conntrack::Punt,
            "They are left to the kernel, so that its table has them",
        ),
    ];
    one_of(words, Conntrack::name)
}

pub(super) fn priority() -> impl TypedValueParser<Value = Priority> {
    let words = [
        (
            Priority::Realtime,
            "Before all that have no real-time priority themselves",
        ),
        (Priority::Nice, "Before most, most of the time: nice -15"),
        (Priority::None, "Before nobody"),
    ];
    one_of(words, Priority::name)
}

pub(super) fn rx_hash() -> impl TypedValueParser<Value = RxHash> {
    let words = [
        (RxHash::Auto, "On NICs that give the kernel one"),
        (
            RxHash::On,
            "On all links whose driver offers it, software included",
        ),
        (RxHash::Off, "Nowhere: by seed and fields always"),
    ];
    one_of(words, RxHash::name)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use raddle_config::File;
    use raddle_daemon::Config;

    use crate::cli::{Cli, Command};

    /// What the command line calls a value, the file does.
    #[test]
    fn words_are_the_files() {
        for (option, words) in [
            ("mode", vec!["auto", "native", "generic"]),
            ("on-exit", vec!["detach", "keep"]),
            ("conntrack", vec!["forward", "punt"]),
            ("priority", vec!["realtime", "nice", "none"]),
            ("rx-hash", vec!["auto", "on", "off"]),
        ] {
            for word in words {
                let cli = Cli::try_parse_from(["raddle", "run", &format!("--{option}={word}")]);
                let Ok(Command::Run(run)) = cli.map(|cli| cli.command) else {
                    panic!("--{option}={word}");
                };
                let file = File::new("a.toml", format!("{option} = '{word}'"));
                let config = Config::of(&file).unwrap();
                match option {
                    "mode" => assert_eq!(run.mode, Some(config.mode)),
                    "on-exit" => assert_eq!(run.on_exit, Some(config.on_exit)),
                    "conntrack" => assert_eq!(run.conntrack, Some(config.conntrack)),
                    "priority" => assert_eq!(run.priority, Some(config.priority)),
                    _ => assert_eq!(run.rx_hash, Some(config.rx_hash)),
                }
            }
        }
    }
}
