//! What people do to dead letters and lanes, and what they see of them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's scaffold fails loudly where it stands")]

use crate::fleet::{Fleet, PARTITIONS, SOON};
use gristmill_broker::cancel::{Cancel, Cancelled, Stands};
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::inspect::DeadView;
use gristmill_broker::keys::PartitionKeys;
use gristmill_broker::pause::{Paused, Target};
use gristmill_broker::release_key::ReleasedKey;
use gristmill_broker::replay::{Replay, Replayed};
use gristmill_broker::said::Said;
use gristmill_broker::skip::{Skip, Skipped, WaitsFor};
use gristmill_broker::state::StateLine;
use gristmill_broker::waiting::{HeldKey, StoredLine};
use gristmill_job::{DeadLetter, JobId, Key, Place, partition_of};
use gristmill_testkit::eventually;
use std::time::Duration;

/// How long a discarded id stays known.
const SEEN_WINDOW_MS: u64 = 60_000;

fn key(key: &str) -> Key {
    Key::from_stored(key.as_bytes().to_vec().into())
}

impl Fleet {
    /// The keys of the partition of a key.
    pub fn keys_of(&self, key: &str) -> PartitionKeys {
        self.queue.partition(partition_of(key.as_bytes(), PARTITIONS))
    }

    /// The first dead letter of a job.
    pub fn letter_of(&self, id: &str) -> Option<(DeadView, DeadLetter)> {
        self.dead().into_iter().find_map(|view| {
            let letter = view.letter.clone().ok()?;
            (letter.job == id.as_bytes()).then_some((view, letter))
        })
    }

    /// Waits for a dead letter of a job.
    pub fn wait_letter(&self, id: &str) -> (DeadView, DeadLetter) {
        eventually(SOON, &format!("a dead letter of {id}"), || self.letter_of(id))
    }

    /// Replays a letter.
    pub fn replay(&self, view: &DeadView, letter: &DeadLetter) -> Replayed {
        let replay = Replay::of(view.id.clone().into(), letter.clone()).unwrap();
        let (keys, connection) = (self.queue.partition(view.partition), self.connection());
        self.runtime.block_on(connection.replay(&keys, &[replay])).unwrap()[0]
    }

    /// Discards a letter.
    pub fn discard(&self, view: &DeadView) -> Discarded {
        let job = view.letter.clone().ok().map(Whose::of);
        let discard = Discard { letter: view.id.clone().into(), job };
        let (keys, connection) = (self.queue.partition(view.partition), self.connection());
        self.runtime.block_on(connection.discard(&keys, SEEN_WINDOW_MS, &[discard])).unwrap()[0]
    }

    /// What is stored about the jobs of the queue.
    pub fn lines(&self) -> Vec<StoredLine> {
        let connection = self.connection();
        let lines_in = |partition| {
            let (keys, mut cursor, mut lines) = (self.queue.partition(partition), 0, Vec::new());
            loop {
                let slice = self.runtime.block_on(connection.stored_lines(&keys, cursor)).unwrap();
                lines.extend(slice.items);
                cursor = slice.next;
                if cursor == 0 {
                    return lines;
                }
            }
        };
        (0..PARTITIONS).flat_map(lines_in).collect()
    }

    /// What is stored about the first job of a key.
    pub fn line_of(&self, name: &str) -> Option<(Place, StateLine)> {
        let of_key =
            |line: &StoredLine| line.key.as_ref().is_some_and(|key| key.as_bytes() == name.as_bytes());
        let lines = self.lines().into_iter().filter(of_key);
        lines.min_by_key(|line| line.place).map(|line| (line.place, line.line))
    }

    /// Waits until what is stored about the first job of a key is so.
    pub fn wait_line(&self, name: &str, what: &str, is: impl Fn(&StateLine) -> bool) -> (Place, StateLine) {
        eventually(SOON, what, || self.line_of(name).filter(|(_, line)| is(line)))
    }

    /// The hold of a key.
    pub fn hold_of(&self, name: &str) -> Option<HeldKey> {
        let (keys, connection) = (self.keys_of(name), self.connection());
        self.runtime.block_on(connection.hold_of(&keys, &key(name))).unwrap()
    }

