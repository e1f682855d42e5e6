//! Every key gristmill writes: name, Redis type, who writes it, how long it lives. Spelled here and nowhere else;
//! `docs/KEYS.md` shows the same table.
//!
//! All keys of a partition share the hash tag `{queue:p}`, so that every script runs in one slot.

use crate::fence::Fence;
use gristmill_job::QueueName;

/// Global: hash, queue name to its definition. Advisory; written by `create`, kept until a person deletes it.
pub const QUEUES: &str = "gm:queues";

/// Global: stream · what people did: act, step, who, what, filter, reason, count. Advisory, in a slot of its own; written
/// by `audit`, the newest [`crate::audit::MAX_ENTRIES`] for [`crate::audit::MAX_AGE`].
pub const AUDIT: &str = "gm:audit";

/// The consumer group of every stream. Made at `0`, never at `$`.
pub const GROUP: &str = "workers";

/// The consumer that holds what was handed back.
pub const HANDED_BACK: &str = "handed-back";

/// How a queue was made. It never changes: re-partitioning would tear keys out of their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDefinition {
    /// The queue's name.
    pub name: QueueName,
    /// How many partitions it has, 1 to [`MAX_PARTITIONS`].
    pub partitions: u16,
    /// What order its jobs keep.
    pub mode: Mode,
}

/// What order the jobs of a queue keep: the word `ordering` in settings, `mode` in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Jobs of one key run one at a time, in order of place; a partition is leased to one node.
    #[default]
    Key,
    /// No order: every node reads every partition, and a claim is protected by a visibility timeout.
    None,
}

impl Mode {
    /// The word in `meta`, in definitions and in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::None => "none",
        }
    }

    /// By its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Key, Self::None].into_iter().find(|mode| mode.as_str() == word)
    }
}

/// Most partitions a queue may have.
pub const MAX_PARTITIONS: u16 = 1024;
/// Partitions of a queue that says nothing.
pub const DEFAULT_PARTITIONS: u16 = 64;

impl QueueDefinition {
    /// A queue ordered by key.
    #[must_use]
    pub fn new(name: QueueName, partitions: u16) -> Self {
        Self { name, partitions: partitions.clamp(1, MAX_PARTITIONS), mode: Mode::Key }
    }

    /// With another order.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The keys of one of its partitions.
    #[must_use]
    pub fn partition(&self, partition: u16) -> PartitionKeys {
        PartitionKeys::new(&self.name, partition)
    }
}

/// Hash of a queue: incarnation to `<expires ms> <since ms> <draining>`. Advisory; written by `announce`.
#[must_use]
pub fn nodes(queue: &QueueName) -> String {
    format!("gm:{{{queue}}}:nodes")
}

/// Hash of a queue: incarnation to what it says of the kinds it serves (a JSON list). Advisory; written by `announce`, in
/// the slot of [`nodes`] and gone with the node's entry there.
#[must_use]
pub fn kinds(queue: &QueueName) -> String {
    format!("gm:{{{queue}}}:kinds")
}

/// Hash of a queue: `<incarnation> <partition> <place>` to `<since ms> <kind> <job id>`, of runs that hold their threads.
/// Advisory; written by `hung`, beat by beat, and gone two lease times after the last of them.
#[must_use]
pub fn hung(queue: &QueueName) -> String {
    format!("gm:{{{queue}}}:hung")
}

/// Hash of a queue: kind to `<runs at a time> <us between runs> <burst> <kind or key> <written ms> <by>`, what it is limited
/// to. Written by `limit` and, where it is missing, by `admit`; until the next writes it.
#[must_use]
pub fn limits(queue: &QueueName) -> String {
    format!("gm:{{{queue}}}:limits")
}

/// Sorted set of a queue and kind: `<partition> <place>` of a run that has a slot, by until when (Redis ms). Written by
/// `admit` and `keep`, removed by `free`; lapsed ones by `admit`.
#[must_use]
pub fn holders(queue: &QueueName, kind: &str) -> String {
    format!("gm:{{{queue}}}:holders:{kind}")
}

/// Hash of a queue and kind: `<partition> <place>` to `<incarnation#epoch.asked> <ttl ms> <since ms> <job id>`. As [`holders`].
#[must_use]
pub fn owners(queue: &QueueName, kind: &str) -> String {
    format!("gm:{{{queue}}}:owners:{kind}")
}

/// Hash of a queue and kind: incarnation of a node that has no slot and asks in vain, to `<since ms> <seen ms>`. Written and
/// removed by `admit`; void two seconds after it was seen.
#[must_use]
pub fn waiters(queue: &QueueName, kind: &str) -> String {
    format!("gm:{{{queue}}}:waiters:{kind}")
}

/// String of a queue and kind: when its rate is used up to, in µs. Written by `admit`, gone a second after it means nothing.
#[must_use]
pub fn rate(queue: &QueueName, kind: &str) -> String {
    format!("gm:{{{queue}}}:rate:{kind}")
}

/// The same for one key of the kind, where the rate is counted per key.
#[must_use]
pub fn rate_of_key(queue: &QueueName, kind: &str, key: &[u8]) -> Vec<u8> {
    let mut name = format!("gm:{{{queue}}}:rate_of:{kind} ").into_bytes();
    name.extend_from_slice(key);
    name
}

/// Hash of a queue: `queue`, `kind:<kind>` or `key:<key>` to `<since ms> <until ms, 0 = none> <who>/<why>`. Written by `pause`,
/// removed by `resume`, and by whoever meets one whose end has come.
#[must_use]
pub fn paused(queue: &QueueName) -> String {
    format!("gm:{{{queue}}}:paused")
}

