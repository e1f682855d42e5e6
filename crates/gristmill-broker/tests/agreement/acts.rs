//! What needs no lease: a job comes back from the dead, a run is absolved, jobs are loaded, something is written by hand.

use crate::both::{Both, Known, Outcome, agree, clock, id, incarnation, key, time};
use crate::given::{rounded, without_clock};
use crate::heard;
use crate::plan::{self, Names, Number, Operation, Span, Which};
use bytes::Bytes;
use gristmill_broker::call::Answer;
use gristmill_broker::cancel::{Cancel, Cancelled, Stands};
use gristmill_broker::delayed::Member;
use gristmill_broker::discard::{Discard, Discarded, Whose};
use gristmill_broker::purge::{LeaseSeen, Purge, Purged};
use gristmill_broker::returned::Returned;
use gristmill_broker::state::{Crash, Request, Said, StartMark, Suspicion};
use gristmill_broker::{Epoch, Fence, StateLine};
use gristmill_job::{Due, EncodedJob, JobId, Place, UnixMillis};
use gristmill_testkit::server::Reply;
use std::time::Duration;

/// Where no job ever was.
const NOWHERE: Place = Place { ms: 5, seq: 1 };

fn text(place: Place) -> Vec<u8> {
    place.to_string().into_bytes()
}

impl Both {
    /// What an operation consists of: each is asked by itself.
    pub(crate) fn steps(&self, operation: &Operation) -> Vec<Operation> {
        let owner = self.model.partitions(&self.queue).remove(0).owner;
        let owner = (0..plan::ACTORS).find(|who| incarnation(*who).as_str() == owner);
        let (who, ttl, count) = match operation.clone() {
            Operation::Succeed { who, ttl, count } => (who, ttl, count),
            Operation::Call { who: plan::OWNER, tenures_ago, number, call } => {
                let who = owner.unwrap_or_default();
                return vec![Operation::Call { who, tenures_ago, number, call }];
            }
            other => return vec![other],
        };
        let next = |call| Operation::Call { who, tenures_ago: 0, number: Number::Next, call };
        let dies = |who| Operation::Renew { who, tenures_ago: 0, ttl: Span::Moment, answered_ahead: 0 };
        let recover = |go_on| next(plan::Call::Recover { go_on, count });
        let then = [
            Operation::Take { who, ttl },
            recover(false),
            recover(true),
            next(plan::Call::Take { go_on: false, count }),
            next(plan::Call::Take { go_on: true, count }),
        ];
        owner.map(dies).into_iter().chain(then).collect()
    }

    /// As a replay does it.
    pub(crate) fn come_back(&mut self, nth: Option<usize>, turn: u32, edited: bool, strong: bool) -> Outcome {
        let there = self.model.jobs(&self.keys).into_iter().map(|job| job.0);
        let there: Vec<Place> =
            there.chain(self.model.returned(&self.keys).into_iter().map(|job| job.0)).collect();
        let places = &self.given[1].places;
        let nowhere: Vec<usize> =
            (0..self.jobs.len()).rev().filter(|n| !there.contains(&places[*n])).collect();
        let index = match nth.and_then(|nth| nowhere.get(nth % nowhere.len().max(1))) {
            Some(index) => *index,
            None => {
                let index = self.jobs.len();
                let place = Place { ms: 100 + index as u64, seq: 0 };
                self.given.iter_mut().for_each(|given| given.places.push(place));
                let number = (index % 2) as u8;
                self.jobs.push(Known { id: id(number), key: key(number), own_id: turn == 1 });
                index
            }
        };
        let known = &self.jobs[index];
        let job = EncodedJob {
            id: known.id.clone(),
            key: known.key.clone(),
            envelope: Bytes::from(format!("back at {turn}")),
            own_id: known.own_id,
            due: Due::Now,
        };
        let suspicion = if strong { Suspicion::Strong } else { Suspicion::None };
        let line = StateLine { turn, suspicion, replays: turn, ..StateLine::default() };
        let original = edited.then(|| Bytes::from_static(b"first"));
        let [real, model] = [0, 1].map(|side: usize| self.given[side].places[index]);
        let changes = self.model.come_back(&self.keys, model, &job, line.clone(), original.clone());
        let keys = self.keys.clone();
        let (id, key) = (job.id.as_bytes().to_vec(), job.key.as_bytes().to_vec());
        let record = Returned { i: id, k: key, d: job.envelope.to_vec() }.encode()?;
        let name = |key: &str| key.as_bytes().to_vec();
        self.raw(&[b"HINCRBY".to_vec(), name(&keys.lease), b"changes".to_vec(), b"1".to_vec()])?;
        self.raw(&[b"HSET".to_vec(), name(&keys.returned_bodies), text(real), record])?;
        let score = changes.to_string().into_bytes();
        self.raw(&[b"ZADD".to_vec(), name(&keys.returned), score, text(real)])?;
        self.raw(&[b"HSET".to_vec(), name(&keys.state), text(real), line.write()])?;
        if let Some(original) = original {
            self.raw(&[b"HSETNX".to_vec(), name(&keys.originals), text(real), original.to_vec()])?;
        }
        self.hear("come_back")
    }

