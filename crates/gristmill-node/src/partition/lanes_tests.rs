use super::*;
use crate::stage::entry;
use bytes::Bytes;
use gristmill_broker::StateLine;
use gristmill_broker::state::{JobState, Why};

const MEMORY: Memory = Memory { jobs_per_lane: 3, longest_wait: Duration::from_secs(60) };

fn filled(jobs: &[(u64, &str)]) -> (Lanes, Instant) {
    let (mut lanes, now) = (Lanes::new(MEMORY), Instant::now());
    for (seq, key) in jobs {
        lanes.push(entry(*seq, key), now);
    }
    (lanes, now)
}

fn started(lanes: &mut Lanes) -> Vec<(LaneId, u64)> {
    std::iter::from_fn(|| lanes.start_next()).map(|(id, job)| (id, job.entry.place.seq)).collect()
}

#[test]
fn one_job_of_a_key_at_a_time_and_keys_beside_each_other() {
    let (mut lanes, _) = filled(&[(1, "a"), (2, "b"), (3, "a")]);
    let heads = started(&mut lanes);
    assert_eq!(heads.iter().map(|h| h.1).collect::<Vec<_>>(), [1, 2]);
    lanes.settling(heads[0].0);
    assert!(started(&mut lanes).is_empty(), "the next of a key waits for the answer of the settle");
    lanes.settled(heads[0].0, Instant::now());
    assert_eq!(started(&mut lanes)[0].1, 3);
    assert_eq!((lanes.jobs(), lanes.active()), (2, 2));
}

#[test]
fn a_head_in_backoff_blocks_its_own_lane_alone() {
    let (mut lanes, now) = filled(&[(1, "a"), (2, "a"), (3, "b")]);
    let heads = started(&mut lanes);
    lanes.settling(heads[0].0);
    lanes.put_back(heads[0].0, failed_once(), now, now + Duration::from_secs(5));
    lanes.settled(heads[1].0, Instant::now());
    lanes.wake_due(now);
    assert!(started(&mut lanes).is_empty());
    assert_eq!(lanes.next_due(), Some(now + Duration::from_secs(5)));
    lanes.wake_due(now + Duration::from_secs(5));
    let (id, job) = lanes.start_next().unwrap();
    assert_eq!((id, job.entry.place.seq, job.turn(), job.entry.state.attempts()), (heads[0].0, 1, 1, 1));
}

#[test]
fn a_recovered_wait_goes_on() {
    let (mut lanes, now) = (Lanes::new(MEMORY), Instant::now());
    let mut waiting = entry(1, "a");
    waiting.state = JobState::of(StateLine { turn: 2, attempts: 2, due_ms: 1000, ..StateLine::default() }, 0);
    lanes.push(waiting, now);
    assert!(lanes.start_next().is_none());
    lanes.wake_due(now + Duration::from_secs(1));
    assert_eq!(lanes.start_next().unwrap().1.turn(), 2);
}

#[test]
fn a_key_whose_old_run_lives_is_not_started() {
    let (mut lanes, now) = (Lanes::new(MEMORY), Instant::now());
    lanes.block(Key::from_stored(Bytes::from_static(b"a")));
    lanes.push(entry(1, "a"), now);
    assert!(lanes.start_next().is_none());
    lanes.unblock(&Key::from_stored(Bytes::from_static(b"a")), now);
    assert_eq!(lanes.start_next().unwrap().1.entry.place.seq, 1);
}

#[test]
fn weights_and_counts_return_to_zero() {
    let (mut lanes, _) = filled(&[(1, "a"), (2, "b"), (3, "a"), (4, "c")]);
    while let Some((id, _)) = lanes.start_next() {
        lanes.settling(id);
        lanes.settled(id, Instant::now());
    }
    assert_eq!((lanes.jobs(), lanes.bytes(), lanes.active()), (0, 0, 0));
    assert!(lanes.by_key.is_empty() && lanes.slots.iter().all(Option::is_none));
    assert_eq!(lanes.highest().seq, 4);
}

/// As it stands after one failed attempt.
fn failed_once() -> JobState {
    JobState::default().put_back(1, Why::Retry, false, Bytes::new())
}

