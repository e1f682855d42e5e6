//! A whole schedule, the job of a slot, and the text under which Redis knows it.

use crate::decide::{CatchUp, LONGEST_WINDOW, ON_TIME, Overlap, Rules};
use crate::name::ScheduleName;
use crate::timing::{Timing, TimingError, moment_text};
use bytes::Bytes;
use gristmill_job::{ContentType, EncodeError, JobId, Key, Kind, NameError, NewJob, QueueName, UnixMillis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Largest payload, in bytes of JSON: it is kept with the definition.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;
/// Largest definition that is read from Redis, in bytes.
pub const MAX_DEFINITION_BYTES: usize = MAX_PAYLOAD_BYTES + 8 * 1024;

/// The header that names the schedule of a job.
pub const SCHEDULE_HEADER: &str = "schedule";
/// The header that names the slot of a job, in Unix ms.
pub const SLOT_HEADER: &str = "slot";

/// Why a schedule cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Its name.
    #[error(transparent)]
    Name(#[from] crate::name::ScheduleNameError),
    /// Queue, kind or key.
    #[error(transparent)]
    Job(#[from] NameError),
    /// When it is.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// Its payload is too large.
    #[error("expected a payload of at most {MAX_PAYLOAD_BYTES} bytes of JSON, got {0}")]
    Payload(usize),
    /// Its window is too short or too long.
    #[error("expected a window of 10 s to 31 days for missed slots, got {0} ms")]
    Window(u128),
    /// A definition in Redis that this release cannot read.
    #[error("not a definition that this release knows: {0}")]
    Stored(String),
}

/// A recurring job.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    name: ScheduleName,
    queue: QueueName,
    kind: Kind,
    key: String,
    timing: Timing,
    payload: Value,
    rules: Rules,
    overlap: Overlap,
    enabled: bool,
}

/// Two definitions with the same fingerprint are the same one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Of what says when slots are: 16 hexadecimal digits.
    pub timing: String,
    /// Of all of it: 16 hexadecimal digits.
    pub whole: String,
}

/// The stored form. Field order is write order; unknown fields of newer releases are ignored.
#[derive(Serialize, Deserialize)]
struct Stored {
    queue: String,
    kind: String,
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anchor: Option<String>,
    payload: Value,
    catch_up: String,
    catch_up_window_ms: u64,
    overlap: String,
    enabled: bool,
}

impl Schedule {
    /// A schedule with no payload (`null`), whose jobs have its name as their key; it makes up the last missed slot of a day.
    ///
    /// # Errors
    /// [`ScheduleError::Name`], [`ScheduleError::Job`].
    pub fn new(name: &str, queue: &str, kind: &str, timing: Timing) -> Result<Self, ScheduleError> {
        Ok(Self {
            name: ScheduleName::new(name)?,
            queue: QueueName::new(queue)?,
            kind: Kind::new(kind)?,
            key: name.to_owned(),
            timing,
            payload: Value::Null,
            rules: Rules::default(),
            overlap: Overlap::default(),
            enabled: true,
        })
    }

    /// With another key.
    ///
    /// # Errors
    /// [`ScheduleError::Job`] for a key that is empty or too long.
    pub fn with_key(mut self, key: &str) -> Result<Self, ScheduleError> {
        Key::new(key)?;
        key.clone_into(&mut self.key);
        Ok(self)
    }

