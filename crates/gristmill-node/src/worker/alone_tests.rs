use super::*;
use crate::partition::tenure::{Ended, Ran, Run};
use crate::stage;
use gristmill_broker::QueueDefinition;
use gristmill_handler::{Cancellation, Stage as Stop};
use gristmill_job::QueueName;
use tokio::sync::mpsc;

const SHORT: Duration = Duration::from_millis(30);
const SOON: Duration = Duration::from_secs(10);

struct Process {
    runs: Arc<RunQueue>,
    alone: Arc<Alone>,
    partitions: Vec<Arc<Shared>>,
    hears: mpsc::UnboundedReceiver<Message>,
}

impl Process {
    async fn new() -> Self {
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 3);
        let (listener, hears) = stage::listener().await;
        let share = |p| {
            let shared = Arc::new(Shared::new(queue.name.clone(), p, queue.partition(p)));
            shared.register(listener.clone());
            shared
        };
        let partitions: Vec<Arc<Shared>> = (0..3).map(share).collect();
        let runs = Arc::new(RunQueue::new(2, 1));
        let alone = Arc::new(Alone::new(runs.clone(), partitions.clone(), SHORT, Default::default()));
        Self { runs, alone, partitions, hears }
    }

    async fn told(&mut self) -> Place {
        loop {
            let message = tokio::time::timeout(SOON, self.hears.recv()).await.expect("nothing is told");
            if let Some(Message::Event(_, Event::Alone(place))) = message {
                return place;
            }
        }
    }

    fn ask(&self, partition: usize, seq: u64) {
        self.alone.ask(&self.partitions[partition], Epoch(1), place(seq));
    }

    fn pulled(&self) -> Option<u64> {
        self.runs.pull().map(|(_, run)| run.entry.place.seq)
    }
}

fn place(seq: u64) -> Place {
    Place { ms: 1, seq }
}

fn run(seq: u64, alone: bool) -> Run {
    Run { alone, ..stage::run(stage::entry(seq, "k")) }
}

fn not_started(shared: &Shared) -> Vec<u64> {
    let seq = |ended: Ended| matches!(ended.ran, Ran::NotStarted).then_some(ended.entry.place.seq);
    shared.take_ended().into_iter().filter_map(seq).collect()
}

#[tokio::test]
async fn it_is_told_once_nothing_runs_and_then_nothing_but_it_starts() {
    let mut process = Process::new().await;
    let (asks, other) = (process.partitions[0].clone(), process.partitions[1].clone());
    process.runs.push(&other, vec![run(1, false), run(2, false)]);
    assert_eq!(process.pulled(), Some(1));
    process.ask(0, 7);
    assert_eq!(process.pulled(), None, "something begins while the process is cleared");
    assert!(process.runs.sleep(0), "a worker spins while nothing may start");
    assert!(process.hears.try_recv().is_err(), "told while a run is alive");
    process.runs.free_slot();
    assert_eq!(process.told().await, place(7));

    assert_eq!(process.pulled(), None);
    process.runs.push(&asks, vec![run(8, false), run(7, true)]);
    assert!(!process.runs.sleep(0), "a worker sleeps while the lone run waits");
    assert_eq!(process.pulled(), Some(7));
    assert_eq!(process.pulled(), None, "something begins beside the lone run");
    process.runs.free_slot();
    assert_eq!(process.pulled(), None, "something begins before it is settled");
    process.alone.over(&asks);
    process.alone.over(&asks);
    assert_eq!([process.pulled(), process.pulled()], [Some(2), Some(8)]);
}

