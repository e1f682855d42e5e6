//! Two nodes, one partition without an order, a store in memory, and faults at every step: answers that are lost, requests
//! that execute late, claims that lapse, nodes that stop, die, drain. After the faults stop, every job must have ended, once;
//! and of kinds that say something ([`kinds`]) what they say was heeded.
//!
//! The state machine and the claims are the real ones; only the shell around them is played. A seed repeats a run step for step.

mod kinds;
mod steps;
mod store;

use super::*;
use crate::competing::claims::Claims;
use crate::competing::events::Which;
use crate::partition::tenure::{Ended, Ran, Run};
use gristmill_broker::Verdict;
use gristmill_broker::delayed::Member;
use gristmill_broker::reclaim::Reclaim;
use gristmill_job::{RetryPolicy, UnixMillis};
use gristmill_testkit::seed::{SplitMix64, seed};
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use store::{Mistake, Store};

const SLOTS: usize = 3;
const JOBS: u64 = 12;
const TIMEOUT: Duration = Duration::from_millis(300);
const CENSUS: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
enum Request {
    Grab(u64, usize, Which),
    Reclaim(u64, Reclaim),
    Send(u64, Arc<Call>),
    Promote(Vec<Member>),
    Extend(Vec<Place>),
}

struct Node {
    name: String,
    machine: Machine,
    claims: Arc<Claims>,
    slots: Vec<Weak<Slot>>,
    asked: usize,
    requests: VecDeque<(u64, Request)>,
    queued: Vec<Run>,
    running: Vec<Run>,
    /// The job that asked to run alone, and whether it may.
    alone: Option<(Place, bool)>,
    /// Runs whose cancel was heard.
    cancelled: HashSet<Place>,
    stopped: bool,
    limit: kinds::AtNode,
}

struct World {
    rng: SplitMix64,
    start: Instant,
    store: Store,
    nodes: Vec<Node>,
    late: Vec<(String, Request)>,
    /// Claims that ended by a settle of an earlier claim of the same node, which executed late: its node cannot know. Such a job
    /// may run twice; its result is written once. A hand back names its claim, and ends no other.
    ended_late: HashSet<Place>,
    seen: kinds::Seen,
    lives: u64,
    faults: bool,
    paused: bool,
    kills: u32,
    log: Vec<String>,
}

