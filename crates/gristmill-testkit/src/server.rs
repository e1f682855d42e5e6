//! Private servers: each with its own directory and port on 127.0.0.1, gone when the value is dropped.
//!
//! * `flavor`: which servers there are and where their programs come from
//! * `options`: how one is configured
//! * `certificates`: what a TLS server shows and what its clients trust
//! * `clock`: a clock that the test sets while the server runs
//! * `port`: a port that stays ours while the server is down
//! * `resp`: a tiny blocking client to set up and look
//! * `running`: start, pause, kill, restart, roll back · `startup`: the process, and when it is ready
//! * `snapshot`: a copy of the data, to start or roll back from

mod certificates;
mod clock;
mod flavor;
mod options;
pub(crate) mod port;
mod resp;
mod running;
pub(crate) mod snapshot;
mod startup;

pub use flavor::Flavor;
pub use options::{Appendonly, ServerOptions};
pub use resp::{Connection, Reply};
pub use running::Server;
pub use snapshot::Snapshot;