    pub(crate) fn line(&mut self, job: Option<Which>, plan: &plan::Line) -> Outcome {
        let places = match job {
            None => [NOWHERE; 2],
            Some(job) => match self.which(job) {
                Some(index) => [0, 1].map(|side: usize| self.given[side].places[index]),
                None => return Ok(()),
            },
        };
        let mut lines = [StateLine::default(), StateLine::default()];
        for (side, line) in lines.iter_mut().enumerate() {
            line.turn = plan.turn;
            line.suspicion =
                [Suspicion::None, Suspicion::Weak, Suspicion::Strong][usize::from(plan.suspicion)];
            line.interrupted = plan.interrupted;
            line.request = plan.asked.then_some(Request::Skip);
            let mark = plan.mark.and_then(|(who, ago, alone)| Some((self.fence(side, who, ago)?, alone)));
            line.mark = mark.map(|(fence, alone)| StartMark { fence, alone });
            for (who, turn) in &plan.charges {
                let fence = self.fence(side, *who, 0);
                let fence = fence.unwrap_or(Fence { incarnation: incarnation(*who), epoch: Epoch(0) });
                line.crashes.push(Crash { fence, turn: *turn, at: UnixMillis(clock()) });
            }
        }
        let [real, model] = lines;
        let name = self.keys.state.as_bytes().to_vec();
        if real == StateLine::default() {
            self.raw(&[b"HDEL".to_vec(), name, text(places[0])])?;
        } else {
            self.raw(&[b"HSET".to_vec(), name, text(places[0]), real.write()])?;
        }
        self.model.set_line(&self.keys, places[1], model);
        Ok(())
    }

    fn fence(&mut self, side: usize, who: usize, ago: usize) -> Option<Fence> {
        let tenure = self.tenure(who, ago)?;
        Some([&tenure.real, &tenure.model][side].clone())
    }

    pub(crate) fn hold(&mut self, number: u8) -> Outcome {
        let key = key(number);
        self.model.put_hold(&self.keys, &key, "none", UnixMillis(5), NOWHERE);
        let hold = format!("none 5 {NOWHERE}").into_bytes();
        let name = self.keys.held.as_bytes().to_vec();
        self.raw(&[b"HSET".to_vec(), name, key.as_bytes().to_vec(), hold])
    }

    pub(crate) async fn discard(&mut self, letters: &[(u8, Names)], window: Span) -> Outcome {
        let there = self.model.dead_letters(&self.queue, 0, 0, 100);
        let letters: Vec<Discard> = letters
            .iter()
            .map(|(number, names)| {
                let letter = format!("letter{number}");
                let of = || there.iter().find(|there| there.id == letter)?.letter.as_ref().ok();
                let job = match names {
                    Names::Its => of().map(|record| JobId::from_stored(record.job.clone().into())),
                    Names::None => None,
                    Names::Other(other) => Some(id(*other)),
                };
                let whose = |id| Whose { id, key: key(0), place: None };
                Discard { letter: letter.into(), job: job.map(whose) }
            })
            .collect();
        let window_ms = time(window).as_millis() as u64;
        let real = self.connection.discard(&self.keys, window_ms, &letters).await;
        let model = self.model.discard(&self.keys, window_ms, &letters);
        for (answer, letter) in agree(real.map_err(|e| e.to_string())?, model)?.iter().zip(&letters) {
            let mark = letter.job.as_ref().and_then(|job| self.model.mark(&self.keys, &job.id));
            self.heard.push(match (answer, mark) {
                (Discarded::Gone, _) => "discard:gone",
                (_, Some((standing, _))) if standing == "discarded" => "discard:discarded, and its mark",
                _ => "discard:discarded, and no mark",
            });
        }
        Ok(())
    }

