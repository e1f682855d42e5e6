//! What of a queue is paused, as this node has heard it: with every beat, and before the first start of a tenure. [`Pauses`] is
//! pure and says what may start; the [`Board`] holds what was asked for last.

use crate::worker::run_queue::lock;
use gristmill_broker::pause::{Pause, Target};
use gristmill_job::{Envelope, Key};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What may not start. Whether a pause has ended is for the Redis clock to say: one that is here holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Pauses {
    queue: bool,
    kinds: HashSet<String>,
    keys: HashSet<Key>,
}

impl Pauses {
    pub(crate) fn of(pauses: &[Pause]) -> Self {
        let mut all = Self::default();
        for pause in pauses {
            match &pause.target {
                Target::Queue => all.queue = true,
                Target::Kind(kind) => drop(all.kinds.insert(kind.clone())),
                Target::Key(key) => drop(all.keys.insert(key.clone())),
            }
        }
        all
    }

    pub(crate) fn are_none(&self) -> bool {
        !self.queue && self.kinds.is_empty() && self.keys.is_empty()
    }

    /// Whether nothing of the queue starts or is claimed.
    pub(crate) fn queue(&self) -> bool {
        self.queue
    }

    /// Whether a job with this key and envelope may not start. The envelope is looked into only where a kind is paused; what
    /// cannot be read is of no kind.
    pub(crate) fn stop(&self, key: &Key, envelope: &[u8], max_bytes: usize) -> bool {
        if self.queue || self.keys.contains(key) {
            return true;
        }
        !self.kinds.is_empty()
            && Envelope::kind_of(envelope, max_bytes).is_some_and(|kind| self.kinds.contains(kind))
    }

    /// Whether something is paused here that is not there.
    pub(crate) fn exceed(&self, other: &Self) -> bool {
        (self.queue && !other.queue)
            || !self.kinds.is_subset(&other.kinds)
            || !self.keys.is_subset(&other.keys)
    }
}

/// The pauses of one queue. Shared by its partitions.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<(Option<Instant>, Arc<Pauses>)>);

impl Board {
    /// Redis answered a question asked at `asked`. An answer to an older question than the last is passed over. True where
    /// something is otherwise now.
    pub(crate) fn hear(&self, asked: Instant, pauses: &[Pause]) -> bool {
        let mut known = lock(&self.0);
        if known.0.is_some_and(|last| last > asked) {
            return false;
        }
        let pauses = Pauses::of(pauses);
        let changed = *known.1 != pauses;
        *known = (Some(asked), if changed { Arc::new(pauses) } else { known.1.clone() });
        changed
    }

    pub(crate) fn now(&self) -> Arc<Pauses> {
        lock(&self.0).1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_broker::said::Said;
    use gristmill_job::{ContentType, JobLimits, NewJob, UnixMillis};
    use std::time::Duration;

    fn pause(target: Target) -> Pause {
        Pause { target, since: UnixMillis(1), until: None, said: Said::default() }
    }

    fn envelope(kind: &str) -> Vec<u8> {
        let job = NewJob::from_bytes(kind, "k", vec![1], ContentType::Json).unwrap();
        job.encode(UnixMillis(0), JobLimits::default()).unwrap().envelope.to_vec()
    }

    #[test]
    fn what_is_paused_does_not_start_and_the_rest_does() {
        let (a, b) = (Key::new("a").unwrap(), Key::new("b").unwrap());
        let (mail, charge) = (envelope("mail"), envelope("charge"));
        let none = Pauses::default();
        assert!(none.are_none() && !none.stop(&a, &mail, 1 << 20));
        let key = Pauses::of(&[pause(Target::Key(a.clone()))]);
        assert!(key.stop(&a, b"nonsense", 1 << 20) && !key.stop(&b, &mail, 1 << 20) && !key.queue());
        let kind = Pauses::of(&[pause(Target::Kind("mail".into()))]);
        assert!(kind.stop(&a, &mail, 1 << 20) && !kind.stop(&a, &charge, 1 << 20));
        assert!(!kind.stop(&a, b"nonsense", 1 << 20), "it ends as undecodable");
        let queue = Pauses::of(&[pause(Target::Queue)]);
        assert!(queue.stop(&a, b"nonsense", 1 << 20) && queue.queue());
        assert!(key.exceed(&none) && !none.exceed(&key) && key.exceed(&kind) && queue.exceed(&kind));
        assert!(!key.exceed(&key));
    }

    #[test]
    fn an_older_answer_does_not_take_back_a_newer_one() {
        let board = Board::default();
        let (first, second) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        assert!(!board.hear(first, &[]));
        assert!(board.hear(second, &[pause(Target::Queue)]) && board.now().queue());
        assert!(!board.hear(first, &[]) && board.now().queue(), "asked before it was paused");
        assert!(!board.hear(second, &[pause(Target::Queue)]), "nothing new");
        assert!(board.hear(second, &[]) && board.now().are_none());
    }
}
