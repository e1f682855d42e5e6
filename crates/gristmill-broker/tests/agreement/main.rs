//! The model and a real server are asked the same random things and must agree in every answer and in what lies there
//! at the end.
//!
//! * `plan`: what may be asked, and how it is drawn. Indexes, not names, so that a failure shrinks to what matters.
//! * `both`: asks both sides and compares the answers.
//! * `acts`: what needs no lease: a job comes back from the dead, a run is absolved, something is written by hand.
//! * `recurring`: schedules: their definitions, their slots, and what people do with them.
//! * `unordered`: the same for queues with ordering none, compared after each call.
//! * `given`: places and epochs differ between them (they come from clocks a few microseconds apart) and are compared
//!   by the order in which they were given.
//! * `written`: a planned call as each side is sent it.
//! * `heard`: counts the words of the answers.
//! * `end`: compares everything that is stored.
//!
//! `GRISTMILL_CASES` sets how many sequences are tried, `GRISTMILL_SEED` repeats a run.

#![allow(clippy::unwrap_used)] // the whole crate is a test

mod acts;
mod both;
mod end;
mod given;
mod heard;
mod plan;
mod recurring;
mod unordered;
mod written;

use both::Both;
use gristmill_broker::Mode;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_testkit::server::{Server, ServerOptions};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::sync::Mutex;

const CASES: u32 = 2000;
/// Most rounds of so many.
const ROUNDS: usize = 4;

/// Every word that must have been heard for the run to mean something.
const WORDS: &[&str] = &[
    "create:ok",
    "create:differs",
    "accepted:at",
    "accepted:at, anew",
    "accepted:before",
    "accepted:duplicate waiting",
    "accepted:duplicate applied",
    "accepted:duplicate stale",
    "accepted:duplicate expired",
    "accepted:duplicate dead",
    "accepted:delayed",
    "accepted:duplicate delayed",
    "enqueue:too_far",
    "promote:answered",
    "promote:refused",
    "promote:unguarded",
    "promote:moved",
    "promote:moved many",
    "promote:more",
    "promote:next",
    "promote:nothing",
    "enqueue:no_queue",
    "enqueue:differs",
    "enqueue:full",
    "acquire:granted",
    "acquire:held",
    "acquire:changed",
    "acquire:no_queue",
    "want:noted",
    "want:free",
    "want:mine",
    "want:by",
    "renew:ok",
    "renew:wanted",
    "renew:refused fenced",
    "renew:refused gap",
    "claim:claimed",
    "claim:already",
    "claim:refused fenced",
    "claim:refused gap",
    "recover:recovered",
    "recover:already",
    "recover:more",
    "recover:of another",
    "recover:handed back",
    "recover:unsuspected",
    "recover:marked still",
    "recover:charged",
    "recover:weak",
    "recover:strong",
    "come_back",
    "take:taken",
    "take:already",
    "take:refused",
    "take:more",
    "take:held",
    "take:unsuspected",
    "take:marked still",
    "take:charged",
    "take:weak",
    "take:strong",
    "start:answered",
    "start:refused",
    "marked:started",
    "marked:gone",
    "marked:at_turn",
    "census:counted",
    "census:already",
    "census:refused",
    "census:holds removed",
    "census:lines removed",
    "census:returned",
    "absolve:absolved",
    "absolve:nothing",
    "absolve:mine",
    "load:there",
    "load:returned",
    "load:nowhere",
    "settle:first",
    "settle:repeat",
    "settled:done",
    "settled:stale",
    "settled:duplicate",
    "settled:discarded",
    "settled:cancelled",
    "settled:expired",
    "cancel:cancelled",
    "purge:purged",
    "purge:gone",
    "purge:tenure ended",
    "purge:tenure goes on",
    "purge:changed",
    "cancel:asked",
    "cancel:delayed",
    "cancel:delayed, and no more",
    "cancel:not_waiting",
    "take:asked",
    "settled:retried",
    "settled:dead",
    "settled:gone",
    "settled:at_turn",
    "settled:rejected",
    "discard:discarded, and its mark",
    "discard:discarded, and no mark",
    "discard:gone",
    "hand_back:done",
    "hand_back:refused gap",
    "forward:done",
    "release:done",
    "define:stands",
    "define:paused",
    "define:other",
    "define:tell",
    "define:no_queue",
    "fire:fired",
    "fire:passed",
    "fire:overlaps",
    "fire:before",
    "fire:already",
    "fire:unknown",
    "fire:other",
    "fire:moved",
    "fire:paused",
    "fire:behind",
    "fire:early",
    "fire:full",
    "fire:no_queue",
    "fire:differs",
    "pause_schedule:paused",
    "pause_schedule:already",
    "resume_schedule:resumed",
    "resume_schedule:nothing",
    "remove_schedule:removed",
    "remove_schedule:stands",
    "remove_schedule:nothing",
];

/// Asks random sequences of both sides, and answers which words were heard how often.
fn run<T: std::fmt::Debug>(
    mode: Mode,
    sequences: impl Strategy<Value = Vec<T>>,
    words: &[&str],
    mut ask: impl AsyncFnMut(&mut Both, &[T]) -> Result<(), String>,
) {
    let seed = seed();
    let cases = match std::env::var("GRISTMILL_CASES") {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("GRISTMILL_CASES: expected a number, got {text:?}"))
        }
        Err(_) => CASES,
    };
    let server = Server::start(ServerOptions::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut both = runtime.block_on(Both::open(&server, mode));
    let mut rng = SplitMix64::new(seed);
    let heard = Mutex::new(BTreeMap::new());
    let sides = Mutex::new((&mut both, &mut ask));
    // Some words are rare: while one has not been heard, there are more sequences.
    for round in 1..=ROUNDS {
        let bytes: Vec<u8> = (0..4).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let config = Config { cases, failure_persistence: None, max_shrink_iters: 3000, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let result = runner.run(&sequences, |operations| {
            let (both, ask) = &mut *sides.lock().unwrap();
            let outcome = runtime.block_on(async {
                ask(both, &operations).await?;
                end::compare(both).await
            });
            let mut heard = heard.lock().unwrap();
            for word in both.heard.drain(..) {
                *heard.entry(word).or_insert(0u64) += 1;
            }
            outcome.map_err(TestCaseError::fail)
        });
        if let Err(failure) = result {
            panic!("seed {seed:#x}, round {round}: {failure}");
        }
        let heard = heard.lock().unwrap();
        eprintln!("{cases} sequences, round {round}, answers heard: {heard:?}");
        let missing: Vec<_> = words.iter().filter(|word| !heard.contains_key(**word)).collect();
        if cases < CASES || missing.is_empty() {
            return;
        }
        assert!(round < ROUNDS, "never heard, so not compared: {missing:?}");
    }
}

#[test]
fn the_model_and_redis_agree_on_random_sequences() {
    run(Mode::Key, plan::sequence(), WORDS, async |both, operations| {
        both.begin().await?;
        for operation in operations {
            for step in both.steps(operation) {
                both.ask(&step).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn the_model_and_redis_agree_where_there_is_no_order() {
    run(Mode::None, unordered::plan::sequence(), unordered::WORDS, async |both, operations| {
        both.begin_unordered().await?;
        for operation in operations {
            both.ask_unordered(operation).await?;
        }
        Ok(())
    });
}
