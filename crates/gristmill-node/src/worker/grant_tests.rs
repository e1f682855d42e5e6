use super::*;
use crate::stage;
use gristmill_broker::QueueDefinition;
use gristmill_job::QueueName;
use std::time::Duration;
use tokio::sync::mpsc;

const SOON: Duration = Duration::from_secs(10);

/// Partitions that claim with the slots of one node.
struct Claimers {
    runs: Arc<RunQueue>,
    partitions: Vec<Arc<Shared>>,
    hears: mpsc::UnboundedReceiver<Message>,
}

impl Claimers {
    async fn new(slots: usize, partitions: u16) -> Self {
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), partitions);
        let (listener, hears) = stage::listener().await;
        let share = |p| {
            let shared = Arc::new(Shared::new(queue.name.clone(), p, queue.partition(p)));
            shared.register(listener.clone());
            shared
        };
        let partitions = (0..partitions).map(share).collect();
        Self { runs: Arc::new(RunQueue::new(slots, 1)), partitions, hears }
    }

    fn ask(&self, partition: usize, slots: usize) {
        self.runs.ask(&self.partitions[partition], slots);
    }

    /// What is granted now; how many slots of each grant.
    async fn granted(&mut self, grants: usize) -> Vec<Grant> {
        assert!(self.runs.pull().is_none());
        let mut granted = Vec::new();
        for _ in 0..grants {
            let message = tokio::time::timeout(SOON, self.hears.recv()).await.expect("nothing is granted");
            match message {
                Some(Message::Competing(Event::Granted(grant))) => granted.push(grant),
                _ => panic!("no grant"),
            }
        }
        assert!(self.hears.try_recv().is_err(), "more is granted than expected");
        granted
    }
}

fn sizes(grants: &[Grant]) -> Vec<usize> {
    grants.iter().map(|grant| grant.slots.len()).collect()
}

#[tokio::test]
async fn few_slots_wait_for_the_claims_under_way_and_are_granted_at_once_where_there_are_none() {
    let mut claimers = Claimers::new(16, 4).await;
    (0..4).for_each(|partition| claimers.ask(partition, 7));
    let mut grants = claimers.granted(2).await;
    assert_eq!(sizes(&grants), [7, 7], "two are left, fewer than a quarter");
    assert!(claimers.runs.sleep(0), "a worker spins while all who would claim wait");
    // A claim is answered, with nothing: its slots come back, and with them there are enough.
    drop(grants.remove(0));
    let more = claimers.granted(1).await;
    assert_eq!(sizes(&more), [7]);
    grants.extend(more);
    // Its jobs run on: two slots are free, and no other claim is under way once both are answered.
    let slots: Vec<_> = grants.drain(..).map(|Grant { slots, .. }| slots).collect();
    let last = claimers.granted(1).await;
    assert_eq!(sizes(&last), [2]);
    drop((slots, last));
    assert_eq!(claimers.runs.free_slots(), 16);
}

#[tokio::test]
async fn who_asks_for_less_than_a_quarter_gets_it_beside_other_claims() {
    let mut claimers = Claimers::new(16, 3).await;
    claimers.ask(0, 14);
    let first = claimers.granted(1).await;
    claimers.ask(1, 2);
    let second = claimers.granted(1).await;
    assert_eq!((sizes(&first), sizes(&second)), (vec![14], vec![2]));
}

#[tokio::test]
async fn slots_that_come_free_are_enough_before_the_claim_is_answered() {
    let mut claimers = Claimers::new(16, 2).await;
    claimers.ask(0, 16);
    let mut first = claimers.granted(1).await;
    let slots = &mut first[0].slots;
    slots.truncate(14);
    claimers.ask(1, 16);
    assert_eq!(claimers.granted(0).await.len(), 0, "two are few beside a claim");
    first[0].slots.truncate(12);
    assert_eq!(sizes(&claimers.granted(1).await), [4]);
}

#[tokio::test]
async fn who_waits_for_more_may_think_otherwise_or_get_runs_meanwhile() {
    let mut claimers = Claimers::new(16, 3).await;
    claimers.ask(0, 15);
    let first = claimers.granted(1).await;
    claimers.ask(1, 8);
    claimers.ask(2, 8);
    assert_eq!(claimers.granted(0).await.len(), 0);
    claimers.ask(1, 0);
    claimers.runs.push(&claimers.partitions[2].clone(), vec![stage::run(stage::entry(1, "k"))]);
    assert_eq!(claimers.runs.pull().map(|(_, run)| run.entry.place.seq), Some(1), "a run has its turn");
    drop(first);
    assert_eq!(sizes(&claimers.granted(1).await), [8], "of the one that still asks");
    assert!(claimers.runs.sleep(0), "nobody waits");
}
