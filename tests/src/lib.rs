//! What the promise tests stand on: a private server, real node processes with scripted handlers, a producer, and the
//! history that the handlers write.
//!
//! * [`script`]: what a job tells its handler to do
//! * [`handlers`]: handlers that do so, and write what they did
//! * [`servers`]: which servers a test runs on, and how a missing one is told
//! * [`fleet`]: server, nodes, producer, expectations, in one value that stops everything when it is dropped
//! * `look`: what it shows, and waiting until it does
//! * `people`: what people do to its dead letters and lanes
//! * `deaths`: nodes that die by their jobs, and are started again
//! * [`node`]: one node process, what it counts, and what it says when it leaves
//! * [`berth`]: at most two fleets live at a time, however many threads run tests

pub mod berth;
mod deaths;
pub mod fleet;
pub mod handlers;
mod look;
pub mod node;
mod people;
pub mod script;
pub mod servers;
