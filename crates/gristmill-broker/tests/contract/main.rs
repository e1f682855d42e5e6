//! What the broker promises, asked of real servers: every test runs on every flavor that is installed, and says loudly
//! which one is not.
//!
//! * `fixture`: a private server with one queue, and short words for what tests do with it.
//! * `replies`: every script's every reply, but those of settle.
//! * `settling`: every word of settle.
//! * `suspects`: suspicion, start marks and charges. `absolve`: who takes a charge back.
//! * `returned`: jobs that came back from the dead, keys that wait for a person. `census`: the count of both.
//! * `traces`: the traces that break a design without its guards, one test each (names as in the protocol's check).
//! * `late`: requests that arrive late, answers that get lost, failovers.
//! * `clock`: a Redis clock that was set back.
//! * `limits`: slots and tokens of limited kinds.
//! * `memory`: a server whose memory is full.
//! * `damage`: entries of foreign producers, and what a person deleted by hand.
//! * `schedules`: recurring jobs: define, fire, what people do with them, a clock that jumps.
//! * `dead`: dead letters, read page by page and discarded; the audit log.
//! * `delayed`: jobs for later.
//! * `people`: what people do with lanes that wait: replay, discard, release_key, skip.
//! * `cancel`: jobs that a person takes back, and jobs that expired.
//! * `pause`: what people pause, and until when.
//! * `purge`: what a person purges, and what becomes of its owner.
//! * `people_model`: the same on the model, at random.
//! * `waiting`: what a job waits for, as it is read for people.
//! * `unordered`: queues with ordering none. `grab_new`: what is new there. `unordered_claims`: what becomes of a claim that is laid
//!   down, lost, or made again.
//! * `connection`: what ends a connection, and what it says.
#![allow(clippy::unwrap_used, clippy::expect_used)] // the lint knows `#[test]` functions, not their helpers

mod absolve;
mod cancel;
mod census;
mod clock;
mod connection;
mod damage;
mod dead;
mod delayed;
mod fixture;
mod grab_new;
mod late;
mod limits;
mod look;
mod memory;
mod pause;
mod people;
mod people_model;
mod purge;
mod replies;
mod returned;
mod schedules;
mod settling;
mod suspects;
mod traces;
mod unordered;
mod unordered_claims;
mod waiting;
