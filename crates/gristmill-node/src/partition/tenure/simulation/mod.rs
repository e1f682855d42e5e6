//! Two nodes, one partition, the broker's model as the store, and faults at every step: answers that are lost, requests
//! that execute late, connections that are replaced, nodes that stop, die, drain, leases that expire, and failovers to
//! an older state. After the faults stop, every job must be settled, every effect applied once and in order.
//!
//! The state machine is the real one; only the shell around it is played here. A seed repeats a run step for step.

mod steps;
mod suspects;
mod world;

use super::*;
use gristmill_job::{DeadLetter, DeadReason, UnixMillis};
use gristmill_testkit::seed::seed;
use suspects::poisoned;
use world::{KEYS, VERSIONS, World};

/// Which faults a run may have.
#[derive(Clone, Copy, Debug)]
struct Faults {
    lost: bool,
    reconnect: bool,
    expiry: bool,
    crash: bool,
    handover: bool,
    failover: bool,
    retry: bool,
    /// Jobs die, and hold their keys; a person brings them back.
    dies: bool,
    /// The jobs of one key are of a kind that asks a person after an interrupted run.
    asks: bool,
    /// Runs hold their threads and are given up.
    hangs: bool,
    /// A person wakes jobs that wait, and passes over the last of a key.
    acts: bool,
    /// The kind of most jobs is limited, and its limit says no.
    limits: bool,
    /// A person cancels jobs of one key.
    cancels: bool,
    /// A person pauses the queue, a kind, a key, and resumes them.
    pauses: bool,
    /// Jobs of one key are too late to start.
    expires: bool,
}

impl World {
    fn fault(&mut self) {
        let n = usize::try_from(self.rng.below(2)).unwrap();
        let faults = self.faults;
        match self.rng.below(7) {
            0 if faults.reconnect && self.nodes[n].fence.is_some() => {
                // Answers under way are lost with the connection.
                self.nodes[n].answers.clear();
                self.tell(n, Event::Lost(End::Connection));
            }
            1 if faults.expiry => self.nodes[n].stopped = true,
            2 if faults.expiry => self.pass(1100),
            // Kills from outside, fewer than could make a dead letter of an innocent job: two deaths around it and three
            // during its lone runs; a lost lease makes it as suspect as a death does.
            3 if faults.crash && self.kills < if faults.expiry { 2 } else { 4 } => {
                self.kills += 1;
                self.die(n);
            }
            4 if faults.handover => self.tell(n, Event::Yield(Why::Handover)),
            5 if faults.failover => {
                let kept = self.snapshot.clone();
                self.snapshot = self.model.clone();
                self.model = kept;
                self.model.set_now(UnixMillis(self.now));
                self.failed_over = true;
                self.log.push(format!("{} failover", self.now));
                for n in 0..2 {
                    if self.nodes[n].fence.is_some() {
                        self.nodes[n].answers.clear();
                        self.tell(n, Event::Lost(End::Connection));
                    }
                }
            }
            6 if faults.failover => self.snapshot = self.model.clone(),
            _ => {}
        }
    }

    fn step(&mut self) {
        let n = usize::try_from(self.rng.below(2)).unwrap();
        if self.nodes[n].stopped {
            if self.rng.one_in(5) {
                self.nodes[n].stopped = false;
                self.pass(0);
            }
            return;
        }
        self.step_alone(n);
        if self.nodes[n].asks_promote && self.rng.one_in(3) {
            self.nodes[n].asks_promote = false;
            self.tell(n, Event::MayPromote);
        }
        if self.rng.one_in(40) {
            self.step_person();
        }
        match self.rng.below(10) {
            0 if self.nodes[n].tenure.is_idle() => self.tell(n, Event::Serve),
            0 | 1 => self.acquire(n),
            2 | 3 => self.step_request(n),
            4 => self.step_answer(n),
            5 => self.step_start(n),
            6 => self.step_end(n),
            7 => self.step_renew(n),
            8 => {
                self.step_load(n);
                self.step_limit(n);
            }
            _ => {
                let ms = 1 + self.rng.below(30);
                self.pass(ms);
            }
        }
    }

    fn settled(&self) -> bool {
        let waits = |letter: &DeadLetter| steps::comes_back(letter.reason);
        self.model.partitions(&self.queue)[0].ready == 0
            && self.model.returned(&self.keys).is_empty()
            && self.model.delayed(&self.keys).is_empty()
            && !self.letters().iter().any(waits)
    }

