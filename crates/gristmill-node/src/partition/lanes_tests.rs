use super::*;
use bytes::Bytes;
use gristmill_broker::JobState;
use gristmill_job::JobId;
use std::time::Duration;

fn entry(seq: u64, key: &str) -> Entry {
    Entry {
        place: Place { ms: 1, seq },
        id: JobId::from_stored(Bytes::from(format!("id{seq}"))),
        key: Key::from_stored(Bytes::copy_from_slice(key.as_bytes())),
        envelope: Bytes::new(),
        state: JobState::default(),
        recovered: false,
    }
}

fn filled(jobs: &[(u64, &str)]) -> (Lanes, Instant) {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
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
    lanes.put_back(heads[0].0, 1, now + Duration::from_secs(5));
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
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    let mut waiting = entry(1, "a");
    waiting.state = JobState { turn: 2, attempts: 2, due_in: Duration::from_secs(1) };
    lanes.push(waiting, now, |_| false);
    assert!(lanes.start_next().is_none());
    lanes.wake_due(now + Duration::from_secs(1));
    assert_eq!(lanes.start_next().unwrap().1.turn, 2);
}

#[test]
fn a_key_whose_old_run_lives_is_not_started() {
    let (mut lanes, now) = (Lanes::default(), Instant::now());
    lanes.push(entry(1, "a"), now, |_| true);
    assert!(lanes.start_next().is_none());
    let id = lanes.find(&Key::from_stored(Bytes::from_static(b"a"))).unwrap();
    lanes.not_run(id);
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
