//! Slots and tokens of limited kinds: every word of admit, keep and free, and the three against a small model at random.

use crate::fixture::*;
use gristmill_broker::admit::{Admission, Admit, Admitted};
use gristmill_broker::keep::Held;
use gristmill_broker::limit::{Asked, SlotName};
use gristmill_broker::{Epoch, Incarnation, keys};
use gristmill_job::{JobId, Key, Limit, Place, Rate, RatePer};
use gristmill_testkit::seed::{SplitMix64, seed};
use std::collections::BTreeMap;
use std::time::Duration;

const KIND: &str = "mail.send";

fn name(job: u64) -> SlotName {
    SlotName { partition: u16::try_from(job % 3).unwrap(), place: Place { ms: 7, seq: job } }
}

fn asked(epoch: u64) -> Asked {
    Asked { epoch: Epoch(epoch), number: 1 }
}

fn asks(job: u64, epoch: u64) -> Admit {
    let id = JobId::new(&format!("job {job}")).unwrap();
    Admit { name: name(job), asked: asked(epoch), job: id, key: Key::new(format!("k{job}")).unwrap() }
}

fn at_most(runs: u32) -> Limit {
    Limit { max_running: Some(runs), rate: None }
}

impl World {
    async fn admit(&self, who: &str, limit: &Limit, runs: &[Admit]) -> Vec<Admitted> {
        let incarnation = incarnation(who);
        self.admit_as(&incarnation, limit, runs, false).await
    }

    async fn admit_as(
        &self,
        incarnation: &Incarnation,
        limit: &Limit,
        runs: &[Admit],
        has_none: bool,
    ) -> Vec<Admitted> {
        let (queue, ttl) = (&self.queue.name, HOUR);
        let admission = Admission { queue, kind: KIND, limit, incarnation, ttl, has_none };
        self.connection.admit(&admission, runs).await.unwrap()
    }

    async fn keep(&self, who: &str, job: u64, epoch: u64) -> bool {
        let Admit { name, asked, job, .. } = asks(job, epoch);
        let held = [Held { name, asked, job }];
        self.connection.keep(&self.queue.name, KIND, &incarnation(who), HOUR, &held).await.unwrap()[0]
    }

    async fn free(&self, who: &str, job: u64, epoch: u64) -> bool {
        let slots = [(name(job), asked(epoch))];
        self.connection.free(&self.queue.name, KIND, &incarnation(who), &slots).await.unwrap()[0]
    }

    /// As if its holder had been silent for the lease time.
    fn lapse(&self, job: u64) {
        let holders = keys::holders(&self.queue.name, KIND);
        self.raw(&[b"ZADD", holders.as_bytes(), b"XX", b"1", name(job).stored().as_bytes()]);
    }

    async fn running(&self) -> u64 {
        self.connection.holders(&self.queue.name, KIND, 10).await.unwrap().1
    }
}

#[test]
fn no_more_run_than_the_limit_says_and_what_is_freed_is_free() {
    on_each(async |world| {
        let limit = at_most(2);
        let asked = world.admit("a", &limit, &[asks(1, 1), asks(2, 1), asks(3, 1)]).await;
        assert_eq!(asked, [Admitted::Slot, Admitted::Slot, Admitted::Full(2)]);
        assert!(world.free("a", 1, 1).await);
        assert!(!world.free("a", 1, 1).await, "a second time frees nothing");
        assert_eq!(
            world.admit("b", &limit, &[asks(3, 1), asks(4, 1)]).await,
            [Admitted::Slot, Admitted::Full(2)]
        );
        let (holders, count, now) = world.connection.holders(&world.queue.name, KIND, 10).await.unwrap();
        assert_eq!(count, 2);
        let mut shown: Vec<(u64, String, bool)> = holders
            .into_iter()
            .map(|h| (h.name.place.seq, h.owner.consumer(), h.since <= now && h.until > now))
            .collect();
        shown.sort();
        let owner = |who: &str| format!("{}#1", incarnation(who));
        assert_eq!(shown, [(2, owner("a"), true), (3, owner("b"), true)]);
    });
}

#[test]
fn who_asks_again_holds_what_it_holds_and_counts_once() {
    on_each(async |world| {
        let limit = at_most(1);
        for _ in 0..3 {
            assert_eq!(world.admit("a", &limit, &[asks(1, 1)]).await, [Admitted::Slot]);
        }
        assert_eq!(world.running().await, 1);
        // Twice in one call is once.
        assert_eq!(world.admit("a", &limit, &[asks(1, 1), asks(1, 1)]).await, [Admitted::Slot; 2]);
        assert_eq!(world.running().await, 1);
    });
}