    /// How a node stands, for whoever reads a failure.
    fn stand(node: &world::SimNode) -> String {
        let Tenure { phase, alone, lanes, calls, leftovers, .. } = &node.tenure;
        let runs = (node.queued.len(), &node.running, node.alone, node.gate);
        format!(
            "{phase:?} {alone:?} {calls:?} {leftovers:?} active {} known {} {runs:?}",
            lanes.active(),
            lanes.known()
        )
    }

    /// Whether a job of the first key was cancelled or expired: its mark says so, and there was a reason.
    fn ended_unrun(&self, version: u64) -> bool {
        let id = format!("0:{version}");
        let mark = self.model.mark(&self.keys, &gristmill_job::JobId::new(&id).unwrap());
        let standing = mark.map(|(standing, _)| standing).unwrap_or_default();
        let (cancelled, expired) = (standing.starts_with("cancelled 1"), standing == "expired");
        assert!(!cancelled || self.cancelled.contains(&id), "nobody cancelled {id}");
        assert!(!expired || self.expired.contains(&id), "{id} was never too late");
        cancelled || expired
    }

    fn letters(&self) -> Vec<DeadLetter> {
        let letters = self.model.dead_letters(&self.queue, 0, 0, 1000);
        letters.into_iter().map(|view| view.letter.unwrap()).collect()
    }

    fn run(mut self) -> (u64, u64) {
        self.play()
    }

    fn play(&mut self) -> (u64, u64) {
        for _ in 0..1500 {
            self.step();
            if self.rng.one_in(25) {
                self.fault();
            }
            if !self.late.is_empty() && self.rng.one_in(10) {
                let at = usize::try_from(self.rng.below(self.late.len() as u64)).unwrap();
                let request = self.late.remove(at);
                self.execute(&request);
            }
        }
        let lost = (self.faults, self.late.len());
        self.faults = Faults {
            lost: false,
            reconnect: false,
            expiry: false,
            crash: false,
            handover: false,
            failover: false,
            retry: false,
            dies: false,
            asks: false,
            hangs: false,
            acts: false,
            limits: false,
            cancels: false,
            pauses: false,
            expires: false,
        };
        self.late.clear();
        self.pauses = Arc::default();
        for node in &mut self.nodes {
            node.stopped = false;
        }
        for _ in 0..30_000 {
            if self.settled() {
                break;
            }
            self.step();
        }
        let tail = || self.log[self.log.len().saturating_sub(60)..].join("\n");
        let stand = || self.nodes.iter().map(World::stand).collect::<Vec<_>>().join("\n");
        assert!(self.settled(), "stuck with {lost:?}\n{}\n{}", tail(), stand());
        let letters = self.letters();
        for key in 0..KEYS {
            let name = format!("key{key}");
            let is_poison = |version: u64| self.poison.contains(&(name.clone(), version));
            let is_cancelled = |version: u64| key == 0 && self.ended_unrun(version);
            let good: Vec<u64> =
                (1..=VERSIONS).filter(|version| !is_poison(*version) && !is_cancelled(*version)).collect();
            let Some(last) = good.last() else { continue };
            let entity = self.model.entity(&self.queue, name.as_bytes()).expect("an entity");
            assert_eq!((entity.version, entity.changes), (*last, good.len() as u64), "{name}: {}", tail());
        }
        // Whatever else dies: no innocent job, and every poison after its budget.
        let crashed = |letter: &DeadLetter| letter.reason == DeadReason::Crashed && letter.crashes.len() >= 3;
        assert!(letters.iter().all(crashed), "{letters:?}");
        let mut dead: Vec<(String, u64)> = letters.iter().map(named).collect();
        dead.sort();
        dead.dedup();
        assert_eq!(dead, self.poison, "{}", tail());
        (self.starts, self.loads)
    }
}

/// Key and version of a dead job.
fn named(letter: &DeadLetter) -> (String, u64) {
    (String::from_utf8(letter.key.clone()).unwrap(), letter.version.unwrap())
}

const NONE: Faults = Faults {
    lost: false,
    reconnect: false,
    expiry: false,
    crash: false,
    handover: false,
    failover: false,
    retry: false,
    dies: false,
    asks: false,
    hangs: false,
    acts: false,
    limits: false,
    cancels: false,
    pauses: false,
    expires: false,
};

fn simulate(faults: Faults) {
    let (least, loads) = simulated(faults);
    assert!(least >= KEYS as u64 * VERSIONS);
    assert!(loads > 0, "no lane was ever long enough to be parked");
}

/// Where not every job starts.
fn simulate_few(faults: Faults) {
    simulated(faults);
}

