//! What the program is told, from all layers: checked, with the origin of every value, and without secrets in sight.
//!
//! * `layers`: built-in defaults, a file, the environment, the command line, merged by the `config` crate;
//! * `check`: every key known, every value of its type, or a complaint that says which key, what was expected, what
//!   came and from where;
//! * `fault`: what is wrong with them, in words;
//! * `redis`: the address, its password and certificates;
//! * `queue`: what may be said for all queues and otherwise for one;
//! * `kinds`: kinds that others serve, by HTTP or by a command;
//! * `schedules`: recurring jobs;
//! * `limits`: what kinds are limited to across the fleet;
//! * `ingest`: the server that takes jobs by HTTP;
//! * `telemetry`: traces, and what is sent to a collector;
//! * `health`: what a process tells of itself to those who ask;
//! * `postgres`: the database of handlers, relay and probes;
//! * `whole`: all of it judged at once, and what it amounts to;
//! * this file: the typed settings, and the [`NodeConfig`] and [`RedisConfig`] they become.
//!
//! The keys are those of `config/default.toml`, which is built in: it is at once the documentation, the defaults and
//! the list of what is known.

mod check;
mod fault;
pub(crate) mod health;
mod ingest;
mod kinds;
mod layers;
mod limits;
pub(crate) mod postgres;
mod queue;
mod redis;
mod schedules;
mod shown;
mod telemetry;
mod whole;

pub use fault::{Fault, SettingsError};
pub use layers::{Layers, Override};
pub use shown::Entry;
pub use whole::Told;

use gristmill_broker::RedisConfig;
use gristmill_broker::keys::{DEFAULT_PARTITIONS, MAX_PARTITIONS};
use gristmill_job::{JobLimits, QueueName};
use gristmill_node::{NodeConfig, QueueConfig};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The file that is built in.
pub const DEFAULT_TOML: &str = include_str!("../../../config/default.toml");

