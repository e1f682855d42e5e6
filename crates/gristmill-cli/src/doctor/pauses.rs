//! What a person has paused waits, and that is no fault; but whoever wonders why jobs wait is to see it first.

use super::Finding;
use gristmill_broker::pause::Pause;
use gristmill_job::{QueueName, UnixMillis};

/// One finding for each pause, by whom and until when.
pub(super) fn judge(queue: &QueueName, pauses: &[Pause], now: UnixMillis) -> Vec<Finding> {
    let one = |pause: &Pause| {
        let resume = crate::pause::resume_with(queue, &pause.target);
        let mend = match pause.until {
            Some(_) => format!("ends by itself; `{resume}` ends it now"),
            None => format!("its jobs wait until `{resume}`"),
        };
        Finding::warn(format!("{queue}: paused"), crate::pause::stands(queue, pause, now), mend)
    };
    pauses.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;
    use gristmill_broker::pause::Target;
    use gristmill_broker::said::Said;
    use gristmill_job::Key;

    #[test]
    fn each_pause_says_what_by_whom_until_when_and_what_ends_it() {
        let queue = QueueName::new("q").unwrap();
        let pause = |target, until| Pause {
            target,
            since: UnixMillis(1000),
            until,
            said: Said::new("ann@shop", "bank is down"),
        };
        let pauses = [
            pause(Target::Queue, None),
            pause(Target::Kind("charge".into()), Some(UnixMillis(61_000))),
            pause(Target::Key(Key::from_stored(b"k".as_slice().into())), None),
        ];
        let found = judge(&queue, &pauses, UnixMillis(31_000));
        assert!(found.iter().all(|it| it.severity == Severity::Warn && it.check == "q: paused"), "{found:?}");
        for (finding, words, mend) in [
            (
                &found[0],
                "queue q is paused by ann@shop since 1000 ms (30s ago), until somebody resumes it, because: bank is down",
                "its jobs wait until `gristmill resume q`",
            ),
            (
                &found[1],
                "kind charge of queue q is paused by ann@shop since 1000 ms (30s ago), until 61000 ms (in 30s), because: bank is down",
                "ends by itself; `gristmill resume q --kind charge` ends it now",
            ),
            (&found[2], "key k of queue q is paused", "`gristmill resume q --key k`"),
        ] {
            assert!(finding.found.starts_with(words), "{}", finding.found);
            assert!(finding.mend.as_ref().unwrap().contains(mend), "{finding:?}");
        }
        assert!(judge(&queue, &[], UnixMillis(0)).is_empty());
    }
}
