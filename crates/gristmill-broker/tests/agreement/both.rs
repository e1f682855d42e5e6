//! Asks both sides the same and compares the answers.

use crate::given::{Given, rounded};
use crate::heard;
use crate::plan::{self, ACTORS, Knows, Number, Operation, Span, When};
use crate::recurring::Recurring;
use bytes::Bytes;
use gristmill_broker::call::{Answer, Guard};
use gristmill_broker::create::CreateError;
use gristmill_broker::enqueue::{Accepted, EnqueueAnswer};
use gristmill_broker::lease::acquire::{Acquire, Acquired, Before};
use gristmill_broker::lease::renew::{Renew, Renewed};
use gristmill_broker::lease::want::Wanted;
use gristmill_broker::model::Model;
use gristmill_broker::{
    Connection, Epoch, Fence, Incarnation, Mode, PartitionKeys, QueueDefinition, RedisConfig, Refusal,
};
use gristmill_job::{Due, EncodedJob, JobId, Key, Place, QueueName, UnixMillis};
use gristmill_testkit::server::Server;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) struct Tenure {
    pub(crate) real: Fence,
    pub(crate) model: Fence,
    sent: u64,
}

pub(crate) struct Known {
    pub(crate) id: JobId,
    pub(crate) key: Key,
    pub(crate) own_id: bool,
}

pub(crate) struct Both {
    pub(crate) connection: Connection,
    pub(crate) raw: gristmill_testkit::server::Connection,
    pub(crate) model: Model,
    pub(crate) queue: QueueDefinition,
    pub(crate) keys: Arc<PartitionKeys>,
    /// `[real, model]`
    pub(crate) given: [Given; 2],
    pub(crate) heard: Vec<&'static str>,
    pub(crate) jobs: Vec<Known>,
    pub(crate) tenures: [Vec<Tenure>; ACTORS],
    /// What each was given without a lease, in the model's places, and which claims those were.
    pub(crate) held: [Vec<(Place, u64)>; ACTORS],
    /// When this sequence began.
    pub(crate) began: UnixMillis,
    pub(crate) fires: u64,
    calls: u64,
    last_jobs: Vec<EncodedJob>,
}

pub(crate) type Outcome = Result<(), String>;

pub(crate) fn agree<T: PartialEq + std::fmt::Debug>(real: T, model: T) -> Result<T, String> {
    if real == model {
        return Ok(real);
    }
    Err(format!("the server answered {real:?}\n   the model {model:?}"))
}

pub(crate) fn incarnation(who: usize) -> Incarnation {
    Incarnation::of(["a", "b", "c"][who], 7)
}

pub(crate) fn id(number: u8) -> JobId {
    JobId::from_stored(Bytes::from(format!("id{number}")))
}

pub(crate) fn key(number: u8) -> Key {
    Key::from_stored(Bytes::from(format!("key{number}")))
}

pub(crate) fn time(span: Span) -> Duration {
    match span {
        Span::Nothing => Duration::ZERO,
        Span::Moment => Duration::from_millis(1),
        Span::Hour => Duration::from_secs(3600),
    }
}

pub(crate) fn due(when: When, now: UnixMillis) -> Due {
    match when {
        When::Just => Due::At(now),
        When::Now => Due::Now,
        When::Past => Due::At(UnixMillis(1)),
        When::In(span) => Due::In(time(span)),
        When::At => Due::At(UnixMillis(clock() + 7_200_000)),
        When::Never => Due::At(UnixMillis(u64::MAX)),
    }
}

pub(crate) fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

