//! Server, nodes, producer and history in one value. Dropping it stops everything and removes its folder.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's scaffold fails loudly where it stands")]

use crate::berth::Berth;
use crate::node::{Drained, NodeProcess, kept};
use crate::script::{KIND, Script};
use gristmill_broker::{Broker, Connection, EnqueueError, Enqueued, Mode, QueueDefinition, RedisConfig};
use gristmill_job::{ContentType, JobId, NewJob, QueueName, partition_of};
use gristmill_testkit::eventually;
use gristmill_testkit::history::{Expectations, History, HistoryWriter, Job, Report, Run, check, now_us};
use gristmill_testkit::process::Process;
use gristmill_testkit::proxy::Proxy;
use gristmill_testkit::server::{Server, ServerOptions, Snapshot};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a state may take to come, on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);
/// Partitions of the queues in tests.
pub const PARTITIONS: u16 = 8;
/// The folder of a fleet's switches, beside its histories.
pub const SWITCHES: &str = "switches";
/// The queue that tests use unless they say otherwise.
pub const QUEUE: &str = "work";

/// What a test needs, stopped and removed at its end.
pub struct Fleet {
    /// The server; faults are injected through it.
    pub server: Server,
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
    nodes: usize,
    pub(crate) killed: Vec<(String, u64)>,
    paused: Vec<(String, u64, u64)>,
    settled_otherwise: Vec<String>,
    order_not_promised: Vec<String>,
    producer: HistoryWriter,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) broker: Broker,
    pub(crate) queue: QueueDefinition,
    /// All queues that must be empty in the end.
    pub(crate) queues: Vec<QueueDefinition>,
    // Last: its place is free once everything else has stopped.
    _berth: Berth,
}

impl Fleet {
    /// A server as asked for, and a producer.
    pub fn start(options: ServerOptions) -> Self {
        let berth = Berth::take();
        let server = Server::start(options).unwrap();
        let url = server.url();
        Self::with(berth, server, url, Mode::Key)
    }

    /// The same, with a test queue whose ordering is none; its jobs are best of different keys, since the checker of histories
    /// knows keys.
    pub fn unordered(options: ServerOptions) -> Self {
        let berth = Berth::take();
        let server = Server::start(options).unwrap();
        let url = server.url();
        Self::with(berth, server, url, Mode::None)
    }

    /// The same, with nodes that reach the server through a proxy. The producer goes past it.
    pub fn behind_proxy(options: ServerOptions) -> (Self, Proxy) {
        let berth = Berth::take();
        let server = Server::start(options).unwrap();
        let proxy = Proxy::start(server.port()).unwrap();
        let url = server.url_at(proxy.port());
        (Self::with(berth, server, url, Mode::Key), proxy)
    }

    /// The same, with a test queue whose ordering is none.
    pub fn unordered_behind_proxy(options: ServerOptions) -> (Self, Proxy) {
        let berth = Berth::take();
        let server = Server::start(options).unwrap();
        let proxy = Proxy::start(server.port()).unwrap();
        let url = server.url_at(proxy.port());
        (Self::with(berth, server, url, Mode::None), proxy)
    }

