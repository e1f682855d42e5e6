//! define, fire, pause_schedule, resume_schedule, remove_schedule: as the scripts of these names.

use super::Model;
use super::partition::{Job, Mark, Partition, Standing};
use crate::keys::PartitionKeys;
use crate::lease::acquire::millis;
use crate::schedule::define::{Define, DefineAnswer, Defined};
use crate::schedule::fire::{Fire, FireAnswer, Fired};
use crate::schedule::pause_schedule::PausedSchedule;
use crate::schedule::remove_schedule::RemovedSchedule;
use crate::schedule::{DEFINITION_STANDS, Pause, Record, ScheduleView};
use bytes::Bytes;
use gristmill_job::{JobId, UnixMillis};
use std::time::Duration;

impl Model {
    /// As [`crate::Connection::define_for`].
    pub fn define_for(
        &mut self,
        keys: &PartitionKeys,
        definitions: &[Define],
        stands: Duration,
        restored: Duration,
    ) -> DefineAnswer {
        let now = self.now();
        let partition = self.partition(keys);
        if partition.meta.is_none() {
            return DefineAnswer::NoQueue;
        }
        let times = (millis(stands), millis(restored));
        let defined = definitions.iter().map(|one| partition.define(now, times, one)).collect();
        DefineAnswer::Defined(now, defined)
    }

    /// As [`crate::Connection::fire`].
    pub fn fire(&mut self, keys: &PartitionKeys, partitions: u16, fire: &Fire) -> FireAnswer {
        let now = self.now();
        let partition = self.partition(keys);
        let Some(meta) = &partition.meta else { return FireAnswer::NoQueue };
        if meta.partitions != partitions {
            return FireAnswer::Differs { partitions: meta.partitions.to_string() };
        }
        FireAnswer::Fired(now, partition.fire(now, fire))
    }

    /// As [`crate::Connection::pause_schedule`].
    pub fn pause_schedule(
        &mut self,
        keys: &PartitionKeys,
        name: &str,
        who: &str,
        reason: &str,
    ) -> PausedSchedule {
        let since = self.now();
        let paused = &mut self.partition(keys).schedules_paused;
        if let Some(pause) = paused.get(name) {
            return PausedSchedule::Already(pause.clone());
        }
        paused.insert(name.into(), Pause { since, who: who.into(), reason: reason.into() });
        PausedSchedule::Paused(since)
    }

    /// As [`crate::Connection::resume_schedule`].
    pub fn resume_schedule(&mut self, keys: &PartitionKeys, name: &str) -> Option<Pause> {
        let now = self.now();
        let partition = self.partition(keys);
        let pause = partition.schedules_paused.remove(name)?;
        if let Some(record) = partition.schedules.get_mut(name) {
            record.after = record.after.max(now);
        }
        Some(pause)
    }

    /// As [`crate::Connection::remove_schedule`].
    pub fn remove_schedule(
        &mut self,
        keys: &PartitionKeys,
        name: &str,
        also_defined: bool,
    ) -> RemovedSchedule {
        let now = self.now();
        let partition = self.partition(keys);
        let record = partition.schedules.get(name);
        if let Some(Record { confirmed, .. }) = record
            && !also_defined
            && confirmed.0 + millis(DEFINITION_STANDS) > now.0
        {
            return RemovedSchedule::Stands { confirmed: *confirmed, now };
        }
        let gone = [
            partition.schedules.remove(name).is_some(),
            partition.schedule_definitions.remove(name).is_some(),
            partition.schedules_paused.remove(name).is_some(),
        ];
        if gone.contains(&true) { RemovedSchedule::Removed } else { RemovedSchedule::Nothing }
    }

