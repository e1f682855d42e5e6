//! What may be asked of a queue with ordering none, and how it is drawn.

use crate::plan::{self, ACTORS, IDS, KEYS, LETTERS, Span, When};
use gristmill_broker::start::How;
use gristmill_broker::state::Why;
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

/// By how much time passes. No number of steps is a [`Timeout`], or the time at which a job is due.
pub(crate) const STEP: Duration = Duration::from_secs(50 * 60);

/// From [`ACTORS`] on, `who` is whoever claims that job of those that are claimed.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Create,
    /// Everything is gone, and the queue is made again or not.
    Flush {
        made_again: bool,
    },
    Enqueue {
        repeat_last_call: bool,
        jobs: Vec<plan::Job>,
    },
    Grab {
        who: usize,
        count: usize,
        /// What is new alone.
        new: bool,
    },
    Extend {
        who: usize,
        jobs: Vec<Job>,
    },
    Reclaim {
        who: usize,
        timeout: Timeout,
        go_on: bool,
        /// 0 looks.
        count: usize,
    },
    Settle {
        who: usize,
        window: Span,
        jobs: Vec<(Job, Settle)>,
    },
    HandBack {
        who: usize,
        jobs: Vec<Job>,
        /// It was sent for the first claim that its sender ever had of them, and not for the last.
        first: bool,
        stopped: usize,
    },
    Start {
        who: usize,
        starts: Vec<(Job, Option<u32>, How)>,
    },
    Census {
        who: usize,
    },
    Forward {
        who: usize,
        entries: Vec<usize>,
    },
    Promote {
        who: Option<usize>,
        count: usize,
    },
    /// A [`STEP`] passes for claims and for jobs for later.
    Pass,
    Absolve {
        /// Whose run; else the one that its line names.
        who: Option<usize>,
        job: Job,
    },
    Cancel {
        job: Job,
        named: bool,
        window: Span,
    },
    CancelDelayed {
        nth: usize,
    },
    Purge {
        jobs: Vec<Job>,
        nth: Option<usize>,
    },
    Replay {
        letters: Vec<u8>,
        edited: bool,
        strong: bool,
    },
    /// By hand, whoever claims it.
    Delete {
        job: Job,
    },
    Load {
        jobs: Vec<Job>,
    },
    SpoilEntity {
        key: u8,
    },
    Limit {
        jobs: u64,
    },
}

impl Operation {
    /// Whether something it made is to be over before the next question.
    pub(crate) fn is_momentary(&self) -> bool {
        match self {
            Self::Settle { window, .. } | Self::Cancel { window, .. } => *window == Span::Moment,
            _ => false,
        }
    }
}

/// After what time claims are over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Timeout {
    Nothing,
    Hour,
    TwoHours,
}

