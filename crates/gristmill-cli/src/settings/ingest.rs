//! The server that takes jobs by HTTP: `ingest.SETTING`.

use super::{Settings, SettingsError, bounded};
use gristmill_ingest::IngestConfig;
use serde::Deserialize;
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

const BODY_BYTES: RangeInclusive<u64> = 1024..=1024 * 1024 * 1024;
const JOBS: RangeInclusive<u64> = 1..=1_000_000;
const BODY_MS: RangeInclusive<u64> = 1..=3_600_000;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IngestSection {
    listen: String,
    tokens_file: String,
    max_body_bytes: u64,
    max_jobs: u64,
    body_timeout_ms: u64,
}

impl IngestSection {
    pub(super) fn entries(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("ingest.listen", json!(self.listen)),
            ("ingest.tokens_file", json!(self.tokens_file)),
            ("ingest.max_body_bytes", json!(self.max_body_bytes)),
            ("ingest.max_jobs", json!(self.max_jobs)),
            ("ingest.body_timeout_ms", json!(self.body_timeout_ms)),
        ]
    }
}

impl Settings {
    /// What the server that takes jobs by HTTP is told.
    ///
    /// # Errors
    /// Values that cannot be.
    pub fn ingest(&self) -> Result<IngestConfig, SettingsError> {
        let section = &self.ingest;
        let listen = section.listen.parse().map_err(|_| {
            self.wrong(
                "ingest.listen",
                "an address and a port, such as 0.0.0.0:8080 or [::1]:8080".into(),
                None,
            )
        })?;
        for (key, value, within) in [
            ("ingest.max_body_bytes", section.max_body_bytes, BODY_BYTES),
            ("ingest.max_jobs", section.max_jobs, JOBS),
            ("ingest.body_timeout_ms", section.body_timeout_ms, BODY_MS),
        ] {
            if !within.contains(&value) {
                return Err(self.wrong(key, format!("{} to {}", within.start(), within.end()), None).into());
            }
        }
        Ok(IngestConfig {
            tokens_file: (!section.tokens_file.is_empty()).then(|| PathBuf::from(&section.tokens_file)),
            max_body_bytes: bounded(section.max_body_bytes),
            max_jobs: bounded(section.max_jobs),
            body_timeout: Duration::from_millis(section.body_timeout_ms),
            drain_window: Duration::from_millis(self.drain.window_ms),
            job_limits: self.job_limits(),
            ..IngestConfig::new(listen)
        })
    }
}
