//! Handlers for trying things.

use gristmill_handler::{Context, HandlerError, Raw, Registry, State};
use gristmill_job::{Effects, ErrorClass};
use serde::Deserialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Adds each kind that the program does not serve itself.
pub(super) fn add_to(registry: Registry) -> Registry {
    let mut registry = registry.state(Counter::default());
    let free = |registry: &Registry, kind| !registry.serves(kind);
    if free(&registry, "echo") {
        registry = registry.kind("echo", echo);
    }
    if free(&registry, "sleep") {
        registry = registry.kind("sleep", sleep);
    }
    if free(&registry, "fail") {
        registry = registry.kind("fail", fail);
    }
    if free(&registry, "count") {
        registry = registry.kind("count", count);
    }
    registry
}

/// The payload becomes the entity's state.
async fn echo(payload: Raw, context: Context) -> Effects {
    tracing::info!(key = %context.key(), version = context.version(), "echo");
    Effects::put(payload.bytes)
}

#[derive(Deserialize)]
struct Sleep {
    ms: u64,
}

/// Takes its time, and ends early when it is asked to stop.
async fn sleep(payload: Sleep, context: Context) -> Result<(), HandlerError> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(payload.ms)) => Ok(()),
        () = context.cancelled() => Err(HandlerError::transient("asked to stop while sleeping")),
    }
}

#[derive(Deserialize)]
struct Fail {
    /// `transient` (tried again), `permanent` (dead at once), `panic`; unknown where it says nothing.
    class: Option<ErrorClass>,
    /// Succeeds at this attempt.
    until_attempt: Option<u32>,
}

async fn fail(payload: Fail, context: Context) -> Result<(), HandlerError> {
    if payload.until_attempt.is_some_and(|attempt| context.attempt() >= attempt) {
        return Ok(());
    }
    let why = format!("asked to fail, attempt {}", context.attempt());
    Err(match payload.class {
        Some(ErrorClass::Transient) => HandlerError::transient(why),
        Some(ErrorClass::Permanent) => HandlerError::permanent(why),
        Some(ErrorClass::Panic) => std::panic::panic_any(why),
        _ => HandlerError::unknown(why),
    })
}

#[derive(Default)]
struct Counter(AtomicU64);

/// How many jobs of this kind this process has run.
async fn count(_: Raw, counter: State<Counter>, context: Context) -> Effects {
    let counted = counter.0.0.fetch_add(1, Ordering::Relaxed) + 1;
    tracing::info!(key = %context.key(), counted, "count");
    Effects::put(counted.to_string())
}