    pub(crate) async fn absolve(
        &mut self,
        run: Option<(usize, usize)>,
        turn: Option<u32>,
        job: Which,
    ) -> Outcome {
        let Some(index) = self.which(job) else { return Ok(()) };
        let (run, ran) = match run {
            Some((who, ago)) => (self.tenure(who, ago).map(|tenure| tenure.model.clone()), None),
            None => {
                let line = self.model.state(&self.keys, self.given[1].places[index]).unwrap_or_default();
                let charge = line.crashes.first().map(|crash| (crash.fence.clone(), crash.turn));
                line.mark.map(|mark| (mark.fence, line.turn)).or(charge).unzip()
            }
        };
        let Some(tenure) = self.tenures.iter().flatten().find(|tenure| Some(&tenure.model) == run.as_ref())
        else {
            return Ok(());
        };
        let (real, model) = (tenure.real.clone(), tenure.model.clone());
        let turn = turn.or(ran).unwrap_or_else(|| self.turn(index));
        let places = [0, 1].map(|side: usize| self.given[side].places[index]);
        let real = self.connection.absolve(&self.keys, &real, turn, places[0]).await;
        let model = self.model.absolve(&self.keys, &model, turn, places[1]);
        let answer = agree(real.map_err(|e| e.to_string())?, model)?;
        self.hear(heard::absolved(answer))
    }

    pub(crate) async fn purge(
        &mut self,
        jobs: &[Which],
        nth: Option<usize>,
        knows: bool,
        named: bool,
    ) -> Outcome {
        let view = self.model.partitions(&self.queue).remove(0);
        let lease_of = |side: usize, both: &Self| {
            let epoch = both.given[side].epoch_given(both.given[1].epoch(Epoch(view.epoch)));
            let owner = if knows { view.owner.clone() } else { "nobody".to_owned() };
            LeaseSeen { owner, epoch: if view.epoch == 0 { String::new() } else { epoch.to_string() } }
        };
        let indexes: Vec<usize> = jobs.iter().filter_map(|job| self.which(*job)).collect();
        let delayed = nth.and_then(|nth| self.model.delayed(&self.keys).get(nth).map(|job| job.0.clone()));
        let purges = |side: usize, both: &Self| {
            let at = |index: &usize| {
                let id = if named { both.jobs[*index].id.clone() } else { id(9) };
                Purge::At(both.given[side].places[*index], id)
            };
            let mut purges: Vec<Purge> = indexes.iter().map(at).collect();
            purges.extend(delayed.clone().map(Purge::Later));
            purges
        };
        let (lease, slice) = (lease_of(0, self), purges(0, self));
        let real = self.connection.purge(&self.keys, &lease, &slice).await.map_err(|e| e.to_string())?;
        let model = self.model.purge(&self.keys, &lease_of(1, self), &purges(1, self));
        let shown = |side: usize, answer: Purged| match answer {
            Purged::Changed(LeaseSeen { owner, epoch }) => {
                let epoch =
                    epoch.parse().map_or(epoch, |epoch| self.given[side].epoch(Epoch(epoch)).to_string());
                Purged::Changed(LeaseSeen { owner, epoch })
            }
            done @ Purged::Done { .. } => done,
        };
        let answer = agree(shown(0, real), shown(1, model))?;
        let Purged::Done { jobs, tenure_ended } = answer else { return self.hear("purge:changed") };
        self.heard.extend(jobs.iter().map(|purged| if *purged { "purge:purged" } else { "purge:gone" }));
        if tenure_ended {
            // Each side's epoch is one higher than the one it gave.
            for side in [0, 1] {
                let epoch: u64 = lease_of(side, self).epoch.parse().unwrap_or_default();
                self.given[side].give_epoch(Epoch(epoch + 1));
            }
            return self.hear("purge:tenure ended");
        }
        self.hear("purge:tenure goes on")
    }

    pub(crate) async fn cancel_delayed(&mut self, nth: usize, window: Span) -> Outcome {
        let delayed = self.model.delayed(&self.keys);
        let there = delayed.get(nth).map(|job| job.0.clone());
        let member = there.clone().unwrap_or_else(|| Member::new(1, true, &id(0)));
        let (id, own_id) = member.id();
        let (stands, said) = (Stands::Delayed(member), Said::new("me", "no more"));
        let cancel = Cancel { stands, id, key: key(0), own_id, said };
        let window = time(window).as_millis() as u64;
        let real = self.connection.cancel(&self.keys, window, &cancel).await;
        let model = self.model.cancel(&self.keys, window, &cancel);
        match agree(real.map_err(|e| e.to_string())?, model)? {
            Cancelled::NotWaiting => self.hear("cancel:delayed, and no more"),
            _ => self.hear("cancel:delayed"),
        }
    }