    /// With this payload in every job.
    ///
    /// # Errors
    /// [`ScheduleError::Payload`] beyond [`MAX_PAYLOAD_BYTES`].
    pub fn with_payload(mut self, payload: Value) -> Result<Self, ScheduleError> {
        let bytes = payload.to_string().len();
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(ScheduleError::Payload(bytes));
        }
        self.payload = payload;
        Ok(self)
    }

    /// What becomes of missed slots that are no older than the window (10 s to 31 days).
    ///
    /// # Errors
    /// [`ScheduleError::Window`].
    pub fn with_catch_up(mut self, catch_up: CatchUp, window: Duration) -> Result<Self, ScheduleError> {
        if !(ON_TIME..=LONGEST_WINDOW).contains(&window) {
            return Err(ScheduleError::Window(window.as_millis()));
        }
        self.rules = Rules { catch_up, window };
        Ok(self)
    }

    /// What becomes of a slot while the job of the one before is not done.
    #[must_use]
    pub fn with_overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Whether it fires at all.
    #[must_use]
    pub fn with_enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &ScheduleName {
        &self.name
    }

    /// Where its jobs go.
    #[must_use]
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// What its jobs are.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The key of its jobs.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// When its slots are.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// What becomes of missed slots.
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// What becomes of a slot while the job of the one before is not done.
    #[must_use]
    pub fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// Whether it fires at all.
    #[must_use]
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// The id of a slot's job: `<schedule>@<slot in Unix ms>`.
    #[must_use]
    pub fn job_id(&self, slot: UnixMillis) -> JobId {
        JobId::from_stored(Bytes::from(format!("{}@{slot}", self.name)))
    }

    /// The job of a slot. Its version is the slot, so that a later one is newer; two headers tell both.
    ///
    /// # Errors
    /// [`EncodeError`]; none for a schedule that was made by its constructors.
    pub fn job(&self, slot: UnixMillis) -> Result<NewJob, EncodeError> {
        let job = NewJob::from_bytes(
            self.kind.as_str(),
            &self.key,
            self.payload.to_string().into_bytes(),
            ContentType::Json,
        )?;
        Ok(NewJob { id: Some(self.job_id(slot)), ..job }
            .with_version(slot.0)
            .with_header(SCHEDULE_HEADER, self.name.as_str())
            .with_header(SLOT_HEADER, &slot.to_string()))
    }

    /// The text under which Redis knows it, JSON.
    #[must_use]
    pub fn stored(&self) -> String {
        let (cron, timezone, every, anchor) = match &self.timing {
            Timing::Cron(cron) => {
                (Some(cron.text().to_owned()), Some(cron.zone_name().to_owned()), None, None)
            }
            Timing::Every { every_ms, anchor } => {
                (None, None, Some(crate::timing::interval_text(*every_ms)), Some(moment_text(*anchor)))
            }
        };
        let stored = Stored {
            queue: self.queue.to_string(),
            kind: self.kind.as_str().to_owned(),
            key: self.key.clone(),
            cron,
            timezone,
            every,
            anchor,
            payload: self.payload.clone(),
            catch_up: self.rules.catch_up.as_str().to_owned(),
            catch_up_window_ms: u64::try_from(self.rules.window.as_millis()).unwrap_or(u64::MAX),
            overlap: self.overlap.as_str().to_owned(),
            enabled: self.enabled,
        };
        // Texts, numbers and a value that is JSON already: it can be written.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Reads what [`Schedule::stored`] wrote, in this release or another.
    ///
    /// # Errors
    /// [`ScheduleError::Stored`] for what is not of that form, else as the constructors.
    pub fn from_stored(name: &str, stored: &[u8]) -> Result<Self, ScheduleError> {
        if stored.len() > MAX_DEFINITION_BYTES {
            return Err(ScheduleError::Stored(format!("{} bytes", stored.len())));
        }
        let unknown = |what: &str, got: &str| ScheduleError::Stored(format!("{what} {got:?}"));
        let stored: Stored =
            serde_json::from_slice(stored).map_err(|error| ScheduleError::Stored(error.to_string()))?;
        let timing = match (&stored.cron, &stored.every) {
            (Some(cron), None) => Timing::cron(cron, stored.timezone.as_deref().unwrap_or("UTC"))?,
            (None, Some(every)) => Timing::every(every, stored.anchor.as_deref())?,
            _ => return Err(ScheduleError::Stored("neither cron nor every, or both".into())),
        };
        let catch_up =
            CatchUp::parse(&stored.catch_up).ok_or_else(|| unknown("catch_up", &stored.catch_up))?;
        let overlap = Overlap::parse(&stored.overlap).ok_or_else(|| unknown("overlap", &stored.overlap))?;
        Ok(Self::new(name, &stored.queue, &stored.kind, timing)?
            .with_key(&stored.key)?
            .with_payload(stored.payload)?
            .with_catch_up(catch_up, Duration::from_millis(stored.catch_up_window_ms))?
            .with_overlap(overlap)
            .with_enabled(stored.enabled))
    }

    /// By what two definitions are told apart.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let hash = |text: &str| format!("{:016x}", xxhash_rust::xxh64::xxh64(text.as_bytes(), 0));
        // One that is enabled again begins then, as one with other slots does.
        let timing = format!("{} {}", self.enabled, self.timing.text());
        Fingerprint { timing: hash(&timing), whole: hash(&self.stored()) }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.timing, self.whole)
    }
}

/// Schedule and slot of a job's id, where it has that form.
#[must_use]
pub fn slot_of_job(id: &[u8]) -> Option<(ScheduleName, UnixMillis)> {
    let (name, slot) = std::str::from_utf8(id).ok()?.split_once('@')?;
    let slot = slot.bytes().all(|b| b.is_ascii_digit()).then(|| slot.parse().ok()).flatten()?;
    Some((ScheduleName::new(name).ok()?, UnixMillis(slot)))
}

#[cfg(test)]
#[path = "definition_tests.rs"]
mod tests;
