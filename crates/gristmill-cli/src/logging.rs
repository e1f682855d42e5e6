//! The log: one line per event on standard error, for people or as JSON.

mod lines;

use crate::settings::{LogFormat, Settings};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// The actor library's own events and spans are its business until something is wrong: one span per actor would become
/// the parent of everything that is logged for years. Directives of the user's come later and win.
const QUIET: &str = "ractor=warn";

/// Reads a level or directives.
///
/// # Errors
/// What is wrong with them.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    if level.trim().is_empty() {
        return Err("it is empty".into());
    }
    let bare = !level.contains(['=', ',', '[']);
    if bare && level.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
        return Err("a level is off, error, warn, info, debug or trace".into());
    }
    EnvFilter::try_new(format!("{QUIET},{level}")).map_err(|error| error.to_string())
}

/// Starts logging. A program that has a subscriber of its own keeps it. `quietly`: warnings only, unless a level was
/// asked for; a command whose result is a line or a table has no use for more.
pub fn start(settings: &Settings, quietly: bool) {
    let level = if quietly && !settings.is_given("log.level") { "warn" } else { settings.log_level() };
    let Ok(filter) = filter(level) else { return };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match settings.log_format() {
        Ok(LogFormat::Json) => builder.event_format(lines::Json).try_init(),
        _ => {
            let ansi = std::io::stderr().is_terminal();
            let format = tracing_subscriber::fmt::format().with_ansi(ansi);
            builder.with_ansi(ansi).event_format(lines::Human(format)).try_init()
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_read_and_nonsense_is_not() {
        for good in ["info", "OFF", "warn,gristmill_node=debug", "ractor=trace"] {
            filter(good).unwrap();
        }
        for bad in ["", "loud", "gristmill=loud"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
        assert!(filter("info").unwrap().to_string().contains("ractor=warn"));
        assert!(filter("ractor=trace").unwrap().to_string().contains("ractor=trace"));
    }
}
