//! The crash matrix: nodes, relays, Postgres and Redis are killed, and answers are lost, at each step of a job from its claim
//! to the job that follows from it. Nothing is lost and nothing is applied twice; the tests write what they saw as tables
//! (`postgres-crashes-*.md` in `target/tmp`).
//!
//! * `shop`: the processes, the servers, and the holds that stop a job at a step
//! * this file: which victim, at which step

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod shop;

use shop::{Hold, Shop, Step};

/// What is done to a job that stands at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Node,
    Relay,
    Postgres,
    Redis,
    /// The answer of Redis that is due, after it took effect.
    Reply,
    /// The answer of Postgres to the commit, after it took effect.
    CommitReply,
}

const OF_A_NODE: [Step; 6] =
    [Step::Claimed, Step::InboxWritten, Step::Written, Step::InCommit, Step::Committed, Step::Settled];
const OF_A_RELAY: [Step; 3] = [Step::Read, Step::Enqueued, Step::Deleted];

fn matrix(victims: &[(Victim, &[Step])]) {
    let Some(mut shop) = Shop::open() else { return };
    let mut jobs = Vec::new();
    for (victim, steps) in victims {
        for step in *steps {
            let job = format!("{victim:?}-{step:?}");
            let hold = shop.hold(*step, &job, *victim == Victim::Reply);
            shop.enqueue(&job);
            shop.wait_held(&hold);
            match victim {
                Victim::Node => shop.kill_node(),
                Victim::Relay => shop.kill_relay(),
                Victim::Postgres => shop.kill_postgres(),
                Victim::Redis => shop.kill_redis(),
                Victim::Reply | Victim::CommitReply => {}
            }
            match victim {
                Victim::CommitReply => shop.lose_commit(hold, &job),
                _ => shop.let_go(hold),
            }
            shop.wait_applied(&job);
            jobs.push(job);
        }
    }
    // Whatever still comes late comes before this.
    shop.wait_quiet();
    let mut table =
        String::from("| victim | step | stock added, labels, inbox rows, outbox rows |\n|---|---|---|\n");
    for job in &jobs {
        shop.is_applied_once(job);
        table += &format!("| {} | {} |\n", job.replace('-', " | "), shop.changes(job).replace('|', ", "));
    }
    println!("{table}");
    let file = format!("{}/postgres-crashes-{:?}.md", env!("CARGO_TARGET_TMPDIR"), victims[0].0);
    std::fs::write(file, table).unwrap();
}

#[test]
fn kill_9_of_the_node_at_each_step() {
    matrix(&[(Victim::Node, &OF_A_NODE)]);
}

#[test]
fn kill_9_of_the_relay_at_each_step() {
    matrix(&[(Victim::Relay, &OF_A_RELAY)]);
}

#[test]
fn kill_9_of_postgres_at_each_step() {
    matrix(&[(Victim::Postgres, &OF_A_NODE), (Victim::Postgres, &OF_A_RELAY)]);
}

#[test]
fn kill_9_of_redis_at_each_step() {
    matrix(&[(Victim::Redis, &OF_A_NODE), (Victim::Redis, &OF_A_RELAY)]);
}

#[test]
fn answers_that_are_lost_after_they_took_effect() {
    matrix(&[(Victim::Reply, &[Step::Settled, Step::Enqueued]), (Victim::CommitReply, &[Step::InCommit])]);
}

/// A node is stopped in the middle of a transaction, loses its leases, and goes on while its successor waits for it: the
/// first commits, and the successor hears of it.
#[test]
fn a_frozen_node_that_goes_on_in_time_commits_and_its_successor_does_not() {
    let Some(mut shop) = Shop::open() else { return };
    let hold = shop.hold(Step::Written, "frozen", false);
    shop.enqueue("frozen");
    shop.wait_held(&hold);
    shop.freeze_node();
    shop.let_go(hold);
    shop.wait_for_rival();
    shop.thaw();
    shop.wait_applied("frozen");
    shop.wait_quiet();
    shop.is_applied_once("frozen");
}

/// The same, and it goes on too late: Postgres has ended its transaction, and the successor has done the work.
#[test]
fn a_frozen_node_that_goes_on_too_late_commits_nothing() {
    let Some(mut shop) = Shop::open_with(2000) else { return };
    let hold = shop.hold(Step::Written, "frozen", false);
    shop.enqueue("frozen");
    shop.wait_held(&hold);
    shop.freeze_node();
    shop.let_go(hold);
    shop.wait_applied("frozen");
    shop.thaw();
    // The one that was frozen works again, on a job of its own or another's.
    for job in ["next 1", "next 2", "next 3"] {
        shop.enqueue(job);
        shop.wait_applied(job);
    }
    shop.wait_quiet();
    shop.is_applied_once("frozen");
}

/// One that never ends at a hold would prove nothing.
#[test]
fn a_hold_holds() {
    let Some(shop) = Shop::open() else { return };
    let hold = shop.hold(Step::Written, "held", false);
    shop.enqueue("held");
    shop.wait_held(&hold);
    assert!(matches!(hold, Hold::Lock(_)));
    assert_eq!(shop.changes("held"), "");
    shop.let_go(hold);
    shop.wait_applied("held");
}