    /// What is kept of schedules in one partition, as [`crate::Connection::schedules`] shows it.
    #[must_use]
    pub fn schedules(&self, keys: &PartitionKeys) -> Vec<ScheduleView> {
        let Some(partition) = self.seen_partition(keys) else { return Vec::new() };
        let names = partition.schedules.keys().chain(partition.schedules_paused.keys());
        let mut names: Vec<&String> = names.chain(partition.schedule_definitions.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let view = |name: &String| ScheduleView {
            partition: 0,
            name: name.clone(),
            record: partition.schedules.get(name).cloned(),
            definition: partition.schedule_definitions.get(name).cloned().unwrap_or_default(),
            pause: partition.schedules_paused.get(name).cloned(),
        };
        names.into_iter().map(view).collect()
    }
}

impl Partition {
    fn define(&mut self, now: UnixMillis, (stands_ms, restored_ms): (u64, u64), one: &Define) -> Defined {
        let mut record = self.schedules.get(&one.name).cloned();
        if let Some(record) = &mut record {
            record.confirmed = record.confirmed.min(now);
        }
        let is_same = |r: &Record| r.timing == one.timing && r.whole == one.whole;
        let over = record.as_ref().is_none_or(|record| record.confirmed.0 + stands_ms <= now.0);
        let mut stands = record.as_ref().is_some_and(is_same);
        if !stands && over && !one.definition.is_empty() {
            let least = UnixMillis(now.0.saturating_sub(restored_ms));
            let after = match &record {
                None => one.known.map_or(now, |known| known.min(now).max(least)),
                Some(record) if record.timing != one.timing => record.after.max(record.confirmed),
                Some(record) => record.after,
            };
            let (fired, call) =
                record.map_or((UnixMillis(0), "-".to_owned()), |record| (record.fired, record.call));
            record = Some(Record {
                timing: one.timing.clone(),
                whole: one.whole.clone(),
                after,
                fired,
                call,
                confirmed: now,
            });
            let definition = Bytes::from(one.definition.clone());
            self.schedule_definitions.insert(one.name.clone(), definition);
            stands = true;
        }
        let Some(mut record) = record else { return Defined::Tell };
        let answer = if stands {
            record.confirmed = now;
            Defined::Stands {
                after: record.after,
                fired: record.fired,
                call: record.call.clone(),
                paused: self.schedules_paused.contains_key(&one.name),
            }
        } else if over {
            return Defined::Tell;
        } else {
            Defined::Other { confirmed: record.confirmed }
        };
        self.schedules.insert(one.name.clone(), record);
        answer
    }

    fn fire(&mut self, now: UnixMillis, fire: &Fire) -> Fired {
        let Some(mut record) = self.schedules.get(&fire.name).cloned() else { return Fired::Unknown };
        if record.timing != fire.timing || record.whole != fire.whole {
            return Fired::Other;
        }
        if record.call == fire.call {
            return Fired::Already { fired: record.fired };
        }
        if record.after != fire.after || record.fired != fire.fired {
            return Fired::Moved { after: record.after, fired: record.fired, call: record.call };
        }
        if self.schedules_paused.contains_key(&fire.name) {
            return Fired::Paused;
        }
        if fire.slot <= record.after {
            return Fired::Behind;
        }
        if fire.slot > now {
            return Fired::Early;
        }
        let answer = if fire.pass {
            Fired::Passed
        } else if self.mark(now.0, &fire.job.id).is_some() {
            record.fired = fire.slot;
            Fired::Before
        } else if fire.unless_alive && self.lives(now, &fire.before) {
            Fired::Overlaps
        } else {
            let limit = self.meta.as_ref().map_or(0, |meta| meta.limit);
            if limit > 0 && (self.stream.entries().len() + self.delayed.len()) as u64 >= limit {
                return Fired::Full { limit: limit.to_string() };
            }
            let (id, key) = (fire.job.id.clone(), fire.job.key.clone());
            let place =
                self.stream.add(now.0, Job { id: id.clone(), key, envelope: fire.job.envelope.clone() });
            self.seen.insert(id, Mark { standing: Standing::Waiting(place), expires_ms: None });
            record.fired = fire.slot;
            Fired::At(place)
        };
        (record.after, record.call) = (fire.slot, fire.call.clone());
        self.schedules.insert(fire.name.clone(), record);
        answer
    }

    /// Whether the job of a producer's id is not done.
    fn lives(&self, now: UnixMillis, id: &JobId) -> bool {
        match self.mark(now.0, id) {
            Some(Standing::Waiting(place)) => {
                self.stream.entries().contains_key(place) || self.returned.contains_key(place)
            }
            Some(Standing::Delayed(member)) => self.delayed.keys().any(|(_, there)| there == member),
            _ => false,
        }
    }
}