    /// Lets the lane of a key go on.
    pub fn release(&self, name: &str) -> ReleasedKey {
        let (keys, connection) = (self.keys_of(name), self.connection());
        let waits = self.line_of(name).map(|(place, _)| place);
        self.runtime.block_on(connection.release_key(&keys, &key(name), waits)).unwrap()
    }

    /// Gives up what the lane of a key waits for.
    pub fn skip(&self, name: &str) -> Skipped {
        let waits_for = match (self.hold_of(name), self.line_of(name)) {
            (Some(hold), _) => {
                let letters = self.dead().into_iter();
                let job = letters.filter(|view| view.id == hold.letter).find_map(|view| view.letter.ok());
                let job = job.map(|letter| gristmill_job::JobId::from_stored(letter.job.into()));
                WaitsFor::Letter { letter: hold.letter, place: hold.place.unwrap(), job }
            }
            (None, Some((place, _))) => WaitsFor::Job(place),
            (None, None) => panic!("{name} waits for nothing"),
        };
        let (keys, connection) = (self.keys_of(name), self.connection());
        let skip = Skip { key: key(name), waits_for };
        self.runtime.block_on(connection.skip(&keys, SEEN_WINDOW_MS, &skip)).unwrap()
    }

    /// Purges what is in the queue now, and says how many jobs that were. `meanwhile` is done once it is known what is to go.
    pub fn purge(&self, meanwhile: impl FnOnce()) -> u64 {
        let connection = self.connection();
        let until = |partition| {
            let keys = self.queue.partition(partition);
            let slice = self.runtime.block_on(connection.purgeable(&keys, None, None)).unwrap();
            (keys, slice.until)
        };
        let until: Vec<_> = (0..PARTITIONS).map(until).collect();
        meanwhile();
        let mut purged = 0;
        for (keys, until) in until {
            let one = connection.purge_waiting(&keys, &until, |jobs| purged += jobs);
            self.runtime.block_on(one).unwrap();
        }
        purged
    }

    /// From now on nothing of it starts, for so long or until it is let go.
    pub fn stop_work(&self, target: &Target, length: Option<Duration>) -> Paused {
        let (connection, said) = (self.connection(), Said::new("a test", "to see that nothing starts"));
        self.runtime.block_on(connection.pause(&self.queue.name, target, length, &said)).unwrap()
    }

    /// Whether it was stopped; it goes on.
    pub fn let_work(&self, target: &Target) -> bool {
        let connection = self.connection();
        self.runtime.block_on(connection.resume(&self.queue.name, target)).unwrap().is_some()
    }

    /// How the producer's id of a job of this key stands.
    pub fn standing_of(&self, id: &str, name: &str) -> Option<String> {
        let seen = self.keys_of(name).seen(id.as_bytes());
        self.server.command(&[b"GET", &seen[..]]).unwrap().as_str().map(str::to_owned)
    }

    /// Cancels a job that waits or runs, by its producer's id.
    pub fn cancel(&self, id: &str, name: &str) -> Cancelled {
        let standing = self.standing_of(id, name).unwrap_or_default();
        let place = standing.strip_prefix("waiting ").and_then(|place| place.parse().ok());
        let cancel = Cancel {
            stands: Stands::At(place.unwrap_or(Place::ZERO)),
            id: JobId::new(id).unwrap(),
            key: key(name),
            own_id: true,
            said: Said::new("a test", "no longer wanted"),
        };
        let connection = self.connection();
        self.runtime.block_on(connection.cancel(&self.keys_of(name), SEEN_WINDOW_MS, &cancel)).unwrap()
    }

    /// Waits until the mark of a job begins with this word.
    pub fn wait_standing(&self, id: &str, name: &str, word: &str) -> String {
        eventually(SOON, &format!("{id} to be {word}"), || {
            self.standing_of(id, name).filter(|standing| standing.split(' ').next() == Some(word))
        })
    }

    /// Jobs that came back from the dead and are not settled.
    pub(crate) fn any_returned(&self) -> bool {
        let connection = self.connection();
        let any = |partition| {
            let keys = self.queue.partition(partition);
            self.runtime
                .block_on(connection.returned_places(&keys, 0, 1))
                .is_ok_and(|places| !places.is_empty())
        };
        (0..PARTITIONS).any(any)
    }
}