fn ended(run: Run, ran: Ran) -> Event {
    let Run { epoch, lane, entry, turn, .. } = run;
    Event::Ended(vec![Ended { epoch, lane, entry, turn, ran, attempt: None }])
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> Self {
        let mut world = Self {
            rng: SplitMix64::new(seed),
            start: Instant::now(),
            store: Store::new(JOBS, mistake),
            nodes: Vec::new(),
            late: Vec::new(),
            ended_late: HashSet::new(),
            seen: kinds::Seen::default(),
            lives: 0,
            faults: true,
            paused: false,
            kills: 0,
            log: Vec::new(),
        };
        for n in 0..2 {
            let node = world.fresh();
            world.nodes.push(node);
            world.tell(n, Event::Pauses(Arc::default()));
        }
        world
    }

    fn fresh(&mut self) -> Node {
        self.lives += 1;
        let name = format!("n{}", self.lives);
        let retry = RetryPolicy::exponential(Duration::from_millis(20))
            .with_bounds(Duration::ZERO, Duration::from_millis(100))
            .with_max_attempts(6);
        let limit = kinds::AtNode::new();
        let (rules, limits) = (kinds::rules(), limit.limits());
        let policy = Policy { crash_budget: 1000, rules, limits, ..Policy::with(retry) };
        let bounds = Bounds { claim_jobs: 4, visibility_timeout: TIMEOUT, census_every: CENSUS, policy };
        let now = self.at(self.store.now);
        Node {
            machine: Machine::new(bounds, name.as_str().into(), 0, Epoch(self.lives), now),
            name,
            claims: Arc::new(Claims::new(TIMEOUT)),
            slots: Vec::new(),
            asked: 0,
            requests: VecDeque::new(),
            queued: Vec::new(),
            running: Vec::new(),
            alone: None,
            cancelled: HashSet::new(),
            stopped: false,
            limit,
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms - 1_000_000)
    }

    fn free(&mut self, n: usize) -> usize {
        let node = &mut self.nodes[n];
        node.slots.retain(|slot| slot.strong_count() > 0);
        assert!(node.slots.len() <= SLOTS);
        SLOTS - node.slots.len()
    }

    fn tell(&mut self, n: usize, event: Event) {
        let ms = self.store.now;
        self.log.push(format!("{ms} {} <- {event:?}", self.nodes[n].name));
        let instant = self.at(ms);
        let random = self.rng.below(1000) as f64 / 1000.0;
        let node = &mut self.nodes[n];
        let claims = node.claims.clone();
        let trusts = |place: Place| claims.trusts(place, instant);
        let slots = node.slots.clone();
        let taken = || slots.iter().filter(|slot| slot.strong_count() > 0).count();
        let free_slots = || SLOTS - taken();
        let (wall, redis) = (UnixMillis(ms), UnixMillis(ms));
        let now = Now { instant, wall, redis, random, free_slots: &free_slots, trusts: &trusts };
        let mut actions = Vec::new();
        node.machine.decide(event, now, &mut actions);
        let (mut withdrawn, mut forward) = (Vec::new(), false);
        for action in actions {
            match action {
                Action::Ask(count) => node.asked = count,
                Action::Grab(call, count, which) => {
                    let alive = node.slots.iter().filter(|slot| slot.strong_count() > 0).count();
                    assert!(count <= alive, "it claims {count} with {alive} slots");
                    node.requests.push_back((ms, Request::Grab(call, count, which)));
                }
                Action::Reclaim(call, reclaim) => {
                    let alive = node.slots.iter().filter(|slot| slot.strong_count() > 0).count();
                    assert!(reclaim.count <= alive, "it claims {reclaim:?} with {alive} slots");
                    node.requests.push_back((ms, Request::Reclaim(call, reclaim)));
                }
                Action::Send(number, call, _) => {
                    if let Call::Settle(jobs) = &*call {
                        for job in jobs.iter().filter(|job| matches!(job.verdict, Verdict::Retry { .. })) {
                            // One that waits for its limit may go away with its line, which says so.
                            let waits = self.store.is_scarce(job.place);
                            assert!(waits || !node.cancelled.contains(&job.place), "tried again: {job:?}");
                        }
                    }
                    node.requests.push_back((ms, Request::Send(number, call)));
                }
                Action::Promote(members) => node.requests.push_back((ms, Request::Promote(members))),
                Action::Start(runs) => node.queued.extend(runs),
                Action::Forget(place) => {
                    node.claims.remove(place);
                    node.cancelled.remove(&place);
                }
                Action::Cancel(place) => drop(node.cancelled.insert(place)),
                Action::AskAlone(place) => node.alone = Some((place, false)),
                Action::AloneOver => node.alone = None,
                Action::Forward => forward = true,
                Action::Admit(asking) => node.limit.asking.extend(asking),
                Action::Recall | Action::Withdraw => withdrawn.append(&mut node.queued),
                Action::Left => {
                    assert!(node.queued.is_empty() && node.running.is_empty(), "it left and runs");
                }
                Action::Make | Action::Differs(_) => {
                    panic!("nothing here needs {action:?}")
                }
                _ => {}
            }
        }
        if forward {
            self.tell(n, Event::Forwarded { ids: Vec::new(), more: false });
        }
        for run in withdrawn {
            // What was acknowledged waits for its worker.
            match run.acknowledged {
                true => self.nodes[n].queued.push(run),
                false => self.tell(n, ended(run, Ran::NotStarted)),
            }
        }
    }

    /// The store executes a request, and its answer is heard, or lost; or it executes later, and nobody hears of it.
    fn request(&mut self, n: usize) {
        let Some((sent, request)) = self.nodes[n].requests.pop_front() else { return };
        let (me, lost) = (self.nodes[n].name.clone(), self.faults && self.rng.one_in(8));
        if lost && self.rng.one_in(2) {
            self.late.push((me, request.clone()));
            return self.answer(n, sent, request, None);
        }
        let event = self.execute(&me, &request);
        self.answer(n, sent, request, (!lost).then_some(event));
    }

    fn execute(&mut self, me: &str, request: &Request) -> Heard {
        self.log.push(format!("{} {me} exec {request:?}", self.store.now));
        match request {
            Request::Grab(_, count, which) => Heard::Grabbed(self.store.grab(me, *count, *which)),
            Request::Reclaim(_, reclaim) => Heard::Reclaimed(self.store.reclaim(me, *reclaim)),
            Request::Send(_, call) => Heard::Answer(self.store.call(me, call)),
            Request::Promote(members) => Heard::Promoted(self.store.promote(members)),
            Request::Extend(places) => {
                let (lost, cancelled) = self.store.extend(me, places);
                Heard::Extended(lost, cancelled)
            }
        }
    }
}

enum Heard {
    Grabbed(gristmill_broker::grab::Grabbed),
    Reclaimed(gristmill_broker::reclaim::Reclaimed),
    Answer(Answer),
    Promoted(gristmill_broker::promote::Promoted),
    Extended(Vec<Place>, Vec<Place>),
}

/// What was seen in all of them; or the seed of the first that fails.
fn simulate(mistake: Mistake, cases: u64) -> Result<kinds::Seen, u64> {
    let (first, mut all) = (seed(), kinds::Seen::default());
    for seed in (0..cases).map(|case| first.wrapping_add(case)) {
        let played = catch_unwind(AssertUnwindSafe(|| World::new(seed, mistake).play()));
        all.add(&played.map_err(|_| seed)?);
    }
    Ok(all)
}

#[test]
fn every_job_ends_once_whatever_fails() {
    let cases = std::env::var("GRISTMILL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let seen =
        simulate(Mistake::None, cases).unwrap_or_else(|seed| panic!("GRISTMILL_SEED={seed} repeats it"));
    // What is promised of kinds was put to the test.
    assert!(seen.once > 0 && seen.looks > 0 && seen.waited > 0);
}

#[test]
fn mistakes_of_the_store_are_found() {
    for mistake in [
        Mistake::SettlesOfAnybody,
        Mistake::SettlesTwice,
        Mistake::ExtendSteals,
        Mistake::PromotesTwice,
        Mistake::GrabsMore,
        Mistake::AdmitsMore,
        Mistake::KeepsAcknowledged,
        Mistake::ForgetsInterruption,
        Mistake::LosesRejected,
    ] {
        let found = simulate(mistake, 20_000).err();
        let found = found.unwrap_or_else(|| panic!("{mistake:?} was not found"));
        eprintln!("{mistake:?}: GRISTMILL_SEED={found} shows it");
    }
}