/// Fewest starts of a run, and reads of parked jobs in all.
fn simulated(faults: Faults) -> (u64, u64) {
    let cases: u64 = std::env::var("GRISTMILL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let first = seed();
    let (mut least, mut all_loads) = (u64::MAX, 0);
    for case in 0..cases {
        let seed = first.wrapping_add(case);
        let ran = std::panic::catch_unwind(|| World::new(seed, faults).run());
        let Ok((starts, loads)) = ran else {
            panic!("seed {seed} with {faults:?}: GRISTMILL_SEED={seed} repeats it")
        };
        least = least.min(starts);
        all_loads += loads;
    }
    (least, all_loads)
}

#[test]
fn without_faults_every_job_runs_once() {
    for case in 0..50 {
        assert_eq!(World::new(case, NONE).run().0, KEYS as u64 * VERSIONS);
    }
}

#[test]
fn lost_answers() {
    simulate(Faults { lost: true, ..NONE });
}

#[test]
fn replaced_connections_and_late_requests() {
    simulate(Faults { reconnect: true, lost: true, ..NONE });
}

#[test]
fn stopped_nodes_and_expired_leases() {
    simulate(Faults { expiry: true, ..NONE });
}

#[test]
fn crashes_and_hand_overs() {
    simulate(Faults { crash: true, handover: true, ..NONE });
}

#[test]
fn retries_and_stopped_runs() {
    simulate(Faults { retry: true, lost: true, ..NONE });
}

#[test]
fn failovers_to_an_older_state() {
    simulate(Faults { failover: true, lost: true, ..NONE });
}

#[test]
fn everything_at_once() {
    simulate(Faults {
        lost: true,
        reconnect: true,
        expiry: true,
        crash: true,
        handover: true,
        failover: true,
        retry: true,
        dies: true,
        asks: false,
        hangs: true,
        acts: true,
        limits: false,
        cancels: false,
        pauses: true,
        expires: false,
    });
}

#[test]
fn what_came_back_from_the_dead_runs_before_the_newer_jobs_of_its_key() {
    // Every effect is applied, none is stale: the order of a key outlived death, hold and replay.
    simulate(Faults { dies: true, ..NONE });
    simulate(Faults { dies: true, handover: true, retry: true, ..NONE });
    simulate(Faults { dies: true, crash: true, expiry: true, lost: true, reconnect: true, ..NONE });
}

#[test]
fn runs_that_hang_and_people_who_act() {
    let hangs = Faults { hangs: true, retry: true, ..NONE };
    let acts = Faults { acts: true, retry: true, ..NONE };
    simulate(hangs);
    simulate(acts);
    simulate(Faults { lost: true, reconnect: true, dies: true, handover: true, acts: true, ..hangs });
    simulate(Faults { expiry: true, crash: true, asks: true, ..hangs });
    poisoned(&[(1, 2)], Faults { handover: true, lost: true, acts: true, ..hangs });
}

#[test]
fn what_is_paused_does_not_start_and_goes_on_in_order_once_it_is_resumed() {
    let pauses = Faults { pauses: true, ..NONE };
    simulate(pauses);
    simulate(Faults { retry: true, dies: true, acts: true, handover: true, ..pauses });
    simulate(Faults {
        lost: true,
        reconnect: true,
        retry: true,
        crash: true,
        expiry: true,
        hangs: true,
        ..pauses
    });
    simulate_few(Faults { cancels: true, lost: true, retry: true, handover: true, ..pauses });
}

#[test]
fn jobs_that_are_too_late_end_once_and_their_lane_goes_on() {
    let expires = Faults { expires: true, ..NONE };
    simulate_few(expires);
    simulate_few(Faults { retry: true, lost: true, reconnect: true, handover: true, ..expires });
    simulate_few(Faults { crash: true, expiry: true, lost: true, cancels: true, pauses: true, ..expires });
}

#[test]
fn jobs_that_a_person_cancels_end_once_and_their_lane_goes_on() {
    let cancels = Faults { cancels: true, ..NONE };
    simulate_few(cancels);
    simulate_few(Faults { retry: true, acts: true, ..cancels });
    simulate_few(Faults { lost: true, reconnect: true, retry: true, dies: true, handover: true, ..cancels });
    simulate_few(Faults { crash: true, expiry: true, lost: true, retry: true, hangs: true, ..cancels });
}

#[test]
fn a_limited_kind_waits_and_goes_on_and_holds_no_slot_that_nothing_needs() {
    let limits = Faults { limits: true, ..NONE };
    simulate(limits);
    simulate(Faults { handover: true, retry: true, dies: true, acts: true, ..limits });
    simulate(Faults { lost: true, reconnect: true, expiry: true, crash: true, handover: true, ..limits });
    simulate(Faults { hangs: true, retry: true, lost: true, expiry: true, ..limits });
    poisoned(&[(1, 2)], Faults { handover: true, retry: true, ..limits });
}