/// All settings, with where each came from.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    redis: RedisSection,
    node: NodeSection,
    #[serde(deserialize_with = "texts_or_commas")]
    queues: Vec<String>,
    lease: LeaseSection,
    drain: DrainSection,
    handover: HandoverSection,
    window: WindowSection,
    job: JobSection,
    seen: SeenSection,
    retry: RetrySection,
    queue: queue::QueueSection,
    remote: kinds::RemoteSection,
    /// Read by their whole keys, below.
    #[serde(default, rename = "kinds")]
    _kinds: IgnoredAny,
    schedule: schedules::ScheduleSection,
    /// Read with their names, below.
    #[serde(default, rename = "schedules")]
    _schedules: IgnoredAny,
    ingest: ingest::IngestSection,
    health: health::HealthSection,
    monitor: health::MonitorSection,
    telemetry: telemetry::TelemetrySection,
    postgres: postgres::PostgresSection,
    log: LogSection,
    /// What is said for one queue alone, by its whole key.
    #[serde(skip)]
    of_queues: BTreeMap<String, config::ValueKind>,
    /// The same for one kind.
    #[serde(skip)]
    of_kinds: BTreeMap<String, config::ValueKind>,
    /// The same for schedules, by name and setting.
    #[serde(skip)]
    of_schedules: schedules::OfSchedules,
    #[serde(skip)]
    origins: BTreeMap<String, String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedisSection {
    url: String,
    url_file: String,
    password_file: String,
    ca_file: String,
    connect_timeout_ms: u64,
    response_timeout_ms: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeSection {
    name: String,
    slots: u64,
    blocked_after_ms: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseSection {
    ttl_ms: u64,
    renewal_ms: u64,
    margin_ms: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainSection {
    window_ms: u64,
    grace_ms: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandoverSection {
    wait_ms: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowSection {
    jobs: u64,
    bytes: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobSection {
    max_bytes: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeenSection {
    window_ms: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetrySection {
    shape: String,
    base_ms: u64,
    cap_ms: u64,
    floor_ms: u64,
    max_attempts: u64,
    max_age_ms: u64,
    budget_percent: u64,
    budget_per_second: u64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogSection {
    level: String,
    format: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

impl Settings {
    /// Reads and merges the layers, and checks every key and every value by itself.
    ///
    /// # Errors
    /// Every unknown key and wrong value at once.
    pub fn load(layers: &Layers) -> Result<Self, SettingsError> {
        let merged = layers.merge()?;
        let check::Checked { origins, of_queues, of_kinds, of_schedules } = check::check(&merged)?;
        let mut settings: Self =
            merged.try_deserialize().map_err(|error| Fault::Layer(format!("the settings: {error}")))?;
        settings.origins = origins;
        settings.of_queues = of_queues;
        settings.of_kinds = of_kinds;
        settings.of_schedules = of_schedules;
        settings.log_format()?;
        crate::logging::filter(&settings.log.level)
            .map_err(|why| settings.wrong("log.level", format!("a level or directives ({why})"), None))?;
        Ok(settings)
    }

    /// How Redis is reached; reads the files that hold secrets.
    ///
    /// # Errors
    /// A file that cannot be read, an address that cannot be, or values that do not go together.
    pub fn redis(&self) -> Result<RedisConfig, SettingsError> {
        redis::config(self)
    }

    /// What a node is told, checked.
    ///
    /// # Errors
    /// Values that cannot be, or do not go together.
    pub fn node(&self) -> Result<NodeConfig, SettingsError> {
        let mut config = NodeConfig::new(self.node_name(), self.redis()?, self.queues()?);
        config.slots = bounded(self.node.slots);
        config.blocked_after = Duration::from_millis(self.node.blocked_after_ms);
        config.lease_ttl = Duration::from_millis(self.lease.ttl_ms);
        config.lease_renewal = Duration::from_millis(self.lease.renewal_ms);
        config.lease_margin = Duration::from_millis(self.lease.margin_ms);
        config.handover_wait = Duration::from_millis(self.handover.wait_ms);
        config.drain_window = Duration::from_millis(self.drain.window_ms);
        config.drain_grace = Duration::from_millis(self.drain.grace_ms);
        config.window_jobs = bounded(self.window.jobs);
        config.window_bytes = bounded(self.window.bytes);
        config.max_envelope_bytes = bounded(self.job.max_bytes);
        config.seen_window = Duration::from_millis(self.seen.window_ms);
        config.schedules = self.schedules()?;
        config.check().map_err(|error| {
            let key = if error.setting.starts_with("queues.retry.") {
                error.setting.trim_start_matches("queues.")
            } else {
                error.setting
            };
            self.wrong(key, error.expected, Some(error.got))
        })?;
        Ok(config)
    }

    /// The queues to serve.
    ///
    /// # Errors
    /// A queue that is not `name` or `name:partitions`, and retries that cannot be.
    pub fn queues(&self) -> Result<Vec<QueueConfig>, SettingsError> {
        self.general_rules()?;
        let read = |text: &String| {
            let (name, partitions) = match text.split_once(':') {
                Some((name, partitions)) => (name, partitions.parse().ok()),
                None => (text.as_str(), Some(DEFAULT_PARTITIONS)),
            };
            let wrong = |expected: String| self.wrong("queues", expected, Some(format!("{text:?}")));
            let name = QueueName::new(name).map_err(|_| {
                wrong("name or name:partitions, where a name is 1 to 64 of a-z, 0-9, '.', '_' and '-'".into())
            })?;
            let legal = partitions.filter(|count| (1..=MAX_PARTITIONS).contains(count));
            let partitions = legal
                .ok_or_else(|| wrong(format!("name:partitions with 1 to {MAX_PARTITIONS} partitions")))?;
            Ok(self.with_rules(QueueConfig { partitions, ..QueueConfig::new(name) })?)
        };
        self.queues.iter().map(read).collect()
    }

    /// Whether any layer but the built-in one names queues.
    pub(crate) fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// What a job may be.
    #[must_use]
    pub fn job_limits(&self) -> JobLimits {
        JobLimits { max_envelope_bytes: bounded(self.job.max_bytes) }
    }

    /// Level or directives of the log.
    #[must_use]
    pub fn log_level(&self) -> &str {
        &self.log.level
    }

    /// How log lines look.
    ///
    /// # Errors
    /// A word that is neither.
    pub fn log_format(&self) -> Result<LogFormat, SettingsError> {
        match self.log.format.as_str() {
            "human" => Ok(LogFormat::Human),
            "json" => Ok(LogFormat::Json),
            _ => Err(self.wrong("log.format", "human or json".into(), None).into()),
        }
    }

    pub(crate) fn node_name(&self) -> String {
        if !self.node.name.is_empty() {
            return self.node.name.clone();
        }
        let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = kernel.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
        match name.trim() {
            "" => "node".into(),
            name => name.into(),
        }
    }

    /// Whether some layer over the built-in one sets it.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.origin(key) != layers::BUILT_IN
    }

    fn origin(&self, key: &str) -> String {
        let known = self.origins.get(key).or_else(|| self.origins.get(key.split('.').next()?));
        known.cloned().unwrap_or_else(|| layers::BUILT_IN.into())
    }

    /// A complaint about a key; where `got` is missing, the value as it stands.
    fn wrong(&self, key: &str, expected: String, got: Option<String>) -> Fault {
        let got = got.unwrap_or_else(|| {
            let entries = self.entries();
            entries.iter().find(|entry| entry.key == key).map_or_else(String::new, |entry| entry.shown())
        });
        Fault::WrongValue { key: key.into(), expected, got, origin: self.origin(key) }
    }
}

fn bounded(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A list of texts, or one text with commas, as the environment has it.
fn texts_or_commas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Texts(Vec<String>),
        Commas(String),
    }
    Ok(match Form::deserialize(deserializer)? {
        Form::Texts(texts) => texts,
        Form::Commas(text) => {
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        }
    })
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries().iter().map(|entry| (&entry.key, entry.shown()))).finish()
    }
}

#[cfg(test)]
#[path = "settings/settings_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "settings/reference_tests.rs"]
mod reference_tests;

#[cfg(test)]
#[path = "settings/limits_tests.rs"]
mod limits_tests;

#[cfg(test)]
#[path = "settings/kinds_tests.rs"]
mod kinds_tests;

#[cfg(test)]
#[path = "settings/schedules_tests.rs"]
mod schedules_tests;

#[cfg(test)]
#[path = "settings/queue_tests.rs"]
mod queue_tests;
