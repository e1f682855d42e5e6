//! A private server with one queue, and short words for what tests do with it.

use bytes::Bytes;
use gristmill_broker::call::{Answer, Call, Guard};
use gristmill_broker::enqueue::{Accepted, EnqueueAnswer};
use gristmill_broker::lease::acquire::{Acquire, Acquired, Before};
use gristmill_broker::returned::Returned;
use gristmill_broker::start::{How, Marked, Start};
use gristmill_broker::state::{JobState, StateLine, Why};
use gristmill_broker::{
    CallError, Connection, Emit, Entry, Epoch, Fence, Incarnation, PartitionKeys, QueueDefinition,
    RedisConfig, Refusal, Settle, Settled, Verdict,
};
use gristmill_job::{
    DeadLetter, DeadReason, Due, EncodedJob, EntityChange, JobId, Key, Place, QueueName, UnixMillis,
};
use gristmill_testkit::server::{Flavor, Reply, Server, ServerOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const SOON: Duration = Duration::from_secs(10);
pub(crate) const WINDOW_MS: u64 = 60_000;

/// At most two servers at once, however many tests run side by side.
static SLOTS: (Mutex<usize>, Condvar) = (Mutex::new(2), Condvar::new());

struct Slot;

impl Slot {
    fn take() -> Self {
        let free = SLOTS.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = SLOTS.1.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *SLOTS.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        SLOTS.1.notify_one();
    }
}

/// Runs a test on a fresh server of each flavor.
#[track_caller]
pub(crate) fn on_each(test: impl AsyncFn(&mut World)) {
    on_each_with(&ServerOptions::new(), test);
}

#[track_caller]
pub(crate) fn on_each_with(options: &ServerOptions, test: impl AsyncFn(&mut World)) {
    for flavor in Flavor::ALL {
        if let (Err(missing), true) = (flavor.binary(), flavor != Flavor::Redis7) {
            eprintln!("NOT RUN on {flavor}: {missing}");
            continue;
        }
        eprintln!("on {flavor}");
        let _slot = Slot::take();
        let server = Server::start(options.clone().flavor(flavor)).unwrap();
        block_on(async {
            let mut world = World::over(server).await;
            test(&mut world).await;
        });
    }
}

/// On two threads, so that a test may block on a proxy while its connection works.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().unwrap().block_on(future)
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) connection: Connection,
    pub(crate) queue: QueueDefinition,
    pub(crate) keys: Arc<PartitionKeys>,
    calls: u32,
}

/// One tenure, its calls counted.
#[derive(Debug, Clone)]
pub(crate) struct Tenure {
    pub(crate) fence: Fence,
    pub(crate) number: u64,
}

pub(crate) fn incarnation(name: &str) -> Incarnation {
    Incarnation::of(name, 1)
}

