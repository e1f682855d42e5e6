//! What may be said for all queues (`queue.SETTING`) and otherwise for one (`queue.NAME.SETTING`).

use super::{Fault, Settings, check};
use config::ValueKind;
use gristmill_node::{AfterDeadLetter, QueueConfig};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The section; a queue's own settings are tables in it, which are read apart.
#[derive(Clone, Deserialize)]
pub(super) struct QueueSection {
    pub(super) after_dead_letter: String,
    pub(super) crash_budget: u64,
    pub(super) unknown_kind_wait_ms: u64,
    pub(super) dead_max_age_ms: u64,
}

/// `queue.SETTING` for `queue.NAME.SETTING`, where a name may hold dots.
pub(super) fn general(key: &str) -> Option<String> {
    let (name, setting) = key.strip_prefix("queue.")?.rsplit_once('.')?;
    (!name.is_empty()).then(|| format!("queue.{setting}"))
}

impl Settings {
    /// What is said for this queue, put into its configuration.
    pub(super) fn with_rules(&self, mut config: QueueConfig) -> Result<QueueConfig, Fault> {
        let name = config.name.to_string();
        let QueueSection { after_dead_letter, crash_budget, unknown_kind_wait_ms, dead_max_age_ms } =
            &self.queue;

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
        let key = format!("queue.{name}.after_dead_letter");
        let (key, word) = match self.of_queues.get(&key) {
            Some(ValueKind::String(word)) => (key, word),
            _ => ("queue.after_dead_letter".to_owned(), after_dead_letter),
        };
        config.after_dead_letter =
            AfterDeadLetter::parse(word).ok_or_else(|| self.wrong(&key, "continue or hold".into(), None))?;
        Ok(config)
    }

    /// A queue's own number, or the general one; and the key it was said by.
    fn number(&self, queue: &str, setting: &str, general: u64) -> (String, u64) {
        let key = format!("queue.{queue}.{setting}");
        match self.of_queues.get(&key).and_then(check::whole) {
            Some(own) => (key, own),
            None => (format!("queue.{setting}"), general),
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