#[test]
fn the_next_owner_of_a_job_inherits_its_slot_and_the_one_before_can_neither_keep_nor_free_it() {
    on_each(async |world| {
        let limit = at_most(1);
        assert_eq!(world.admit("a", &limit, &[asks(1, 5)]).await, [Admitted::Slot]);
        assert_eq!(
            world.admit("b", &limit, &[asks(2, 6), asks(1, 6)]).await,
            [Admitted::Full(1), Admitted::Slot]
        );
        assert_eq!(world.running().await, 1);
        assert!(!world.keep("a", 1, 5).await);
        assert!(!world.free("a", 1, 5).await);
        assert_eq!(world.admit("a", &limit, &[asks(1, 5)]).await, [Admitted::Fenced], "it asks late");
        assert!(world.keep("b", 1, 6).await);
        // The same node, under its next epoch.
        assert_eq!(world.admit("b", &limit, &[asks(1, 7)]).await, [Admitted::Slot]);
        assert!(!world.free("b", 1, 6).await);
        assert!(world.free("b", 1, 7).await);
        assert_eq!(world.running().await, 0);
    });
}

#[test]
fn a_slot_that_nobody_keeps_lapses_and_is_taken_again_only_where_there_is_room() {
    on_each(async |world| {
        let limit = at_most(1);
        assert_eq!(world.admit("a", &limit, &[asks(1, 1)]).await, [Admitted::Slot]);
        world.lapse(1);
        assert_eq!(world.running().await, 0);
        // Its run lives after all, and nobody came in between: what runs is counted.
        assert!(world.keep("a", 1, 1).await);
        assert_eq!(world.admit("b", &limit, &[asks(2, 1)]).await, [Admitted::Full(1)]);
        world.lapse(1);
        assert_eq!(world.admit("b", &limit, &[asks(2, 1)]).await, [Admitted::Slot]);
        assert!(!world.keep("a", 1, 1).await, "full without it");
        assert!(world.free("b", 2, 1).await);
        assert!(world.keep("a", 1, 1).await, "it still runs, and there is room");
        assert!(world.free("a", 1, 1).await);
    });
}

#[test]
fn a_slot_from_before_the_clock_was_set_back_stands_for_its_ttl_and_no_longer() {
    on_each(async |world| {
        let limit = at_most(1);
        assert_eq!(world.admit("a", &limit, &[asks(1, 1)]).await, [Admitted::Slot]);
        let holders = keys::holders(&world.queue.name, KIND);
        world.raw(&[b"ZINCRBY", holders.as_bytes(), b"36000000", name(1).stored().as_bytes()]);
        assert_eq!(world.admit("b", &limit, &[asks(2, 1)]).await, [Admitted::Full(1)]);
        let (holders, _, now) = world.connection.holders(&world.queue.name, KIND, 10).await.unwrap();
        let left = holders[0].until.0 - now.0;
        assert!(left <= 3_600_000, "{left} ms left");
    });
}

#[test]
fn a_rate_lets_its_burst_pass_and_names_the_next_token() {
    on_each(async |world| {
        let every = Duration::from_secs(3600);
        let rate = Rate { runs: 2, every, burst: 3, per: RatePer::Kind };
        let limit = Limit { max_running: None, rate: Some(rate) };
        let asked = world.admit("a", &limit, &[asks(1, 1), asks(2, 1)]).await;
        assert_eq!(asked, [Admitted::Passed; 2]);
        let asked = world.admit("b", &limit, &[asks(3, 1), asks(4, 1)]).await;
        assert_eq!(asked[0], Admitted::Passed);
        let Admitted::Until(wait) = asked[1] else { panic!("{asked:?}") };
        assert!(wait <= every / 2 && wait > every / 2 - SOON, "{wait:?}");
        assert_eq!(world.running().await, 0, "without a limit of runs at a time there are no slots");
        let view = world.connection.limits(&world.queue.name).await.unwrap().remove(0);
        let told = world.connection.rate_wait(&world.queue.name, &view, b"").await.unwrap().unwrap();
        assert!(told <= wait + Duration::from_millis(1) && told > wait - SOON, "{told:?}");
    });
}

#[test]
fn a_rate_per_key_holds_each_key_by_itself() {
    on_each(async |world| {
        let rate = Rate { runs: 1, every: Duration::from_secs(3600), burst: 1, per: RatePer::Key };
        let limit = Limit { max_running: None, rate: Some(rate) };
        let asked = world.admit("a", &limit, &[asks(1, 1), asks(2, 1), asks(1, 1)]).await;
        assert_eq!(asked[..2], [Admitted::Passed; 2]);
        assert!(matches!(asked[2], Admitted::KeyUntil(_)), "{asked:?}");
    });
}

