//! Kinds that say something: one of which only one job runs at a time, one that runs at most once, one whose interrupted runs a
//! person looks at, and one whose interrupted runs are looked at by a function. And what must be true of them.

use super::store::Mistake;
use super::{Node, World, ended};
use crate::competing::events::Event;
use crate::limits::Limits;
use crate::limits::gate::Gate;
use crate::limits::releaser::ToReleaser;
use crate::partition::policy::Rules;
use crate::partition::tenure::{Asking, Ran, Run};
use crate::worker::slot::Slot;
use gristmill_broker::admit::Admitted;
use gristmill_broker::limit::Asked;
use gristmill_handler::{DeliverySemantics, Redelivery, Rule};
use gristmill_job::{ContentType, Envelope, JobLimits, Limit, NewJob, Place, QueueName, UnixMillis};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc;

const KINDS: [&str; 6] = ["plain", "scarce", "once", "scarce", "careful", "booked"];
/// How long a slot of the limit stands that is not kept, and is trusted (ms).
const TTL: u64 = 200;
const TRUST: u64 = 150;

/// The envelope of the nth job.
pub(super) fn envelope(n: u64) -> bytes::Bytes {
    let kind = KINDS[usize::try_from(n).unwrap() % KINDS.len()];
    let job = NewJob::from_bytes(kind, "k", vec![1], ContentType::Json).unwrap();
    job.encode(UnixMillis(0), JobLimits::default()).unwrap().envelope
}

pub(super) fn kind(envelope: &[u8]) -> &str {
    Envelope::kind_of(envelope, 1 << 20).unwrap_or("plain")
}

pub(super) fn rules() -> Rules {
    Rules::new(|envelope| {
        let rule = Rule { served: true, ..Rule::default() };
        match kind(envelope) {
            "once" => Rule { delivery: DeliverySemantics::AtMostOnce, ..rule },
            "careful" => Rule { redelivery: Redelivery::Review, ..rule },
            "booked" => Rule { redelivery: Redelivery::Reconcile, ..rule },
            _ => rule,
        }
    })
}

/// What a node has of the limit: its gate, runs that asked, slots that it gave back.
pub(super) struct AtNode {
    pub(super) gate: Arc<Gate>,
    pub(super) asking: Vec<Asking>,
    freed: mpsc::UnboundedReceiver<ToReleaser>,
}

impl AtNode {
    pub(super) fn new() -> Self {
        let (freeing, freed) = mpsc::unbounded_channel();
        let limit = Limit { max_running: Some(1), rate: None };
        let gate = Arc::new(Gate::new(QueueName::new("q").unwrap(), "scarce", limit, freeing));
        Self { gate, asking: Vec::new(), freed }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits::of_gate(self.gate.clone())
    }
}

/// Who holds the one slot there is: by the place of a job, under what, and until when.
#[derive(Default)]
pub(super) struct Holders(BTreeMap<Place, (String, Asked, u64)>);

impl Holders {
    fn admit(&mut self, asks: (&str, Place, Asked), now: u64, mistake: Mistake) -> Admitted {
        let (me, place, asked) = asks;
        self.0.retain(|_, (_, _, until)| *until > now);
        let held = self.0.get(&place);
        if held.is_some_and(|(_, before, _)| before.epoch > asked.epoch) {
            return Admitted::Fenced;
        }
        if held.is_none() && !self.0.is_empty() && mistake != Mistake::AdmitsMore {
            return Admitted::Full(1);
        }
        self.0.insert(place, (me.into(), asked, now + TTL));
        Admitted::Slot
    }

    fn keep(&mut self, (me, place, asked): (&str, Place, Asked), now: u64) -> bool {
        let mine = self.0.get_mut(&place).filter(|(owner, under, _)| owner == me && *under == asked);
        mine.is_some_and(|(_, _, until)| {
            *until = (*until).max(now + TTL);
            true
        })
    }

    fn free(&mut self, (me, place, asked): (&str, Place, Asked)) {
        if self.0.get(&place).is_some_and(|(owner, under, _)| owner == me && *under == asked) {
            self.0.remove(&place);
        }
    }

    fn stand(&self, now: u64) -> usize {
        self.0.values().filter(|(_, _, until)| *until > now).count()
    }
}

/// What was seen of jobs that may not simply be repeated.
#[derive(Default)]
pub(super) struct Seen {
    /// Handlers that began, by job and turn; forgotten where a look found that nothing had happened.
    began: HashSet<(String, u32)>,
    pub(super) once: usize,
    pub(super) looks: usize,
    pub(super) waited: usize,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.once += other.once;
        self.looks += other.looks;
        self.waited += other.waited;
    }
}

