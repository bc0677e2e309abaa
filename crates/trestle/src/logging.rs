use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Writes logs to standard error: at `TRESTLE_LOG`, else at `default`. JSON lines with `TRESTLE_LOG_FORMAT=json`.
pub(crate) fn start(default: &str) {
    let wanted = std::env::var("TRESTLE_LOG").ok().filter(|level| !level.trim().is_empty());
    let filter = wanted
        .as_deref()
        .and_then(|level| EnvFilter::try_new(level).ok())
        .unwrap_or_else(|| EnvFilter::new(default));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // A run process outlives the reader of its log by a moment; that must not end it before its work is done.
    let builder = builder.log_internal_errors(false);
    // A second start (in a test) is refused and harmless: the first one stays.
    let _ = if std::env::var("TRESTLE_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.compact().try_init()
    };
}
