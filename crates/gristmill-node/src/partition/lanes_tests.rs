use super::*;
use bytes::Bytes;
use gristmill_broker::{JobState, StateLine};
use gristmill_job::JobId;
use std::time::Duration;

const HOLDING: Holding = Holding { jobs_per_lane: 3, longest_wait: Duration::from_secs(60) };

fn entry(seq: u64, key: &str) -> Entry {
    Entry {
        place: Place { ms: 1, seq },
        id: JobId::from_stored(Bytes::from(format!("id{seq}"))),
        key: Key::from_stored(Bytes::copy_from_slice(key.as_bytes())),
        envelope: Bytes::new(),
        state: JobState::default(),
        recovered: false,
        returned: false,
    }
}

fn filled(jobs: &[(u64, &str)]) -> (Lanes, Instant) {
    let (mut lanes, now) = (Lanes::new(HOLDING), Instant::now());
    for (seq, key) in jobs {
        lanes.push(entry(*seq, key), now, |_| false);
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
    lanes.settled(heads[0].0);
    assert_eq!(started(&mut lanes)[0].1, 3);
    assert_eq!((lanes.jobs(), lanes.active()), (2, 2));
}

#[test]
fn a_head_in_backoff_blocks_its_own_lane_alone() {
    let (mut lanes, now) = filled(&[(1, "a"), (2, "a"), (3, "b")]);
    let heads = started(&mut lanes);
    lanes.settling(heads[0].0);
    lanes.put_back(heads[0].0, 1, now, now + Duration::from_secs(5));
    lanes.settled(heads[1].0);
    lanes.wake_due(now);
    assert!(started(&mut lanes).is_empty());
    assert_eq!(lanes.next_due(), Some(now + Duration::from_secs(5)));
    lanes.wake_due(now + Duration::from_secs(5));
    let (id, job) = lanes.start_next().unwrap();
    assert_eq!((id, job.entry.place.seq, job.turn, job.attempts), (heads[0].0, 1, 1, 1));
}

#[test]
fn a_recovered_wait_goes_on() {
    let (mut lanes, now) = (Lanes::new(HOLDING), Instant::now());
    let mut waiting = entry(1, "a");
    waiting.state = JobState::of(StateLine { turn: 2, attempts: 2, due_ms: 1000, ..StateLine::default() }, 0);
    lanes.push(waiting, now, |_| false);
    assert!(lanes.start_next().is_none());
    lanes.wake_due(now + Duration::from_secs(1));
    assert_eq!(lanes.start_next().unwrap().1.turn, 2);
}

#[test]
fn a_key_whose_old_run_lives_is_not_started() {
    let (mut lanes, now) = (Lanes::new(HOLDING), Instant::now());
    lanes.push(entry(1, "a"), now, |_| true);
    assert!(lanes.start_next().is_none());
    lanes.unblock(&Key::from_stored(Bytes::from_static(b"a")));
    assert_eq!(lanes.start_next().unwrap().1.entry.place.seq, 1);
}

#[test]
fn weights_and_counts_return_to_zero() {
    let (mut lanes, _) = filled(&[(1, "a"), (2, "b"), (3, "a"), (4, "c")]);
    while let Some((id, _)) = lanes.start_next() {
        lanes.settling(id);
        lanes.settled(id);
    }
    assert_eq!((lanes.jobs(), lanes.bytes(), lanes.active()), (0, 0, 0));
    assert!(lanes.by_key.is_empty() && lanes.slots.iter().all(Option::is_none));
    assert_eq!(lanes.highest().seq, 4);
}

/// Reads what is asked for, as Redis would; `missing` is not there any more.
fn load(lanes: &mut Lanes, missing: &[u64]) -> Vec<u64> {
    let mut read = Vec::new();
    for (id, places) in lanes.take_loads(100) {
        let jobs = places.into_iter().map(|place| {
            read.push(place.seq);
            (place, (!missing.contains(&place.seq)).then(|| entry(place.seq, "a")))
        });
        let jobs = jobs.collect();
        lanes.loaded(id, jobs);
    }
    read
}

#[test]
fn a_long_lane_is_parked_beyond_its_first_jobs_and_runs_in_order() {
    let jobs: Vec<(u64, &str)> = (1..=10).map(|seq| (seq, "a")).chain([(11, "b")]).collect();
    let (mut lanes, _) = filled(&jobs);
    assert_eq!((lanes.jobs(), lanes.parked()), (4, 7));
    assert_eq!(lanes.places().len(), 11);
    let mut ran = Vec::new();
    while lanes.jobs() + lanes.parked() > 0 {
        while let Some((id, job)) = lanes.start_next() {
            ran.push(job.entry.place.seq);
            lanes.settling(id);
            lanes.settled(id);
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
    lanes.put_back(heads[0].0, 1, now, until);
    lanes.push(entry(4, "a"), now, |_| false);
    assert_eq!((lanes.jobs(), lanes.parked()), (1, 3), "what comes later is parked behind it");
    lanes.wake_due(until);
    assert!(lanes.start_next().is_none(), "its head is read first");
    assert_eq!(load(&mut lanes, &[]), [1, 2, 4]);
    let (_, job) = lanes.start_next().unwrap();
    assert_eq!((job.entry.place.seq, job.turn, job.attempts), (1, 1, 1), "turn and attempts are remembered");
}

#[test]
fn a_lane_whose_parked_jobs_are_all_gone_ends() {
    let (mut lanes, now) = filled(&[(1, "a")]);
    let (id, _) = lanes.start_next().unwrap();
    lanes.settling(id);
    lanes.put_back(id, 1, now, now + Duration::from_secs(300));
    lanes.wake_due(now + Duration::from_secs(300));
    assert!(lanes.start_next().is_none());
    load(&mut lanes, &[1]);
    assert_eq!((lanes.jobs(), lanes.parked(), lanes.places().len()), (0, 0, 0));
    assert!(lanes.by_key.is_empty());
}
