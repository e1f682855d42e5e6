//! The words: a job, a dead letter, a mark.

use super::live::{Around, Beside};
use super::why;
use crate::dead::{kind, lossy};
use crate::history;
use crate::keys::shown;
use crate::output::{Lines, when};
use crate::reason::{self, Reason};
use crate::schedules::Recurring;
use gristmill_broker::dead::DeadFound;
use gristmill_broker::locate::{JobView, MarkView};
use gristmill_broker::said::Said;
use gristmill_broker::{Mode, QueueDefinition};
use gristmill_job::{Envelope, UnixMillis};
use serde_json::{Value, json};
use std::time::SystemTime;

pub(super) fn live_text(around: &Around) -> String {
    let Around { queue, partition, job, .. } = around;
    let mut lines = Lines::default();
    lines.put("job", &job.id.to_string());
    lines.put("queue", &format!("{}, partition {partition}, place {}", queue.name, job.place));
    lines.put("key", &shown(&job.key));
    let bytes = job.envelope.len();
    match (&around.kind, around.version) {
        (Some(kind), Some(version)) => {
            lines.put("kind", &format!("{kind}, version {version}, an envelope of {bytes} bytes"));
        }
        _ => lines.put("kind", &format!("not known: its envelope of {bytes} bytes cannot be read")),
    }
    if let Some(recurring) = Recurring::of(job.id.as_bytes(), Some(&job.envelope)) {
        lines.put("schedule", &recurring.text());
    }
    if let Some(at) = expires_at(job) {
        let word = if at > job.now { "expires" } else { "expired" };
        let then = "unless it is started before; its kind or its queue may say less";
        lines.put(word, &format!("{} ({} ms), {then}", when(at, job.now), at.0));
    }
    if let Some(original) = job.original_bytes {
        lines.put(
            "edited",
            &format!("a person replayed it with another payload; the first envelope had {original} bytes"),
        );
    }
    if job.line.turn > 0 {
        let (turn, attempts) = (job.line.turn, job.line.attempts);
        lines.put("turn", &format!("{turn}, after {attempts} attempts that ended with an answer"));
    }
    if job.line.replays > 0 {
        lines.put("replays", &format!("{}: it came back from the dead", job.line.replays));
    }
    for line in history::attempts_text(&reason::attempts(&job.line), job.now) {
        lines.put("attempt", &line);
    }
    for line in history::crashes_text(&reason::crashes(&job.line), job.now) {
        lines.put("crash", &line);
    }
    let reasons = why::reasons(around);
    for reason in &reasons {
        lines.put("now", &reason.text);
    }
    if around.served.is_none() {
        lines.put("not known", "whether a living node serves its kind");
    }
    lines.text()
}

/// Until when it may start, as far as it says so itself.
fn expires_at(job: &JobView) -> Option<UnixMillis> {
    let limit = Envelope::expires_in(&job.envelope, usize::MAX).filter(|_| job.line.replays == 0)?;
    let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    Some(UnixMillis(job.place.ms.saturating_add(limit)))
}

pub(super) fn live_json(around: &Around) -> Value {
    let Around { queue, partition, job, .. } = around;
    let why: Vec<Value> = why::reasons(around).iter().map(Reason::as_json).collect();
    let claim = job.claim.as_ref();
    let ordered = queue.mode == Mode::Key;
    json!({
        "is": if job.returned { "returned" } else { "in_stream" },
        "queue": queue.name.as_str(),
        "partition": partition,
        "place": job.place.to_string(),
        "id": job.id.to_string(),
        "key": shown(&job.key),
        "kind": around.kind,
        "version": around.version,
        "schedule": Recurring::of(job.id.as_bytes(), Some(&job.envelope)).map(|it| it.as_json()),
        "turn": job.line.turn,
        "attempts": job.line.attempts,
        "replays": job.line.replays,
        "history": history::attempts_json(&reason::attempts(&job.line)),
        "crashes": history::crashes_json(&reason::crashes(&job.line)),
        "original_bytes": job.original_bytes,
        "claimed_by": claim.map(|claim| claim.holder.as_str()),
        "claimed_for_ms": claim.map(|claim| claim.idle_ms),
        "ordering": queue.mode.as_str(),
        "owner": ordered.then_some(&job.owner),
        "owner_expires_ms": ordered.then_some(job.expires.0),
        "now_ms": job.now.0,
        "expires_at_ms": expires_at(job).map(|at| at.0),
        "kind_served": around.served,
        "jobs_of_key_before": ordered.then_some(around.of_key.jobs),
        "jobs_of_partition_before": ordered.then_some(around.of_partition.jobs),
        "counts_are_at_least": around.of_key.at_least,
        "why": why,
    })
}

