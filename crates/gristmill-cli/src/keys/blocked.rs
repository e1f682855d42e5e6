//! Which keys wait for more than their turn: held ones, and those whose first job was put back, suspected, or came back.

use crate::exit::Failure;
use crate::reason::{self, Reason};
use gristmill_broker::state::Why;
use gristmill_broker::survey::Sought;
use gristmill_broker::waiting::{HeldKey, StoredLine};
use gristmill_broker::{Connection, QueueDefinition, StateLine};
use gristmill_job::{Envelope, Key, Place, UnixMillis};
use std::collections::BTreeMap;

/// Jobs of one partition that are counted at most.
const SURVEYED: u64 = 20_000;

/// A key that waits.
#[derive(Debug, Clone)]
pub(super) struct Blocked {
    pub(super) key: Key,
    pub(super) partition: u16,
    /// The dead letter it waits for.
    pub(super) hold: Option<HeldKey>,
    /// What is stored of its jobs, in order of place.
    lines: BTreeMap<Place, (StateLine, bool)>,
    /// The kind of its first job, where that is why it waits.
    kind: Option<String>,
    /// The first of its jobs in the stream.
    in_stream: Option<Place>,
    /// Jobs of it, the first one included.
    pub(super) jobs: u64,
    /// Whether there may be more.
    pub(super) at_least: bool,
}

/// The keys that wait, in order of partition and key.
pub(super) struct Found {
    pub(super) keys: Vec<Blocked>,
    /// About how many more there are.
    pub(super) more: u64,
    pub(super) now: UnixMillis,
}

/// Whether a line says more than that its job was put back once.
pub(super) fn waits(line: &StateLine, now: UnixMillis) -> bool {
    let quiet = StateLine {
        turn: line.turn,
        attempts: line.attempts,
        replays: line.replays,
        due_ms: line.due_ms,
        crashes: line.crashes.clone(),
        history: line.history.clone(),
        why: line.why,
        ..StateLine::default()
    };
    line.due_ms > now.0 || matches!(line.why, Why::Budget | Why::Kind) || *line != quiet
}

impl Blocked {
    fn new(key: Key, partition: u16) -> Self {
        let (lines, kind) = (BTreeMap::new(), None);
        Self { key, partition, hold: None, lines, kind, in_stream: None, jobs: 0, at_least: false }
    }

    /// Its first job.
    pub(super) fn first(&self) -> Option<Place> {
        [self.lines.keys().next().copied(), self.in_stream].into_iter().flatten().min()
    }

    /// Since when it waits, where that is known: by the clocks of nodes.
    pub(super) fn since(&self) -> Option<UnixMillis> {
        let line = || self.lines.values().next().map(|(line, _)| line);
        let last = || reason::attempts(line()?).pop().map(|attempt| attempt.at);
        self.hold.as_ref().map(|hold| hold.since).or_else(last)
    }

    /// When its first job is due, where it is not.
    pub(super) fn until(&self, now: UnixMillis) -> Option<UnixMillis> {
        let due = UnixMillis(self.lines.values().next()?.0.due_ms);
        (due > now).then_some(due)
    }

    pub(super) fn reasons(&self, now: UnixMillis) -> Vec<Reason> {
        let held = |hold: &HeldKey| Reason::new("held", format!("held since dead letter {}", hold.letter));
        let mut reasons: Vec<Reason> = self.hold.iter().map(held).collect();
        for (line, returned) in self.lines.values() {
            let of_line = reason::of_line(line, self.kind.as_deref(), now);
            if of_line.is_empty() && *returned {
                reasons.push(Reason::new("returned", "a replayed job waits for its owner to take it"));
            }
            if let Some(mark) = &line.mark {
                let alone = if mark.alone { ", alone" } else { "" };
                let text = format!("running under a start mark of {}{alone}", mark.fence.incarnation);
                reasons.push(Reason::new("started", text));
            }
            reasons.extend(of_line);
        }
        reasons
    }
}