impl World {
    pub(crate) async fn over(server: Server) -> Self {
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 1);
        let connection = Connection::open(&RedisConfig::new(server.url()), 1).await.unwrap();
        connection.create(&queue).await.unwrap();
        let keys = Arc::new(queue.partition(0));
        Self { server, connection, queue, keys, calls: 0 }
    }

    /// A connection of its own, perhaps through a proxy.
    pub(crate) async fn connect(&self, url: &str) -> Connection {
        Connection::open(&RedisConfig::new(url), 1).await.unwrap()
    }

    /// After the server was restarted.
    pub(crate) async fn reconnect(&mut self) {
        self.connection = self.connect(&self.server.url()).await;
    }

    pub(crate) fn raw(&self, words: &[&[u8]]) -> Reply {
        self.server.command(words).unwrap()
    }

    pub(crate) async fn try_enqueue(&mut self, jobs: &[EncodedJob]) -> Result<EnqueueAnswer, CallError> {
        self.calls += 1;
        self.connection.enqueue(&self.keys, 1, &format!("call{}", self.calls), jobs).await
    }

    /// Enqueues and expects a place for each.
    pub(crate) async fn enqueue(&mut self, jobs: &[EncodedJob]) -> Vec<Place> {
        match self.try_enqueue(jobs).await.unwrap() {
            EnqueueAnswer::Accepted(accepted) => accepted
                .into_iter()
                .map(|accepted| match accepted {
                    Accepted::At(place) => place,
                    other => panic!("not accepted: {other:?}"),
                })
                .collect(),
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// How the mark of an id answers a second job of that id.
    pub(crate) async fn standing(&mut self, id: &str) -> String {
        match self.try_enqueue(&[own(id, "k")]).await.unwrap() {
            EnqueueAnswer::Accepted(accepted) => match accepted.as_slice() {
                [Accepted::Duplicate { standing }] => standing.clone(),
                other => panic!("not a duplicate: {other:?}"),
            },
            other => panic!("not a duplicate: {other:?}"),
        }
    }

    pub(crate) async fn try_acquire(&self, name: &str, ttl: Duration, highest: Epoch) -> Acquired {
        let mut before = Before::default();
        loop {
            match self.acquire_once(name, ttl, highest, &before).await {
                Acquired::Changed(look) => before = look,
                other => return other,
            }
        }
    }

    pub(crate) async fn acquire_once(
        &self,
        name: &str,
        ttl: Duration,
        highest: Epoch,
        before: &Before,
    ) -> Acquired {
        let incarnation = incarnation(name);
        let acquire =
            Acquire { queue: &self.queue, partition: 0, incarnation: &incarnation, ttl, highest, before };
        self.connection.acquire(&acquire).await.unwrap()
    }

    /// A lease for an hour.
    pub(crate) async fn acquire(&self, name: &str) -> Tenure {
        self.acquire_for(name, HOUR).await
    }

    pub(crate) async fn acquire_for(&self, name: &str, ttl: Duration) -> Tenure {
        match self.try_acquire(name, ttl, Epoch(0)).await {
            Acquired::Granted(epoch) => {
                Tenure { fence: Fence { incarnation: incarnation(name), epoch }, number: 0 }
            }
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(crate) async fn send(
        &self,
        connection: &Connection,
        fence: &Fence,
        number: u64,
        call: &Call,
    ) -> Result<Answer, CallError> {
        connection.call(call, Guard { keys: &self.keys, fence, number, seen_window_ms: WINDOW_MS }).await
    }

    pub(crate) async fn call_as(&self, fence: &Fence, number: u64, call: &Call) -> Answer {
        self.send(&self.connection, fence, number, call).await.unwrap()
    }

    /// A call whose answer may stay away.
    pub(crate) fn spawn(
        &self,
        connection: &Connection,
        tenure: &Tenure,
        call: Call,
    ) -> tokio::task::JoinHandle<Result<Answer, CallError>> {
        let (connection, keys, tenure) = (connection.clone(), self.keys.clone(), tenure.clone());
        tokio::spawn(async move {
            let guard =
                Guard { keys: &keys, fence: &tenure.fence, number: tenure.number, seen_window_ms: WINDOW_MS };
            connection.call(&call, guard).await
        })
    }

    /// The next call of a tenure.
    pub(crate) async fn call(&self, tenure: &mut Tenure, call: Call) -> Answer {
        tenure.number += 1;
        self.call_as(&tenure.fence, tenure.number, &call).await
    }

    pub(crate) async fn claim(&self, tenure: &mut Tenure) -> Vec<Entry> {
        match self.call(tenure, Call::Claim { count: 100 }).await {
            Answer::Claimed(entries) => entries,
            other => panic!("not claimed: {other:?}"),
        }
    }

    /// Everything that is claimed.
    pub(crate) async fn recover(&self, tenure: &mut Tenure) -> Vec<Entry> {
        let mut all = Vec::new();
        let mut cursor = Place::ZERO;
        loop {
            match self.call(tenure, Call::Recover { cursor, count: 100 }).await {
                Answer::Recovered { entries, next } => {
                    all.extend(entries);
                    cursor = next;
                }
                other => panic!("not recovered: {other:?}"),
            }
            if cursor == Place::ZERO {
                return all;
            }
        }
    }

    pub(crate) async fn settle(&self, tenure: &mut Tenure, jobs: Vec<Settle>) -> Vec<Settled> {
        settled(self.call(tenure, Call::Settle(jobs)).await)
    }

    /// A lease that is over already: whoever asks gets it, as after its owner's death.
    pub(crate) async fn dying(&self, name: &str) -> Tenure {
        self.acquire_for(name, Duration::ZERO).await
    }

    /// Start marks, all of one kind, at the turns the entries stand at.
    pub(crate) async fn start(&self, tenure: &mut Tenure, how: How, entries: &[&Entry]) -> Vec<Marked> {
        let start = |entry: &&Entry| Start { place: entry.place, turn: entry.state.turn(), how };
        match self.call(tenure, Call::Start(entries.iter().map(start).collect())).await {
            Answer::Started(marked) => marked,
            other => panic!("not started: {other:?}"),
        }
    }

    /// Everything that lies beside the stream, in slices of `count` jobs.
    pub(crate) async fn take(&self, tenure: &mut Tenure, count: usize) -> (Vec<Entry>, Vec<Key>) {
        let (mut entries, mut held) = (Vec::new(), Vec::new());
        let (mut after, mut cursor) = (0, 0);
        loop {
            let Answer::Taken(slice) =
                self.call(tenure, Call::Take { after, count, cursor: Some(cursor) }).await
            else {
                panic!("not taken")
            };
            entries.extend(slice.entries);
            held.extend(slice.held);
            (after, cursor) = (slice.last, slice.cursor);
            if !slice.more && cursor == 0 {
                return (entries, held);
            }
        }
    }

    /// What is stored about a job.
    pub(crate) fn line(&self, place: Place) -> Option<StateLine> {
        match self.raw(&[b"HGET", self.keys.state.as_bytes(), place.to_string().as_bytes()]) {
            Reply::Bulk(line) => Some(StateLine::parse(&line).unwrap_or_else(|| panic!("no line: {line:?}"))),
            _ => None,
        }
    }

    pub(crate) fn set_line(&self, place: Place, line: &[u8]) {
        self.raw(&[b"HSET", self.keys.state.as_bytes(), place.to_string().as_bytes(), line]);
    }

    /// How often people have acted here.
    pub(crate) fn changes(&self) -> u64 {
        let changes = self.raw(&[b"HGET", self.keys.lease.as_bytes(), b"changes"]);
        changes.as_int().unwrap_or_default() as u64
    }

    /// A job comes back from the dead, as by a replay.
    pub(crate) fn come_back(&self, place: Place, job: &EncodedJob, line: &StateLine) {
        let keys = &self.keys;
        let at =
            self.raw(&[b"HINCRBY", keys.lease.as_bytes(), b"changes", b"1"]).as_int().unwrap().to_string();
        let record = Returned {
            i: job.id.as_bytes().to_vec(),
            k: job.key.as_bytes().to_vec(),
            d: job.envelope.to_vec(),
        };
        let place = place.to_string();
        let place = place.as_bytes();
        self.raw(&[b"HSET", keys.returned_bodies.as_bytes(), place, &record.encode().unwrap()]);
        self.raw(&[b"ZADD", keys.returned.as_bytes(), at.as_bytes(), place]);
        self.raw(&[b"HSET", keys.state.as_bytes(), place, &line.write()]);
    }

    /// The fields of a hash that exist, by name.
    pub(crate) fn hash(&self, key: &str) -> BTreeMap<String, String> {
        let all = self.raw(&[b"HGETALL", key.as_bytes()]);
        let text = |reply: &Reply| match reply {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("no text: {other:?}"),
        };
        all.as_array().unwrap().chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
    }

    /// Who holds what.
    pub(crate) fn holders(&self) -> Vec<(String, String)> {
        let stream = self.keys.stream.as_bytes();
        let rows = self.raw(&[b"XPENDING", stream, b"workers", b"-", b"+", b"1000"]);
        let row = |row: &Reply| {
            let words = row.as_array().unwrap();
            (words[0].as_str().unwrap().to_owned(), words[1].as_str().unwrap().to_owned())
        };
        rows.as_array().unwrap().iter().map(row).collect()
    }

    pub(crate) fn length(&self) -> i64 {
        self.raw(&[b"XLEN", self.keys.stream.as_bytes()]).as_int().unwrap()
    }

    /// Milliseconds a key still lives; -1 for ever, -2 if there is none.
    pub(crate) fn life_ms(&self, key: &[u8]) -> i64 {
        self.raw(&[b"PTTL", key]).as_int().unwrap()
    }
}

/// The words of a settle that was executed first now.
#[track_caller]
pub(crate) fn settled(answer: Answer) -> Vec<Settled> {
    match answer {
        Answer::Settled { jobs, first: true } => jobs,
        other => panic!("not settled: {other:?}"),
    }
}

/// The words of a repeat.
#[track_caller]
pub(crate) fn repeated(answer: Answer) -> Vec<Settled> {
    match answer {
        Answer::Settled { jobs, first: false } => jobs,
        other => panic!("no repeat: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_fenced(answer: &Answer, by: &str) {
    let owner = if by.is_empty() { String::new() } else { incarnation(by).to_string() };
    assert_eq!(*answer, Answer::Refused(Refusal::Fenced { owner }));
}

pub(crate) fn gap(last: u64) -> Answer {
    Answer::Refused(Refusal::Gap { last })
}

/// A job whose id is its producer's.
pub(crate) fn own(id: &str, key: &str) -> EncodedJob {
    EncodedJob {
        id: JobId::new(id).unwrap(),
        key: Key::new(key).unwrap(),
        envelope: Bytes::from(format!("envelope of {id}")),
        own_id: true,
        due: Due::Now,
    }
}

/// A job whose id we made: no mark.
pub(crate) fn ours(id: &str, key: &str) -> EncodedJob {
    EncodedJob { own_id: false, ..own(id, key) }
}

pub(crate) fn verdict_on(entry: &Entry, marked: bool, verdict: Verdict) -> Settle {
    Settle {
        place: entry.place,
        turn: entry.state.turn(),
        id: entry.id.clone(),
        key: entry.key.clone(),
        marked,
        verdict,
    }
}

/// Done without effects, of a job without a mark: the short way through the script.
pub(crate) fn plain(entry: &Entry) -> Settle {
    verdict_on(entry, false, Verdict::Done { version: 0, entity: None, emits: Vec::new() })
}

/// Done, of a job with a mark.
pub(crate) fn done(entry: &Entry) -> Settle {
    verdict_on(entry, true, Verdict::Done { version: 0, entity: None, emits: Vec::new() })
}

/// Done, and its entity is put to a state.
pub(crate) fn put(entry: &Entry, version: u64, state: &'static str) -> Settle {
    let entity = Some(EntityChange::Put(Bytes::from_static(state.as_bytes())));
    verdict_on(entry, true, Verdict::Done { version, entity, emits: Vec::new() })
}

pub(crate) fn delete(entry: &Entry, version: u64) -> Settle {
    let entity = Some(EntityChange::Delete);
    verdict_on(entry, true, Verdict::Done { version, entity, emits: Vec::new() })
}

/// Done, and emits jobs.
pub(crate) fn emitting(entry: &Entry, jobs: usize) -> Settle {
    let emit = |position| Emit {
        queue: QueueName::new("next").unwrap(),
        job: EncodedJob {
            id: JobId::emitted_by(&entry.id, position),
            key: Key::new("k").unwrap(),
            envelope: Bytes::from_static(b"emitted"),
            own_id: true,
            due: Due::Now,
        },
    };
    let emits = (0..jobs).map(emit).collect();
    verdict_on(entry, true, Verdict::Done { version: 0, entity: None, emits })
}

pub(crate) fn retry(entry: &Entry, delay: Duration) -> Settle {
    let verdict = Verdict::Retry {
        attempts: entry.state.attempts() + 1,
        delay,
        why: Why::Retry,
        interrupted: false,
        history: Bytes::from_static(b"boom"),
    };
    verdict_on(entry, true, verdict)
}

pub(crate) fn discard(entry: &Entry) -> Settle {
    verdict_on(entry, true, Verdict::Discard)
}

pub(crate) fn dead(entry: &Entry, letter: &str) -> Settle {
    let record = DeadLetter {
        job: entry.id.as_bytes().to_vec(),
        key: entry.key.as_bytes().to_vec(),
        envelope: entry.envelope.to_vec(),
        place: entry.place.to_string(),
        turn: entry.state.turn(),
        reason: DeadReason::Exhausted,
        error: vec!["boom".to_owned()],
        class: None,
        attempts: 1,
        node: "a".to_owned(),
        at: UnixMillis(1),
        ..DeadLetter::default()
    };
    let verdict = Verdict::Dead {
        dead_id: letter.to_owned(),
        at: UnixMillis(1),
        reason: DeadReason::Exhausted,
        body: record.encode().unwrap().into(),
        hold: false,
        acknowledged: false,
    };
    verdict_on(entry, true, verdict)
}

/// The same job, as if it had been put back until it stood at this turn.
pub(crate) fn at_turn(entry: &Entry, turn: u32) -> Entry {
    let line = StateLine { turn, attempts: entry.state.attempts(), ..StateLine::default() };
    Entry { state: JobState::of(line, 0), ..entry.clone() }
}

/// The ids of entries, in order.
pub(crate) fn ids(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.id.to_string()).collect()
}