#[test]
fn a_rate_that_was_used_up_before_the_clock_was_set_back_is_used_up_for_its_burst_at_most() {
    on_each(async |world| {
        let limit = Limit { max_running: None, rate: Some(Rate::per_minute(60).burst(2)) };
        let far = u64::MAX / 4096;
        let rate = keys::rate(&world.queue.name, KIND);
        world.raw(&[b"SET", rate.as_bytes(), far.to_string().as_bytes()]);
        let asked = world.admit("a", &limit, &[asks(1, 1)]).await;
        let Admitted::Until(wait) = asked[0] else { panic!("{asked:?}") };
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
        // And that time passes.
        let deadline = std::time::Instant::now() + SOON;
        while world.admit("a", &limit, &[asks(1, 1)]).await != [Admitted::Passed] {
            assert!(
                std::time::Instant::now() < deadline,
                "it stands still for as long as the clock was set back"
            );
        }
    });
}

#[test]
fn a_kind_that_is_full_uses_up_no_token_and_one_without_tokens_takes_no_slot() {
    on_each(async |world| {
        let rate = Rate { runs: 1, every: Duration::from_secs(3600), burst: 2, per: RatePer::Kind };
        let limit = Limit { max_running: Some(1), rate: Some(rate) };
        let asked = world.admit("a", &limit, &[asks(1, 1), asks(2, 1), asks(3, 1)]).await;
        assert_eq!(asked, [Admitted::Slot, Admitted::Full(1), Admitted::Full(1)]);
        assert!(world.free("a", 1, 1).await);
        assert_eq!(world.admit("a", &limit, &[asks(2, 1)]).await, [Admitted::Slot]);
        assert!(world.free("a", 2, 1).await);
        assert!(matches!(world.admit("a", &limit, &[asks(3, 1)]).await[0], Admitted::Until(_)));
        assert_eq!(world.running().await, 0);
    });
}

#[test]
fn the_limit_that_was_written_last_is_heeded_by_all() {
    on_each(async |world| {
        let queue = world.queue.name.clone();
        let before = world.connection.limit(&queue, &[(KIND, at_most(3))], "a").await.unwrap();
        assert_eq!(before, [""]);
        let before = world.connection.limit(&queue, &[(KIND, at_most(1))], "b").await.unwrap();
        assert!(before[0].starts_with("3 0 1 kind ") && before[0].ends_with(" a"), "{before:?}");
        // This node still thinks otherwise.
        let asked = world.admit("a", &at_most(3), &[asks(1, 1), asks(2, 1)]).await;
        assert_eq!(asked, [Admitted::Slot, Admitted::Full(1)]);
        let view = world.connection.limits(&queue).await.unwrap().remove(0);
        assert!(view.says(&at_most(1)) && view.by == "b", "{view:?}");
        world.connection.limit(&queue, &[(KIND, Limit::default())], "b").await.unwrap();
        assert_eq!(world.connection.limits(&queue).await.unwrap(), []);
        // After a flush, or damage by hand, whoever asks writes it.
        world.raw(&[b"HSET", keys::limits(&queue).as_bytes(), KIND.as_bytes(), b"nonsense"]);
        assert_eq!(
            world.admit("a", &at_most(2), &[asks(2, 1), asks(3, 1)]).await,
            [Admitted::Slot, Admitted::Full(2)]
        );
    });
}

/// What the three scripts mean: who holds which job's slot, and whether it has lapsed.
#[derive(Default)]
struct Model {
    held: BTreeMap<u64, (String, u64, bool)>,
}

impl Model {
    fn running(&self) -> usize {
        self.held.values().filter(|(.., lapsed)| !lapsed).count()
    }

    fn admit(&mut self, who: &str, job: u64, epoch: u64, most: usize) -> Admitted {
        self.held.retain(|_, (.., lapsed)| !*lapsed);
        match self.held.get(&job) {
            Some((_, younger, _)) if *younger > epoch => return Admitted::Fenced,
            None if self.running() >= most => return Admitted::Full(self.running() as u64),
            _ => {}
        }
        self.held.insert(job, (who.into(), epoch, false));
        Admitted::Slot
    }

    fn keep(&mut self, who: &str, job: u64, epoch: u64, most: usize) -> bool {
        match self.held.get(&job) {
            Some((owner, its, false)) => (owner.as_str(), *its) == (who, epoch),
            _ if self.running() < most => {
                self.held.insert(job, (who.into(), epoch, false));
                true
            }
            _ => false,
        }
    }

    fn free(&mut self, who: &str, job: u64, epoch: u64) -> bool {
        let mine = self.held.get(&job).is_some_and(|(owner, its, _)| (owner.as_str(), *its) == (who, epoch));
        if mine {
            self.held.remove(&job);
        }
        mine
    }
}

