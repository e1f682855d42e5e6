//! The model does what the scripts do: random acts of people between the calls of an owner, on both, compared after each.
//! Jobs get the same places on both sides, because the model's clock is set to each place that a server gave.

use crate::fixture::*;
use bytes::Bytes;
use gristmill_broker::call::{Answer, Call, Guard};
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::lease::acquire::{Acquire, Acquired, Before};
use gristmill_broker::model::Model;
use gristmill_broker::release_key::ReleasedKey;
use gristmill_broker::replay::{Replay, Replayed};
use gristmill_broker::skip::{Skip, Skipped, WaitsFor};
use gristmill_broker::state::Suspicion;
use gristmill_broker::{Entry, Epoch, Fence, Settle, StateLine, Verdict};
use gristmill_job::{DeadLetter, JobId, Key, Place, UnixMillis};
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_testkit::server::Reply;
use std::collections::BTreeSet;

const STEPS: u64 = 250;
const KEYS: [&str; 3] = ["a", "b", "c"];

struct Both<'w> {
    world: &'w mut World,
    model: Model,
    real: Tenure,
    owner: Fence,
    random: SplitMix64,
    /// Claimed and not settled, as both sides told.
    lanes: Vec<Entry>,
    /// Letters that were written, with their records.
    letters: Vec<(String, DeadLetter)>,
    came_at: u64,
    heard: BTreeSet<&'static str>,
}

/// A due time is one of two: past, or an hour ahead.
fn rounded(line: &StateLine, now: UnixMillis) -> StateLine {
    let due_ms = u64::from(line.due_ms > now.0 + 60_000);
    StateLine { due_ms, ..line.clone() }
}

