//! The only production crate with a Redis client: queues, leases, claims and settlements, one file and one script per
//! operation.
//!
//! In reading order:
//!
//! * [`keys`]: every key that exists, spelled once.
//! * [`fence`]: who may touch a partition: incarnation, epoch, number.
//! * [`call`]: the numbered calls of a tenure; `claim`, `recover`, `settle`, `hand_back`, `forward`, `promote` and `lease::release`
//!   each know how one of them is written and read, and have a script of the same name in `lua/`.
//! * [`grab`], [`extend`], [`reclaim`]: how jobs are claimed where the ordering is none; calls under number 0 need a claim
//!   and no lease.
//! * `lease`: `acquire`, `want`, `renew`, `release`.
//! * [`load`]: reads claimed jobs again. [`enqueue`], [`create`], [`announce`], [`hung`], [`inspect`], [`doctor`]: what needs no
//!   lease; so do [`dead`] (reading dead letters, page by page), [`replay`], [`discard`], [`release_key`], [`skip`] (what
//!   people do), and [`audit`] (what they did). What a job waits for is read by [`locate`] (one job), [`waiting`] (lines and
//!   holds, in slices) and [`survey`] (a stream, in slices); how
//!   partitions stand in numbers by [`look`].
//! * [`schedule`]: recurring jobs: `define`, `fire`, and what people do with them.
//! * [`limit`]: what a kind is limited to in a queue; [`admit`], [`keep`], [`free`]: the slots of limited kinds, from start to
//!   settle, in a slot of the cluster that belongs to no partition.
//! * [`link`]: one connection to Redis, kept alive; [`broker`] is the producer's handle over it.
//! * [`model`]: the same operations as a pure in-memory machine. Random operations run on both and must agree.
//!
//! Invariants: keys are spelled in `keys` alone; a tenure's calls go through [`Connection::call`] in the order they are
//! first polled; a timeout means *unknown*, never *failed*; no script knows a retry policy.

pub mod absolve;
pub mod admit;
pub mod announce;
pub mod audit;
pub mod broker;
pub mod call;
pub mod cancel;
pub mod census;
pub mod claim;
pub mod create;
pub mod dead;
pub mod delayed;
pub mod discard;
pub mod doctor;
pub mod doorbell;
pub mod enqueue;
pub mod entry;
pub mod error;
pub mod extend;
pub mod fence;
pub mod forward;
pub mod free;
pub mod grab;
mod grab_new;
pub mod hand_back;
pub mod hung;
pub mod inspect;
pub mod keep;
pub mod keys;
pub mod lease;
pub mod length_limit;
pub mod limit;
pub mod link;
pub mod load;
pub mod locate;
pub mod look;
pub mod model;
pub mod pause;
pub mod pauses;
pub mod promote;
pub mod purge;
pub mod purgeable;
pub mod reclaim;
pub mod recover;
pub mod release_key;
pub mod replay;
mod reply;
pub mod resume;
pub mod returned;
pub mod said;
pub mod schedule;
mod script;
pub mod settle;
pub mod skip;
pub mod start;
pub mod state;
pub mod survey;
pub mod take;
pub mod waiting;

pub use broker::{Broker, EnqueueError, Enqueued};
pub use call::{Answer, Call};
pub use entry::Entry;
pub use error::CallError;
pub use fence::{Epoch, Fence, Incarnation, Refusal};
pub use keys::{Mode, PartitionKeys, QueueDefinition};
pub use link::{Connection, Link, RedisConfig};
pub use settle::{Emit, Settle, Settled, Verdict};
pub use state::{JobState, StateLine};
