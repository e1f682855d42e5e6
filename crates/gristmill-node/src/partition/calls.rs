//! The calls of a tenure that have no answer yet, and their numbers.

use crate::partition::lanes::LaneId;
use crate::worker::attempt::Attempt;
use crate::worker::slot::Slot;
use gristmill_broker::{Call, Entry};
use std::collections::VecDeque;
use std::sync::Arc;

/// What one job of a settle or start is for.
#[derive(Debug)]
pub(crate) struct OnAnswer {
    pub(crate) lane: LaneId,
    pub(crate) entry: Arc<Entry>,
    /// The slot of a run that begins once this is answered: its start is marked, or its job acknowledged.
    pub(crate) slot: Option<Arc<Slot>>,
    /// The run whose verdict it is.
    pub(crate) attempt: Option<Attempt>,
}

/// The lanes a settle or start is for, in the order of its jobs.
pub(crate) type Lanes = Vec<OnAnswer>;

/// A call without an answer.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) call: Arc<Call>,
    pub(crate) lanes: Lanes,
}

#[derive(Debug, Default)]
pub(crate) struct Calls {
    last: u64,
    under_way: VecDeque<Sent>,
}

impl Calls {
    /// Numbers a new call.
    pub(crate) fn send(&mut self, call: Call, lanes: Lanes) -> (u64, Arc<Call>) {
        self.last += 1;
        let call = Arc::new(call);
        self.under_way.push_back(Sent { number: self.last, call: call.clone(), lanes });
        (self.last, call)
    }

    /// The call with this number, answered now. `None` for an answer that nobody waits for any more.
    pub(crate) fn take(&mut self, number: u64) -> Option<Sent> {
        let at = self.under_way.iter().position(|sent| sent.number == number)?;
        self.under_way.remove(at)
    }

    /// A call that is sent once more under the same number.
    pub(crate) fn repeat(&mut self, sent: Sent) -> (u64, Arc<Call>) {
        let again = (sent.number, sent.call.clone());
        self.under_way.push_front(sent);
        again
    }

    /// Whether every call without an answer was sent after this one.
    pub(crate) fn all_behind(&self, number: u64) -> bool {
        self.under_way.iter().all(|sent| sent.number > number)
    }

    /// The runs whose verdicts have no answer.
    pub(crate) fn take_attempts(&mut self) -> impl Iterator<Item = Attempt> {
        self.under_way.iter_mut().flat_map(|sent| &mut sent.lanes).filter_map(|on| on.attempt.take())
    }

    /// Calls without an answer, in order.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &Sent> {
        self.under_way.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }
}
