//! What is told of a run once it is known what became of it: for metrics always, for a span where attempts are traced. And
//! which job runs on this thread now, for whoever writes its log lines.

use crate::partition::shared::Shared;
use crate::partition::tenure::Run;
use gristmill_broker::{Entry, Epoch};
use gristmill_handler::Answer;
use gristmill_job::trace::{AttemptOf, TraceContext};
use gristmill_job::{EntityChange, JobId};
use gristmill_telemetry::{Telemetry, tally};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// A run that ended.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) told: tally::Attempt,
    pub(crate) traced: Option<Box<Traced>>,
}

/// What a span is made of, where it is kept in the end.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) began: Began,
    pub(crate) entry: Arc<Entry>,
    pub(crate) epoch: Epoch,
    pub(crate) turn: u32,
    pub(crate) attempt: u32,
    pub(crate) reconcile: bool,
    /// What it did to its entity, and how many jobs it emitted.
    pub(crate) effect: &'static str,
    pub(crate) emitted: usize,
    /// The error and its sources.
    pub(crate) error: Option<String>,
}

/// The beginning of a run that is traced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Began {
    pub(crate) context: TraceContext,
    pub(crate) at: SystemTime,
    pub(crate) instant: Instant,
}

/// Longest text of an error in a span, in bytes.
const ERROR_BYTES: usize = 300;

impl Began {
    /// `None` where nothing is traced.
    pub(crate) fn of(telemetry: &Telemetry, run: &Run, partition: &Shared, now: Instant) -> Option<Self> {
        let traces = telemetry.traces()?;
        let attempt = AttemptOf {
            queue: &partition.queue,
            partition: partition.partition,
            place: run.entry.place,
            job: &run.entry.id,
            turn: run.turn,
        };
        let context = TraceContext::of_attempt(&attempt, traces.share());
        Some(Self { context, at: SystemTime::now(), instant: now })
    }
}

impl Traced {
    /// `answer` is `None` for a run that was stopped.
    pub(crate) fn new(began: Began, run: &Run, answer: Option<&Answer>) -> Box<Self> {
        let (mut effect, mut emitted, mut error) = ("none", 0, None);
        match answer {
            Some(Answer::Done(effects)) => {
                emitted = effects.emit.len();
                effect = match effects.entity {
                    Some(EntityChange::Put(_)) => "put",
                    Some(EntityChange::Delete) => "delete",
                    None => "none",
                };
            }
            Some(Answer::Failed(failure)) => error = Some(cut(failure.chain.join(": "))),
            Some(Answer::Review(reason)) => error = Some(cut(reason.clone())),
            _ => {}
        }
        Box::new(Self {
            began,
            entry: run.entry.clone(),
            epoch: run.epoch,
            turn: run.turn,
            attempt: run.attempt,
            reconcile: run.reconcile,
            effect,
            emitted,
            error,
        })
    }
}

fn cut(mut text: String) -> String {
    let end = (0..=ERROR_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}

/// The job that runs on this thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentJob {
    /// Its id.
    pub job: JobId,
    /// Which attempt.
    pub attempt: u32,
    /// The span of this run, where attempts are traced.
    pub trace: Option<TraceContext>,
}

/// Whose poll it is.
pub(crate) type Current = (Arc<Entry>, u32, Option<TraceContext>);

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The job whose handler is being polled on this thread; `None` elsewhere, also in tasks that a handler started.
#[must_use]
pub fn current_job() -> Option<CurrentJob> {
    // A thread that ends has no current job.
    let current = CURRENT.try_with(|current| current.borrow().clone()).ok()??;
    let (entry, attempt, trace) = current;
    Some(CurrentJob { job: entry.id.clone(), attempt, trace })
}

/// Says whose poll this is, for as long as `poll` takes.
pub(crate) fn during<T>(current: &Current, poll: impl FnOnce() -> T) -> T {
    /// Also where the poll panics.
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            let _ = CURRENT.try_with(|current| current.take());
        }
    }
    let _ = CURRENT.try_with(|now| now.replace(Some(current.clone())));
    let _over = Over;
    poll()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage;

    #[test]
    fn a_job_is_current_while_its_handler_is_polled_and_no_longer() {
        assert_eq!(current_job(), None);
        let current = (Arc::new(stage::entry(1, "k")), 3, None);
        let seen = during(&current, current_job).unwrap();
        assert_eq!((seen.job.as_bytes(), seen.attempt, seen.trace), (&b"id1"[..], 3, None));
        assert_eq!(current_job(), None);
        let panicked = std::panic::catch_unwind(|| during(&current, || panic!("at the disco")));
        assert!(panicked.is_err() && current_job().is_none());
    }

    #[test]
    fn errors_are_cut_between_letters() {
        assert_eq!(cut("é".repeat(200)).len(), 300);
        assert_eq!(cut("abc".into()), "abc");
    }
}
