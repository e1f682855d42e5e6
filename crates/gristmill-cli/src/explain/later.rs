//! The words for a job for later: when it is due, and what it waits for then.

use crate::history;
use crate::keys::shown;
use crate::output::{Lines, age, when};
use crate::reason::{self, Reason};
use gristmill_broker::delayed::DelayedView;
use gristmill_broker::{Mode, QueueDefinition};
use gristmill_job::{Envelope, Key};
use serde_json::{Value, json};

/// Why it does not run now. Never empty.
fn reasons(mode: Mode, partition: u16, job: &DelayedView) -> Vec<Reason> {
    let mut reasons = Vec::new();
    // Without order any node makes it ready.
    if mode == Mode::Key && (job.owner.is_empty() || job.expires <= job.now) {
        let text =
            format!("partition {partition} has no owner: whoever takes it makes it ready once it is due");
        reasons.push(Reason::new("no_owner", text));
    }
    if job.due > job.now {
        let (left, at) = (age(job.now.age_at(job.due)), job.due.rfc3339());
        let mut due = Reason::new("delayed", format!("due in {left}, at {at}; {left} left"));
        due.text = format!("it is for later: due at {at}, {left} left");
        due.until = Some(job.due);
        reasons.push(due);
    } else {
        let (late, before) = (age(job.due.age_at(job.now)), job.before);
        let text = format!(
            "it has been due for {late}, and is made ready behind {before} jobs that were due before it"
        );
        reasons.push(Reason::new("overdue", text));
    }
    reasons
}

fn kind_and_version(job: &DelayedView) -> Option<(String, u64)> {
    let envelope = Envelope::decode(&job.body.envelope, usize::MAX).ok()?;
    Some((envelope.kind.to_owned(), envelope.version))
}

pub(super) fn text(queue: &QueueDefinition, partition: u16, job: &DelayedView) -> String {
    let (mut lines, line, id) = (Lines::default(), job.line(), job.member.id().0);
    lines.put("job", &id.to_string());
    lines.put("queue", &format!("{}, partition {partition}, for later as {}", queue.name, job.member));
    lines.put("key", &shown(&Key::from_stored(job.body.key.clone())));
    let bytes = job.body.envelope.len();
    match kind_and_version(job) {
        Some((kind, version)) => {
            lines.put("kind", &format!("{kind}, version {version}, an envelope of {bytes} bytes"));
        }
        None => lines.put("kind", &format!("not known: its envelope of {bytes} bytes cannot be read")),
    }
    lines.put("due", &format!("{} ({})", job.due.rfc3339(), when(job.due, job.now)));
    for attempt in history::attempts_text(&reason::attempts(&line), job.now) {
        lines.put("attempt", &attempt);
    }
    for reason in reasons(queue.mode, partition, job) {
        lines.put("now", &reason.text);
    }
    lines.put("do", &format!("gristmill cancel {id} --reason TEXT"));
    lines.text()
}

pub(super) fn json(queue: &QueueDefinition, partition: u16, job: &DelayedView) -> Value {
    let why: Vec<Value> = reasons(queue.mode, partition, job).iter().map(Reason::as_json).collect();
    let (line, (id, _)) = (job.line(), job.member.id());
    let ordered = queue.mode == Mode::Key;
    let (kind, version) = kind_and_version(job).unzip();
    json!({
        "is": "delayed",
        "queue": queue.name.as_str(),
        "partition": partition,
        "member": job.member.to_string(),
        "id": id.to_string(),
        "key": shown(&Key::from_stored(job.body.key.clone())),
        "kind": kind,
        "version": version,
        "turn": line.turn,
        "attempts": line.attempts,
        "history": history::attempts_json(&reason::attempts(&line)),
        "due_ms": job.due.0,
        "due_before": job.before,
        "ordering": queue.mode.as_str(),
        "owner": ordered.then_some(&job.owner),
        "owner_expires_ms": ordered.then_some(job.expires.0),
        "now_ms": job.now.0,
        "why": why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_broker::delayed::{Body, Member};
    use gristmill_job::{JobId, UnixMillis};

    #[test]
    fn a_job_for_later_says_when_and_an_overdue_one_says_who_is_missing() {
        let mut job = DelayedView {
            member: Member::new(7, true, &JobId::new("a").unwrap()),
            body: Body { key: "k".into(), envelope: "?".into(), line: "".into() },
            due: UnixMillis(1_798_099_200_000),
            before: 2,
            owner: "n~1".into(),
            expires: UnixMillis(1_798_099_200_000),
            now: UnixMillis(1_798_099_110_000),
        };
        let codes = |job: &DelayedView| {
            reasons(Mode::Key, 3, job).iter().map(|it| it.code).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(codes(&job), "delayed");
        assert_eq!(
            reasons(Mode::Key, 3, &job)[0].text,
            "it is for later: due at 2026-12-24T08:00:00Z, 1m 30s left"
        );
        assert_eq!(reasons(Mode::Key, 3, &job)[0].until, Some(job.due));
        job.now = UnixMillis(job.due.0 + 5_000);
        assert_eq!(codes(&job), "no_owner overdue");
        assert!(reasons(Mode::Key, 3, &job)[1].text.contains("due for 5s, and is made ready behind 2 jobs"));
        let unordered: Vec<_> = reasons(Mode::None, 3, &job).into_iter().map(|it| it.code).collect();
        assert_eq!(unordered, ["overdue"], "nobody has to own it");
    }
}