/// Reads what is asked for, as Redis would; `missing` is not there any more.
fn load(lanes: &mut Lanes, missing: &[u64]) -> Vec<u64> {
    load_with(lanes, missing, &HashMap::new())
}

/// The same, with what is stored about some.
fn load_with(lanes: &mut Lanes, missing: &[u64], states: &HashMap<u64, JobState>) -> Vec<u64> {
    load_at(Instant::now(), lanes, missing, states)
}

/// The same, at a time.
fn load_at(now: Instant, lanes: &mut Lanes, missing: &[u64], states: &HashMap<u64, JobState>) -> Vec<u64> {
    let mut read = Vec::new();
    for (id, places) in lanes.take_loads(100) {
        let jobs = places.into_iter().map(|place| {
            read.push(place.seq);
            let state = states.get(&place.seq).cloned().unwrap_or_default();
            let entry = Entry { state, ..entry(place.seq, "a") };
            (place, (!missing.contains(&place.seq)).then_some(entry))
        });
        let jobs = jobs.collect();
        lanes.loaded(id, jobs, now);
    }
    read
}

#[test]
fn a_long_lane_is_parked_beyond_its_first_jobs_and_runs_in_order() {
    let jobs: Vec<(u64, &str)> = (1..=10).map(|seq| (seq, "a")).chain([(11, "b")]).collect();
    let (mut lanes, _) = filled(&jobs);
    assert_eq!((lanes.jobs(), lanes.parked()), (4, 7));
    assert_eq!(lanes.places().0.len(), 11);
    let mut ran = Vec::new();
    while lanes.jobs() + lanes.parked() > 0 {
        while let Some((id, job)) = lanes.start_next() {
            ran.push(job.entry.place.seq);
            lanes.settling(id);
            lanes.settled(id, Instant::now());
        }
        load(&mut lanes, &[6]);
        assert!(lanes.jobs() <= 4);
    }
    assert_eq!(ran, [1, 11, 2, 3, 4, 5, 7, 8, 9, 10], "6 was deleted by hand");
    assert_eq!((lanes.bytes(), lanes.active()), (0, 0));
}

#[test]
fn a_lane_whose_head_waits_for_long_is_parked_as_a_whole() {
    let (mut lanes, now) = filled(&[(1, "a"), (2, "a"), (3, "b")]);
    let heads = started(&mut lanes);
    let until = now + Duration::from_secs(300);
    lanes.settling(heads[0].0);
    lanes.put_back(heads[0].0, failed_once(), now, until);
    lanes.push(entry(4, "a"), now);
    assert_eq!((lanes.jobs(), lanes.parked()), (1, 3), "what comes later is parked behind it");
    lanes.wake_due(until);
    assert!(lanes.start_next().is_none(), "its head is read first");
    assert_eq!(load_with(&mut lanes, &[], &HashMap::from([(1, failed_once())])), [1, 2, 4]);
    let (_, job) = lanes.start_next().unwrap();
    assert_eq!(
        (job.entry.place.seq, job.turn(), job.entry.state.attempts()),
        (1, 1, 1),
        "turn and attempts are read with it"
    );
}

#[test]
fn a_lane_whose_parked_jobs_are_all_gone_ends() {
    let (mut lanes, now) = filled(&[(1, "a")]);
    let (id, _) = lanes.start_next().unwrap();
    lanes.settling(id);
    lanes.put_back(id, failed_once(), now, now + Duration::from_secs(300));
    lanes.wake_due(now + Duration::from_secs(300));
    assert!(lanes.start_next().is_none());
    load(&mut lanes, &[1]);
    assert_eq!((lanes.jobs(), lanes.parked(), lanes.places().0.len()), (0, 0, 0));
    assert!(lanes.by_key.is_empty());
}

fn key(text: &'static str) -> Key {
    Key::from_stored(Bytes::from_static(text.as_bytes()))
}

fn returned(seq: u64, key: &str) -> Entry {
    Entry { returned: true, state: failed_once(), ..entry(seq, key) }
}

/// Runs everything that may, in order, and reads what is parked.
fn drained(lanes: &mut Lanes) -> Vec<u64> {
    let mut ran = Vec::new();
    loop {
        while let Some((id, job)) = lanes.start_next() {
            ran.push(job.entry.place.seq);
            lanes.settling(id);
            lanes.settled(id, Instant::now());
        }
        if load(lanes, &[]).is_empty() {
            return ran;
        }
    }
}

