//! Where settings come from, and the order in which one wins over the other.

use super::{DEFAULT_TOML, Fault};
use config::builder::DefaultState;
use config::{Config, ConfigBuilder, Environment, File, FileFormat, Value, ValueKind};
use std::collections::HashMap;
use std::path::PathBuf;

/// How the environment spells a setting: prefix, section and key, joined by [`SEPARATOR`].
pub(super) const PREFIX: &str = "GRISTMILL";
/// Two, since keys hold single ones.
pub(super) const SEPARATOR: &str = "__";
pub(super) const BUILT_IN: &str = "the built-in defaults";

/// One setting given on the command line.
#[derive(Clone)]
pub struct Override {
    /// The key, with its section: `lease.ttl_ms`.
    pub key: String,
    /// Its value as typed.
    pub value: String,
    /// How messages name it: `--set`, `--redis`.
    pub origin: String,
}

/// What is laid over the built-in defaults, first to last.
#[derive(Clone, Default)]
pub struct Layers {
    /// A TOML file; it must exist.
    pub file: Option<PathBuf>,
    /// Environment variables, all of them; those of ours begin with `GRISTMILL__`.
    pub environment: HashMap<String, String>,
    /// From the command line.
    pub overrides: Vec<Override>,
}

impl Layers {
    /// The process's own environment; variables that are no text are left out unless they are ours.
    ///
    /// # Errors
    /// A variable of ours that is no text.
    pub fn with_process_environment(mut self) -> Result<Self, Fault> {
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => {
                    self.environment.insert(name, value);
                }
                Err(_) if name.starts_with(&format!("{PREFIX}{SEPARATOR}")) => {
                    return Err(Fault::Layer(format!("the variable {name}: expected text, got other bytes")));
                }
                Err(_) => {}
            }
        }
        Ok(self)
    }

    pub(super) fn merge(&self) -> Result<Config, Fault> {
        let mut builder = built_in();
        if let Some(path) = &self.file {
            // Read here, since the crate's message for a missing file does not say what the system said.
            let text = std::fs::read_to_string(path).map_err(|error| {
                Fault::Layer(format!("cannot read the settings in {}: {error}", path.display()))
            })?;
            let parsed = Config::builder().add_source(File::from_str(&text, FileFormat::Toml)).build();
            parsed
                .map_err(|error| Fault::Layer(format!("{}: {}", path.display(), without_source(&error))))?;
            builder = builder.add_source(File::from(path.as_path()).format(FileFormat::Toml));
        }
        builder = builder.add_source(self.environment());
        for Override { key, value, origin } in &self.overrides {
            let legal =
                |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.');
            if key.is_empty() || !key.bytes().all(legal) {
                return Err(Fault::Layer(format!(
                    "{origin}: expected SECTION.KEY=VALUE, got the key {key:?}"
                )));
            }
            let value = Value::new(Some(origin), ValueKind::String(value.clone()));
            builder = builder
                .set_override(key, value)
                .map_err(|error| Fault::Layer(format!("{origin} {key}: {error}")))?;
        }
        builder.build().map_err(|error| Fault::Layer(format!("the settings: {}", without_source(&error))))
    }

    /// No parsing of numbers: `007` stays what it is. Empty variables say nothing.
    fn environment(&self) -> Environment {
        Environment::with_prefix(PREFIX)
            .prefix_separator(SEPARATOR)
            .separator(SEPARATOR)
            .ignore_empty(true)
            .source(Some(self.environment.clone().into_iter().collect()))
    }
}

pub(super) fn built_in() -> ConfigBuilder<DefaultState> {
    Config::builder().add_source(File::from_str(DEFAULT_TOML, FileFormat::Toml))
}

/// A parser's message without the lines of the file that it quotes: one of them may hold a password.
fn without_source(error: &config::ConfigError) -> String {
    let text = error.to_string();
    let kept: Vec<&str> =
        text.lines().filter(|line| !line.contains(" | ") && !line.trim_end().ends_with(" |")).collect();
    kept.join(": ")
}