impl World {
    /// Redis answers one that asked its limit, or its answer is lost.
    pub(super) fn step_limit(&mut self, n: usize) {
        let now = self.store.now;
        let (at, until) = (self.at(now), self.at(now + TRUST));
        let node = &mut self.nodes[n];
        while let Ok(ToReleaser::Freed(freed)) = node.limit.freed.try_recv() {
            self.store.holders.free((&node.name, freed.name.place, freed.asked));
            freed.gate.opened(1, at);
        }
        for permit in node.limit.gate.held() {
            let held = permit.held();
            if self.store.holders.keep((&node.name, held.name.place, held.asked), now) {
                permit.kept(until);
            }
        }
        self.seen.waited += node.limit.gate.waiting();
        if node.limit.asking.is_empty() {
            return;
        }
        let asking = node.limit.asking.remove(0);
        let asks = (node.name.as_str(), asking.entry.place, asking.permit.held().asked);
        let lost = self.faults && self.rng.one_in(8);
        let executed = !lost || self.rng.one_in(2);
        let said = executed.then(|| self.store.holders.admit(asks, now, self.store.mistake));
        let said = said.filter(|_| !lost);
        asking.permit.answered(said, until, 0.5);
        self.tell(n, Event::Admitted(vec![(asking, said)]));
    }

    /// A run that comes to a worker without its slot takes one, and asks for what comes first.
    pub(super) fn asks_first(&mut self, n: usize, run: Run) {
        let Some(first) = run.first else { return };
        // While the process is closed for a lone run, no slot is given.
        if self.free(n) == 0 || self.nodes[n].alone.is_some() {
            self.nodes[n].queued.push(run);
            return;
        }
        let slot = Slot::none();
        self.nodes[n].slots.push(Arc::downgrade(&slot));
        self.tell(n, ended(run, Ran::Asks(first, slot)));
    }

    /// What must be true of a run that begins, beside what must be of all.
    pub(super) fn begins(&mut self, n: usize, run: &Run) {
        let kind = kind(&run.entry.envelope).to_owned();
        if kind == "scarce" {
            let now = self.at(self.store.now);
            let counts = |node: &Node, run: &Run| {
                let slot = run.slot.as_ref().is_some_and(|slot| slot.may_begin(now));
                // One that ended late may be another's, who inherited its slot and freed it.
                let late = self.ended_late.contains(&run.entry.place);
                let claim = !late && node.claims.trusts(run.entry.place, now);
                self::kind(&run.entry.envelope) == "scarce" && slot && claim
            };
            let of_node = |node: &Node| node.running.iter().filter(|run| counts(node, run)).count();
            let trusted = self.nodes.iter().map(of_node).sum::<usize>();
            let trusted = trusted + usize::from(counts(&self.nodes[n], run));
            let stand = self.store.holders.stand(self.store.now);
            let alone = usize::from(run.alone);
            assert!(trusted <= 1, "{trusted} of a limit of one, {stand} hold it: {run:?}");
            assert!(trusted <= stand, "{trusted} trust slots of which {stand} stand: {run:?}");
            assert!(self.nodes[n].limit.gate.holds() >= trusted.max(alone), "without a permit: {run:?}");
        }
        let turn = if kind == "once" { 0 } else { run.turn };
        let first = match (kind.as_str(), run.reconcile) {
            ("once", _) => {
                assert!(run.acknowledged, "before it was acknowledged: {run:?}");
                self.seen.once += 1;
                self.seen.began.insert((run.entry.id.to_string(), turn))
            }
            ("careful" | "booked", false) => self.seen.began.insert((run.entry.id.to_string(), turn)),
            ("booked", true) => {
                self.seen.looks += 1;
                true
            }
            _ => true,
        };
        let tail = || self.log[self.log.len().saturating_sub(80)..].join("\n");
        assert!(first || self.ended_late.contains(&run.entry.place), "repeated: {run:?}\n{}", tail());
    }

    /// A look found that nothing had happened.
    pub(super) fn found_undone(&mut self, run: &Run) {
        self.seen.began.remove(&(run.entry.id.to_string(), run.turn));
    }

    /// Nothing of a limit is left where no job is.
    pub(super) fn nothing_is_limited(&mut self) {
        for n in 0..2 {
            self.step_limit(n);
            let gate = &self.nodes[n].limit.gate;
            assert_eq!((gate.waiting(), gate.holds()), (0, 0), "a slot that nothing needs");
        }
        self.store.now += TTL + 1;
        assert_eq!(self.store.holders.stand(self.store.now), 0);
    }
}
