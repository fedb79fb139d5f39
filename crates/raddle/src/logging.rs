//! Logs of the daemon.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Logs to the journal under systemd, to standard error otherwise; `RUST_LOG` chooses what.
pub(crate) fn start(json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
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