#[test]
fn a_job_that_came_back_comes_before_whatever_of_its_key_has_not_started() {
    for jobs in 1..12u64 {
        for at in 0..=jobs {
            let (mut lanes, now) = (Lanes::new(MEMORY), Instant::now());
            for seq in 1..=jobs {
                lanes.push(entry(seq * 10, "a"), now);
            }
            lanes.insert(returned(at * 10 + 5, "a"), now);
            lanes.insert(returned(at * 10 + 5, "a"), now);
            let mut expected: Vec<u64> = (1..=jobs).map(|seq| seq * 10).chain([at * 10 + 5]).collect();
            expected.sort_unstable();
            assert_eq!(lanes.jobs() + lanes.parked(), expected.len(), "it is there once");
            assert!(lanes.jobs() <= MEMORY.jobs_per_lane);
            assert_eq!(drained(&mut lanes), expected, "{jobs} jobs, it came back at {at}");
            assert_eq!((lanes.jobs(), lanes.parked(), lanes.bytes(), lanes.active()), (0, 0, 0, 0));
        }
    }
}

#[test]
fn a_job_that_came_back_passes_a_head_in_backoff_and_not_one_that_runs() {
    let (mut lanes, now) = filled(&[(10, "a"), (20, "a")]);
    let (id, _) = lanes.start_next().unwrap();
    lanes.insert(returned(5, "a"), now);
    assert!(lanes.start_next().is_none(), "10 runs");
    lanes.settling(id);
    lanes.settled(id, now);
    let (id, job) = lanes.start_next().unwrap();
    assert_eq!(job.entry.place.seq, 5);
    lanes.settling(id);
    lanes.put_back(id, failed_once(), now, now + Duration::from_secs(1));
    lanes.insert(returned(3, "a"), now);
    let (id, job) = lanes.start_next().unwrap();
    assert_eq!(job.entry.place.seq, 3);
    lanes.settling(id);
    lanes.settled(id, now);
    assert!(lanes.start_next().is_none(), "5 still waits");
    lanes.wake_due(now + Duration::from_secs(1));
    assert_eq!(lanes.start_next().unwrap().1.entry.place.seq, 5);
}

#[test]
fn a_held_key_stops_its_lane_and_whatever_comes_later_until_a_person_lets_it_go() {
    let (mut lanes, now) = filled(&[(1, "a"), (2, "a"), (3, "b")]);
    let heads = started(&mut lanes);
    lanes.settling(heads[0].0);
    lanes.hold(&key("a"), now);
    lanes.settled(heads[0].0, now);
    lanes.push(entry(4, "a"), now);
    lanes.hold(&key("c"), now);
    lanes.push(entry(5, "c"), now);
    lanes.insert(returned(1, "a"), now);
    assert!(started(&mut lanes).is_empty());
    assert_eq!((lanes.jobs(), lanes.parked()), (1, 4), "what waits for a person fills no window");
    lanes.set_held(HashSet::from([key("c")]), now);
    assert!(lanes.start_next().is_none());
    assert_eq!(load(&mut lanes, &[]), [1, 2, 4]);
    lanes.settled(heads[1].0, now);
    assert_eq!(drained(&mut lanes), [1, 2, 4]);
    lanes.set_held(HashSet::new(), now);
    assert_eq!(drained(&mut lanes), [5]);
    assert_eq!((lanes.jobs(), lanes.parked(), lanes.bytes(), lanes.active()), (0, 0, 0, 0));
}

#[test]
fn heads_that_wait_are_read_again_and_stand_as_redis_says_then() {
    let (mut lanes, now) = filled(&[(1, "a"), (2, "a")]);
    let (id, _) = lanes.start_next().unwrap();
    lanes.settling(id);
    lanes.put_back(id, failed_once(), now, now + Duration::from_secs(300));
    assert_eq!(lanes.read_again(0, 10), None);
    let later = JobState::of(StateLine { turn: 1, attempts: 1, due_ms: 250_000, ..StateLine::default() }, 0);
    assert_eq!(load_with(&mut lanes, &[], &HashMap::from([(1, later)])), [1], "its head alone");
    assert!(lanes.start_next().is_none());
    assert_eq!(lanes.read_again(0, 1), Some(1), "there may be more");
    load_with(&mut lanes, &[], &HashMap::from([(1, failed_once())]));
    let (_, job) = lanes.start_next().expect("a person ended its wait");
    assert_eq!((job.entry.place.seq, job.turn()), (1, 1));
}

