//! Logs of the daemon.

use std::io::IsTerminal;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Logs to the journal under systemd, to standard error otherwise; `RUST_LOG` chooses what: a level, or levels by the
/// module that speaks, such as `info,raddle_rpc=debug`.
pub(crate) fn start(json: bool) {
    let registry = tracing_subscriber::registry().with(filter(std::env::var("RUST_LOG").ok()));
    if std::env::var_os("JOURNAL_STREAM").is_some()
        && let Ok(journal) = tracing_journald::layer()
    {
        let _ = registry.with(journal).try_init();
        return;
    }
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Nobody reads it any more: there is nowhere to say so, and trying to would be a panic.
        .log_internal_errors(false)
        .with_ansi(colour);
    // Fails only when a subscriber is set already, which then does the work.
    let _ = if json {
        registry.with(stderr.json()).try_init()
    } else {
        registry.with(stderr.with_target(false)).try_init()
    };
}

/// What is asked for; from `info` on where nothing is, or nothing that can be read.
fn filter(asked: Option<String>) -> Targets {
    let asked = asked.filter(|asked| !asked.is_empty());
    let asked = asked.and_then(|asked| asked.parse().ok());
    asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::filter::LevelFilter;

    #[test]
    fn levels_are_by_module() {
        let enables = |asked: Option<&str>, target: &str| {
            let filter = filter(asked.map(str::to_owned));
            let most = [
                tracing::Level::ERROR,
                tracing::Level::INFO,
                tracing::Level::DEBUG,
            ];
            most.into_iter()
                .filter(|level| filter.would_enable(target, level))
                .max()
        };
        for (asked, rpc, other) in [
            (None, "info", "info"),
            (Some(""), "info", "info"),
            (Some("no=such=level"), "info", "info"),
            (Some("debug"), "debug", "debug"),
            (Some("info,raddle_rpc=debug"), "debug", "info"),
            (Some("error,raddle_rpc::proxy=info"), "info", "error"),
        ] {
            let level = |word: &str| word.parse::<LevelFilter>().unwrap().into_level();
            assert_eq!(enables(asked, "raddle_rpc::proxy"), level(rpc), "{asked:?}");
            assert_eq!(
                enables(asked, "raddle_daemon::daemon"),
                level(other),
                "{asked:?}"
            );
        }
    }
}
