//! The crash matrix: nodes, relays, the handler in Python, Postgres and Redis are killed, and answers are lost, at each step of
//! a job from its claim to the end of the job that follows from it. Nothing is lost and nothing is applied twice; the tests
//! write what they saw as tables (`shop-crashes-*.md` in `target/tmp`).

use crate::world::{Hold, Plan, Shop, Step};

/// What is done to a job that stands at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Node,
    Relay,
    /// The handler in Python.
    Catalogue,
    Postgres,
    Redis,
    /// The answer of Redis that is due, after it took effect.
    Reply,
    /// The answer of Postgres that is due, after it took effect.
    PostgresReply,
}

const OF_A_NODE: [Step; 6] =
    [Step::Claimed, Step::InboxWritten, Step::Written, Step::InCommit, Step::Committed, Step::Settled];
const OF_A_RELAY: [Step; 3] = [Step::Read, Step::Enqueued, Step::Deleted];
const OF_THE_CATALOGUE: [Step; 5] = [
    Step::CatalogueClaimed,
    Step::CatalogueWritten,
    Step::CatalogueInCommit,
    Step::CatalogueCommitted,
    Step::CatalogueSettled,
];
const ANSWERED_BY_POSTGRES: [Step; 5] =
    [Step::InboxWritten, Step::Written, Step::InCommit, Step::Deleted, Step::CatalogueInCommit];

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
                Victim::Catalogue => shop.kill_catalogue(),
                Victim::Postgres => shop.kill_postgres(),
                Victim::Redis => shop.kill_redis(),
                Victim::Reply | Victim::PostgresReply => {}
            }
            match victim {
                Victim::PostgresReply => shop.lose_answer(*step, hold, &job),
                _ => shop.let_go(hold),
            }
            shop.wait_applied(&job);
            jobs.push(job);
        }
    }
    // Whatever still comes late comes before this.
    shop.wait_quiet();
    let mut table = String::from(
        "| victim | step | notes of product and catalogue, inbox rows of both, outbox rows |\n|---|---|---|\n",
    );
    for job in &jobs {
        shop.is_applied_once(job);
        table += &format!("| {} | {} |\n", job.replace('-', " | "), shop.changes(job).replace('|', ", "));
    }
    println!("{table}");
    let file = format!("{}/shop-crashes-{:?}.md", env!("CARGO_TARGET_TMPDIR"), victims[0].0);
    std::fs::write(file, table).unwrap();
}

#[test]
fn kill_9_of_the_node_at_each_step() {
    matrix(&[(Victim::Node, &OF_A_NODE)]);
}

#[test]
fn kill_9_of_the_node_at_each_step_of_a_handler_that_is_not_its_own() {
    matrix(&[(Victim::Node, &OF_THE_CATALOGUE)]);
}

#[test]
fn kill_9_of_the_handler_in_python_at_each_step() {
    matrix(&[(Victim::Catalogue, &OF_THE_CATALOGUE[..3])]);
}

#[test]
fn kill_9_of_the_relay_at_each_step() {
    matrix(&[(Victim::Relay, &OF_A_RELAY)]);
}

#[test]
fn kill_9_of_postgres_at_each_step() {
    matrix(&[
        (Victim::Postgres, &OF_A_NODE),
        (Victim::Postgres, &OF_A_RELAY),
        (Victim::Postgres, &OF_THE_CATALOGUE),
    ]);
}

#[test]
fn kill_9_of_redis_at_each_step() {
    matrix(&[
        (Victim::Redis, &OF_A_NODE),
        (Victim::Redis, &OF_A_RELAY),
        (Victim::Redis, &OF_THE_CATALOGUE[3..]),
    ]);
}

#[test]
fn answers_that_are_lost_after_they_took_effect() {
    matrix(&[
        (Victim::Reply, &[Step::Settled, Step::Enqueued, Step::CatalogueSettled]),
        (Victim::PostgresReply, &ANSWERED_BY_POSTGRES),
    ]);
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
    let Some(mut shop) = Shop::open_with(Plan { idle_limit_ms: 2000, relay_inside: false }) else { return };
    let hold = shop.hold(Step::Written, "frozen", false);
    shop.enqueue("frozen");
    shop.wait_held(&hold);
    shop.freeze_node();
    shop.let_go(hold);
    shop.wait_applied("frozen");
    shop.thaw();
    // The one that was frozen works again, on a job of its own or another's.
    for job in ["next-1", "next-2", "next-3"] {
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
    assert_eq!(shop.changes("held"), "0|0|0|0|0");
    shop.let_go(hold);
    shop.wait_applied("held");
}
