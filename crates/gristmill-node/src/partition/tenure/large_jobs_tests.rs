//! What is asked for and written at a time when jobs are large: no answer may be so long that it comes too late.

use super::*;
use crate::stage;
use bytes::Bytes;
use gristmill_handler::{Answer as RunAnswer, Facts};
use gristmill_job::{Effects, UnixMillis};

const MIB: usize = 1024 * 1024;
const WINDOW: usize = 32 * MIB;

struct Played {
    tenure: Tenure,
    start: Instant,
    queued: u64,
    claims: Vec<usize>,
    settles: Vec<usize>,
    runs: Vec<Run>,
}

impl Played {
    /// Granted and recovered, with so many jobs of this size that wait to be claimed.
    fn serving(queued: u64, size: usize) -> Self {
        let bounds = Bounds {
            window_jobs: 512,
            window_bytes: WINDOW,
            claim_jobs: 200,
            recover_jobs: 100,
            ..stage::bounds()
        };
        let tenure = Tenure::new(bounds, "n~1".into(), 0);
        let (claims, settles, runs) = (Vec::new(), Vec::new(), Vec::new());
        let mut played = Self { tenure, start: Instant::now(), queued, claims, settles, runs };
        played.tell(Event::Serve, size);
        played.tell(Event::Acquired(Ok(Epoch(1))), size);
        played
    }

    /// Tells an event, and plays Redis for what is asked for, until it is quiet. Settles are not answered.
    fn tell(&mut self, event: Event, size: usize) {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = Now {
                instant: self.start,
                wall: UnixMillis(1),
                redis: UnixMillis(1),
                trusted: true,
                waits: false,
                random: 0.5,
            };
            let mut actions = Vec::new();
            self.tenure.decide(event, now, &mut actions);
            for action in actions {
                match action {
                    Action::Start(runs) => self.runs.extend(runs),
                    Action::Send(number, call) => match &*call {
                        Call::Recover { .. } => {
                            let answer = Answer::Recovered { entries: Vec::new(), next: Place::ZERO };
                            events.push_back(Event::Answered(number, Ok(answer)));
                        }
                        Call::Take { .. } => {
                            events.push_back(Event::Answered(number, Ok(Answer::Taken(nothing_beside()))));
                        }
                        Call::Claim { count } => {
                            let taken = self.queued.min(*count as u64);
                            let entries = (0..taken).map(|n| entry(self.queued - n, size)).collect();
                            self.queued -= taken;
                            self.claims.push(*count);
                            events.push_back(Event::Answered(number, Ok(Answer::Claimed(entries))));
                        }
                        Call::Settle(jobs) => self.settles.push(jobs.len()),
                        _ => {}
                    },
                    _ => {}
                }
            }
        }
    }
}

/// Nothing lies beside the stream.
pub(super) fn nothing_beside() -> gristmill_broker::take::Taken {
    let (entries, held) = (Vec::new(), Vec::new());
    gristmill_broker::take::Taken {
        changes: 0,
        entries,
        last: 0,
        more: false,
        cursor: 0,
        held,
        asked: Vec::new(),
        more_asked: false,
    }
}

fn entry(seq: u64, size: usize) -> Entry {
    Entry { envelope: Bytes::from(vec![0; size]), ..stage::entry(1_000_000 - seq, &format!("key{seq}")) }
}

#[test]
fn large_jobs_are_claimed_one_by_one_up_to_the_bytes_of_the_window() {
    let played = Played::serving(1000, MIB);
    assert!(played.claims[0] <= 8, "the first claim knows nothing of the size: {:?}", played.claims);
    assert!(played.claims[1..].iter().all(|count| *count == 1), "{:?}", played.claims);
    let held = played.tenure.lanes.bytes();
    assert!((WINDOW / 4..=WINDOW).contains(&held), "{held} bytes are held");
    assert!(played.runs.len() > 8, "{} run side by side", played.runs.len());
}

#[test]
fn small_jobs_are_claimed_by_hundreds_from_the_second_claim_on() {
    let played = Played::serving(1000, 100);
    assert_eq!(played.claims[1..3], [200, 200]);
    assert!(played.tenure.lanes.jobs() > 400, "{} are held", played.tenure.lanes.jobs());
}

#[test]
fn a_settle_writes_no_more_at_a_time_than_its_answer_can_wait_for() {
    for (size, most) in [(MIB, 1), (MIB / 4, 4), (10, 200)] {
        let mut played = Played::serving(300, 100);
        let ended = played.runs.drain(..).map(|Run { epoch, lane, entry, turn, .. }| {
            let answer = RunAnswer::Done(Effects::put(vec![0; size]));
            let facts = Facts { version: 1, own_id: false, max_attempts: None, kind: None, options: None };
            Ended { epoch, lane, entry, turn, ran: Ran::Answered(answer, facts), attempt: None }
        });
        let ended: Vec<Ended> = ended.collect();
        assert!(ended.len() >= 200, "{} ran", ended.len());
        played.tell(Event::Ended(ended), 100);
        assert_eq!(played.settles.iter().max(), Some(&most), "states of {size} bytes");
    }
}