impl Both<'_> {
    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let n = self.random.below(of.len() as u64) as usize;
        of.get(n).cloned()
    }

    async fn call(&mut self, call: Call) -> (Answer, Answer) {
        let real = self.world.call(&mut self.real, call.clone()).await;
        let guard = Guard {
            keys: &self.world.keys,
            fence: &self.owner,
            number: self.real.number,
            seen_window_ms: WINDOW_MS,
        };
        (real, self.model.call(&call, guard))
    }

    async fn enqueue(&mut self) {
        let (n, key) = (self.random.below(12), self.pick(&KEYS).unwrap());
        let job = own(&format!("j{n}"), key);
        let real = self.world.try_enqueue(std::slice::from_ref(&job)).await.unwrap();
        if let gristmill_broker::enqueue::EnqueueAnswer::Accepted(accepted) = &real
            && let [gristmill_broker::enqueue::Accepted::At(place)] = accepted[..]
        {
            self.model.set_now(UnixMillis(place.ms));
        }
        let call = format!("c{}", self.random.next_u64());
        assert_eq!(self.model.enqueue(&self.world.keys, 1, &call, &[job]), real);
    }

    async fn claim(&mut self) {
        match self.call(Call::Claim { count: 20 }).await {
            (Answer::Claimed(real), Answer::Claimed(model)) => {
                assert_eq!(real, model);
                self.lanes.extend(real);
            }
            other => panic!("{other:?}"),
        }
    }

    async fn take(&mut self) {
        match self.call(Call::Take { after: self.came_at, count: 100, cursor: Some(0) }).await {
            (Answer::Taken(mut real), Answer::Taken(mut model)) => {
                real.held.sort();
                model.held.sort();
                assert_eq!(real, model);
                self.came_at = real.last;
                self.lanes.extend(real.entries);
            }
            other => panic!("{other:?}"),
        }
    }

    async fn settle(&mut self) {
        if self.lanes.is_empty() {
            return;
        }
        let n = self.random.below(self.lanes.len() as u64) as usize;
        let mut entry = self.lanes.remove(n);
        // Told long ago, perhaps: what stands now is what an owner would have heard.
        let line = self.model.state(&self.world.keys, entry.place).unwrap_or_default();
        entry.state = gristmill_broker::JobState::of(line, self.model.now().0);
        let settle = match self.random.below(5) {
            0 => done(&entry),
            1 | 2 => self.letter(&entry),
            _ => retry(&entry, HOUR),
        };
        if matches!(settle.verdict, Verdict::Retry { .. }) {
            self.lanes.push(entry);
        }
        match self.call(Call::Settle(vec![settle])).await {
            (Answer::Settled { jobs: real, .. }, Answer::Settled { jobs: model, .. }) => {
                assert_eq!(real, model)
            }
            other => panic!("{other:?}"),
        }
    }

    fn letter(&mut self, entry: &Entry) -> Settle {
        let letter = format!("0-{}-{}-5", entry.place, entry.state.turn());
        let mut settle = dead(entry, &letter);
        let replays = entry.state.line().map_or(0, |line| line.replays);
        if let Verdict::Dead { hold, body, .. } = &mut settle.verdict {
            *hold = self.random.one_in(2);
            let record = DeadLetter { replays, ..DeadLetter::decode(body).unwrap() };
            *body = record.encode().unwrap().into();
            self.letters.push((letter, record));
        }
        settle
    }

    async fn replay(&mut self) {
        let mut letters = Vec::new();
        for _ in 0..self.random.below(4) {
            let Some((id, record)) = self.pick(&self.letters.clone()) else { return };
            let mut replay = Replay::of(id.into(), record).unwrap();
            if self.random.one_in(3) {
                replay = replay.with_envelope(Bytes::from(format!("edited {}", self.random.below(9))));
            }
            if self.random.one_in(3) {
                replay.suspicion = Suspicion::Strong;
            }
            letters.push(replay);
        }
        let real = self.world.connection.replay(&self.world.keys, &letters).await.unwrap();
        assert_eq!(self.model.replay(&self.world.keys, &letters), real);
        for answer in real {
            self.heard.insert(match answer {
                Replayed::Replayed => "replayed",
                Replayed::Gone => "replay gone",
                Replayed::Waits => "replay waits",
            });
        }
    }

    async fn discard(&mut self) {
        let Some((id, record)) = self.pick(&self.letters.clone()) else { return };
        let mut whose = Whose::of(record);
        if self.random.one_in(4) {
            whose.key = Key::new(self.pick(&KEYS).unwrap()).unwrap();
        }
        let job = (!self.random.one_in(4)).then_some(whose);
        let letters = [Discard { letter: id.into(), job }];
        let real = self.world.connection.discard(&self.world.keys, WINDOW_MS, &letters).await.unwrap();
        assert_eq!(self.model.discard(&self.world.keys, WINDOW_MS, &letters), real);
        self.heard.insert(if real[0] == Discarded::Gone { "discard gone" } else { "discarded" });
    }

    /// One that waits, most of the time.
    fn some_place(&mut self) -> Option<Place> {
        let places: Vec<Place> = self.lanes.iter().map(|entry| entry.place).collect();
        match self.random.one_in(5) {
            true => Some(Place { ms: 1, seq: self.random.below(3) }),
            false => self.pick(&places),
        }
    }

    async fn release_key(&mut self) {
        let key = Key::new(self.pick(&KEYS).unwrap()).unwrap();
        let waits = self.some_place().filter(|_| self.random.one_in(2));
        let real = self.world.connection.release_key(&self.world.keys, &key, waits).await.unwrap();
        assert_eq!(self.model.release_key(&self.world.keys, &key, waits), real);
        self.heard.insert(match real {
            ReleasedKey::Released { .. } => "released",
            ReleasedKey::Woken => "woken",
            ReleasedKey::Nothing => "release nothing",
        });
    }

    async fn skip(&mut self) {
        let key = Key::new(self.pick(&KEYS).unwrap()).unwrap();
        let held = self.model.hold_of(&self.world.keys, &key).map(|(letter, _)| letter);
        let letter = match self.random.one_in(4) {
            true => self.pick(&self.letters.clone()),
            false => self.letters.iter().find(|(id, _)| Some(id) == held.as_ref()).cloned(),
        };
        let waits_for = match (letter, self.some_place()) {
            (Some((letter, record)), _) => WaitsFor::Letter {
                letter,
                place: record.place.parse().unwrap(),
                job: (!self.random.one_in(4)).then(|| JobId::from_stored(record.job.into())),
            },
            (None, Some(place)) => WaitsFor::Job(place),
            (None, None) => return,
        };
        let skip = Skip { key, waits_for };
        let real = self.world.connection.skip(&self.world.keys, WINDOW_MS, &skip).await.unwrap();
        assert_eq!(self.model.skip(&self.world.keys, WINDOW_MS, &skip), real);
        self.heard.insert(match real {
            Skipped::Discarded { .. } => "skip discarded",
            Skipped::Asked => "skip asked",
            Skipped::Changed { .. } => "skip changed",
            Skipped::Nothing => "skip nothing",
        });
    }

    /// Everything that a person's act may have touched stands the same on both sides.
    fn compare(&self) {
        let (keys, world, model) = (&self.world.keys, &*self.world, &self.model);
        let rows = |command: &[&[u8]]| world.raw(command).as_array().unwrap().to_vec();
        let text = |reply: &Reply| match reply {
            Reply::Bulk(bytes) => bytes.clone(),
            other => panic!("{other:?}"),
        };
        let changes = world.raw(&[b"HGET", keys.lease.as_bytes(), b"changes"]);
        assert_eq!(changes.as_str().unwrap_or("0"), model.changes(keys).to_string());
        let now = UnixMillis::from_system(std::time::SystemTime::now());
        let mut lines: Vec<(Place, StateLine)> = rows(&[b"HGETALL", keys.state.as_bytes()])
            .chunks(2)
            .map(|row| (Place::parse(&text(&row[0])).unwrap(), StateLine::parse(&text(&row[1])).unwrap()))
            .map(|(place, line)| (place, rounded(&line, now)))
            .collect();
        lines.sort_by_key(|(place, _)| *place);
        let of_model =
            model.states(keys).into_iter().map(|(place, line)| (place, rounded(&line, model.now())));
        assert_eq!(lines, of_model.collect::<Vec<_>>());
        let held: BTreeSet<(Vec<u8>, String)> = rows(&[b"HGETALL", keys.held.as_bytes()])
            .chunks(2)
            .map(|row| (text(&row[0]), String::from_utf8(text(&row[1])).unwrap()))
            .map(|(key, hold)| (key, hold.split(' ').next().unwrap().to_owned()))
            .collect();
        let of_model = KEYS.iter().filter_map(|key| {
            let (letter, _) = model.hold_of(keys, &Key::new(*key).unwrap())?;
            Some((key.as_bytes().to_vec(), letter))
        });
        assert_eq!(held, of_model.collect());
        let dead: BTreeSet<Vec<u8>> =
            rows(&[b"HKEYS", keys.dead_bodies.as_bytes()]).iter().map(text).collect();
        let of_model = model.dead_letters(&world.queue, 0, 0, 10_000);
        assert_eq!(dead, of_model.into_iter().map(|view| view.id.into_bytes()).collect());
        for row in rows(&[b"HGETALL", keys.originals.as_bytes()]).chunks(2) {
            let place = Place::parse(&text(&row[0])).unwrap();
            assert_eq!(model.original(keys, place).map(|bytes| bytes.to_vec()), Some(text(&row[1])));
        }
        for n in 0..12 {
            let id = JobId::new(&format!("j{n}")).unwrap();
            let real = world.raw(&[b"GET", &keys.seen(id.as_bytes())]).as_str().map(str::to_owned);
            assert_eq!(real, model.mark(keys, &id).map(|(mark, _)| mark), "j{n}");
        }
    }
}