    fn with(berth: Berth, server: Server, url: String, mode: Mode) -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("gristmill-promise-{}-{number}", std::process::id()));
        std::fs::create_dir_all(folder.join(SWITCHES)).unwrap();
        let producer = HistoryWriter::open(folder.join("producer.jsonl")).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let broker = connect(&runtime, &server);
        let queue = QueueDefinition::new(QueueName::new(QUEUE).unwrap(), PARTITIONS).with_mode(mode);
        runtime.block_on(broker.create(&queue)).unwrap();
        Self {
            server,
            url,
            folder,
            nodes: 0,
            killed: Vec::new(),
            paused: Vec::new(),
            settled_otherwise: Vec::new(),
            order_not_promised: Vec::new(),
            producer,
            runtime,
            broker,
            queues: vec![queue.clone()],
            queue,
            _berth: berth,
        }
    }

    /// The server becomes another with this data, behind clients that see nothing of it but an error where an answer was due.
    pub fn fail_over_unseen(&mut self, proxy: &Proxy, options: ServerOptions, data: &Snapshot) {
        let new = Server::start(options.snapshot(data)).unwrap();
        proxy.fail_over_unseen(new.port()).unwrap();
        self.broker = connect(&self.runtime, &new);
        self.server = new;
    }

    /// How Redis is reached.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The folder of histories, gone with the fleet.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Where a process of this name writes its history.
    pub fn history_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.jsonl"))
    }

    /// A node with the defaults of tests.
    pub fn node(&mut self) -> NodeProcess {
        self.node_with(&[])
    }

    /// A node with more arguments; ready when this returns.
    pub fn node_with(&mut self, more: &[&str]) -> NodeProcess {
        let node = self.node_starting(more);
        node.process.wait_line(|line| line.text.starts_with("ready "), SOON).unwrap();
        node
    }

    /// So many nodes, once they share all partitions.
    pub fn nodes(&mut self, count: usize) -> Vec<NodeProcess> {
        let nodes = (0..count).map(|_| self.node()).collect();
        self.wait_shared_by(count);
        nodes
    }

    /// A node that may not become ready soon.
    pub fn node_starting(&mut self, more: &[&str]) -> NodeProcess {
        self.nodes += 1;
        let name = format!("node{}", self.nodes);
        let history = self.folder.join(format!("{name}.jsonl")).display().to_string();
        let mut arguments = vec!["--redis", &self.url, "--name", &name, "--history", &history];
        let ca = self.server.ca_path().map(|path| path.display().to_string());
        if let Some(ca) = &ca {
            arguments.extend(["--ca", ca]);
        }
        arguments.extend(["--ordering", self.queue.mode.as_str()]);
        arguments.extend(more);
        let program = std::env::var("CARGO_BIN_EXE_promise-node").unwrap_or_else(|_| binary());
        let none: [(&str, &str); 0] = [];
        let process = Process::spawn(program, arguments, none).unwrap();
        let incarnation = format!("{name}#{}", process.pid());
        NodeProcess { process, name, incarnation, paused_at: None }
    }

    /// SIGKILL, recorded.
    pub fn kill(&mut self, node: &mut NodeProcess) {
        self.killed.push((node.incarnation.clone(), now_us()));
        node.process.kill().unwrap();
    }

    /// A process of this name was ended by SIGKILL at this time.
    pub fn killed_at(&mut self, incarnation: &str, at_us: u64) {
        self.killed.push((incarnation.to_owned(), at_us));
    }

    /// The process ends, or ended, by itself from this time on with runs alive that nobody could stop.
    pub fn abandoned(&mut self, node: &NodeProcess, from_us: u64) {
        self.killed.push((node.incarnation.clone(), from_us));
    }

    /// SIGSTOP, recorded when it is resumed.
    pub fn pause(&mut self, node: &mut NodeProcess) {
        node.paused_at = Some(now_us());
        node.process.pause().unwrap();
    }

    /// SIGCONT.
    pub fn resume(&mut self, node: &mut NodeProcess) {
        node.process.resume().unwrap();
        let from = node.paused_at.take().unwrap_or_default();
        self.paused.push((node.incarnation.clone(), from, now_us()));
    }

    /// The node's runs between two times may overlap with others': it was cut off from Redis and could not know.
    pub fn cut_off(&mut self, node: &NodeProcess, from_us: u64, to_us: u64) {
        self.paused.push((node.incarnation.clone(), from_us, to_us));
    }

    /// The same, by its name in the history.
    pub fn cut_off_named(&mut self, incarnation: &str, from_us: u64, to_us: u64) {
        self.paused.push((incarnation.to_owned(), from_us, to_us));
    }

    /// SIGTERM, and what the node said once it is gone.
    pub fn drain(&mut self, node: &mut NodeProcess) -> Drained {
        node.process.terminate().unwrap();
        self.drained(node)
    }

    /// What a node that was told to leave said, once it is gone.
    pub fn drained(&mut self, node: &mut NodeProcess) -> Drained {
        node.left(SOON * 2)
    }

    /// A job for the test queue, under the producer's id `id`.
    pub fn job(id: &str, key: &str, version: u64, script: &Script) -> NewJob {
        let payload = serde_json::to_vec(script).unwrap();
        let job = NewJob::from_bytes(KIND, key, payload, ContentType::Json).unwrap();
        job.with_id(id).unwrap().with_version(version)
    }

    /// The same, of another kind.
    pub fn job_of(kind: &str, id: &str, key: &str, script: &Script) -> NewJob {
        let payload = serde_json::to_vec(script).unwrap();
        NewJob::from_bytes(kind, key, payload, ContentType::Json)
            .unwrap()
            .with_id(id)
            .unwrap()
            .with_version(1)
    }

    /// SIGTERM, and nothing more.
    pub fn terminate(node: &mut NodeProcess) {
        node.process.terminate().unwrap();
        // The node says so in its log once the signal has reached it.
        node.process.wait_line(|line| line.text.contains("draining"), SOON).unwrap();
    }

    /// A key of this partition; another for every `number`.
    pub fn key_in(partition: u16, number: usize) -> String {
        let keys = (0..).map(|n| format!("p{partition}.{n}"));
        keys.filter(|key| partition_of(key.as_bytes(), PARTITIONS) == partition).nth(number).unwrap()
    }

    /// Enqueues jobs into the test queue, recorded.
    pub fn enqueue(&self, jobs: Vec<NewJob>) -> Vec<Enqueued> {
        self.enqueue_into(QUEUE, jobs)
    }

    /// Enqueues jobs, recorded.
    pub fn enqueue_into(&self, queue: &str, jobs: Vec<NewJob>) -> Vec<Enqueued> {
        self.record(queue, &jobs);
        let queue = QueueName::new(queue).unwrap();
        self.runtime.block_on(self.broker.enqueue_all(&queue, &jobs)).unwrap()
    }

    /// Writes a job into its stream past the producer, with an envelope as another release would write it; recorded.
    pub fn write_as(&self, job: &NewJob, envelope: &[u8]) {
        self.record(QUEUE, std::slice::from_ref(job));
        let id = job.id.as_ref().unwrap().as_bytes();
        let key = job.key.as_bytes();
        self.write_raw(partition_of(key, PARTITIONS), &[(b"i", id), (b"k", key), (b"d", envelope)]);
    }

    fn record(&self, queue: &str, jobs: &[NewJob]) {
        for job in jobs {
            let id = job.id.as_ref().map(ToString::to_string).unwrap_or_default();
            let key = if queue == QUEUE { job.key.to_string() } else { format!("{queue}/{}", job.key) };
            self.producer.enqueued(&Job::new(id, key, job.version)).unwrap();
        }
    }

    /// Versions 1 to `versions` of each of `keys` keys, interleaved, all with the same script.
    pub fn versions(keys: usize, versions: u64, script: &Script) -> Vec<NewJob> {
        let key = |k: usize| format!("key{k}");
        let each = |version| (0..keys).map(move |k| (k, version));
        (1..=versions)
            .flat_map(each)
            .map(|(k, version)| Self::job(&format!("{}:{version}", key(k)), &key(k), version, script))
            .collect()
    }

    /// Jobs of different keys, all with the same script.
    pub fn unlike(from: usize, jobs: usize, script: &Script) -> Vec<NewJob> {
        (from..from + jobs).map(|n| Self::job(&format!("job{n}"), &format!("key{n}"), 1, script)).collect()
    }

    /// The queue of the tests.
    pub fn queue(&self) -> &QueueDefinition {
        &self.queue
    }

    /// Runs a future on the fleet's own runtime.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// A connection for plain reads; waits until there is one.
    pub fn connection(&self) -> Connection {
        self.runtime.block_on(self.broker.connection()).unwrap()
    }

    /// The producer's broker.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Enqueues jobs again and again until they are accepted; recorded.
    pub fn enqueue_until_accepted(&self, jobs: &[NewJob]) {
        let queue = QueueName::new(QUEUE).unwrap();
        eventually(SOON, "the jobs to be accepted", || {
            self.runtime.block_on(self.broker.enqueue_all(&queue, jobs)).ok()
        });
        self.record(QUEUE, jobs);
    }

    /// Enqueues jobs, not recorded: they may be lost, or refused.
    pub fn try_enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, EnqueueError> {
        self.runtime.block_on(self.broker.enqueue_all(&QueueName::new(QUEUE).unwrap(), jobs))
    }

    /// Makes another queue, and says that these jobs emit one job each into it, all of which must be run.
    pub fn expect_emitted(&mut self, queue: &str, parents: &[NewJob]) -> QueueDefinition {
        let definition = QueueDefinition::new(QueueName::new(queue).unwrap(), PARTITIONS);
        self.runtime.block_on(self.broker.create(&definition)).unwrap();
        for parent in parents {
            let id = JobId::emitted_by(parent.id.as_ref().unwrap(), 0);
            let key = format!("{queue}/{}", parent.key);
            self.producer.enqueued(&Job::new(id.to_string(), key, parent.version)).unwrap();
        }
        self.queues.push(definition.clone());
        definition
    }

    /// Writes an entry into a partition's stream, past the producer.
    pub fn write_raw(&self, partition: u16, fields: &[(&[u8], &[u8])]) {
        let stream = self.queue.partition(partition).stream;
        let mut command: Vec<&[u8]> = vec![b"XADD", stream.as_bytes(), b"*"];
        command.extend(fields.iter().flat_map(|(name, value)| [*name, *value]));
        self.server.command(&command).unwrap();
    }

    /// The hash by which a script of the broker is called: what a proxy looks for.
    pub fn script_hash(&self, script: &str) -> String {
        self.script_hash_of(&[script])
    }

    /// The same, of one whose source stands in several files.
    pub fn script_hash_of(&self, files: &[&str]) -> String {
        let folder = format!("{}/../crates/gristmill-broker/src/lua", env!("CARGO_MANIFEST_DIR"));
        let source: Vec<u8> =
            files.iter().flat_map(|file| std::fs::read(format!("{folder}/{file}.lua")).unwrap()).collect();
        let command: [&[u8]; 3] = [b"SCRIPT", b"LOAD", &source];
        self.server.command(&command).unwrap().as_str().unwrap().to_owned()
    }

    /// What only a settle with an effect on this key contains: for a proxy to look for.
    pub fn settle_of(&self, key: &str) -> Vec<u8> {
        self.queue.partition(partition_of(key.as_bytes(), PARTITIONS)).entity(key.as_bytes())
    }

    /// What only a claim of this partition contains, by a node that has seen no job of it yet and asks for a few.
    pub fn claim_of(&self, partition: u16) -> Vec<u8> {
        let stream = self.queue.partition(partition).stream;
        format!("\r\n8\r\n$7\r\nSTREAMS\r\n${}\r\n{stream}\r\n", stream.len()).into_bytes()
    }

    /// The history so far.
    pub fn history(&self) -> History {
        let files = std::fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.is_file());
        History::read(files.collect::<Vec<_>>()).unwrap()
    }

    /// Jobs that end otherwise than by a successful run (dead letters).
    pub fn expect_settled_otherwise(&mut self, ids: &[&str]) {
        self.settled_otherwise.extend(ids.iter().map(|id| (*id).to_owned()));
    }

    /// Jobs whose order among the others of their key was not promised.
    pub fn expect_no_order(&mut self, ids: &[&str]) {
        self.order_not_promised.extend(ids.iter().map(|id| (*id).to_owned()));
    }

    /// What the checker is told about the faults of this test.
    pub fn expectations(&self) -> Expectations {
        let mut expected = Expectations::new().settled_otherwise(self.settled_otherwise.clone());
        expected = expected.order_not_promised(self.order_not_promised.clone());
        for (node, at) in &self.killed {
            expected = expected.killed(node.clone(), *at);
        }
        for (node, from, to) in &self.paused {
            expected = expected.paused(node.clone(), *from, *to);
        }
        expected
    }

    /// No job lost, none out of order, nothing overlapping.
    pub fn assert_promises(&self) -> Report {
        let history = self.history();
        assert_no_node_beside_itself(&history);
        let report = check(&history, &self.expectations());
        report.assert_clean();
        report
    }

    /// The same, and each entity changed exactly once per job of its key.
    pub fn assert_effects(&self, jobs: &[NewJob]) -> Report {
        let mut keys: Vec<Vec<u8>> = jobs.iter().map(|job| job.key.as_bytes().to_vec()).collect();
        keys.sort();
        keys.dedup();
        let mut applied = Vec::new();
        for queue in &self.queues {
            let (name, entities) = (queue.name.as_str(), self.entities_in(queue, &keys));
            for (entity, key) in entities.into_iter().zip(&keys) {
                let key = std::str::from_utf8(key).unwrap();
                let key = if name == QUEUE { key.to_owned() } else { format!("{name}/{key}") };
                applied.push((key, entity.map_or(0, |entity| entity.changes)));
            }
        }
        let history = self.history();
        assert_no_node_beside_itself(&history);
        let report = check(&history, &self.expectations().applied(applied));
        report.assert_clean();
        report
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(folder) = kept() {
            for file in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
                let _ = std::fs::copy(file.path(), folder.join(file.file_name()));
            }
            let _ = std::fs::write(folder.join("paused"), format!("{:#?}", self.paused));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn connect(runtime: &tokio::runtime::Runtime, server: &Server) -> Broker {
    let mut redis = RedisConfig::new(server.url());
    redis.ca_pem = server.ca_path().map(|path| std::fs::read(path).unwrap());
    runtime.block_on(async { Broker::connect(redis) }).with_patience(SOON)
}

/// Whatever may overlap between nodes that faults cut off from each other: a process knows what it runs itself (V8).
fn assert_no_node_beside_itself(history: &History) {
    let mut last: BTreeMap<(&str, &str), &Run> = BTreeMap::new();
    for run in &history.runs {
        if let Some(before) = last.insert((&run.node, &run.job.key), run) {
            let ended = before.ended.map_or(u64::MAX, |(at_us, _)| at_us);
            assert!(ended <= run.started_us, "one process ran {run:?} beside {before:?}");
        }
    }
}

/// Where cargo put the node's binary, beside this test binary.
fn binary() -> String {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.join("promise-node").display().to_string()
}
