use super::*;
use crate::partition::tenure::Run;
use crate::stage;
use crate::worker::execution::Executor;
use bytes::Bytes;
use gristmill_broker::{Entry, Epoch, QueueDefinition};
use gristmill_handler::{BatchOptions, HandlerError, Item, KindOptions, Registry, State};
use gristmill_job::{ContentType, JobId, JobLimits, NewJob, QueueName};
use std::sync::mpsc as std_mpsc;

const BLOCKED_AFTER: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

/// What handlers wait for while they hold their threads.
struct Gate {
    entered: std_mpsc::Sender<()>,
    opens: Mutex<std_mpsc::Receiver<()>>,
}

async fn blocks((): (), State(gate): State<Gate>) -> Result<(), HandlerError> {
    let _ = gate.entered.send(());
    let _ = lock(&gate.opens).recv();
    Ok(())
}

async fn blocks_later((): (), gate: State<Gate>) -> Result<(), HandlerError> {
    tokio::task::yield_now().await;
    blocks((), gate).await
}

async fn blocks_together(items: Vec<Item<()>>, gate: State<Gate>) -> Result<Vec<()>, HandlerError> {
    tokio::task::yield_now().await;
    blocks((), gate).await?;
    Ok(vec![(); items.len()])
}

async fn waits((): (), State(gate): State<Gate>) -> Result<(), HandlerError> {
    let _ = gate.entered.send(());
    std::future::pending().await
}

struct Scene {
    runs: Arc<RunQueue>,
    shared: Arc<Shared>,
    executor: Arc<Executor>,
    watch: Watch,
    failed: mpsc::UnboundedReceiver<String>,
    entered: std_mpsc::Receiver<()>,
    /// Lets one handler go.
    open: std_mpsc::Sender<()>,
    began: Instant,
}

impl Scene {
    fn new(slots: usize) -> Self {
        let (enter, entered) = std_mpsc::channel();
        let (open, opens) = std_mpsc::channel();
        let short = KindOptions::new().hard_limit(Duration::from_millis(20));
        let limited = KindOptions::new().hard_limit(Duration::from_secs(2));
        let registry = Registry::new()
            .state(Gate { entered: enter, opens: Mutex::new(opens) })
            .kind("blocks", blocks)
            .kind("blocks.later", blocks_later)
            .batch("blocks.together", BatchOptions::new(3, HOUR), blocks_together)
            .batch("limited.together", BatchOptions::new(1, HOUR).kind(short), blocks_together)
            .kind("waits", waits)
            .kind_with("waits.review", KindOptions::new().review(), waits)
            .kind_with("waits.once", KindOptions::new().at_most_once(), waits)
            .kind_with("limited", limited, blocks);
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 1);
        let shared = Arc::new(Shared::new(queue.name.clone(), 0, queue.partition(0)));
        let began = Instant::now();
        shared.open_gate(Some(Epoch(1)));
        shared.trust_until(began + Duration::from_secs(3600));
        let runs = Arc::new(RunQueue::new(slots, 1));
        let executor = Arc::new(Executor::new(registry, runs.clone(), 1 << 20, Default::default()));
        let (failing, failed) = mpsc::unbounded_channel();
        let watch = Watch::new(
            runs.clone(),
            vec![shared.clone()],
            BLOCKED_AFTER,
            Arc::default(),
            failing,
            Default::default(),
        );
        Self { runs, shared, executor, watch, failed, entered, open, began }
    }

    /// Begins a run as its worker does, on a thread of its own.
    fn begin(&self, seq: u64, kind: &str) -> tokio::task::JoinHandle<bool> {
        let worker = self.begin_one(seq, kind);
        self.entered.recv_timeout(SOON).expect("the handler does not begin");
        worker
    }

    fn begin_one(&self, seq: u64, kind: &str) -> tokio::task::JoinHandle<bool> {
        self.runs.push(&self.shared, vec![run(seq, kind)]);
        let (partition, run) = self.runs.pull().unwrap();
        let (executor, watched) = (self.executor.clone(), self.runs.seats().remove(0));
        tokio::spawn(async move { executor.run(&watched, partition, run).await })
    }

    /// Looks every half second until so long after the beginning.
    fn look_until(&self, end: Duration) -> bool {
        let mut at = self.began;
        let mut well = true;
        while at < self.began + end {
            at += LOOK_EVERY;
            well &= self.watch.look(at);
        }
        well
    }

    fn told(&self) -> Vec<(u64, Ran)> {
        self.shared.take_ended().into_iter().map(|ended| (ended.entry.place.seq, ended.ran)).collect()
    }

    /// One of those that ended; the others stay.
    fn one_ended(&self) -> Option<(u64, Ran)> {
        let mut ended = self.shared.take_ended();
        let one = ended.pop()?;
        ended.into_iter().for_each(|other| self.shared.tell(other));
        Some((one.entry.place.seq, one.ran))
    }

    async fn told_soon(&self) -> (u64, Ran) {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(ended) = self.one_ended() {
                return ended;
            }
            assert!(Instant::now() < deadline, "nothing is told");
            tokio::task::yield_now().await;
        }
    }
}

