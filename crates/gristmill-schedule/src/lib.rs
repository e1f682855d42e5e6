//! Recurring jobs: when they are due, and what they are. Pure: no clock, no randomness, no I/O.
//!
//! In reading order:
//!
//! * [`name`]: what a schedule is called.
//! * [`timing`]: cron in a time zone, or an interval; the slots that follow from it.
//! * [`definition`]: a whole schedule; the job of a slot; the text under which Redis knows it.
//! * [`decide`]: which slots are due now, which were missed, when to look again.
//!
//! Invariants: a slot is a moment in Unix ms; slots are walked by [`Timing::next_after`] alone, so that whoever walks them
//! meets the same ones; every walk is bounded.

pub mod decide;
pub mod definition;
pub mod name;
pub mod timing;

pub use decide::{CatchUp, Overlap, Plan, Rules, decide};
pub use definition::{Fingerprint, SCHEDULE_HEADER, SLOT_HEADER, Schedule, ScheduleError, slot_of_job};
pub use name::ScheduleName;
pub use timing::{Timing, TimingError};
