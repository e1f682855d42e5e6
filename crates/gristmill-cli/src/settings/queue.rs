//! What may be said for all queues (`queue.SETTING`, `retry.SETTING`) and otherwise for one (`queue.NAME.SETTING`,
//! `queue.NAME.retry_SETTING`).

use super::{Fault, RetrySection, Settings, check};
use config::ValueKind;
use gristmill_job::{QueueName, RetryPolicy};
use gristmill_node::config::MAX_WEIGHT;
use gristmill_node::{AfterDeadLetter, Mode, QueueConfig, RetryBudget, VISIBILITY_TIMEOUTS};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The section; a queue's own settings are tables in it, which are read apart.
#[derive(Clone, Deserialize)]
pub(super) struct QueueSection {
    pub(super) ordering: String,
    pub(super) visibility_timeout_ms: u64,
    pub(super) weight: u64,
    pub(super) after_dead_letter: String,
    pub(super) crash_budget: u64,
    pub(super) unknown_kind_wait_ms: u64,
    pub(super) dead_max_age_ms: u64,
    pub(super) expires_ms: u64,
    pub(super) length_limit: u64,
}

/// `queue.SETTING` for `queue.NAME.SETTING`, and `retry.SETTING` for `queue.NAME.retry_SETTING`, `seen.window_ms` for
/// `queue.NAME.seen_window_ms`, where a name may hold dots.
pub(super) fn general(key: &str) -> Option<String> {
    let (name, setting) = key.strip_prefix("queue.")?.rsplit_once('.')?;
    (!name.is_empty()).then(|| everywhere(setting))
}

/// The key under which a queue's setting is said for all.
fn everywhere(setting: &str) -> String {
    match setting.split_once('_') {
        Some((section @ ("retry" | "seen"), rest)) => format!("{section}.{rest}"),
        _ => format!("queue.{setting}"),
    }
}

impl Settings {
    /// What is said for this queue, put into its configuration.
    pub(super) fn with_rules(&self, mut config: QueueConfig) -> Result<QueueConfig, Fault> {
        let name = config.name.to_string();
        let QueueSection {
            weight,
            after_dead_letter,
            crash_budget,
            unknown_kind_wait_ms,
            dead_max_age_ms,
            expires_ms,
            length_limit,
            ..
        } = &self.queue;
        let (ordering, word) = self.word(&name, "ordering", &self.queue.ordering);
        config.mode = Mode::parse(word).ok_or_else(|| self.wrong(&ordering, "key or none".into(), None))?;
        let (key, timeout_ms) = self.number(&name, "visibility_timeout_ms", self.queue.visibility_timeout_ms);
        config.visibility_timeout = Duration::from_millis(timeout_ms);
        if !VISIBILITY_TIMEOUTS.contains(&config.visibility_timeout) {
            return Err(self.wrong(&key, "1000 to 3600000 ms".into(), None));
        }

        let (key, weight) = self.number(&name, "weight", *weight);
        config.weight = u32::try_from(weight).unwrap_or(u32::MAX);
        if !(1..=MAX_WEIGHT).contains(&config.weight) {
            return Err(self.wrong(&key, format!("1 to {MAX_WEIGHT}"), None));
        }

        let (key, crashes) = self.number(&name, "crash_budget", *crash_budget);
        config.crash_budget = u32::try_from(crashes).unwrap_or(u32::MAX);
        if crashes == 0 {
            return Err(self.wrong(&key, "1 or more".into(), None));
        }
        let (_, wait_ms) = self.number(&name, "unknown_kind_wait_ms", *unknown_kind_wait_ms);
        config.unknown_kind_wait = Duration::from_millis(wait_ms);
        let (key, age_ms) = self.number(&name, "dead_max_age_ms", *dead_max_age_ms);
        config.dead_max_age = (age_ms > 0).then(|| Duration::from_millis(age_ms));
        if (1..1000).contains(&age_ms) {
            let expected = "1000 ms or more, or 0: kept until a person acts".into();
            return Err(self.wrong(&key, expected, None));
        }
        let (_, limit) = self.number(&name, "length_limit", *length_limit);
        config.length_limit = limit;
        let (_, expires_ms) = self.number(&name, "expires_ms", *expires_ms);
        config.expires_in = (expires_ms > 0).then(|| Duration::from_millis(expires_ms));
        let seen_ms = self.seen_window_ms(&config.name);
        config.seen_window = (seen_ms != self.seen.window_ms).then(|| Duration::from_millis(seen_ms));
        let (key, word) = self.word(&name, "after_dead_letter", after_dead_letter);
        config.after_dead_letter =
            AfterDeadLetter::parse(word).ok_or_else(|| self.wrong(&key, "continue or hold".into(), None))?;
        if config.mode == Mode::None && config.after_dead_letter == AfterDeadLetter::Hold {
            let expected = format!("continue, since {ordering} is none: there are no lanes that could wait");
            return Err(self.wrong(&key, expected, None));
        }
        config.retry = self.retry(&name)?;
        config.retry_budget = self.retry_budget(&name)?;
        Ok(config)
    }