impl Both {
    pub(crate) async fn open(server: &Server, mode: Mode) -> Self {
        let mut config = RedisConfig::new(server.url());
        config.response_timeout = Duration::from_secs(30);
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 1).with_mode(mode);
        Self {
            connection: Connection::open(&config, 1).await.unwrap(),
            raw: server.connection().unwrap(),
            model: Model::new(),
            keys: Arc::new(queue.partition(0)),
            queue,
            given: Default::default(),
            heard: Vec::new(),
            jobs: Vec::new(),
            tenures: Default::default(),
            held: Default::default(),
            began: UnixMillis(0),
            fires: 0,
            calls: 0,
            last_jobs: Vec::new(),
        }
    }

    /// Everything is gone, and nothing was ever given.
    pub(crate) fn forget(&mut self) -> Outcome {
        self.flush()?;
        self.given = Default::default();
        self.jobs.clear();
        self.tenures = Default::default();
        self.held = Default::default();
        self.began = UnixMillis(clock());
        self.model.set_now(self.began);
        Ok(())
    }

    pub(crate) async fn begin(&mut self) -> Outcome {
        self.forget()?;
        self.create(1).await?;
        self.ask(&Operation::Recurring(Recurring::first())).await?;
        self.put(&Operation::Take { who: 0, ttl: Span::Hour }).await
    }

    /// One question to both; what takes a moment is over when this returns.
    pub(crate) async fn ask(&mut self, operation: &Operation) -> Outcome {
        self.model.set_now(UnixMillis(clock()));
        self.put(operation).await.map_err(|difference| format!("{operation:?}: {difference}"))?;
        if operation.is_momentary() {
            self.wait_a_moment();
        }
        Ok(())
    }

    /// Until what takes a moment is over.
    pub(crate) fn wait_a_moment(&mut self) {
        let over = clock() + 2;
        while clock() < over {
            std::hint::spin_loop();
        }
        self.model.set_now(UnixMillis(clock()));
    }

    pub(crate) async fn put(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create { partitions } => self.create(*partitions).await,
            Operation::Flush => self.flush(),
            Operation::Enqueue { repeat_last_call, partitions, jobs } => {
                self.enqueue(*repeat_last_call, *partitions, jobs).await
            }
            Operation::Acquire { who, ttl, knows } => self.acquire(*who, *ttl, *knows).await.map(drop),
            Operation::Take { who, ttl } => {
                while self.acquire(*who, *ttl, Knows::All).await? {}
                Ok(())
            }
            Operation::Want { who, stands } => self.want(*who, *stands).await,
            Operation::Renew { who, tenures_ago, ttl, answered_ahead } => {
                self.renew(*who, *tenures_ago, *ttl, *answered_ahead).await
            }
            Operation::Call { who, tenures_ago, number, call } => {
                self.call(*who, *tenures_ago, *number, call).await
            }
            Operation::Discard { letters, window } => self.discard(letters, *window).await,
            Operation::Announce { who, ttl, draining } => self.announce(*who, *ttl, *draining).await,
            Operation::Succeed { .. } => Err("to be asked in its steps".to_owned()),
            Operation::ComeBack { nth, turn, edited, strong } => {
                self.come_back(*nth, *turn, *edited, *strong)
            }
            Operation::Line { job, line } => self.line(*job, line),
            Operation::Hold { key: number } => self.hold(*number),
            Operation::Absolve { run, turn, job } => self.absolve(*run, *turn, *job).await,
            Operation::Load { jobs } => self.load(jobs).await,
            Operation::Recurring(recurring) => self.recurring(recurring).await,
            Operation::Purge { jobs, nth, knows, named } => self.purge(jobs, *nth, *knows, *named).await,
            Operation::CancelDelayed { nth, window } => self.cancel_delayed(*nth, *window).await,
            Operation::Cancel { job, named, window } => self.cancel(*job, *named, *window).await,
            Operation::Promote { who, count } => self.promote(*who, *count).await,
            Operation::SpoilEntity { key: number } => {
                self.model.spoil_entity(&self.keys, &key(*number));
                self.raw(&[b"SET".to_vec(), self.keys.entity(key(*number).as_bytes()), b"x".to_vec()])
            }
            Operation::Limit { jobs } => {
                if self.model.definition(&self.queue.name).is_none() {
                    return Ok(());
                }
                self.model.set_limit(&self.keys, *jobs);
                let limit = jobs.to_string().into_bytes();
                self.raw(&[b"HSET".to_vec(), self.keys.meta.clone().into_bytes(), b"limit".to_vec(), limit])
            }
        }
    }

    pub(crate) fn raw(&mut self, command: &[Vec<u8>]) -> Outcome {
        self.raw.command(command).map(drop).map_err(|error| error.to_string())
    }

    fn flush(&mut self) -> Outcome {
        self.model.flush();
        self.raw(&[b"FLUSHALL".to_vec()])
    }

    async fn create(&mut self, partitions: u16) -> Outcome {
        let queue = QueueDefinition::new(self.queue.name.clone(), partitions).with_mode(self.queue.mode);
        let model = self.model.create(&queue);
        let word = match agree(self.connection.create(&queue).await, model)? {
            Ok(()) => "create:ok",
            Err(CreateError::Differs { .. }) => "create:differs",
            Err(CreateError::Call(error)) => return Err(error.to_string()),
        };
        self.heard.push(word);
        Ok(())
    }

    async fn enqueue(&mut self, repeat: bool, partitions: u16, jobs: &[plan::Job]) -> Outcome {
        if !repeat || self.last_jobs.is_empty() {
            self.calls += 1;
            self.last_jobs = jobs
                .iter()
                .map(|job| EncodedJob {
                    id: id(job.id),
                    key: key(job.key),
                    envelope: Bytes::from(format!("envelope {}", self.calls)),
                    own_id: job.own_id,
                    due: due(job.due, self.model.now()),
                })
                .collect();
        }
        let (jobs, call) = (self.last_jobs.clone(), format!("call{}", self.calls));
        let is_none = |mark: &str| mark == "discarded" || mark.starts_with("cancelled");
        let is_discarded = |id| self.model.mark(&self.keys, id).is_some_and(|mark| is_none(&mark.0));
        let discarded: Vec<JobId> =
            jobs.iter().filter(|job| job.own_id && is_discarded(&job.id)).map(|job| job.id.clone()).collect();
        let real = self.connection.enqueue(&self.keys, partitions, &call, &jobs).await;
        let model = self.model.enqueue(&self.keys, partitions, &call, &jobs);
        let mut answers = [real.map_err(|e| e.to_string())?, model];
        for (answer, given) in answers.iter_mut().zip(&mut self.given) {
            let EnqueueAnswer::Accepted(accepted) = answer else { continue };
            for accepted in accepted {
                *accepted = match std::mem::replace(accepted, Accepted::Before) {
                    Accepted::At(place) => {
                        given.places.push(place);
                        Accepted::At(given.place(place))
                    }
                    Accepted::Duplicate { standing } => {
                        Accepted::Duplicate { standing: given.text(&standing) }
                    }
                    other @ (Accepted::Before | Accepted::Delayed(_)) => other,
                };
            }
        }
        let [real, model] = answers;
        let accepted = match agree(real, model)? {
            EnqueueAnswer::Accepted(accepted) => accepted,
            EnqueueAnswer::NoQueue => return self.hear("enqueue:no_queue"),
            EnqueueAnswer::Differs { .. } => return self.hear("enqueue:differs"),
            EnqueueAnswer::Full { .. } => return self.hear("enqueue:full"),
            EnqueueAnswer::TooFar { .. } => return self.hear("enqueue:too_far"),
        };
        for (accepted, job) in accepted.into_iter().zip(jobs) {
            self.heard.push(match accepted {
                Accepted::At(_) => {
                    let anew = job.own_id && discarded.contains(&job.id);
                    self.jobs.push(Known { id: job.id, key: job.key, own_id: job.own_id });
                    if anew { "accepted:at, anew" } else { "accepted:at" }
                }
                Accepted::Delayed(_) => "accepted:delayed",
                Accepted::Before => "accepted:before",
                Accepted::Duplicate { standing } => match standing.split(' ').next() {
                    Some("waiting") if standing.contains(':') => "accepted:duplicate delayed",
                    Some("waiting") => "accepted:duplicate waiting",
                    Some("applied") => "accepted:duplicate applied",
                    Some("stale") => "accepted:duplicate stale",
                    Some("expired") => "accepted:duplicate expired",
                    _ => "accepted:duplicate dead",
                },
            });
        }
        Ok(())
    }

    pub(crate) fn hear(&mut self, word: &'static str) -> Outcome {
        self.heard.push(word);
        Ok(())
    }

    /// Whether to ask again.
    async fn acquire(&mut self, who: usize, ttl: Span, knows: Knows) -> Result<bool, String> {
        let incarnation = incarnation(who);
        let last = self.tenures[who].last();
        let highest = last.map_or([Epoch(0); 2], |tenure| [tenure.real.epoch, tenure.model.epoch]);
        let mut before = [self.given[0].before[who].clone(), self.given[1].before[who].clone()];
        for before in &mut before {
            match knows {
                Knows::All => {}
                Knows::Nothing => *before = Before::default(),
                Knows::LowEpoch => before.least = 0,
            }
        }
        let acquire = |side: usize| Acquire {
            queue: &self.queue,
            partition: 0,
            incarnation: &incarnation,
            ttl: time(ttl),
            highest: if matches!(knows, Knows::LowEpoch) { Epoch(0) } else { highest[side] },
            before: &before[side],
        };
        let real = self.connection.acquire(&acquire(0)).await.map_err(|e| e.to_string())?;
        let model = self.model.acquire(&acquire(1));
        let granted = match (&real, &model) {
            (Acquired::Granted(real), Acquired::Granted(model)) => Some((*real, *model)),
            _ => None,
        };
        let (real, model) = (self.given[0].acquired(who, real), self.given[1].acquired(who, model));
        let (word, again) = match agree(real, model)? {
            Acquired::Granted(_) => ("acquire:granted", false),
            Acquired::Held { .. } => ("acquire:held", false),
            Acquired::Changed(_) => ("acquire:changed", true),
            Acquired::NoQueue => ("acquire:no_queue", false),
            Acquired::Differs { .. } => ("acquire:differs", false),
            Acquired::Unordered => ("acquire:unordered", false),
        };
        if let Some((real, model)) = granted {
            let fence = |epoch| Fence { incarnation: incarnation.clone(), epoch };
            self.tenures[who].push(Tenure { real: fence(real), model: fence(model), sent: 0 });
        }
        self.heard.push(word);
        Ok(again)
    }

    async fn want(&mut self, who: usize, stands: Span) -> Outcome {
        let real = self.connection.want(&self.keys, &incarnation(who), time(stands)).await;
        let model = self.model.want(&self.keys, &incarnation(who), time(stands));
        let word = match agree(real.map_err(|e| e.to_string())?, model)? {
            Wanted::Noted => "want:noted",
            Wanted::Free => "want:free",
            Wanted::Mine => "want:mine",
            Wanted::By(_) => "want:by",
        };
        self.hear(word)
    }

    pub(crate) fn tenure(&mut self, who: usize, ago: usize) -> Option<&mut Tenure> {
        let count = self.tenures[who].len();
        self.tenures[who].get_mut(count.checked_sub(ago + 1)?)
    }

    async fn renew(&mut self, who: usize, ago: usize, ttl: Span, ahead: u64) -> Outcome {
        let keys = self.keys.clone();
        let Some(tenure) = self.tenure(who, ago) else { return Ok(()) };
        let renew = |fence: &Fence| Renew { keys: keys.clone(), fence: fence.clone(), answered: ahead };
        let (real, model) = (renew(&tenure.real), renew(&tenure.model));
        let real = self.connection.renew(&[real], time(ttl)).await.map_err(|e| e.to_string())?;
        let model = self.model.renew(&[model], time(ttl));
        let without_clock = |answers: Vec<Renewed>| match answers.into_iter().next() {
            Some(Renewed::Ok { wanted_by, changes, now, due }) => {
                let due = due.map(|due| UnixMillis(rounded(now.age_at(due)).as_secs()));
                Renewed::Ok { wanted_by, changes, now: UnixMillis(0), due }
            }
            refused => refused.unwrap_or(Renewed::Refused(Refusal::Overtaken)),
        };
        let word = match agree(without_clock(real), without_clock(model))? {
            Renewed::Ok { wanted_by: None, .. } => "renew:ok",
            Renewed::Ok { wanted_by: Some(_), .. } => "renew:wanted",
            Renewed::Refused(Refusal::Gap { .. }) => "renew:refused gap",
            Renewed::Refused(_) => "renew:refused fenced",
        };
        self.hear(word)
    }

    async fn call(&mut self, who: usize, ago: usize, number: Number, call: &plan::Call) -> Outcome {
        let Some(calls) = self.written(who, call).await? else { return Ok(()) };
        let Some(tenure) = self.tenure(who, ago) else { return Ok(()) };
        let number = match number {
            Number::Next => {
                tenure.sent += 1;
                tenure.sent
            }
            Number::Again => tenure.sent.max(1),
            Number::Skip => tenure.sent + 2,
        };
        let (real_fence, model_fence) = (tenure.real.clone(), tenure.model.clone());
        let seen_window_ms = match call {
            plan::Call::Settle { window, .. } => time(*window).as_millis() as u64,
            _ => 0,
        };
        let keys = self.keys.clone();
        let guard = |fence| Guard { keys: &keys, fence, number, seen_window_ms };
        let real = self.connection.call(&calls[0], guard(&real_fence)).await.map_err(|e| e.to_string())?;
        let model = self.model.call(&calls[1], guard(&model_fence));
        for (answer, given) in [&real, &model].into_iter().zip(&mut self.given) {
            if let Answer::Recovered { next, .. } = answer {
                given.cursors[who] = *next;
            }
            if let Answer::Promoted(promoted) = answer {
                given.due[who].clone_from(&promoted.due);
            }
            if let Answer::Taken(taken) = answer {
                given.taken[who] = taken.last;
            }
        }
        let (real, model) = (self.given[0].answer(real), self.given[1].answer(model));
        let answer = agree(real, model)?;
        heard::words(call, &answer, &mut self.heard);
        match answer {
            Answer::Promoted(promoted) => self.moved(promoted.moved as usize),
            _ => Ok(()),
        }
    }
}
