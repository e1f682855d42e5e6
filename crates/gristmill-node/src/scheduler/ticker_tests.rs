use super::*;
use gristmill_broker::schedule::define::DefineAnswer;
use gristmill_broker::schedule::fire::FireAnswer;
use gristmill_broker::schedule::{DEFINITION_STANDS, RESTORED};
use gristmill_broker::{PartitionKeys, QueueDefinition, model::Model};
use gristmill_job::QueueName;
use gristmill_schedule::{CatchUp, Timing, slot_of_job};
use gristmill_testkit::seed::{SplitMix64, seed};
use std::collections::BTreeMap;

fn schedule(every_s: u64, catch_up: CatchUp) -> Schedule {
    let timing = Timing::every(&format!("{every_s}s"), None).unwrap();
    let schedule = Schedule::new("tick", "q", "k", timing).unwrap();
    schedule.with_catch_up(catch_up, Duration::from_secs(3600)).unwrap()
}

/// Nodes with a schedule each, and the store they ask. Time is virtual.
struct World {
    model: Model,
    keys: PartitionKeys,
    queue: QueueDefinition,
    started: Instant,
    /// Since `started`.
    elapsed: Duration,
    /// Of the Redis clock, at `started`.
    redis_began: u64,
    nodes: Vec<Option<Ticker>>,
    starts: u32,
    fired: u64,
    missed: u64,
    calls: u64,
}

impl World {
    fn new() -> Self {
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 1);
        let mut model = Model::new();
        model.create(&queue).unwrap();
        Self {
            model,
            keys: queue.partition(0),
            queue,
            started: Instant::now(),
            elapsed: Duration::ZERO,
            redis_began: 1_790_000_000_123,
            nodes: Vec::new(),
            starts: 0,
            fired: 0,
            missed: 0,
            calls: 0,
        }
    }

    fn clock(&self) -> UnixMillis {
        UnixMillis(self.redis_began + self.elapsed.as_millis() as u64)
    }

    fn start(&mut self, schedule: Schedule) -> Ticker {
        self.starts += 1;
        Ticker::new(schedule, &format!("node~{}", self.starts), JobLimits::default())
    }

    fn pass(&mut self, span: Duration) {
        self.elapsed += span;
        self.model.set_now(self.clock());
    }

    /// One step of a node, which believes the Redis clock to be off by so much. `lost`: the answer is; with `before` also the
    /// call. Until when there is nothing to do, if so.
    fn step(&mut self, who: usize, off_ms: i64, lost: bool, before: bool) -> Option<Instant> {
        let now = Now {
            instant: self.started + self.elapsed,
            redis: self.clock().0.checked_add_signed(off_ms).map(UnixMillis),
        };
        let Some(Some(ticker)) = self.nodes.get_mut(who) else { return Some(now.instant) };
        self.model.set_now(UnixMillis(self.redis_began + self.elapsed.as_millis() as u64));
        let news = match ticker.ask(now) {
            Ask::Nothing(until) => return Some(until),
            Ask::Define => {
                let define = [ticker.define()];
                let answer = (!before)
                    .then(|| self.model.define_for(&self.keys, &define, DEFINITION_STANDS, RESTORED));
                match answer {
                    Some(DefineAnswer::Defined(_, mut defined)) if !lost => {
                        ticker.defined(now, defined.remove(0))
                    }
                    _ => ticker.failed(now, "lost"),
                }
            }
            Ask::Fire => {
                self.calls += 1;
                let fire = ticker.fire(UnixMillis(0), |_, _, _| {}).unwrap();
                let answer = (!before).then(|| self.model.fire(&self.keys, self.queue.partitions, &fire));
                match answer {
                    Some(FireAnswer::Fired(redis, fired)) if !lost => ticker.fired(now, redis, fired),
                    _ => ticker.failed(now, "lost"),
                }
            }
        };
        match news {
            News::Fired { missed, .. } => {
                self.fired += 1;
                self.missed += missed;
            }
            News::Missed(missed) | News::Overlaps { missed, .. } => self.missed += missed,
            _ => {}
        }
        None
    }

    /// All nodes step until none has anything to do, and then it is later.
    fn run(&mut self, span: Duration) {
        let end = self.elapsed + span;
        while self.elapsed < end {
            let mut wake = self.started + end;
            for who in 0..self.nodes.len() {
                for _ in 0..50 {
                    if let Some(until) = self.step(who, 0, false, false) {
                        wake = wake.min(until);
                        break;
                    }
                }
            }
            let next = wake.saturating_duration_since(self.started + self.elapsed);
            self.pass(next.max(Duration::from_millis(1)));
        }
    }

    /// How many jobs there are of each slot.
    fn slots(&self) -> BTreeMap<u64, usize> {
        let mut slots = BTreeMap::new();
        for (_, id, _) in self.model.jobs(&self.keys) {
            *slots.entry(slot_of_job(id.as_bytes()).unwrap().1.0).or_default() += 1;
        }
        slots
    }

    /// Every slot from the first to the last is there, once.
    #[track_caller]
    fn without_a_gap(&self, every_s: u64) -> usize {
        let slots = self.slots();
        assert!(slots.values().all(|count| *count == 1), "{slots:?}");
        let all: Vec<u64> = slots.into_keys().collect();
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == every_s * 1000), "{all:?}");
        all.len()
    }
}

#[test]
fn one_node_fires_every_slot_at_its_time() {
    let mut world = World::new();
    let node = world.start(schedule(1, CatchUp::Skip));
    world.nodes.push(Some(node));
    world.run(Duration::from_secs(60));
    assert_eq!((world.without_a_gap(1), world.fired, world.missed), (60, 60, 0));
    // A call for each slot, and no polling.
    assert!(world.calls <= 61, "{}", world.calls);
}