    /// How long an id of this queue absorbs its repeats after the job's verdict.
    pub(crate) fn seen_window_ms(&self, queue: &QueueName) -> u64 {
        self.number(queue.as_str(), "seen_window_ms", self.seen.window_ms).1
    }

    /// How long a claim of this queue stands unless its node says so again, where its ordering is none.
    pub(crate) fn visibility_timeout(&self, queue: &QueueName) -> Duration {
        let name = queue.as_str();
        let (_, ms) = self.number(name, "visibility_timeout_ms", self.queue.visibility_timeout_ms);
        Duration::from_millis(ms)
    }

    /// What is said for all queues is judged also where none is served.
    pub(super) fn general_rules(&self) -> Result<(), Fault> {
        self.retry("")?;
        self.retry_budget("").map(drop)
    }

    fn retry(&self, queue: &str) -> Result<RetryPolicy, Fault> {
        let RetrySection { shape, base_ms, cap_ms, floor_ms, max_attempts, max_age_ms, .. } = &self.retry;
        let (_, base_ms) = self.number(queue, "retry_base_ms", *base_ms);
        let (cap, cap_ms) = self.number(queue, "retry_cap_ms", *cap_ms);
        let (_, floor_ms) = self.number(queue, "retry_floor_ms", *floor_ms);
        let (_, attempts) = self.number(queue, "retry_max_attempts", *max_attempts);
        let (_, max_age_ms) = self.number(queue, "retry_max_age_ms", *max_age_ms);
        if cap_ms < base_ms.max(floor_ms) {
            let expected = format!("at least retry.base_ms ({base_ms}) and retry.floor_ms ({floor_ms})");
            return Err(self.wrong(&cap, expected, Some(format!("{cap_ms} ms"))));
        }
        let (base, (key, shape)) = (Duration::from_millis(base_ms), self.word(queue, "retry_shape", shape));
        let policy = match shape {
            "exponential" => RetryPolicy::exponential(base),
            "linear" => RetryPolicy::linear(base),
            "fixed" => RetryPolicy::fixed(base),
            _ => return Err(self.wrong(&key, "exponential, linear or fixed".into(), None)),
        };
        let policy =
            RetryPolicy { max_age: (max_age_ms > 0).then(|| Duration::from_millis(max_age_ms)), ..policy };
        Ok(policy
            .with_bounds(Duration::from_millis(floor_ms), Duration::from_millis(cap_ms))
            .with_max_attempts(u32::try_from(attempts).unwrap_or(u32::MAX)))
    }

    fn retry_budget(&self, queue: &str) -> Result<RetryBudget, Fault> {
        let RetrySection { budget_percent, budget_per_second, .. } = &self.retry;
        let (_, percent) = self.number(queue, "retry_budget_percent", *budget_percent);
        let (key, per_second) = self.number(queue, "retry_budget_per_second", *budget_per_second);
        let count = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        if per_second == 0 {
            let expected = "1 or more, or jobs that all wait for their retry would wait for ever".into();
            return Err(self.wrong(&key, expected, None));
        }
        Ok(RetryBudget { share: count(percent) / 100.0, per_second: count(per_second) })
    }

    /// A queue's own word, or the general one; and the key it was said by.
    fn word<'a>(&'a self, queue: &str, setting: &str, general: &'a str) -> (String, &'a str) {
        let key = format!("queue.{queue}.{setting}");
        match self.of_queues.get(&key) {
            Some(ValueKind::String(word)) => (key, word),
            _ => (everywhere(setting), general),
        }
    }

    /// A queue's own number, or the general one; and the key it was said by.
    fn number(&self, queue: &str, setting: &str, general: u64) -> (String, u64) {
        let key = format!("queue.{queue}.{setting}");
        match self.of_queues.get(&key).and_then(check::whole) {
            Some(own) => (key, own),
            None => (everywhere(setting), general),
        }
    }

    /// What is said for single queues, to be shown.
    pub(super) fn queue_entries(&self) -> impl Iterator<Item = (String, Value)> {
        self.of_queues.iter().map(|(key, value)| {
            let shown = match (check::whole(value), value) {
                (Some(number), _) => json!(number),
                (None, ValueKind::String(text)) => json!(text),
                (None, other) => json!(check::shown(other)),
            };
            (key.clone(), shown)
        })
    }
}
