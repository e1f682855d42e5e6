//! The shell around two tenures, played: the store, the connections, the clock and the runs.

use super::Faults;
use super::steps::ended;
use crate::limits::Limits;
use crate::limits::gate::Gate;
use crate::partition::lanes::{LaneId, Memory};
use crate::partition::pauses::Pauses;
use crate::partition::policy::{Policy, Rules};
use crate::partition::tenure::*;
use crate::worker::slot::Slot;
use gristmill_broker::lease::acquire::{Acquire, Acquired, Before};
use gristmill_broker::model::Model;
use gristmill_broker::{Fence, Incarnation, PartitionKeys, QueueDefinition};
use gristmill_handler::{Redelivery, Rule};
use gristmill_job::{ContentType, JobLimits, Limit, NewJob, QueueName, RetryPolicy, UnixMillis};
use gristmill_testkit::seed::SplitMix64;
use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::mpsc;

pub(super) const TTL: Duration = Duration::from_millis(1000);
pub(super) const TRUST: u64 = 700;
pub(super) const KEYS: usize = 3;
pub(super) const VERSIONS: u64 = 6;
/// The key whose jobs are of the kind `asks`.
const ASKS: usize = 1;

/// A call on its way to the store.
pub(super) struct Request {
    pub(super) fence: Fence,
    pub(super) number: u64,
    pub(super) call: Arc<Call>,
}

pub(super) struct SimNode {
    pub(super) incarnation: Incarnation,
    pub(super) tenure: Tenure,
    pub(super) fence: Option<Fence>,
    pub(super) trusted_until: u64,
    pub(super) answered: u64,
    pub(super) before: Before,
    pub(super) acquire: Option<Epoch>,
    pub(super) requests: VecDeque<Request>,
    pub(super) answers: VecDeque<(Epoch, u64, Result<Answer, CallError>)>,
    pub(super) loads: Vec<(Epoch, LaneId, Vec<Place>)>,
    /// The gate of its limited kind.
    pub(super) limited: Arc<Gate>,
    /// Runs that asked for the limit of their kind, under this epoch.
    pub(super) asking: Vec<(Epoch, Asking)>,
    pub(super) queued: Vec<Run>,
    pub(super) running: Vec<Run>,
    /// Given up, and alive.
    pub(super) hung: Vec<Run>,
    pub(super) gate: Option<Epoch>,
    /// The job that asked to run alone, and whether it may.
    pub(super) alone: Option<(Place, bool)>,
    /// It waits for its turn to promote.
    pub(super) asks_promote: bool,
    /// Slots that were taken for runs that have not begun.
    pub(super) slots: Vec<Weak<Slot>>,
    /// Runs that may be charged with a death that did not happen.
    pub(super) orphans: Vec<(Fence, u32, Place)>,
    /// Runs that were asked to stop, by place.
    pub(super) asked_to_stop: HashSet<Place>,
    /// What it has heard to be paused.
    pub(super) pauses: Arc<Pauses>,
    pub(super) wake_at: Option<u64>,
    pub(super) stopped: bool,
}

