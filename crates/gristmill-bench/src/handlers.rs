//! What a child's handlers do, by role, and what they leave behind.

use crate::child::STATE;
use crate::failure::Outcome;
use crate::jobs::{BLOCKED, KIND, POISON, SMALL, now_nanos};
use crate::plan::{Role, Task};
use crate::{sql, web};
use gristmill_handler::{Context, HandlerError, KindOptions, Raw, Registry, State};
use gristmill_job::{Effects, RetryPolicy};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longer than any run of the bench.
const BLOCKED_FOR: Duration = Duration::from_secs(600);
/// Until a job that failed once is tried again.
const SOON: Duration = Duration::from_millis(10);
/// How long a good job takes beside the poison job, which aborts in the middle of it.
const GOOD_TAKES: Duration = Duration::from_millis(100);

/// How long each job takes beside a flood.
const FAIR_TAKES: Duration = Duration::from_millis(2);

/// What handlers are told, and what they leave behind.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    fail_percent: u64,
    /// Runs that failed are counted apart.
    pub(crate) runs: Arc<AtomicU64>,
    pub(crate) failed: Arc<AtomicU64>,
    told: Arc<AtomicBool>,
    pub(crate) ages_ms: Arc<Mutex<Vec<f64>>>,
}

impl Seen {
    /// Nothing yet.
    pub(crate) fn new(task: &Task) -> Self {
        Self { fail_percent: task.fail_percent, ..Self::default() }
    }

    pub(crate) fn ran(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    fn failure(&self) -> HandlerError {
        self.failed.fetch_add(1, Ordering::Relaxed);
        HandlerError::transient("as the bench wants it")
    }
}

/// When the job was sent is in the first bytes of its payload.
pub(crate) fn age_ms(payload: &[u8]) -> f64 {
    let sent = payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    now_nanos().saturating_sub(sent) as f64 / 1e6
}

/// Whether the job of this key and version fails at first, where `percent` of a hundred do. The same in every process.
pub(crate) fn fails_once(key: &[u8], version: u64, percent: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    (key, version).hash(&mut hasher);
    hasher.finish() % 100 < percent
}

/// A failed job waits exactly so long.
fn again_after(wait: Duration) -> KindOptions {
    KindOptions::new().retry(RetryPolicy::fixed(wait).with_bounds(wait, wait))
}

/// The handlers of a role.
pub(crate) fn registry(task: &Task, seen: Seen) -> Outcome<Registry> {
    let registry = Registry::new().state(seen);
    Ok(match task.role {
        Role::Plain => registry.kind(KIND, async |_: Raw, seen: State<Seen>| seen.ran()),
        Role::Effect => registry.kind(KIND, async |_: Raw, seen: State<Seen>| {
            seen.ran();
            Effects::put(STATE)
        }),
        Role::Latency => registry.kind(KIND, async |payload: Raw, seen: State<Seen>| {
            let age = age_ms(&payload.bytes);
            seen.ran();
            seen.ages_ms.lock().unwrap_or_else(PoisonError::into_inner).push(age);
        }),
        Role::Slot => registry.kind(KIND, async |_: Raw, context: Context, seen: State<Seen>| {
            let age = now_nanos().saturating_sub(context.version() * 1_000_000) as f64 / 1e6;
            seen.ran();
            seen.ages_ms.lock().unwrap_or_else(PoisonError::into_inner).push(age);
        }),
        Role::Fair => registry.kind(KIND, async |payload: Raw, context: Context, seen: State<Seen>| {
            let age = age_ms(&payload.bytes);
            seen.ran();
            if context.queue().as_str() == SMALL {
                seen.ages_ms.lock().unwrap_or_else(PoisonError::into_inner).push(age);
            }
            tokio::time::sleep(FAIR_TAKES).await;
        }),
        Role::Hold => registry.kind(KIND, async |_: Raw, seen: State<Seen>| {
            seen.ran();
            std::future::pending::<()>().await;
        }),
        Role::Recover => registry.kind(KIND, async |_: Raw, context: Context, seen: State<Seen>| {
            if context.recovered() && !seen.told.swap(true, Ordering::Relaxed) {
                println!("recovered {}", now_nanos());
            }
            seen.ran();
        }),
        Role::Blocked => registry.kind_with(
            KIND,
            again_after(BLOCKED_FOR),
            async |_: Raw, context: Context, seen: State<Seen>| {
                if context.key().as_bytes().starts_with(BLOCKED.as_bytes()) {
                    return Err(seen.failure());
                }
                seen.ran();
                Ok(())
            },
        ),
        Role::FailOnce => registry.kind_with(
            KIND,
            again_after(SOON),
            async |_: Raw, context: Context, seen: State<Seen>| {
                let (key, version) = (context.key().as_bytes(), context.version());
                if context.attempt() == 1 && fails_once(key, version, seen.fail_percent) {
                    return Err(seen.failure());
                }
                seen.ran();
                Ok(())
            },
        ),
        Role::Poison => registry.kind(KIND, async |_: Raw, context: Context, seen: State<Seen>| {
            if context.key().as_bytes().starts_with(POISON.as_bytes()) {
                tokio::time::sleep(GOOD_TAKES / 2).await;
                std::process::abort();
            }
            tokio::time::sleep(GOOD_TAKES).await;
            seen.ran();
            Effects::put(STATE)
        }),
        Role::Postgres => sql::handled(registry, &task.target, task.slots)?,
        Role::Http => web::handled(registry, &task.target)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_as_many_fail_once_as_were_asked_for() {
        let failing =
            |percent| (0..10_000_u64).filter(|n| fails_once(&n.to_le_bytes(), n % 7, percent)).count();
        assert_eq!((failing(0), failing(100)), (0, 10_000));
        let (few, many) = (failing(1), failing(20));
        assert!((60..=140).contains(&few) && (1800..=2200).contains(&many), "{few} and {many} of 10,000");
    }
}
