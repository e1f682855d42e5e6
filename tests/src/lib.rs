//! What the promise tests stand on: a private server, real node processes with scripted handlers, a producer, and the
//! history that the handlers write.
//!
//! * [`script`]: what a job tells its handler to do
//! * [`fleet`]: server, nodes, producer, expectations, in one value that stops everything when it is dropped

pub mod fleet;
pub mod script;