#[tokio::test]
async fn what_takes_long_is_asked_to_stop_and_then_stopped_unless_it_may_not_be_repeated() {
    let mut process = Process::new().await;
    let other = process.partitions[1].clone();
    process.runs.push(&other, vec![run(1, false), run(2, false)]);
    assert_eq!([process.pulled(), process.pulled()], [Some(1), Some(2)]);
    let (plain, spared) = (Cancellation::new(), Cancellation::new());
    let stopped = tokio::spawn(std::future::pending::<()>());
    other.running(place(1), Epoch(1), plain.clone(), Arc::default(), false);
    other.stoppable(place(1), Epoch(1), stopped.abort_handle());
    other.running(place(2), Epoch(1), spared.clone(), Arc::default(), true);
    process.ask(0, 7);
    assert_eq!((plain.stage(), spared.stage()), (Stop::Running, Stop::Running));
    tokio::time::timeout(SOON, plain.wait_soft()).await.unwrap();
    let ended = tokio::time::timeout(SOON, stopped).await.expect("it is not stopped");
    assert!(ended.is_err_and(|error| error.is_cancelled()));
    process.runs.free_slot();
    assert_eq!((plain.stage(), spared.stage()), (Stop::Hard, Stop::Soft));
    assert!(process.hears.try_recv().is_err(), "told while a run is alive that is waited for");
    process.runs.free_slot();
    assert_eq!(process.told().await, place(7));
}

#[tokio::test]
async fn a_run_that_may_not_be_stopped_keeps_the_suspect_waiting_and_nobody_else() {
    let mut process = Process::new().await;
    let other = process.partitions[1].clone();
    process.runs.push(&other, vec![run(1, false)]);
    assert_eq!(process.pulled(), Some(1));
    other.running(place(1), Epoch(1), Cancellation::new(), Arc::default(), true);
    process.ask(0, 7);
    process.runs.push(&other, vec![run(2, false)]);
    assert_eq!(process.pulled(), None);
    let until = Instant::now() + SOON;
    while process.pulled() != Some(2) {
        assert!(Instant::now() < until, "everything may start again");
        tokio::task::yield_now().await;
    }
    process.runs.free_slot();
    // The suspect tries again: from then on nothing starts.
    loop {
        process.runs.push(&other, vec![run(3, false)]);
        if process.pulled().is_none() {
            break;
        }
        process.runs.free_slot();
        assert!(Instant::now() < until, "the suspect waits for ever");
        tokio::task::yield_now().await;
    }
    process.runs.free_slot();
    assert_eq!(process.told().await, place(7));
}

#[tokio::test]
async fn each_has_its_turn_and_who_leaves_keeps_nobody_waiting() {
    let mut process = Process::new().await;
    process.runs.push(&process.partitions[0].clone(), vec![run(1, false)]);
    assert_eq!(process.pulled(), Some(1));
    process.ask(0, 10);
    process.ask(1, 11);
    process.ask(2, 12);
    process.ask(1, 11);
    // One leaves while the process is cleared for it, and one from the middle of the line.
    process.alone.over(&process.partitions[0].clone());
    process.alone.over(&process.partitions[1].clone());
    process.runs.free_slot();
    assert_eq!(process.told().await, place(12));
    process.ask(0, 13);
    // Asked for another place, it goes to the end.
    process.ask(2, 14);
    assert_eq!(process.told().await, place(13));
    process.ask(0, 13);
    assert_eq!(process.told().await, place(13), "asked again, told again");
    process.alone.over(&process.partitions[0].clone());
    assert_eq!(process.told().await, place(14));
    process.alone.over(&process.partitions[2].clone());
    process.runs.push(&process.partitions[0].clone(), vec![run(2, false)]);
    assert_eq!(process.pulled(), Some(2));
    assert!(process.hears.try_recv().is_err(), "somebody is told who left");
}

#[tokio::test]
async fn a_lone_run_without_its_turn_is_not_started_and_not_lost() {
    let mut process = Process::new().await;
    let (asks, other) = (process.partitions[0].clone(), process.partitions[1].clone());
    process.runs.push(&asks, vec![run(1, true)]);
    assert_eq!((process.pulled(), not_started(&asks)), (None, vec![1]));
    process.ask(0, 7);
    process.told().await;
    process.runs.push(&other, vec![run(2, true)]);
    assert_eq!((process.pulled(), not_started(&other)), (None, vec![2]));
    process.runs.push(&asks, vec![run(7, true)]);
    process.alone.over(&asks);
    assert_eq!((process.pulled(), not_started(&asks)), (None, vec![7]));

    process.ask(0, 9);
    process.told().await;
    process.runs.push(&asks, vec![run(9, true)]);
    assert!(process.runs.withdraw(&other).is_empty());
    assert_eq!(process.runs.withdraw(&asks).len(), 1);
    assert_eq!(process.pulled(), None);
}
