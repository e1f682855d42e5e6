//! How the head of a lane starts. Pure.
//!
//! Most start at once. What may kill the process, or may not run twice, has its start written down first; a strong suspect
//! waits until nothing else runs; and some are settled without a run.

use crate::partition::lanes::LaneJob;
use crate::partition::policy::Policy;
use crate::partition::verdict::line_of;
use gristmill_broker::start::How;
use gristmill_broker::state::{Request, StateLine, Suspicion, Why};
use gristmill_handler::{DeliverySemantics, Redelivery};
use std::time::{Duration, Instant};

/// How a head starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// At once.
    Run,
    /// Under a start mark.
    Mark(How),
    /// When nothing else runs, under a start mark.
    Alone(How),
    /// Acknowledged first: it may run at most once.
    Acknowledge,
    /// Not at all.
    Settle(Unrun),
}

/// Why a job is settled without a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unrun {
    /// It became ready too long ago.
    Expired,
    /// A person passes over it.
    Skipped,
    /// A person took it back.
    Cancelled,
    /// It has killed as many processes as it may.
    Crashed,
    /// A run of it was interrupted, and its kind asks a person then.
    Interrupted,
    /// It is a retry, and the queue's retry budget is used up.
    OverBudget {
        /// When it may ask again.
        turn: Duration,
    },
}

impl Way {
    /// Of `job`, at the node of this incarnation.
    pub(crate) fn of(job: &LaneJob, policy: &Policy, incarnation: &str, now: Instant) -> Self {
        let entry = &job.entry;
        // Acknowledged, and then not started: it has never run.
        if job.acknowledged {
            return Self::Run;
        }
        if entry.state.line().is_none() && !entry.returned && policy.rules.are_none() {
            return Self::Run;
        }
        let line = line_of(job);
        if line.request == Some(Request::Skip) {
            return Self::Settle(Unrun::Skipped);
        }
        let rule = policy.rules.of(&entry.envelope);
        let budget = rule.as_ref().and_then(|rule| rule.crash_budget).unwrap_or(policy.crash_budget);
        // A charge that names a run of this very process is false: it lives.
        let is_true =
            |crash: &&gristmill_broker::state::Crash| crash.fence.incarnation.as_str() != incarnation;
        let crashes = line.crashes.iter().filter(is_true).count();
        if u32::try_from(crashes).unwrap_or(u32::MAX) >= budget {
            return Self::Settle(Unrun::Crashed);
        }
        let redelivery = rule.as_ref().map_or(Redelivery::Rerun, |rule| rule.redelivery);
        if line.interrupted && redelivery == Redelivery::Review {
            return Self::Settle(Unrun::Interrupted);
        }
        // Only where it is known that no run of it had an effect.
        let known = !line.interrupted || redelivery == Redelivery::Rerun;
        if known && line.request.as_ref().is_some_and(Request::is_cancel) {
            return Self::Settle(Unrun::Cancelled);
        }
        if !policy.may_start(line, now) {
            return Self::Settle(Unrun::OverBudget { turn: policy.budget.turn(now) });
        }
        if rule.is_some_and(|rule| rule.delivery == DeliverySemantics::AtMostOnce) {
            return Self::Acknowledge;
        }
        let looks = line.interrupted && redelivery == Redelivery::Reconcile;
        match (line.suspicion, looks) {
            (Suspicion::Strong, true) => Self::Alone(How::LookAlone),
            (Suspicion::Strong, false) => Self::Alone(How::Alone),
            (_, true) => Self::Mark(How::Look),
            (Suspicion::Weak, false) => Self::Mark(How::Beside),
            // A returned job is in no pending list: without a mark its owner's death would not be seen (V26).
            (Suspicion::None, false) if entry.returned || redelivery != Redelivery::Rerun => {
                Self::Mark(How::Beside)
            }
            (Suspicion::None, false) => Self::Run,
        }
    }
}

impl Policy {
    /// Whether the retry budget lets this run start, if it is a retry.
    fn may_start(&self, line: &StateLine, now: Instant) -> bool {
        let is_retry = line.attempts > 0 && matches!(line.why, Why::Retry | Why::Budget);
        !is_retry || self.budget.take(now)
    }
}

#[cfg(test)]
#[path = "way_tests.rs"]
mod tests;
