//! What happened to a job so far, for people: its attempts and its crashes.

use crate::output::when;
use gristmill_job::{AttemptRecord, CrashRecord, UnixMillis};
use serde_json::{Value, json};

pub(crate) fn attempts_json(attempts: &[AttemptRecord]) -> Vec<Value> {
    let one = |it: &AttemptRecord| {
        json!({
            "attempt": it.attempt,
            "at_ms": it.at.0,
            "node": it.node,
            "class": it.class,
            "error": it.error,
            "trace": it.trace,
        })
    };
    attempts.iter().map(one).collect()
}

pub(crate) fn crashes_json(crashes: &[CrashRecord]) -> Vec<Value> {
    crashes.iter().map(|it| json!({ "node": it.node, "at_ms": it.at.0 })).collect()
}

/// A line per attempt; attempts that are no longer kept are counted.
pub(crate) fn attempts_text(attempts: &[AttemptRecord], now: UnixMillis) -> Vec<String> {
    let (mut lines, mut before) = (Vec::with_capacity(attempts.len()), 0);
    for it in attempts {
        if it.attempt > before + 1 && before > 0 {
            lines.push(format!("({} more, not kept)", it.attempt - before - 1));
        }
        before = it.attempt;
        let trace = it.trace.as_ref().map_or_else(String::new, |trace| format!(" (trace {trace})"));
        let (class, error) = (&it.class, &it.error);
        lines.push(format!("{}, {}, on {}: {class}: {error}{trace}", it.attempt, when(it.at, now), it.node));
    }
    lines
}

pub(crate) fn crashes_text(crashes: &[CrashRecord], now: UnixMillis) -> Vec<String> {
    crashes.iter().map(|it| format!("{}, with the process of {}", when(it.at, now), it.node)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_told_in_order_and_what_is_not_kept_is_counted() {
        let attempt = |attempt, error: &str| AttemptRecord {
            attempt,
            at: UnixMillis(1000),
            node: "n~1".into(),
            class: "transient".into(),
            error: error.into(),
            trace: (attempt == 1).then(|| "ab".into()),
        };
        let lines = attempts_text(&[attempt(1, "busy"), attempt(5, "gone")], UnixMillis(61_000));
        assert_eq!(
            lines,
            [
                "1, 1m 0s ago, on n~1: transient: busy (trace ab)",
                "(3 more, not kept)",
                "5, 1m 0s ago, on n~1: transient: gone"
            ]
        );
        let crash = CrashRecord { node: "n~1".into(), at: UnixMillis(70_000) };
        assert_eq!(crashes_text(&[crash], UnixMillis(60_000)), ["in 10s, with the process of n~1"]);
    }
}