#[test]
fn the_model_does_what_the_scripts_do() {
    let seed = seed();
    on_each(async |world| {
        let real = world.acquire("a").await;
        let mut model = Model::new();
        model.set_now(UnixMillis::from_system(std::time::SystemTime::now()));
        model.create(&world.queue).unwrap();
        let (incarnation, mut before) = (incarnation("a"), Before::default());
        let epoch = loop {
            let acquire = Acquire {
                queue: &world.queue,
                partition: 0,
                incarnation: &incarnation,
                ttl: HOUR,
                highest: Epoch(0),
                before: &before,
            };
            match model.acquire(&acquire) {
                Acquired::Granted(epoch) => break epoch,
                Acquired::Changed(look) => before = look,
                other => panic!("{other:?}"),
            }
        };
        let owner = Fence { incarnation, epoch };
        let (random, heard) = (SplitMix64::new(seed), BTreeSet::new());
        let (lanes, letters) = (Vec::new(), Vec::new());
        let mut both = Both { world, model, real, owner, random, lanes, letters, came_at: 0, heard };
        for step in 0..STEPS {
            match both.random.below(12) {
                0..=2 => both.enqueue().await,
                3 => both.claim().await,
                4 => both.take().await,
                5..=7 => both.settle().await,
                8 => both.replay().await,
                9 => both.discard().await,
                10 => both.release_key().await,
                _ => both.skip().await,
            }
            both.compare();
            if step % 50 == 49 {
                both.claim().await;
            }
        }
        // The rarest words may be missing for one seed; that most were heard shows that the walk goes anywhere.
        assert!(both.heard.len() >= 8, "heard only {:?}", both.heard);
    });
}
