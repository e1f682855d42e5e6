//! One number for autoscalers: jobs that are ready, in flight or due, of a queue or of all.

use crate::health::Said;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A number that is older than so many rests tells nothing.
const STALE_RESTS: u32 = 3;

/// What was seen last.
#[derive(Default)]
pub(super) struct Autoscale(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    jobs: BTreeMap<String, (u64, Instant)>,
    rest: Duration,
}

impl Autoscale {
    /// A queue has so many jobs.
    pub(super) fn saw(&self, queue: &str, jobs: u64, now: Instant) {
        self.lock().jobs.insert(queue.to_owned(), (jobs, now));
    }

    /// The next look comes after so long.
    pub(super) fn rests(&self, rest: Duration) {
        self.lock().rest = rest;
    }

    pub(super) fn forget(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().jobs.retain(|queue, _| is_there(queue));
    }

    /// The answer to `/autoscale` and `/autoscale/QUEUE`; `None` for other paths.
    pub(super) fn answer(&self, path: &str, now: Instant) -> Option<Said> {
        let seen = self.lock();
        let fresh = |at: &Instant| now.saturating_duration_since(*at) <= seen.rest * STALE_RESTS;
        let said = match path.strip_prefix("/autoscale")?.strip_prefix('/') {
            None if path != "/autoscale" => return None,
            None if seen.jobs.is_empty() || !seen.jobs.values().all(|(_, at)| fresh(at)) => stale(),
            None => number(seen.jobs.values().map(|(jobs, _)| jobs).sum()),
            Some(queue) => match seen.jobs.get(queue) {
                Some((jobs, at)) if fresh(at) => number(*jobs),
                Some(_) => stale(),
                None => {
                    Said::json(404, &json!({ "error": "there is no such queue, or it was not seen yet" }))
                }
            },
        };
        Some(said)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(jobs: u64) -> Said {
    Said::json(200, &json!({ "jobs": jobs }))
}

fn stale() -> Said {
    Said::json(503, &json!({ "error": "the last look is too old, or there was none" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_told_of_a_queue_and_of_all_and_none_that_is_old() {
        let (autoscale, now) = (Autoscale::default(), Instant::now());
        let asked = |path: &str, at: Instant| autoscale.answer(path, at).map(|said| (said.status, said.body));
        assert_eq!(asked("/autoscale", now).unwrap().0, 503);
        autoscale.rests(Duration::from_secs(5));
        autoscale.saw("a", 3, now);
        autoscale.saw("b.c", 4, now);
        assert_eq!(asked("/autoscale", now), Some((200, "{\"jobs\":7}".into())));
        assert_eq!(asked("/autoscale/b.c", now), Some((200, "{\"jobs\":4}".into())));
        assert_eq!(asked("/autoscale/x", now).unwrap().0, 404);
        assert_eq!(asked("/autoscaler", now), None);
        assert_eq!(asked("/metrics", now), None);
        let later = now + Duration::from_secs(16);
        assert_eq!(
            (asked("/autoscale", later).unwrap().0, asked("/autoscale/a", later).unwrap().0),
            (503, 503)
        );
        autoscale.saw("a", 1, later);
        assert_eq!(
            (asked("/autoscale", later).unwrap().0, asked("/autoscale/a", later).unwrap().0),
            (503, 200)
        );
        autoscale.forget(|queue| queue == "a");
        assert_eq!(asked("/autoscale", later), Some((200, "{\"jobs\":1}".into())));
    }
}
