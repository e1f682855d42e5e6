//! Traces, and metrics that are sent: `telemetry.SETTING`. Where to, OpenTelemetry's own variables say.

use super::{Settings, SettingsError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::time::Duration;

const SLOW_MS: RangeInclusive<u64> = 1..=86_400_000;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TelemetrySection {
    traces: bool,
    traces_keep: f64,
    slow_ms: u64,
    metrics_otlp: bool,
}

/// What is sent to a collector.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TelemetryConfig {
    /// The share of attempts that is kept where nothing is remarkable; `None`: nothing is traced.
    pub(crate) keep: Option<f64>,
    /// A run that takes as long is always kept.
    pub(crate) slow: Duration,
    pub(crate) metrics: bool,
}

impl TelemetrySection {
    pub(super) fn entries(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("telemetry.traces", json!(self.traces)),
            ("telemetry.traces_keep", json!(self.traces_keep)),
            ("telemetry.slow_ms", json!(self.slow_ms)),
            ("telemetry.metrics_otlp", json!(self.metrics_otlp)),
        ]
    }
}

impl Settings {
    /// What is sent to a collector.
    ///
    /// # Errors
    /// Values that cannot be.
    pub(crate) fn telemetry(&self) -> Result<TelemetryConfig, SettingsError> {
        let section = &self.telemetry;
        if !(0.0..=1.0).contains(&section.traces_keep) {
            return Err(self.wrong("telemetry.traces_keep", "0 to 1".into(), None).into());
        }
        if !SLOW_MS.contains(&section.slow_ms) {
            let expected = format!("{} to {}", SLOW_MS.start(), SLOW_MS.end());
            return Err(self.wrong("telemetry.slow_ms", expected, None).into());
        }
        if !cfg!(feature = "otlp") && (section.traces || section.metrics_otlp) {
            let key = if section.traces { "telemetry.traces" } else { "telemetry.metrics_otlp" };
            let expected = "false: this program was built without the feature `otlp`".to_owned();
            return Err(self.wrong(key, expected, None).into());
        }
        Ok(TelemetryConfig {
            keep: section.traces.then_some(section.traces_keep),
            slow: Duration::from_millis(section.slow_ms),
            metrics: section.metrics_otlp,
        })
    }
}