/// The keys of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionKeys {
    /// `gm:{queue:p}`, the start of all of them.
    prefix: String,
    /// stream · ready jobs (fields `i`, `k`, `d`), group [`GROUP`]. Written by enqueue; settle acknowledges and deletes.
    pub stream: String,
    /// hash · mode, partitions, limit (by length_limit); delayed_seq, which counts the jobs for later. Written by create, again after a flush,
    /// and by enqueue and settle.
    pub meta: String,
    /// hash · incarnation, epoch, expires (Redis ms), number of the last call, wanted, wanted_until, changes. Written
    /// by acquire, want, renew, release and every numbered call. Never deleted, no TTL.
    pub lease: String,
    /// hash · place to the line ([`crate::state`]) of a job that was put back, suspected, marked or asked. Until its verdict.
    pub state: String,
    /// sorted set · places of jobs that came back from the dead, by the value of `changes` at their return. Written by
    /// replay, removed by settle.
    pub returned: String,
    /// hash · place to the job that came back ([`crate::returned`]). As `returned`.
    pub returned_bodies: String,
    /// hash · place to the first envelope of a job that was replayed with another. Until its verdict.
    pub originals: String,
    /// hash · key to `<letter> <since ms> <place>`: the lane waits for a person. Written by settle; removed by replay,
    /// discard, release_key, skip, and by census where the letter is gone.
    pub held: String,
    /// list · `<place> <own> <bytes of the id> <id><key>` of jobs that their owner is asked to end. Written by cancel, emptied by
    /// take.
    pub asked: String,
    /// sorted set · dead letter id by time of death (ms). Until discard.
    pub dead: String,
    /// hash · dead letter id to its record. Until discard.
    pub dead_bodies: String,
    /// hash · name of a schedule whose jobs' key lies here to its record ([`crate::schedule`]). Written by define, fire,
    /// resume_schedule; until remove_schedule.
    pub schedules: String,
    /// hash · name to the definition that stands, JSON. Written by define; until remove_schedule.
    pub schedule_definitions: String,
    /// hash · name to `<since ms>`, who and why, a line each. Written by pause_schedule; until resume_schedule.
    pub schedules_paused: String,
    /// sorted set · `<seq>:<own>:<id>` of jobs for later by their due time (Redis ms): seq of 16 digits counts them in `meta`,
    /// own is `1` where the id is the producer's. Written by enqueue and, where the
    /// ordering is none, by settle; removed by promote.
    pub delayed: String,
    /// hash · member of `delayed` to MessagePack `[key, envelope, state line or ""]` ([`crate::delayed`]). As `delayed`.
    pub delayed_bodies: String,
    /// stream, one entry · that the first of `delayed` is another; rings its owner. Written by enqueue.
    pub delayed_bell: String,
    /// stream · emitted jobs (fields `q`, `i`, `k`, `d`) on their way. Written by settle, removed by forward.
    pub outbox: String,
}

impl PartitionKeys {
    /// The keys of partition `partition` of `queue`.
    #[must_use]
    pub fn new(queue: &QueueName, partition: u16) -> Self {
        let prefix = format!("gm:{{{queue}:{partition}}}");
        let key = |name: &str| format!("{prefix}:{name}");
        Self {
            stream: key("stream"),
            meta: key("meta"),
            lease: key("lease"),
            state: key("state"),
            returned: key("returned"),
            returned_bodies: key("returned:bodies"),
            originals: key("originals"),
            held: key("held"),
            asked: key("asked"),
            dead: key("dead"),
            dead_bodies: key("dead:bodies"),
            schedules: key("schedules"),
            schedule_definitions: key("schedules:definitions"),
            schedules_paused: key("schedules:paused"),
            delayed: key("delayed"),
            delayed_bodies: key("delayed:bodies"),
            delayed_bell: key("delayed:bell"),
            outbox: key("outbox"),
            prefix,
        }
    }

    /// string · `waiting <place>`, `waiting <member of delayed>`, `applied`, `stale`, `dead <id>`, `discarded`, `expired` or
    /// `cancelled <ms>/<who>/<why>`: the mark of a producer's id. Written by enqueue, fire, promote, settle, discard and cancel; lives as
    /// long as its job and for a window after its verdict.
    #[must_use]
    pub fn seen(&self, id: &[u8]) -> Vec<u8> {
        self.named(b":seen:", id)
    }

    /// hash · version (20 digits), state, changes, deleted. Written by settle; a tombstone stays after a delete.
    #[must_use]
    pub fn entity(&self, key: &[u8]) -> Vec<u8> {
        self.named(b":entity:", key)
    }

    /// string · first and last place of one enqueue call, for minutes: answers its repeat.
    #[must_use]
    pub fn call(&self, id: &str) -> Vec<u8> {
        self.named(b":call:", id.as_bytes())
    }

    /// stream, always empty, group [`GROUP`] · exists exactly as long as the lease is this tenure's; every claim names
    /// it. Written by acquire, deleted by release and by the acquire that follows.
    #[must_use]
    pub fn gate(&self, fence: &Fence) -> Vec<u8> {
        self.named(b":gate:", fence.consumer().as_bytes())
    }

    /// stream, always empty, group [`GROUP`] · exists only where the ordering is none: what reads new jobs there names it.
    /// Written by grab.
    #[must_use]
    pub fn open_gate(&self) -> Vec<u8> {
        self.named(b":gate:", b"open")
    }

    fn named(&self, room: &[u8], name: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.len() + room.len() + name.len());
        key.extend_from_slice(self.prefix.as_bytes());
        key.extend_from_slice(room);
        key.extend_from_slice(name);
        key
    }
}
