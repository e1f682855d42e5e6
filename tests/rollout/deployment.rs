//! What a Deployment does about its pods, as pure decisions: the rolling update of Kubernetes' controller, for a test to play.
//!
//! Pods that were told to leave count for nothing: that is why all old pods can be leaving while all new ones run.
//! Source: `pkg/controller/deployment/rolling.go` and `pkg/controller/controller_utils.go` (ranking) of Kubernetes.

use std::time::Duration;

/// What a Deployment asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strategy {
    pub(crate) replicas: usize,
    /// Pods beyond `replicas` that may be there for a while.
    pub(crate) surge: usize,
    /// Pods that may be missing for a while.
    pub(crate) unavailable: usize,
    /// How long a pod must have been ready to count as available.
    pub(crate) min_ready: Duration,
}

/// A pod that was not told to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ready_for: Option<Duration>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Acts {
    /// So many new pods are started.
    pub(crate) start: usize,
    /// These old ones are told to leave.
    pub(crate) stop_old: Vec<usize>,
    /// And these new ones.
    pub(crate) stop_new: Vec<usize>,
}

impl Strategy {
    fn available(&self, pods: &[Seen]) -> usize {
        pods.iter().filter(|pod| self.is_available(pod)).count()
    }

    fn is_available(&self, pod: &Seen) -> bool {
        pod.ready_for.is_some_and(|ready| ready >= self.min_ready)
    }

    /// One look at the pods of the old and of the new template.
    pub(crate) fn decide(&self, old: &[Seen], new: &[Seen]) -> Acts {
        if new.len() > self.replicas {
            return Acts { stop_new: ranked(new, new.len() - self.replicas), ..Acts::default() };
        }
        let most = self.replicas + self.surge;
        let start = most.saturating_sub(old.len() + new.len()).min(self.replicas - new.len());
        // The new ones that are about to start are counted, and are not available.
        let (all, new_unavailable) = (old.len() + new.len() + start, new.len() + start - self.available(new));
        let least = self.replicas - self.unavailable;
        let may_go = all.saturating_sub(least + new_unavailable);
        let unhealthy = old.iter().filter(|pod| !self.is_available(pod)).count().min(may_go);
        let spare = (self.available(old) + self.available(new)).saturating_sub(least);
        let stop = (unhealthy + spare.min(may_go.saturating_sub(unhealthy))).min(old.len());
        Acts { start, stop_old: ranked(old, stop), stop_new: Vec::new() }
    }

    /// Whether the rollout is over.
    pub(crate) fn is_done(&self, old: &[Seen], new: &[Seen]) -> bool {
        old.is_empty() && new.len() == self.replicas && self.available(new) == self.replicas
    }
}

/// Which go first: those that are not ready, then those that became so last.
fn ranked(pods: &[Seen], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pods.len()).collect();
    order.sort_by_key(|at| pods[*at].ready_for.map_or((0, Duration::ZERO), |ready| (1, ready)));
    order.truncate(count);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Plays a rollout of pods that take `start_ms` to become ready and `drain_ms` to leave, and tells at these times how
    /// many old ones live, leave, and how many new ones live.
    fn play(strategy: Strategy, start_ms: u64, drain_ms: u64, at_ms: &[u64]) -> Vec<(usize, usize, usize)> {
        let mut old: Vec<i64> = vec![-1_000_000; strategy.replicas];
        let (mut new, mut leaving): (Vec<i64>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut told = Vec::new();
        for now in (0..60_000).step_by(50) {
            leaving.retain(|since| now < since + drain_ms);
            let seen = |started: &i64| {
                let ready = now as i64 - started - start_ms as i64;
                Seen { ready_for: u64::try_from(ready).ok().map(ms) }
            };
            let acts = strategy
                .decide(&old.iter().map(seen).collect::<Vec<_>>(), &new.iter().map(seen).collect::<Vec<_>>());
            let mut stop = acts.stop_old;
            stop.sort_unstable();
            for at in stop.into_iter().rev() {
                old.remove(at);
                leaving.push(now);
            }
            new.extend(std::iter::repeat_n(now as i64, acts.start));
            if at_ms.contains(&now) {
                told.push((old.len(), leaving.len(), new.len()));
            }
        }
        assert!(old.is_empty() && leaving.is_empty() && new.len() == strategy.replicas);
        told
    }

    /// Measured on a real controller: three replicas that take a good half second to start and 12 s to leave.
    #[test]
    fn the_schedule_is_that_of_a_real_deployment() {
        let one_less = Strategy { replicas: 3, surge: 0, unavailable: 1, min_ready: ms(0) };
        let told = play(one_less, 800, 12_000, &[100, 1000, 1800, 14_200]);
        assert_eq!(told, [(2, 1, 1), (1, 2, 2), (0, 3, 3), (0, 0, 3)]);
        let one_more = Strategy { replicas: 3, surge: 1, unavailable: 0, min_ready: ms(6000) };
        let told = play(one_more, 750, 12_000, &[100, 6900, 13_600, 20_500, 32_900]);
        assert_eq!(told, [(3, 0, 1), (2, 1, 2), (1, 2, 3), (0, 2, 3), (0, 0, 3)]);
    }

    #[test]
    fn pods_that_never_get_ready_stop_the_rollout_and_not_the_old_ones() {
        let strategy = Strategy { replicas: 3, surge: 1, unavailable: 0, min_ready: ms(0) };
        let (ready, never) = (Seen { ready_for: Some(ms(60_000)) }, Seen { ready_for: None });
        assert_eq!(strategy.decide(&[ready; 3], &[never]), Acts::default());
        assert!(!strategy.is_done(&[ready; 3], &[never]));
    }

    #[test]
    fn scaling_starts_and_stops_without_a_rollout() {
        let strategy = Strategy { replicas: 6, surge: 1, unavailable: 0, min_ready: ms(0) };
        let ready = |ready| Seen { ready_for: Some(ms(ready)) };
        assert_eq!(strategy.decide(&[], &[ready(9)]).start, 5);
        let fewer = Strategy { replicas: 2, ..strategy };
        let acts = fewer.decide(&[], &[ready(9), Seen { ready_for: None }, ready(1), ready(5)]);
        assert_eq!(acts, Acts { stop_new: vec![1, 2], ..Acts::default() });
    }
}