pub(super) struct World {
    pub(super) rng: SplitMix64,
    pub(super) faults: Faults,
    /// What `faults` was before they stopped.
    pub(super) faults_at_first: Faults,
    pub(super) model: Model,
    pub(super) snapshot: Model,
    pub(super) now: u64,
    pub(super) start: Instant,
    pub(super) queue: QueueDefinition,
    pub(super) keys: Arc<PartitionKeys>,
    pub(super) nodes: Vec<SimNode>,
    /// Requests of connections that are gone; they may still execute.
    pub(super) late: Vec<Request>,
    pub(super) starts: u64,
    pub(super) loads: u64,
    /// Runs that may not be repeated, by place and turn.
    pub(super) once: HashSet<(Place, u32)>,
    /// Jobs that kill their process, by key and version.
    pub(super) poison: Vec<(String, u64)>,
    /// How often they did.
    pub(super) deaths: usize,
    /// Kills from outside.
    pub(super) kills: usize,
    pub(super) failed_over: bool,
    /// Jobs that a person cancelled, by id.
    pub(super) cancelled: HashSet<String>,
    /// Jobs that were once too late to start, by id.
    pub(super) expired: HashSet<String>,
    /// What a person has paused.
    pub(super) pauses: Arc<Pauses>,
    pub(super) log: Vec<String>,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 1);
        let mut model = Model::new();
        model.set_now(UnixMillis(1_000_000));
        model.create(&queue).unwrap();
        let keys = Arc::new(queue.partition(0));
        for version in 1..=VERSIONS {
            for key in 0..KEYS {
                let kind = if key == ASKS { "asks" } else { "k" };
                let job = NewJob::from_bytes(kind, format!("key{key}"), vec![1], ContentType::Json).unwrap();
                let job = job.with_version(version);
                // Some with ids of their own.
                let job = if key == 0 { job.with_id(&format!("{key}:{version}")).unwrap() } else { job };
                // Some for later, each behind those before it of its key.
                let delay = Duration::from_millis(40 * version);
                let job = if key == 2 || (key == 0 && version > 3) { job.due_in(delay) } else { job };
                let job = job.encode(UnixMillis(0), JobLimits::default()).unwrap();
                model.enqueue(&keys, 1, &format!("c{key}-{version}"), &[job]);
            }
        }
        let mut world = Self {
            rng: SplitMix64::new(seed),
            faults,
            faults_at_first: faults,
            snapshot: model.clone(),
            model,
            now: 1_000_000,
            start: Instant::now(),
            queue,
            keys,
            nodes: Vec::new(),
            late: Vec::new(),
            starts: 0,
            loads: 0,
            once: HashSet::new(),
            poison: Vec::new(),
            deaths: 0,
            kills: 0,
            failed_over: false,
            cancelled: HashSet::new(),
            expired: HashSet::new(),
            pauses: Arc::default(),
            log: Vec::new(),
        };
        for n in 0..2 {
            let node = world.fresh_node(n);
            world.nodes.push(node);
        }
        world
    }

    pub(super) fn fresh_node(&mut self, n: u64) -> SimNode {
        let incarnation = Incarnation::of(&format!("n{n}"), self.rng.next_u64());
        let queue = self.queue.name.clone();
        let limited = Arc::new(Gate::new(queue, "k", Limit::default(), mpsc::unbounded_channel().0));
        let bounds = Bounds {
            window_jobs: 6,
            window_parked: 100,
            memory: Memory { jobs_per_lane: 2, longest_wait: Duration::from_millis(60) },
            window_bytes: 1 << 20,
            claim_jobs: 3,
            recover_jobs: 2,
            handover_wait: Duration::from_millis(400),
            census_every: Duration::from_millis(150),
            policy: Policy {
                hold: true,
                limits: if self.faults_at_first.limits {
                    Limits::of_gate(limited.clone())
                } else {
                    Limits::default()
                },
                rules: if self.faults_at_first.asks { Rules::new(rule) } else { Rules::default() },
                ..Policy::with(
                    RetryPolicy::exponential(Duration::from_millis(50))
                        .with_bounds(Duration::ZERO, Duration::from_millis(200))
                        .with_max_attempts(1000),
                )
            },
        };
        SimNode {
            tenure: Tenure::new(bounds, incarnation.as_str().into(), 0),
            incarnation,
            fence: None,
            trusted_until: 0,
            answered: 0,
            before: Before::default(),
            acquire: None,
            requests: VecDeque::new(),
            answers: VecDeque::new(),
            loads: Vec::new(),
            limited,
            asking: Vec::new(),
            queued: Vec::new(),
            running: Vec::new(),
            hung: Vec::new(),
            gate: None,
            alone: None,
            asks_promote: false,
            slots: Vec::new(),
            orphans: Vec::new(),
            asked_to_stop: HashSet::new(),
            pauses: Arc::default(),
            wake_at: None,
            stopped: false,
        }
    }

    pub(super) fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms - 1_000_000)
    }

    pub(super) fn tell(&mut self, n: usize, event: Event) {
        self.log.push(format!("{} n{n} <- {event:?}", self.now));
        let now = Now {
            instant: self.at(self.now),
            wall: UnixMillis(self.now),
            redis: UnixMillis(self.now),
            trusted: self.now < self.nodes[n].trusted_until,
            waits: !self.nodes[n].queued.is_empty(),
            random: self.rng.below(1000) as f64 / 1000.0,
        };
        let mut actions = Vec::new();
        self.nodes[n].tenure.decide(event, now, &mut actions);
        let mut back = Vec::new();
        let (start, base, failed_over) = (self.start, 1_000_000, self.failed_over);
        let node = &mut self.nodes[n];
        let epoch = node.tenure.epoch();
        for action in actions {
            match action {
                Action::Acquire { highest, .. } => node.acquire = Some(highest),
                Action::Hold(epoch) => {
                    node.gate = Some(epoch);
                }
                Action::Drop => {
                    node.gate = None;
                    node.fence = None;
                    node.asks_promote = false;
                    node.trusted_until = 0;
                    // The line is gone: what it had sent executes late or never.
                    self.late.extend(node.requests.drain(..));
                    node.answers.clear();
                    back.append(&mut node.queued);
                }
                Action::Recall => back.append(&mut node.queued),
                Action::Withdraw => {
                    node.gate = None;
                    back.append(&mut node.queued);
                }
                Action::Send(number, call) => {
                    if let Some(fence) = node.fence.clone() {
                        node.requests.push_back(Request { fence, number, call });
                    }
                }
                Action::Cancel(place) => {
                    let (mine, rest): (Vec<Run>, Vec<Run>) =
                        node.queued.drain(..).partition(|run| run.entry.place == place);
                    node.queued = rest;
                    back.extend(mine);
                    node.asked_to_stop.insert(place);
                }
                Action::Start(runs) => node.queued.extend(runs),
                Action::Admit(asking) => node.asking.extend(asking.into_iter().map(|one| (epoch, one))),
                Action::Load(lane, places) => node.loads.push((node.tenure.epoch(), lane, places)),
                Action::WakeAt(at) => {
                    let at = base + u64::try_from((at - start).as_millis()).unwrap();
                    node.wake_at = Some(node.wake_at.map_or(at, |before| before.min(at)));
                }
                Action::AskAlone(place) => {
                    assert!(node.alone.is_none(), "two of one partition ask to be alone");
                    node.alone = Some((place, false));
                }
                Action::AskPromote => node.asks_promote = true,
                Action::AloneOver => node.alone = None,
                Action::Orphaned { place, turn, epoch } => {
                    let fence = Fence { incarnation: node.incarnation.clone(), epoch };
                    node.orphans.push((fence, turn, place));
                }
                Action::Repaired(things) => {
                    assert!(failed_over, "{things} things were lost sight of");
                }
                Action::Unstarted(_) => unreachable!("no kind here runs at most once"),
                Action::Listen(_)
                | Action::Forward
                | Action::Idle { .. }
                | Action::Ended(_)
                | Action::PromoteOver
                | Action::Promoted { .. }
                | Action::Done(_)
                | Action::Ran(_)
                | Action::HandedBack(_)
                | Action::Outcome { .. } => {}
            }
        }
        let node = &self.nodes[n];
        let needed = node.tenure.lanes.active() + node.tenure.leftovers.len() + node.asking.len();
        assert!(node.limited.holds() <= needed, "a slot that nothing needs: {}", self.log.join("\n"));
        if !back.is_empty() {
            let ended = back.into_iter().map(|run| ended(run, Ran::NotStarted)).collect();
            self.tell(n, Event::Ended(ended));
        }
    }

    pub(super) fn acquire(&mut self, n: usize) {
        let Some(highest) = self.nodes[n].acquire.take() else { return };
        let lost = self.faults.lost && self.rng.one_in(8);
        let mut before = self.nodes[n].before.clone();
        let granted = loop {
            let incarnation = self.nodes[n].incarnation.clone();
            let acquire = Acquire {
                queue: &self.queue,
                partition: 0,
                incarnation: &incarnation,
                ttl: TTL,
                highest,
                before: &before,
            };
            match self.model.acquire(&acquire) {
                Acquired::Changed(now) => before = now,
                Acquired::Granted(epoch) => break Some(epoch),
                Acquired::Held { owner, epoch, .. } => {
                    before.owner = owner.as_str().into();
                    before.epoch = epoch.to_string();
                    break None;
                }
                other => panic!("{other:?}"),
            }
        };
        self.nodes[n].before = before;
        for (fence, turn, place) in std::mem::take(&mut self.nodes[n].orphans) {
            self.model.absolve(&self.keys, &fence, turn, place);
        }
        match granted {
            Some(epoch) if !lost => {
                let node = &mut self.nodes[n];
                let fence = Fence { incarnation: node.incarnation.clone(), epoch };
                node.before.owner = fence.incarnation.as_str().into();
                node.before.epoch = epoch.to_string();
                node.fence = Some(fence);
                node.answered = 0;
                node.trusted_until = self.now + TRUST;
                self.tell(n, Event::Acquired(Ok(epoch)));
                let pauses = self.pauses.clone();
                self.nodes[n].pauses = pauses.clone();
                self.tell(n, Event::Pauses(pauses));
            }
            _ => self.tell(n, Event::Acquired(Err(()))),
        }
    }

    /// The store executes one request; `None`: nobody hears the answer.
    pub(super) fn execute(&mut self, request: &Request) -> Answer {
        let guard = gristmill_broker::call::Guard {
            keys: &self.keys,
            fence: &request.fence,
            number: request.number,
            seen_window_ms: 1_000_000,
        };
        self.log.push(format!(
            "{} exec {} #{} {:?}",
            self.now,
            request.fence.consumer(),
            request.number,
            request.call
        ));
        self.model.call(&request.call, guard)
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.model.set_now(UnixMillis(self.now));
        for n in 0..self.nodes.len() {
            if self.nodes[n].stopped {
                continue;
            }
            if self.nodes[n].wake_at.is_some_and(|at| at <= self.now) {
                self.nodes[n].wake_at = None;
                self.tell(n, Event::Tick);
            }
            if self.nodes[n].fence.is_some() && self.now >= self.nodes[n].trusted_until {
                self.tell(n, Event::Lost(End::Trust));
            }
        }
    }
}

fn rule(envelope: &[u8]) -> Rule {
    let asks = gristmill_job::Envelope::decode(envelope, 1 << 20).unwrap().kind == "asks";
    Rule { redelivery: if asks { Redelivery::Review } else { Redelivery::Rerun }, ..Rule::default() }
}