#[test]
fn three_nodes_fire_every_slot_once_and_mostly_the_same_one_does() {
    let mut world = World::new();
    for _ in 0..3 {
        let node = world.start(schedule(1, CatchUp::Skip));
        world.nodes.push(Some(node));
    }
    world.run(Duration::from_secs(60));
    assert_eq!((world.without_a_gap(1), world.fired), (60, 60));
    assert!(world.nodes.iter().flatten().filter(|node| node.won).count() == 1);
}

#[test]
fn what_was_missed_is_made_up_as_said_once() {
    for (catch_up, jobs, missed) in [(CatchUp::Skip, 10, 50), (CatchUp::Last, 11, 49), (CatchUp::All, 60, 0)]
    {
        let mut world = World::new();
        let node = world.start(schedule(60, catch_up));
        world.nodes.push(Some(node));
        world.run(Duration::from_secs(600));
        world.nodes[0] = None;
        world.pass(Duration::from_secs(3000));
        for _ in 0..2 {
            let node = world.start(schedule(60, catch_up));
            world.nodes.push(Some(node));
        }
        world.run(Duration::from_secs(5));
        assert!(world.slots().values().all(|count| *count == 1));
        assert_eq!((world.slots().len(), world.missed), (jobs, missed), "{catch_up:?}");
    }
}

#[test]
fn a_new_definition_waits_for_the_nodes_of_the_old_one_and_goes_on_without_a_gap() {
    let mut world = World::new();
    for _ in 0..2 {
        let node = world.start(schedule(1, CatchUp::Skip));
        world.nodes.push(Some(node));
    }
    world.run(Duration::from_secs(10));
    let new = || schedule(1, CatchUp::Skip).with_payload(serde_json::json!("new")).unwrap();
    let node = world.start(new());
    world.nodes[0] = Some(node);
    world.run(Duration::from_secs(10));
    assert_eq!(world.nodes[0].as_ref().unwrap().stand, Stand::Other);
    let node = world.start(new());
    world.nodes[1] = Some(node);
    world.run(Duration::from_secs(20));
    assert!(world.nodes.iter().flatten().all(|node| matches!(node.stand, Stand::Mine { .. })));
    assert_eq!((world.without_a_gap(1), world.missed), (40, 0));
}

#[test]
fn a_paused_one_rests_and_a_disabled_one_never_fires() {
    let mut world = World::new();
    let node = world.start(schedule(1, CatchUp::All));
    world.nodes.push(Some(node));
    world.run(Duration::from_secs(5));
    world.model.pause_schedule(&world.keys.clone(), "tick", "a", "b");
    world.run(Duration::from_secs(100));
    assert_eq!(world.slots().len(), 5);
    assert!(world.calls < 10, "{}", world.calls);
    world.model.resume_schedule(&world.keys.clone(), "tick");
    world.run(Duration::from_secs(10));
    assert!((13..=15).contains(&world.slots().len()), "{:?}", world.slots());

    let mut world = World::new();
    let node = world.start(schedule(1, CatchUp::All).with_enabled(false));
    world.nodes.push(Some(node));
    world.run(Duration::from_secs(60));
    assert_eq!((world.slots().len(), world.model.schedules(&world.keys).len()), (0, 1));
}

#[test]
fn a_full_queue_is_told_once_and_tried_again() {
    let mut world = World::new();
    world.model.set_limit(&world.keys.clone(), 3);
    let node = world.start(schedule(1, CatchUp::All));
    world.nodes.push(Some(node));
    world.run(Duration::from_secs(20));
    assert_eq!(world.slots().len(), 3);
    world.model.set_limit(&world.keys.clone(), 0);
    world.run(Duration::from_secs(5));
    assert_eq!(world.without_a_gap(1), 25);
}

/// Nodes that die, start, lose calls and answers, and believe in wrong clocks; a clock that jumps; a record deleted by hand:
/// no slot is ever fired twice, and where the clock stood still and the record stayed, none is left out.
#[test]
fn whatever_happens_no_slot_has_two_jobs() {
    let seed = seed();
    for round in 0..300 {
        let mut random = SplitMix64::new(seed ^ round);
        let mut world = World::new();
        let calm = random.one_in(2);
        for _ in 0..3 {
            let node = world.start(schedule(1, CatchUp::All));
            world.nodes.push(Some(node));
        }
        for _ in 0..400 {
            let who = random.below(3) as usize;
            match random.below(100) {
                0 => world.nodes[who] = None,
                1..4 => {
                    let node = world.start(schedule(1, CatchUp::All));
                    world.nodes[who] = Some(node);
                }
                4 if !calm => {
                    let by = random.below(60_000);
                    world.redis_began = match random.one_in(2) {
                        true => world.redis_began + by,
                        false => world.redis_began - by,
                    };
                    world.pass(Duration::ZERO);
                }
                5 if !calm => drop(world.model.remove_schedule(&world.keys.clone(), "tick", true)),
                6..30 => world.pass(Duration::from_millis(random.below(700))),
                _ => {
                    let off = random.below(200) as i64 - 100;
                    let (lost, before) = (random.one_in(5), random.one_in(10));
                    world.step(who, off, lost, before);
                }
            }
        }
        if calm {
            let node = world.start(schedule(1, CatchUp::All));
            world.nodes.push(Some(node));
            world.run(Duration::from_secs(10));
            world.without_a_gap(1);
        }
        assert!(world.slots().values().all(|count| *count == 1), "round {round}: {:?}", world.slots());
    }
}