#[test]
fn at_random_the_scripts_do_what_the_model_says_and_never_exceed_the_limit() {
    let seed = seed();
    on_each(async |world| {
        let (mut rng, mut model, most) = (SplitMix64::new(seed), Model::default(), 3);
        let limit = at_most(3);
        // As every node does at its start; before, nothing is kept.
        world.connection.limit(&world.queue.name, &[(KIND, limit)], "a").await.unwrap();
        for step in 0..600 {
            let (who, job, epoch) = (["a", "b", "c"][rng.below(3) as usize], rng.below(6), rng.below(4));
            let said = match rng.below(8) {
                0..=3 => {
                    let expected = model.admit(who, job, epoch, most);
                    let got = world.admit(who, &limit, &[asks(job, epoch)]).await;
                    (format!("{:?}", [expected]), format!("{got:?}"))
                }
                4 => {
                    if let Some((.., lapsed)) = model.held.get_mut(&job) {
                        *lapsed = true;
                    }
                    world.lapse(job);
                    continue;
                }
                5 => {
                    let expected = model.keep(who, job, epoch, most);
                    (expected.to_string(), world.keep(who, job, epoch).await.to_string())
                }
                _ => {
                    let expected = model.free(who, job, epoch);
                    (expected.to_string(), world.free(who, job, epoch).await.to_string())
                }
            };
            assert_eq!(said.0, said.1, "seed {seed:#x} step {step}: {who} {job} {epoch}");
            let running = world.running().await;
            assert_eq!(running, model.running() as u64, "seed {seed:#x} step {step}");
            assert!(running <= most as u64, "seed {seed:#x} step {step}");
        }
    });
}

#[test]
fn what_is_freed_late_is_not_what_the_same_job_holds_by_then() {
    on_each(async |world| {
        let limit = at_most(1);
        assert_eq!(world.admit("a", &limit, &[asks(1, 5)]).await, [Admitted::Slot]);
        // Its second run, in the same tenure, is admitted before the slot of the first was freed.
        let second = Asked { number: 2, ..asked(5) };
        assert_eq!(
            world.admit("a", &limit, &[Admit { asked: second, ..asks(1, 5) }]).await,
            [Admitted::Slot]
        );
        assert!(!world.free("a", 1, 5).await);
        assert_eq!(world.running().await, 1);
    });
}

#[test]
fn a_node_that_has_no_slot_and_asked_in_vain_for_a_second_is_let_in_next() {
    on_each(async |world| {
        let limit = at_most(1);
        let waiters = keys::waiters(&world.queue.name, KIND);
        let (b, c) = (incarnation("b"), incarnation("c"));
        // As if it had begun to wait so long ago, and asked so long ago for the last time.
        let waited = async |who: &Incarnation, since: u64, seen: u64| {
            let now = world.connection.holders(&world.queue.name, KIND, 1).await.unwrap().2.0;
            let line = format!("{} {}", now - since, now - seen);
            world.raw(&[b"HSET", waiters.as_bytes(), who.as_str().as_bytes(), line.as_bytes()]);
        };
        assert_eq!(world.admit("a", &limit, &[asks(1, 1)]).await, [Admitted::Slot]);
        assert_eq!(world.admit_as(&b, &limit, &[asks(2, 1)], true).await, [Admitted::Full(1)]);
        assert!(world.raw(&[b"HGET", waiters.as_bytes(), b.as_str().as_bytes()]).as_str().is_some());
        assert!(world.free("a", 1, 1).await);
        waited(&b, 1500, 100).await;
        waited(&c, 1200, 100).await;
        // Who has just had one waits for it; so does who waited, but less long. What is held goes on.
        assert_eq!(world.admit("a", &limit, &[asks(3, 1)]).await, [Admitted::Full(0)]);
        assert_eq!(world.admit_as(&c, &limit, &[asks(4, 1)], true).await, [Admitted::Full(0)]);
        assert_eq!(world.admit_as(&b, &limit, &[asks(2, 1)], true).await, [Admitted::Slot]);
        assert_eq!(
            world.admit("a", &limit, &[asks(2, 2)]).await,
            [Admitted::Slot],
            "inherited by its next owner"
        );
        assert!(world.free("a", 2, 2).await);
        // One that has not been seen for two seconds waits no more, and one that has not waited for a second is not let in before.
        waited(&c, 60_000, 2500).await;
        waited(&b, 10, 10).await;
        assert_eq!(world.admit("a", &limit, &[asks(3, 1)]).await, [Admitted::Slot]);
        // After a clock was set back, nobody waits since a time to come.
        assert!(world.free("a", 3, 1).await);
        world.raw(&[b"HSET", waiters.as_bytes(), b"d~1", b"99999999999999 99999999999999"]);
        assert_eq!(world.admit("a", &limit, &[asks(3, 1)]).await, [Admitted::Slot]);
    });
}