#[test]
fn what_was_acknowledged_is_seated_again_before_what_waits_and_is_not_counted_as_claimed() {
    let (mut lanes, now) = filled(&[(2, "a"), (3, "b")]);
    // Wherever its lane stands: ready, not there, or held and parked.
    lanes.push(entry(4, "c"), now);
    lanes.set_held(HashSet::from([Key::from_stored(Bytes::from_static(b"c"))]), now);
    for (seq, key) in [(1, "a"), (1, "c"), (1, "d")] {
        lanes.seat_again(entry(seq, key), now);
    }
    assert_eq!((lanes.known(), lanes.active()), (3, 3));
    let first: Vec<u64> = started(&mut lanes).into_iter().map(|(_, seq)| seq).collect();
    assert_eq!(first, [3], "their keys wait for them");
    for key in [&b"a"[..], b"c", b"d"] {
        let lane = lanes.find(&Key::from_stored(Bytes::copy_from_slice(key))).unwrap();
        assert!(lanes.head_of(lane).unwrap().acknowledged);
        lanes.settled(lane, now);
    }
    let next: Vec<u64> = started(&mut lanes).into_iter().map(|(_, seq)| seq).collect();
    assert_eq!(next, [2], "and go on then, but for what is held");
    assert_eq!(lanes.known(), 3);
}

#[test]
fn full_memory_parks_whatever_comes_and_reads_again_as_there_is_room() {
    let now = Instant::now();
    let mut lanes = Lanes::new(MEMORY).within(5, usize::MAX);
    for seq in 1..=40 {
        lanes.push(entry(seq * 10, if seq % 2 == 0 { "a" } else { "b" }), now);
    }
    for key in 0..30u64 {
        let entry =
            Entry { key: Key::from_stored(Bytes::from(format!("key{key}"))), ..returned(key + 1, "") };
        lanes.insert(entry, now);
    }
    assert!(lanes.jobs() <= 6, "{} in memory", lanes.jobs());
    assert_eq!(lanes.jobs() + lanes.parked(), 70);
    let (mut ran, mut most) = (0, 0);
    loop {
        while let Some((id, _)) = lanes.start_next() {
            ran += 1;
            lanes.settling(id);
            lanes.settled(id, now);
        }
        let loads = lanes.take_loads(100);
        if loads.is_empty() {
            break;
        }
        let asked: usize = loads.iter().map(|(_, places)| places.len()).sum();
        most = most.max(lanes.jobs() + asked);
        for (id, places) in loads {
            let jobs = places.into_iter().map(|place| (place, Some(entry(place.seq, "any")))).collect();
            lanes.loaded(id, jobs, now);
        }
    }
    assert_eq!((ran, lanes.jobs(), lanes.parked(), lanes.bytes()), (70, 0, 0, 0));
    assert!(most <= 7, "{most} were in memory or read at a time");
}

#[test]
fn a_wait_that_was_seen_out_is_over_whatever_the_clock_of_redis_says_then() {
    let (mut lanes, now) = filled(&[(1, "a"), (2, "a")]);
    let (id, _) = lanes.start_next().unwrap();
    lanes.settling(id);
    let until = now + Duration::from_secs(300);
    lanes.put_back(id, failed_once(), now, until);
    lanes.wake_due(until);
    assert!(lanes.start_next().is_none(), "it is read first");
    // The clock was set back by an hour meanwhile; the second job has never waited.
    let late = JobState::of(StateLine { turn: 1, attempts: 1, due_ms: 3_600_000, ..StateLine::default() }, 0);
    let states = HashMap::from([(1, late.clone()), (2, late)]);
    load_at(until, &mut lanes, &[], &states);
    let (id, job) = lanes.start_next().expect("its wait is over");
    assert_eq!(job.entry.place.seq, 1);
    lanes.settling(id);
    lanes.settled(id, until);
    assert!(lanes.start_next().is_none(), "what this process has not seen out, it waits for");
}