impl Timeout {
    pub(crate) fn time(self) -> Duration {
        Duration::from_secs(match self {
            Self::Nothing => 0,
            Self::Hour => 3600,
            Self::TwoHours => 7200,
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Job {
    /// Of those that the caller claims, the oldest first; where it claims none, as `Claimed`.
    Mine(usize),
    /// Of those that anybody claims.
    Claimed(usize),
    /// Of those that the caller claimed once and does not any more, the newest first: its calls are late.
    Lost(usize),
    /// Of all that ever were, the newest first.
    Any(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Settle {
    /// Else the turn it stands at.
    pub(crate) turn: Option<u32>,
    pub(crate) wrong_mark: bool,
    pub(crate) verdict: plan::Verdict,
}

pub(crate) fn sequence() -> impl Strategy<Value = Vec<Operation>> {
    vec(operation(), 1..50)
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        1 => prop_oneof![1 => Just(Operation::Create), 1 => any::<bool>().prop_map(|made_again| Operation::Flush { made_again }),
            4 => Just(Operation::Limit { jobs: 0 }), 1 => Just(Operation::Limit { jobs: 6 })],
        15 => enqueue(),
        14 => (anybody(), count(), any::<bool>()).prop_map(|(who, count, new)| Operation::Grab { who, count, new }),
        6 => (who(), jobs(0..5)).prop_map(|(who, jobs)| Operation::Extend { who, jobs }),
        16 => (anybody(), timeout(), proptest::bool::weighted(0.3), 0..5usize)
            .prop_map(|(who, timeout, go_on, count)| Operation::Reclaim { who, timeout, go_on, count }),
        24 => (who(), window(), vec((job(), settle()), 1..5))
            .prop_map(|(who, window, jobs)| Operation::Settle { who, window, jobs }),
        7 => (who(), jobs(0..4), proptest::bool::weighted(0.3), 0..4usize)
            .prop_map(|(who, jobs, first, stopped)| Operation::HandBack { who, jobs, first, stopped }),
        14 => (who(), vec((job(), turn(), how()), 1..6)).prop_map(|(who, starts)| Operation::Start { who, starts }),
        4 => who().prop_map(|who| Operation::Census { who }),
        2 => (who(), vec(0..4usize, 0..3)).prop_map(|(who, entries)| Operation::Forward { who, entries }),
        10 => (proptest::option::weighted(0.6, 0..2usize), 1..5usize)
            .prop_map(|(who, count)| Operation::Promote { who, count }),
        8 => Just(Operation::Pass),
        6 => (proptest::option::weighted(0.2, anybody()), job())
            .prop_map(|(who, job)| Operation::Absolve { who, job }),
        5 => (job(), proptest::bool::weighted(0.9), window())
            .prop_map(|(job, named, window)| Operation::Cancel { job, named, window }),
        1 => (0..4usize).prop_map(|nth| Operation::CancelDelayed { nth }),
        1 => (jobs(0..4), proptest::option::of(0..3usize)).prop_map(|(jobs, nth)| Operation::Purge { jobs, nth }),
        10 => (vec(0..LETTERS, 1..3), any::<bool>(), any::<bool>())
            .prop_map(|(letters, edited, strong)| Operation::Replay { letters, edited, strong }),
        4 => job().prop_map(|job| Operation::Delete { job }),
        1 => jobs(1..4).prop_map(|jobs| Operation::Load { jobs }),
        1 => (0..KEYS).prop_map(|key| Operation::SpoilEntity { key }),
    ]
}

fn anybody() -> impl Strategy<Value = usize> {
    0..ACTORS
}

/// Mostly one of those who claim something: of the jobs that are claimed, whoever claims the nth.
fn who() -> impl Strategy<Value = usize> {
    prop_oneof![1 => anybody(), 4 => ACTORS..ACTORS + 12]
}

fn count() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 1..4usize, 1 => Just(20)]
}

fn jobs(size: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Job>> {
    vec(job(), size)
}

fn job() -> impl Strategy<Value = Job> {
    prop_oneof![
        6 => prop_oneof![0..3usize, 0..12usize].prop_map(Job::Mine),
        2 => (0..4usize).prop_map(Job::Claimed),
        2 => (0..4usize).prop_map(Job::Lost),
        1 => (0..12usize).prop_map(Job::Any),
    ]
}

fn timeout() -> impl Strategy<Value = Timeout> {
    prop_oneof![2 => Just(Timeout::Nothing), 2 => Just(Timeout::Hour), 1 => Just(Timeout::TwoHours)]
}

fn window() -> impl Strategy<Value = Span> {
    prop_oneof![30 => Just(Span::Hour), 1 => Just(Span::Moment)]
}

fn turn() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![10 => Just(None), 1 => (0..3u32).prop_map(Some)]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        2 => Just(How::Beside),
        3 => Just(How::Alone),
        1 => Just(How::Look),
        1 => Just(How::LookAlone),
        1 => Just(How::Not),
        1 => Just(How::Interrupted)
    ]
}

fn enqueue() -> impl Strategy<Value = Operation> {
    let due = prop_oneof![40 => Just(When::Now), 3 => Just(When::In(Span::Nothing)), 3 => Just(When::In(Span::Hour)),
        1 => Just(When::Past), 1 => Just(When::At)];
    let job = (0..IDS, proptest::bool::weighted(0.5), 0..KEYS, due)
        .prop_map(|(id, own_id, key, due)| plan::Job { id, own_id, key, due });
    (proptest::bool::weighted(0.05), vec(job, 1..8))
        .prop_map(|(repeat_last_call, jobs)| Operation::Enqueue { repeat_last_call, jobs })
}

fn settle() -> impl Strategy<Value = Settle> {
    let retry =
        (0..5u32, prop_oneof![Just(Span::Nothing), Just(Span::Hour)], vec(any::<u8>(), 0..6)).prop_map(
            |(attempts, delay, history)| plan::Verdict::Retry { attempts, delay, why: Why::Retry, history },
        );
    let dead = (0..LETTERS, 0..3u64).prop_map(|(letter, at_ms)| plan::Verdict::Dead {
        letter,
        at_ms,
        hold: false,
        acknowledged: false,
    });
    let other = plan::verdict().prop_filter("with a delay of its own", is_no_retry);
    let verdict = prop_oneof![4 => other, 3 => retry, 2 => dead];
    (turn(), proptest::bool::weighted(0.1), verdict).prop_map(|(turn, wrong_mark, verdict)| Settle {
        turn,
        wrong_mark,
        verdict,
    })
}

fn is_no_retry(verdict: &plan::Verdict) -> bool {
    !matches!(verdict, plan::Verdict::Retry { .. })
}