    pub(crate) async fn cancel(&mut self, job: Which, named: bool, window: Span) -> Outcome {
        let Some(index) = self.which(job) else { return Ok(()) };
        let known = &self.jobs[index];
        let id = if named { known.id.clone() } else { id(9) };
        let (key, own_id) = (known.key.clone(), known.own_id);
        let of = |side: usize| Cancel {
            stands: Stands::At(self.given[side].places[index]),
            id: id.clone(),
            key: key.clone(),
            own_id,
            said: Said::new("me", "no more"),
        };
        let window = time(window).as_millis() as u64;
        let (real, model) = (of(0), of(1));
        let real = self.connection.cancel(&self.keys, window, &real).await;
        let model = self.model.cancel(&self.keys, window, &model);
        let word = match agree(real.map_err(|e| e.to_string())?, model)? {
            Cancelled::Cancelled => "cancel:cancelled",
            Cancelled::Asked => "cancel:asked",
            Cancelled::NotWaiting => "cancel:not_waiting",
        };
        self.hear(word)
    }

    pub(crate) async fn load(&mut self, jobs: &[Which]) -> Outcome {
        let indexes: Vec<usize> = jobs.iter().filter_map(|job| self.which(*job)).collect();
        let places = [0, 1].map(|side: usize| {
            indexes.iter().map(|index| self.given[side].places[*index]).collect::<Vec<_>>()
        });
        let real = self.connection.load(&self.keys, &places[0]).await.map_err(|e| e.to_string())?;
        let model = self.model.load(&self.keys, &places[1]);
        let [real, model] = [(0, real), (1, model)].map(|(side, loaded): (usize, Vec<_>)| {
            let given = &self.given[side];
            let shown =
                |(place, entry): (Place, Option<_>)| (given.place(place), entry.map(|e| given.entry(e)));
            loaded.into_iter().map(shown).collect::<Vec<_>>()
        });
        for (_, entry) in agree(real, model)? {
            self.heard.push(match entry {
                None => "load:nowhere",
                Some(entry) if entry.returned => "load:returned",
                Some(_) => "load:there",
            });
        }
        Ok(())
    }

    pub(crate) async fn promote(&mut self, who: Option<usize>, count: usize) -> Outcome {
        let slice = self.slice(who, count);
        let real = self.connection.promote(&self.keys, &slice).await.map_err(|e| e.to_string())?;
        let Answer::Promoted(model) = self.model.promote(&self.keys, &slice) else {
            return Err("the model refused an unguarded promote".to_owned());
        };
        let promoted = agree(without_clock(real), without_clock(model))?;
        if let Some(who) = who {
            self.given.iter_mut().for_each(|given| given.due[who].clone_from(&promoted.due));
        }
        self.heard.push("promote:unguarded");
        self.heard.extend(heard::promotion(&promoted));
        self.moved(promoted.moved as usize)
    }

    /// The newest jobs of the stream have their places since a moment.
    pub(crate) fn moved(&mut self, count: usize) -> Outcome {
        if count == 0 {
            return Ok(());
        }
        let stream = self.keys.stream.as_bytes();
        let words: [&[u8]; 6] = [b"XREVRANGE", stream, b"+", b"-", b"COUNT", &count.to_string().into_bytes()];
        let newest = self.raw.command(&words).map_err(|error| error.to_string())?;
        let place = |row: &Reply| row.as_array()?.first()?.as_str()?.parse().ok();
        let newest: Vec<Place> =
            newest.as_array().unwrap_or_default().iter().rev().filter_map(place).collect();
        self.given[0].places.extend(newest);
        let jobs = self.model.jobs(&self.keys);
        for (place, id, _) in &jobs[jobs.len().saturating_sub(count)..] {
            let entry = self.model.load(&self.keys, &[*place]).remove(0).1;
            let entry = entry.ok_or("a job that was moved is not there")?;
            let own_id =
                self.model.mark(&self.keys, id).is_some_and(|mark| mark.0 == format!("waiting {place}"));
            self.given[1].places.push(*place);
            self.jobs.push(Known { id: entry.id, key: entry.key, own_id });
        }
        agree(self.given[0].places.len(), self.given[1].places.len()).map(drop)
    }

    pub(crate) async fn announce(&mut self, who: usize, ttl: Option<Span>, draining: bool) -> Outcome {
        let ttl = ttl.map_or(Duration::ZERO, time);
        let name = &self.queue.name;
        let mut real = self
            .connection
            .announce(name, &incarnation(who), ttl, draining, "")
            .await
            .map_err(|e| e.to_string())?;
        let mut model = self.model.announce(name, &incarnation(who), ttl, draining, "");
        real.sort_by(|a, b| a.incarnation.cmp(&b.incarnation));
        real.iter_mut().chain(&mut model).for_each(|member| member.since = rounded(member.since));
        agree(real, model).map(drop)
    }
}
