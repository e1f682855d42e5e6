//! What a process tells of itself to those who ask: `health.SETTING`, `monitor.SETTING`.

use super::{Settings, SettingsError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

const STILL_MS: RangeInclusive<u64> = 1000..=600_000;
const EVERY_MS: RangeInclusive<u64> = 100..=3_600_000;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HealthSection {
    listen: String,
    still_ms: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MonitorSection {
    every_ms: u64,
}

/// Where a process answers questions about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealthConfig {
    pub(crate) listen: SocketAddr,
    /// How long what does the work may stand still before the process counts as dead.
    pub(crate) still: Duration,
}

impl HealthSection {
    pub(super) fn entries(&self) -> Vec<(&'static str, Value)> {
        vec![("health.listen", json!(self.listen)), ("health.still_ms", json!(self.still_ms))]
    }
}

impl MonitorSection {
    pub(super) fn entries(&self) -> Vec<(&'static str, Value)> {
        vec![("monitor.every_ms", json!(self.every_ms))]
    }
}

impl Settings {
    /// Where to listen for questions about health and metrics; `None` where nobody asks.
    ///
    /// # Errors
    /// Values that cannot be.
    pub(crate) fn health(&self) -> Result<Option<HealthConfig>, SettingsError> {
        let section = &self.health;
        if !STILL_MS.contains(&section.still_ms) {
            let expected = format!("{} to {}", STILL_MS.start(), STILL_MS.end());
            return Err(self.wrong("health.still_ms", expected, None).into());
        }
        if section.listen.is_empty() {
            return Ok(None);
        }
        let expected = "an address and a port, such as 0.0.0.0:9464, or nothing".to_owned();
        let listen = section.listen.parse().map_err(|_| self.wrong("health.listen", expected, None))?;
        Ok(Some(HealthConfig { listen, still: Duration::from_millis(section.still_ms) }))
    }

    /// How often a monitor looks.
    ///
    /// # Errors
    /// A value that cannot be.
    pub(crate) fn monitor_every(&self) -> Result<Duration, SettingsError> {
        if !EVERY_MS.contains(&self.monitor.every_ms) {
            let expected = format!("{} to {}", EVERY_MS.start(), EVERY_MS.end());
            return Err(self.wrong("monitor.every_ms", expected, None).into());
        }
        Ok(Duration::from_millis(self.monitor.every_ms))
    }
}