impl Found {
    /// At most `limit` keys.
    pub(super) async fn look(
        connection: &Connection,
        queue: &QueueDefinition,
        limit: usize,
    ) -> Result<Self, Failure> {
        let mut found = Self { keys: Vec::new(), more: 0, now: UnixMillis::default() };
        for partition in connection.waiting_partitions(queue).await? {
            let left = limit - found.keys.len();
            let mut blocked = BTreeMap::new();
            found.holds(connection, queue, partition, left, &mut blocked).await?;
            found.lines(connection, queue, partition, left, &mut blocked).await?;
            count(connection, queue, partition, &mut blocked).await?;
            found.keys.extend(blocked.into_values());
        }
        Ok(found)
    }

    async fn holds(
        &mut self,
        connection: &Connection,
        queue: &QueueDefinition,
        partition: u16,
        limit: usize,
        blocked: &mut BTreeMap<Key, Blocked>,
    ) -> Result<(), Failure> {
        let (keys, mut cursor) = (queue.partition(partition), 0);
        loop {
            let slice = connection.held_keys(&keys, cursor).await?;
            self.now = self.now.max(slice.now);
            for hold in slice.items {
                match entry(blocked, &hold.key, partition, limit) {
                    Some(key) => key.hold = Some(hold),
                    None => self.more += 1,
                }
            }
            cursor = slice.next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    async fn lines(
        &mut self,
        connection: &Connection,
        queue: &QueueDefinition,
        partition: u16,
        limit: usize,
        blocked: &mut BTreeMap<Key, Blocked>,
    ) -> Result<(), Failure> {
        let (keys, mut cursor) = (queue.partition(partition), 0);
        loop {
            let slice = connection.stored_lines(&keys, cursor).await?;
            self.now = self.now.max(slice.now);
            for StoredLine { place, line, key, returned } in slice.items {
                let Some(key) = key.filter(|_| returned || waits(&line, slice.now)) else { continue };
                let Some(found) = entry(blocked, &key, partition, limit) else {
                    self.more += 1;
                    continue;
                };
                if line.why == Why::Kind
                    && let Some(job) = connection.job_at(&keys, place).await?
                {
                    let kind = Envelope::decode(&job.envelope, usize::MAX).ok();
                    found.kind = kind.map(|envelope| envelope.kind.to_owned());
                }
                found.lines.insert(place, (line, returned));
            }
            cursor = slice.next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }
}

/// The entry of a key; `None` where it would be one too many.
fn entry<'a>(
    blocked: &'a mut BTreeMap<Key, Blocked>,
    key: &Key,
    partition: u16,
    limit: usize,
) -> Option<&'a mut Blocked> {
    if !blocked.contains_key(key) && blocked.len() >= limit {
        return None;
    }
    Some(blocked.entry(key.clone()).or_insert_with(|| Blocked::new(key.clone(), partition)))
}

async fn count(
    connection: &Connection,
    queue: &QueueDefinition,
    partition: u16,
    blocked: &mut BTreeMap<Key, Blocked>,
) -> Result<(), Failure> {
    if blocked.is_empty() {
        return Ok(());
    }
    let sought = Sought { keys: blocked.keys().cloned().collect(), ..Sought::default() };
    let seen = connection.survey(&queue.partition(partition), &sought, SURVEYED).await?;
    for (n, key) in blocked.values_mut().enumerate() {
        let returned = key.lines.values().filter(|(_, returned)| *returned).count() as u64;
        key.jobs = seen.of_key[n] + returned;
        key.in_stream = seen.first[n];
        key.at_least = seen.cut_short;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_broker::state::{Request, Suspicion};

    #[test]
    fn a_line_that_only_remembers_is_no_reason_to_wait() {
        let now = UnixMillis(1000);
        let remembers = StateLine {
            turn: 3,
            attempts: 3,
            due_ms: 900,
            why: Why::Retry,
            replays: 1,
            ..StateLine::default()
        };
        assert!(!waits(&remembers, now));
        for waiting in [
            StateLine { due_ms: 1001, ..remembers.clone() },
            StateLine { why: Why::Budget, ..remembers.clone() },
            StateLine { suspicion: Suspicion::Weak, ..remembers.clone() },
            StateLine { request: Some(Request::Skip), ..remembers.clone() },
            StateLine { interrupted: true, ..remembers },
        ] {
            assert!(waits(&waiting, now), "{waiting:?}");
        }
    }
}
