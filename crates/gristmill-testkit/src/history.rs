//! What handlers did, and whether the promises hold over it.
//!
//! Handlers write a line when they start and when they end; producers write a line per job they enqueued. When the faults
//! are over, all files are read together and checked. Nothing here looks at Redis: the history is what really ran.
//!
//! * `event`: what is written, and the clock
//! * `writer`: one line per event, one write call per line; several processes may share a file
//! * `reader`: files to runs
//! * `check`: runs to a report
//!
//! ```no_run
//! use gristmill_testkit::history::{Expectations, History, HistoryWriter, Job, Outcome, check};
//!
//! # fn main() -> Result<(), gristmill_testkit::Error> {
//! let history = HistoryWriter::open("history.jsonl")?;
//! let job = Job::new("id-1", "sku-7", 3);
//! history.enqueued(&job)?;
//! let run = history.start(&job, "node-a#1", 0)?;
//! // … the handler's work …
//! run.end(Outcome::Done)?;
//! check(&History::read(["history.jsonl"])?, &Expectations::new()).assert_clean();
//! # Ok(()) }
//! ```

mod check;
mod event;
mod reader;
mod writer;

pub use check::{Expectations, Finding, Report, check};
pub use event::{Event, Job, Outcome, now_us};
pub use reader::{History, Run};
pub use writer::{HistoryWriter, OpenRun};