fn run(seq: u64, kind: &str) -> Run {
    let job = NewJob::from_bytes(kind, "k", "null", ContentType::Json).unwrap();
    let encoded = job.with_id("the-id").unwrap().encode(UnixMillis(1), JobLimits::default()).unwrap();
    let id = JobId::from_stored(Bytes::from_static(b"the-id"));
    stage::run(Entry { id, envelope: encoded.envelope, ..stage::entry(seq, "k") })
}

async fn is_given_up_and_refused(kind: &str) {
    let scene = Scene::new(1);
    let worker = scene.begin(1, kind);
    assert!(scene.look_until(BLOCKED_AFTER - LOOK_EVERY));
    assert!(scene.told().is_empty(), "given up too early");
    assert_eq!((scene.runs.free_slots(), scene.shared.alive()), (0, 1));

    assert!(scene.look_until(BLOCKED_AFTER + 2 * LOOK_EVERY));
    let told = scene.told();
    let [(1, Ran::Hung(words, facts))] = told.as_slice() else { panic!("{told:?}") };
    assert!(words.contains(&format!("{kind:?} held its thread for 3")), "{words}");
    assert_eq!(facts.kind, Some(kind));
    assert_eq!((scene.runs.free_slots(), scene.shared.alive()), (1, 1), "its slot is replaced, it is alive");
    let hung = scene.watch.hung();
    assert_eq!((hung.len(), hung[0].kind.as_str(), hung[0].place.seq), (1, kind, 1));
    assert_eq!(hung[0].job.as_bytes(), b"the-id");

    scene.open.send(()).unwrap();
    let told = scene.told_soon().await;
    assert!(matches!(told, (1, Ran::Stopped)), "its late result is refused: {told:?}");
    assert_eq!((scene.runs.free_slots(), scene.shared.alive()), (1, 0), "the slot added is gone again");
    assert!(scene.watch.hung().is_empty());
    let replaced = !worker.await.unwrap();
    assert_eq!(replaced, kind == "blocks", "the worker that was held ends, another does not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_holds_its_thread_at_once_is_given_up_and_its_late_result_refused() {
    is_given_up_and_refused("blocks").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_one_that_does_after_an_await() {
    is_given_up_and_refused("blocks.later").await;
}

/// Its jobs hold one thread together, and each of them is a run that is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_holds_its_thread_is_given_up_job_by_job() {
    let scene = Scene::new(3);
    for seq in 1..=3 {
        assert!(scene.begin_one(seq, "blocks.together").await.unwrap(), "a worker waits for no batch");
    }
    scene.entered.recv_timeout(SOON).expect("the handler does not begin");
    assert!(scene.look_until(BLOCKED_AFTER - LOOK_EVERY));
    assert!(scene.told().is_empty(), "given up too early");
    assert!(scene.look_until(BLOCKED_AFTER + 2 * LOOK_EVERY));
    let mut told = scene.told();
    told.sort_by_key(|(seq, _)| *seq);
    assert!(
        matches!(told.as_slice(), [(1, Ran::Hung(..)), (2, Ran::Hung(..)), (3, Ran::Hung(..))]),
        "{told:?}"
    );
    assert_eq!((scene.runs.free_slots(), scene.shared.alive()), (3, 3), "their slots are replaced");
    let hung = scene.watch.hung();
    assert_eq!((hung.len(), threads(&hung)), (3, 1));

    scene.open.send(()).unwrap();
    for _ in 0..3 {
        let told = scene.told_soon().await;
        assert!(matches!(told, (1..=3, Ran::Stopped)), "a late answer is refused: {told:?}");
    }
    assert_eq!((scene.runs.free_slots(), scene.shared.alive()), (3, 0));
    assert!(scene.watch.hung().is_empty());
}

/// A limit cannot end what holds its thread, and to say so would let the next of its key run beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_batch_that_holds_its_thread_beyond_its_hard_limit_is_given_up_like_any_other() {
    let scene = Scene::new(1);
    scene.begin(1, "limited.together").await.unwrap();
    // not a wait: the limit passes meanwhile, and must not count
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(scene.told().is_empty(), "its limit ended it");
    scene.look_until(Duration::from_millis(3000));
    assert!(matches!(scene.told().as_slice(), [(1, Ran::Hung(..))]));
    scene.open.send(()).unwrap();
    assert!(matches!(scene.told_soon().await, (1, Ran::Stopped)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_held_is_replaced_before_its_run_is_given_up() {
    let scene = Scene::new(1);
    let worker = scene.begin(1, "blocks");
    let before = scene.runs.seats().remove(0);
    scene.look_until(LOOK_EVERY);
    assert!(!before.is_replaced(), "replaced at once");
    scene.look_until(3 * LOOK_EVERY);
    assert!(before.is_replaced() && scene.told().is_empty() && scene.watch.hung().is_empty());
    assert_eq!(scene.runs.free_slots(), 0, "it keeps its slot");
    scene.open.send(()).unwrap();
    assert!(matches!(scene.told_soon().await, (1, Ran::Answered(..))), "its answer counts");
    assert!(!worker.await.unwrap(), "the worker that was replaced ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_wants_the_process_alone_stops_no_run_that_may_not_be_repeated() {
    let scene = Scene::new(3);
    for (seq, kind) in [(1, "waits"), (2, "waits.review"), (3, "waits.once")] {
        assert!(scene.begin(seq, kind).await.unwrap());
    }
    scene.shared.stop_repeatable();
    assert!(matches!(scene.told_soon().await, (1, Ran::Stopped)));
    assert_eq!(scene.shared.alive(), 2);
    scene.shared.hard_stop();
    for _ in 0..2 {
        assert!(matches!(scene.told_soon().await, (2 | 3, Ran::Stopped)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_with_a_hard_limit_is_given_up_a_second_after_it() {
    let scene = Scene::new(1);
    scene.begin(1, "limited");
    assert!(scene.look_until(Duration::from_millis(2500)));
    assert!(scene.told().is_empty(), "given up too early");
    scene.look_until(Duration::from_millis(3500));
    assert!(matches!(scene.told().as_slice(), [(1, Ran::Hung(..))]));
    scene.open.send(()).unwrap();
    scene.told_soon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_in_which_the_process_was_suspended_does_not_count() {
    let scene = Scene::new(1);
    scene.begin(1, "blocks");
    scene.look_until(Duration::from_secs(1));
    assert!(scene.watch.look(scene.began + Duration::from_secs(3600)));
    assert!(scene.told().is_empty(), "it had no time to go on");
    scene.open.send(()).unwrap();
    assert!(matches!(scene.told_soon().await, (1, Ran::Answered(..))));
    assert_eq!(scene.runs.free_slots(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 12)]
async fn more_of_them_than_there_are_spare_threads_end_the_node() {
    let mut scene = Scene::new(SPARE_THREADS + 1);
    let mut workers = Vec::new();
    for seq in 0..=SPARE_THREADS as u64 {
        // Each in a task: the only seat is needed again.
        workers.push(scene.begin(seq, "blocks.later"));
        if seq + 1 == SPARE_THREADS as u64 {
            assert!(scene.look_until(BLOCKED_AFTER + 2 * LOOK_EVERY));
            assert_eq!(scene.watch.hung().len(), SPARE_THREADS);
        }
    }
    assert!(!scene.look_until(2 * BLOCKED_AFTER), "it goes on without a thread to spare");
    let why = scene.failed.recv().await.unwrap();
    assert!(why.starts_with("9 handlers hold their threads") && why.contains("restart the node"), "{why}");
    for worker in workers {
        scene.open.send(()).unwrap();
        worker.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_does_not_move_ends_the_node() {
    let mut scene = Scene::new(1);
    let (supervisor, _) = ractor::Actor::spawn(None, Still, ()).await.unwrap();
    scene.watch.supervise(supervisor);
    assert!(scene.look_until(BLOCKED_AFTER));
    assert!(!scene.look_until(BLOCKED_AFTER + 4 * LOOK_EVERY));
    assert!(scene.failed.recv().await.unwrap().starts_with("nothing has moved for 3"));
}

/// A supervisor that hears and does nothing.
struct Still;

impl ractor::Actor for Still {
    type Msg = ToSupervisor;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<ToSupervisor>, (): ()) -> Result<(), ractor::ActorProcessingErr> {
        Ok(())
    }
}
