//! What may be said about a kind when it is registered.

use gristmill_job::RetryPolicy;
use std::time::Duration;

/// A kind's own retry policy and limits. What is not said is the queue's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindOptions {
    retry: Option<RetryPolicy>,
    soft_limit: Option<Duration>,
    hard_limit: Option<Duration>,
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
            _ => None,
        }
    }
}
