//! Any text as a configuration of the daemon and of the proxies, and its lines as what options take: what is refused is
//! said, in the file and in one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use raddle_config::{Error, File};
use raddle_daemon::{AlgoRule, StaticEncap, StaticSid};

fuzz_target!(|text: &str| {
    let file = File::new("config.toml", text);
    match raddle_daemon::Config::of(&file) {
        // What is read can be started with.
        Ok(config) => assert!(config.check().is_ok()),
        Err(error) => said(text, &error),
    }
    if let Err(error) = raddle_rpc_paths::Config::of(&file) {
        said(text, &error);
    }
    for line in text.lines() {
        let refused = [
            line.parse::<StaticSid>().err().map(|e| e.to_string()),
            line.parse::<StaticEncap>().err().map(|e| e.to_string()),
            line.parse::<AlgoRule>().err().map(|e| e.to_string()),
            line.parse::<raddle_rpc_paths::HostPort>()
                .err()
                .map(|e| e.to_string()),
        ];
        assert!(refused.iter().flatten().all(|said| !said.is_empty()));
    }
});

/// A mistake's place is in the text.
fn said(text: &str, error: &Error) {
    assert!(error.to_string().contains("config.toml"));
    assert!(error.one_line().contains("config.toml"));
    if let Some(place) = error.place() {
        assert!((1..=text.lines().count() + 1).contains(&place.line));
        assert!((1..=place.text.chars().count() + 2).contains(&place.column));
    }
}
