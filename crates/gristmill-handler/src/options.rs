//! What may be said about a kind when it is registered.

use gristmill_job::{Limit, Rate, RetryPolicy};
use std::time::Duration;

/// A kind's own retry policy, limits, and what becomes of an interrupted run. What is not said is the queue's.
///
/// | the handler | say |
/// |---|---|
/// | returns `Effects`, may be done twice, or sends `Context::idempotency_key` along | nothing |
/// | does what can be looked up afterwards | nothing here, but `Registry::reconcile` |
/// | does what cannot be looked up and must not happen twice | [`review`](Self::review) |
/// | does what may rather be lost than happen twice | [`at_most_once`](Self::at_most_once) |
///
/// [`Redelivery`](crate::Redelivery) says more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindOptions {
    pub(crate) review: bool,
    pub(crate) at_most_once: bool,
    pub(crate) crash_budget: Option<u32>,
    retry: Option<RetryPolicy>,
    pub(crate) expires_in: Option<Duration>,
    limit: Limit,
    soft_limit: Option<Duration>,
    hard_limit: Option<Duration>,
    /// Soft and hard, where the handler keeps them itself.
    pub(crate) kept_limits: Option<(Option<Duration>, Duration)>,
}

impl KindOptions {
    /// Nothing said.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Failed jobs of this kind are tried again as `policy` says.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// A job of this kind that says nothing itself ends unrun, as `expired`, where it is not started so long after it became
    /// ready.
    #[must_use]
    pub fn expires_in(mut self, limit: Duration) -> Self {
        self.expires_in = Some(limit);
        self
    }

    /// At most so many runs of this kind at a time, in each queue, on all nodes together; 1 to 100000. Costs two calls of Redis
    /// for each run.
    #[must_use]
    pub fn max_running(mut self, runs: u32) -> Self {
        self.limit.max_running = Some(runs);
        self
    }

    /// At most so many runs of this kind in a stretch of time, in each queue, on all nodes together: of the kind, or of each
    /// key ([`Rate::per_key`]). Costs a call of Redis for each run.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.limit.rate = Some(rate);
        self
    }

    /// What was said of limits across the fleet.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// After so long a run is asked to finish tidily (`Context::cancelled`).
    #[must_use]
    pub fn soft_limit(mut self, limit: Duration) -> Self {
        self.soft_limit = Some(limit);
        self
    }

    /// After so long a run is stopped at its next await and charged, class `timeout`. A handler that blocks its thread
    /// cannot be stopped.
    #[must_use]
    pub fn hard_limit(mut self, limit: Duration) -> Self {
        self.hard_limit = Some(limit);
        self
    }

    /// Limits that the handler keeps itself, since it knows better when its work begins. People are told of them; the
    /// node does nothing about them.
    #[must_use]
    pub fn keeps_limits(mut self, soft: Option<Duration>, hard: Duration) -> Self {
        self.kept_limits = Some((soft, hard));
        self
    }

    /// After an interrupted run a person decides: it becomes a dead letter `review`. Costs a write before every run.
    #[must_use]
    pub fn review(mut self) -> Self {
        self.review = true;
        self
    }

    /// Jobs are acknowledged before they run, and never run twice. One whose process dies is lost and counted nowhere; an
    /// error is a dead letter at once, whatever its class and the retry policy. The next job of the key still waits
    /// for the run. Costs a write before every run.
    #[must_use]
    pub fn at_most_once(mut self) -> Self {
        self.at_most_once = true;
        self
    }

    /// After so many charged crashes a job is a dead letter `crashed`; at least 1.
    #[must_use]
    pub fn crash_budget(mut self, crashes: u32) -> Self {
        self.crash_budget = Some(crashes);
        self
    }

    /// The policy, where one was said.
    #[must_use]
    pub fn retry_policy(&self) -> Option<&RetryPolicy> {
        self.retry.as_ref()
    }

    /// Soft and hard limit, where they were said.
    #[must_use]
    pub fn limits(&self) -> (Option<Duration>, Option<Duration>) {
        (self.soft_limit, self.hard_limit)
    }

    /// What is wrong with it.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match (self.soft_limit, self.hard_limit) {
            (Some(soft), Some(hard)) if soft >= hard => {
                Some("its soft limit must be less than its hard limit")
            }
            (_, Some(Duration::ZERO)) | (Some(Duration::ZERO), _) => {
                Some("a limit must be more than nothing")
            }
            _ if self.retry.as_ref().is_some_and(|retry| retry.max_attempts == 0) => {
                Some("a retry policy must allow at least one attempt")
            }
            _ if self.retry.as_ref().is_some_and(|retry| retry.max_age == Some(Duration::ZERO)) => {
                Some("a retry policy's limit of age must be more than nothing")
            }
            _ if self.expires_in == Some(Duration::ZERO) => {
                Some("a kind whose jobs expire at once never runs")
            }
            _ if self.crash_budget == Some(0) => Some("a crash budget must be at least 1"),
            _ if self.limit.fault().is_some() => self.limit.fault(),
            _ if self.review && self.at_most_once => Some(
                "`at_most_once` and `review` exclude each other: a job that was acknowledged before its run never \
                 comes back to a person",
            ),
            _ => None,
        }
    }
}
