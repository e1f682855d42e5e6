//! What Redis keeps of schedules, in the partition of their jobs' key: which slots were dealt with, under which definition,
//! and whether a person paused them. So one script does it all at once, and a slot is fired once without a leader, a window or
//! clocks that agree: whoever comes first wins, the others are told.
//!
//! * [`define`]: a node says which definitions it has.
//! * [`fire`]: the job of a slot, once.
//! * [`pause_schedule`], [`resume_schedule`], [`remove_schedule`]: what people do.
//! * this file: the record, and reading all of them.

pub mod define;
pub mod fire;
pub mod pause_schedule;
pub mod remove_schedule;
pub mod resume_schedule;

use crate::error::CallError;
use crate::inspect;
use crate::keys::QueueDefinition;
use crate::link::Connection;
use crate::reply;
use bytes::Bytes;
use gristmill_job::UnixMillis;
use redis::{Pipeline, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a definition stands after a node confirmed it: another one takes over after that.
pub const DEFINITION_STANDS: Duration = Duration::from_secs(6);
/// How far back a record may begin that was deleted under nodes that know it: no further than the marks of its jobs reach.
pub const RESTORED: Duration = Duration::from_secs(10);

/// A schedule's record: `<timing> <whole> <after> <fired> <call> <confirmed>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Fingerprint of the timing: 16 hexadecimal digits.
    pub timing: String,
    /// Fingerprint of the whole definition.
    pub whole: String,
    /// Every slot up to this moment was dealt with.
    pub after: UnixMillis,
    /// The slot whose job was enqueued last; 0 where there was none.
    pub fired: UnixMillis,
    /// The call that dealt with a slot last; `-` for none.
    pub call: String,
    /// When a node that has this definition said so last.
    pub confirmed: UnixMillis,
}

impl Record {
    /// Reads one; `None` for what is none of ours.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let words: Vec<&str> = text.split(' ').collect();
        let &[timing, whole, after, fired, call, confirmed] = words.as_slice() else { return None };
        let hex = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_hexdigit());
        let time = |word: &str| {
            let legal = word.len() <= 15 && word.bytes().all(|b| b.is_ascii_digit());
            legal.then(|| word.parse().ok().map(UnixMillis)).flatten()
        };
        if !hex(timing) || !hex(whole) || call.is_empty() || call.contains(char::is_whitespace) {
            return None;
        }
        Some(Self {
            timing: timing.into(),
            whole: whole.into(),
            after: time(after)?,
            fired: time(fired)?,
            call: call.into(),
            confirmed: time(confirmed)?,
        })
    }
}

/// A schedule that a person paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Since when, by the Redis clock.
    pub since: UnixMillis,
    /// Who did it: `user@host`.
    pub who: String,
    /// Why.
    pub reason: String,
}

impl Pause {
    /// Reads one; what is missing is empty.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.splitn(3, '\n');
        let mut next = || lines.next().unwrap_or_default().to_owned();
        Self { since: UnixMillis(next().parse().unwrap_or_default()), who: next(), reason: next() }
    }
}

/// What is kept of one schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleView {
    /// The partition it lies in.
    pub partition: u16,
    /// Its name.
    pub name: String,
    /// Its record; `None` where it is paused only, or what lies there is no record.
    pub record: Option<Record>,
    /// Its definition, as a node told it; empty where none did.
    pub definition: Bytes,
    /// Whether it is paused.
    pub pause: Option<Pause>,
}

impl ScheduleView {
    /// Whether a node that has its definition said so lately.
    #[must_use]
    pub fn is_defined(&self, now: UnixMillis) -> bool {
        self.record.as_ref().is_some_and(|record| record.confirmed.age_at(now) < DEFINITION_STANDS)
    }
}

impl Connection {
    /// Everything that is kept of a queue's schedules, in order of name, and the Redis clock.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn schedules(
        &self,
        queue: &QueueDefinition,
    ) -> Result<(UnixMillis, Vec<ScheduleView>), CallError> {
        let count = 3 * usize::from(queue.partitions) + 1;
        let mut read = Pipeline::with_capacity(count);
        read.cmd("TIME");
        for partition in 0..queue.partitions {
            let keys = queue.partition(partition);
            for hash in [&keys.schedules, &keys.schedule_definitions, &keys.schedules_paused] {
                read.cmd("HGETALL").arg(hash);
            }
        }
        let mut answers = self.many(read, count).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let now = inspect::time(next())?;
        let mut views = Vec::new();
        for partition in 0..queue.partitions {
            let mut found: BTreeMap<Bytes, ScheduleView> = BTreeMap::new();
            for part in 0..3 {
                let mut rows = reply::list(next(), "schedules")?.into_iter();
                while let (Some(name), Some(value)) = (rows.next(), rows.next()) {
                    let (name, value) = (reply::bytes(name)?, reply::bytes(value)?);
                    let view = found.entry(name.clone()).or_insert_with(|| ScheduleView {
                        partition,
                        name: String::from_utf8_lossy(&name).into_owned(),
                        record: None,
                        definition: Bytes::new(),
                        pause: None,
                    });
                    match part {
                        0 => view.record = Record::parse(&value),
                        1 => view.definition = value,
                        _ => view.pause = Some(Pause::parse(&value)),
                    }
                }
            }
            views.extend(found.into_values());
        }
        views.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((now, views))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_and_what_is_none_is_not() {
        let record = Record::parse(b"0a ff 5 0 - 7").unwrap();
        assert_eq!((record.after, record.fired, record.call.as_str()), (UnixMillis(5), UnixMillis(0), "-"));
        for text in [
            &b""[..],
            b"0a ff 5 0 - ",
            b"0a ff 5 0 - 7 8",
            b"0a  ff 5 0 - 7",
            b"xy ff 5 0 - 7",
            b"0a ff -5 0 - 7",
            b"0a ff 1000000000000000 0 - 7",
            b"\xff",
        ] {
            assert_eq!(Record::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_pause_edited_by_hand_is_read_as_far_as_it_goes() {
        let pause = Pause::parse(b"12\nann@host\nlate: a\nb");
        assert_eq!(
            (pause.since.0, pause.who.as_str(), pause.reason.as_str()),
            (12, "ann@host", "late: a\nb")
        );
        assert_eq!(Pause::parse(b"x").since, UnixMillis(0));
    }
}
