//! The actors of one process: they claim jobs of the partitions they own, run them in order of key, and settle them.
//!
//! ```text
//!   Supervisor ─┬─ LeaseManager     who serves which partition: membership, assignment, wishes
//!               ├─ Partition × n    one per partition of each queue: a tenure, its lanes, its settles
//!               ├─ Scheduler        fires the slots of recurring jobs
//!               └─ Worker × w       run handlers, many at a time, bounded by slots
//!   beside them: the heartbeat (a thread and runtime of its own, on which the watchdog looks for held threads), the doorbell,
//!   the keeper of dead letters, the turnstile for lone runs, links to Redis
//! ```
//!
//! In reading order: [`config`], `partition::tenure` (the state machine everything else serves), `partition::lanes`,
//! `partition` (its actor), `worker`, `lease_manager`, `heartbeat`, `doorbell`, `keeper`, `scheduler`, `supervisor`, [`node`].
//!
//! Invariants: no job lives only in a mailbox (what is claimed stays pending in Redis until it is settled); `decide`
//! functions read no clock, no random source and no network; nothing is started without trust in the lease.

mod competing;
pub mod config;
mod counters;
mod doorbell;
mod heartbeat;
mod keeper;
mod lease_manager;
mod limits;
pub mod node;
mod partition;
mod promotions;
mod scheduler;
#[cfg(test)]
mod stage;
mod supervisor;
mod worker;

pub use config::{AfterDeadLetter, ConfigError, Mode, NodeConfig, QueueConfig, VISIBILITY_TIMEOUTS};
pub use counters::Counts;
pub use gristmill_job::RetryBudget;
pub use node::{DrainReport, Node, NodeError};
pub use worker::attempt::{CurrentJob, current_job};
pub use worker::watch::SPARE_THREADS;