pub(super) fn dead_text(found: &DeadFound, beside: Beside) -> String {
    let (position, now) = (&found.position, UnixMillis::from_system(SystemTime::now()));
    let (id, mut lines) = (lossy(&position.id), Lines::default());
    match &found.letter {
        Err(why) => lines.put("job", &format!("not known: {why}")),
        Ok(letter) => {
            lines.put("job", &lossy(&letter.job));
            lines.put(
                "queue",
                &format!("{}, partition {}, place {}", position.queue, position.partition, letter.place),
            );
            lines.put("key", &lossy(&letter.key));
            let kind = letter.kind.clone().or_else(|| kind(&letter.envelope));
            lines.put("kind", kind.as_deref().unwrap_or("not known: its envelope cannot be read"));
            if let Some(recurring) = Recurring::of(&letter.job, Some(&letter.envelope)) {
                lines.put("schedule", &recurring.text());
            }
            for line in history::attempts_text(&letter.history, now) {
                lines.put("attempt", &line);
            }
            for line in history::crashes_text(&letter.crashes, now) {
                lines.put("crash", &line);
            }
            if letter.replays > 0 {
                lines.put("replays", &format!("{} before this death", letter.replays));
            }
            let (reason, error) = (letter.reason.as_str(), letter.error.join(": "));
            lines.put("now", &format!("dead ({reason}), given up by {}: {error}", letter.node));
        }
    }
    lines.put("letter", &format!("{id}, {}", when(position.at, now)));
    if let Some(original) = beside.original_bytes {
        lines.put(
            "edited",
            &format!(
                "a person had replayed it with another payload; the first envelope had {original} bytes"
            ),
        );
    }
    match beside.holds {
        Some(true) => lines.put("holds", "its key: the jobs behind it wait for a person"),
        Some(false) => {}
        None => lines.put("not known", "whether it holds its key"),
    }
    lines.put("do", &format!("gristmill dead show {id}"));
    if found.letter.is_ok() {
        lines.put("", &format!("gristmill dead replay {id}"));
    }
    lines.put("", &format!("gristmill dead discard {id} --reason TEXT"));
    lines.text()
}

pub(super) fn dead_json(found: &DeadFound, beside: Beside) -> Value {
    let position = &found.position;
    let letter = found.letter.as_ref().ok();
    json!({
        "is": "dead",
        "queue": position.queue.as_str(),
        "partition": position.partition,
        "letter": lossy(&position.id),
        "at_ms": position.at.0,
        "unreadable": found.letter.as_ref().err(),
        "place": letter.map(|letter| letter.place.as_str()),
        "id": letter.map(|letter| lossy(&letter.job)),
        "key": letter.map(|letter| lossy(&letter.key)),
        "kind": letter.and_then(|letter| letter.kind.clone().or_else(|| kind(&letter.envelope))),
        "schedule": letter
            .and_then(|letter| Recurring::of(&letter.job, Some(&letter.envelope)))
            .map(|recurring| recurring.as_json()),
        "reason": letter.map(|letter| letter.reason.as_str()),
        "error": letter.map(|letter| letter.error.clone()),
        "attempts": letter.map(|letter| letter.attempts),
        "replays": letter.map(|letter| letter.replays),
        "history": letter.map(|letter| history::attempts_json(&letter.history)),
        "crashes": letter.map(|letter| history::crashes_json(&letter.crashes)),
        "holds_its_key": beside.holds,
        "original_bytes": beside.original_bytes,
    })
}

/// What a mark says where nothing else of its job is left.
pub(crate) fn standing(mark: &MarkView, now: UnixMillis) -> String {
    let (word, rest) = mark.standing.split_once(' ').unwrap_or((&mark.standing, ""));
    match word {
        "applied" => "done: its effects are applied".into(),
        "stale" => "done without effect: a newer version of its entity was applied before".into(),
        "discarded" => "discarded, by its handler or by a person; the id may come again".into(),
        "cancelled" if rest.is_empty() => "cancelled; by whom is not known; the id may come again".into(),
        "cancelled" => format!("{}; the id may come again", reason::cancelled_by(&Said::parse(rest), now)),
        "expired" => "expired: it was not started in time, and had no effect".into(),
        "dead" => format!("dead, says its mark, but letter {rest} is not there: somebody removed it by hand"),
        "waiting" if rest.contains(':') => format!(
            "not known: its mark says that it is for later as {rest}, and it is not there. It became ready a moment ago (ask \
             again), or somebody removed it by hand"
        ),
        "waiting" => format!(
            "not known: its mark says that it waits at place {rest}, and there is no job. It was acknowledged before its run \
             (at most once) and runs or was lost, or somebody removed it by hand"
        ),
        _ => format!("not known: its mark is {:?}, which this release does not write", mark.standing),
    }
}

pub(super) fn mark_text(queue: &QueueDefinition, mark: &MarkView, job: &str, now: UnixMillis) -> String {
    let mut lines = Lines::default();
    lines.put("job", job);
    lines.put("queue", &format!("{}, partition {}", queue.name, mark.partition));
    if let Some(recurring) = Recurring::of(job.as_bytes(), None) {
        lines.put("schedule", &recurring.text());
    }
    lines.put("now", &standing(mark, now));
    let kept = match mark.until {
        Some(until) => format!("its mark is kept until {} ms ({})", until.0, when(until, now)),
        None => "its mark is kept without an end".into(),
    };
    let absorbs = match mark.standing.split(' ').next() {
        Some("cancelled" | "discarded") => "; it keeps no job out",
        _ => "; until then the same id is a duplicate",
    };
    lines.put("known", &format!("{kept}{absorbs}"));
    lines.put("not known", "how it ran: a job that ended leaves its mark and nothing else");
    lines.text()
}

pub(super) fn mark_json(queue: &QueueDefinition, mark: &MarkView, job: &str, now: UnixMillis) -> Value {
    json!({
        "is": "mark",
        "queue": queue.name.as_str(),
        "partition": mark.partition,
        "standing": mark.standing,
        "schedule": Recurring::of(job.as_bytes(), None).map(|recurring| recurring.as_json()),
        "text": standing(mark, now),
        "known_until_ms": mark.until.map(|until| until.0),
    })
}
