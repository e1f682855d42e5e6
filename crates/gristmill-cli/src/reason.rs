//! Why a job does not run now, in words: what its state line says of it.

use crate::output::when;
use gristmill_broker::StateLine;
use gristmill_broker::state::{Request, Said, Suspicion, Why};
use gristmill_job::{AttemptRecord, CrashRecord, History, UnixMillis};
use serde_json::{Value, json};

/// One reason: a word for programs, words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) code: &'static str,
    pub(crate) text: String,
    /// Until when it holds, where that is known.
    pub(crate) until: Option<UnixMillis>,
}

impl Reason {
    pub(crate) fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), until: None }
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({ "code": self.code, "text": self.text, "until_ms": self.until.map(|until| until.0) })
    }
}

/// The attempts that a line carries.
pub(crate) fn attempts(line: &StateLine) -> Vec<AttemptRecord> {
    History::decode(&line.history).into_records()
}

/// The crashes it is charged with.
pub(crate) fn crashes(line: &StateLine) -> Vec<CrashRecord> {
    let record = |crash: &gristmill_broker::state::Crash| CrashRecord {
        node: crash.fence.incarnation.to_string(),
        at: crash.at,
    };
    line.crashes.iter().map(record).collect()
}

/// Who cancelled a job, when and why.
pub(crate) fn cancelled_by(said: &Said, now: UnixMillis) -> String {
    let (who, at) = (&said.who, when(said.at, now));
    let why = if said.why.is_empty() { String::new() } else { format!(" because: {}", said.why) };
    format!("cancelled by {who} {at}{why}")
}

/// What keeps a job with this line from running; nothing where it says nothing. `kind` where it is known.
pub(crate) fn of_line(line: &StateLine, kind: Option<&str>, now: UnixMillis) -> Vec<Reason> {
    let (due, mut reasons) = (UnixMillis(line.due_ms), Vec::new());
    match &line.request {
        Some(Request::Skip) => {
            reasons.push(Reason::new("skip", "a person asked to skip it: its owner makes it a dead letter"));
        }
        Some(Request::Cancel(said)) => {
            let text = format!(
                "{}: the node that has it ends it, unless its run finishes first",
                cancelled_by(said, now)
            );
            reasons.push(Reason::new("cancelled", text));
        }
        None => {}
    }
    let waits = due > now;
    let until = |text: String| if waits { format!("{text}; due {}", when(due, now)) } else { text };
    let wait = match line.why {
        Why::Retry if waits => {
            let last = attempts(line).pop();
            let error = last.map_or_else(String::new, |last| format!(": {}: {}", last.class, last.error));
            Some(("backoff", until(format!("in backoff after attempt {}{error}", line.attempts))))
        }
        Why::Snooze if waits => Some(("snooze", until("its handler asked to wait".into()))),
        Why::Budget => Some(("budget", until("the retry budget of its queue is used up".into()))),
        Why::Kind => {
            let kind = kind.map_or_else(|| "its kind".to_owned(), |kind| format!("kind {kind}"));
            Some(("kind", until(format!("the node that held it has no handler for {kind}"))))
        }
        _ if waits => Some(("not_due", until("it is not due".into()))),
        _ => None,
    };
    reasons
        .extend(wait.map(|(code, text)| Reason { until: waits.then_some(due), ..Reason::new(code, text) }));
    match line.suspicion {
        Suspicion::None => {}
        Suspicion::Weak => reasons.push(Reason::new(
            "suspected",
            "suspected (weak): it may have been running when a node died, and runs under a start mark",
        )),
        Suspicion::Strong => reasons.push(Reason::new(
            "alone",
            "suspected (strong): a node died while it ran, and it runs when nothing else does in the process",
        )),
    }
    if line.interrupted {
        reasons.push(Reason::new(
            "interrupted",
            "a run of it was interrupted: whether its effect happened is not known",
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_job::History;

    fn line(why: Why, due_ms: u64) -> StateLine {
        let mut history = History::default();
        let (class, error) = ("transient".to_owned(), "busy".to_owned());
        history.push(AttemptRecord { attempt: 2, class, error, ..AttemptRecord::default() });
        StateLine {
            turn: 2,
            attempts: 2,
            due_ms,
            why,
            history: history.encode().into(),
            ..StateLine::default()
        }
    }

    fn said(line: &StateLine) -> Vec<(&'static str, String)> {
        let reasons = of_line(line, Some("mail"), UnixMillis(10_000));
        reasons.into_iter().map(|reason| (reason.code, reason.text)).collect()
    }

    #[test]
    fn every_word_of_a_line_is_said() {
        let one = |code, text: &str| vec![(code, text.to_owned())];
        for (why, due_ms, expected) in [
            (Why::Nothing, 0, vec![]),
            (Why::Retry, 9_000, vec![]),
            (Why::Retry, 22_000, one("backoff", "in backoff after attempt 2: transient: busy; due in 12s")),
            (Why::Snooze, 9_000, vec![]),
            (Why::Snooze, 11_000, one("snooze", "its handler asked to wait; due in 1s")),
            (Why::Budget, 9_000, one("budget", "the retry budget of its queue is used up")),
            (Why::Kind, 11_000, one("kind", "the node that held it has no handler for kind mail; due in 1s")),
            (Why::Nothing, 11_000, one("not_due", "it is not due; due in 1s")),
        ] {
            assert_eq!(said(&line(why, due_ms)), expected, "{why:?} {due_ms}");
        }
        let all = StateLine {
            suspicion: Suspicion::Strong,
            interrupted: true,
            request: Some(Request::Skip),
            ..line(Why::Retry, 9_000)
        };
        assert_eq!(said(&all).iter().map(|it| it.0).collect::<Vec<_>>(), ["skip", "alone", "interrupted"]);
        let weak = StateLine { suspicion: Suspicion::Weak, ..StateLine::default() };
        assert_eq!(said(&weak)[0].0, "suspected");
        let until = of_line(&line(Why::Retry, 22_000), None, UnixMillis(10_000))[0].until;
        assert_eq!(until, Some(UnixMillis(22_000)));
    }
}
