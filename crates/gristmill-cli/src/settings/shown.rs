//! The settings as a person may see them.

use super::Settings;
use gristmill_broker::RedisConfig;
use serde_json::{Value, json};

/// One setting.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key, with its section.
    pub key: String,
    /// Its value; an address without user and password.
    pub value: Value,
    /// Where it came from.
    pub origin: String,
}

impl Entry {
    pub(super) fn shown(&self) -> String {
        self.value.to_string()
    }
}

impl Settings {
    /// Every setting in the order of the built-in file, secrets left out.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let Self {
            redis,
            node,
            queues,
            lease,
            drain,
            handover,
            window,
            job,
            seen,
            retry,
            queue,
            remote,
            schedule,
            ingest,
            postgres,
            health,
            monitor,
            telemetry,
            log,
            ..
        } = self;
        let entries = [
            ("queues", json!(queues)),
            ("redis.url", json!(RedisConfig::new(redis.url.clone()).redacted_url())),
            ("redis.url_file", json!(redis.url_file)),
            ("redis.password_file", json!(redis.password_file)),
            ("redis.ca_file", json!(redis.ca_file)),
            ("redis.connect_timeout_ms", json!(redis.connect_timeout_ms)),
            ("redis.response_timeout_ms", json!(redis.response_timeout_ms)),
            ("node.name", json!(node.name)),
            ("node.slots", json!(node.slots)),
            ("node.blocked_after_ms", json!(node.blocked_after_ms)),
            ("lease.ttl_ms", json!(lease.ttl_ms)),
            ("lease.renewal_ms", json!(lease.renewal_ms)),
            ("lease.margin_ms", json!(lease.margin_ms)),
            ("drain.window_ms", json!(drain.window_ms)),
            ("drain.grace_ms", json!(drain.grace_ms)),
            ("handover.wait_ms", json!(handover.wait_ms)),
            ("window.jobs", json!(window.jobs)),
            ("window.bytes", json!(window.bytes)),
            ("job.max_bytes", json!(job.max_bytes)),
            ("seen.window_ms", json!(seen.window_ms)),
            ("retry.shape", json!(retry.shape)),
            ("retry.base_ms", json!(retry.base_ms)),
            ("retry.cap_ms", json!(retry.cap_ms)),
            ("retry.floor_ms", json!(retry.floor_ms)),
            ("retry.max_attempts", json!(retry.max_attempts)),
            ("retry.max_age_ms", json!(retry.max_age_ms)),
            ("retry.budget_percent", json!(retry.budget_percent)),
            ("retry.budget_per_second", json!(retry.budget_per_second)),
            ("queue.ordering", json!(queue.ordering)),
            ("queue.visibility_timeout_ms", json!(queue.visibility_timeout_ms)),
            ("queue.weight", json!(queue.weight)),
            ("queue.after_dead_letter", json!(queue.after_dead_letter)),
            ("queue.crash_budget", json!(queue.crash_budget)),
            ("queue.unknown_kind_wait_ms", json!(queue.unknown_kind_wait_ms)),
            ("queue.dead_max_age_ms", json!(queue.dead_max_age_ms)),
            ("queue.expires_ms", json!(queue.expires_ms)),
            ("queue.length_limit", json!(queue.length_limit)),
            ("log.level", json!(log.level)),
            ("log.format", json!(log.format)),
        ];
        entries
            .into_iter()
            .chain(remote.entries())
            .chain(schedule.entries())
            .chain(ingest.entries())
            .chain(postgres.entries())
            .chain(health.entries())
            .chain(monitor.entries())
            .chain(telemetry.entries())
            .map(|(key, value)| (key.to_owned(), value))
            .chain(self.queue_entries())
            .chain(self.kind_entries())
            .chain(self.schedule_entries())
            .map(|(key, value)| Entry { origin: self.origin(&key), key, value })
            .collect()
    }
}
