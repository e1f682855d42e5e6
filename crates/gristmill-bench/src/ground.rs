//! What scenarios stand on: the plan, a runtime for the parent's own loops, servers.

use crate::failure::Outcome;
use crate::jobs::{Ids, Workload, queue};
use crate::plan::Plan;
use bytes::Bytes;
use gristmill_testkit::server::{Appendonly, Server, ServerOptions};
use std::time::Duration;
use tokio::runtime::Runtime;

/// One run of the bench.
pub(crate) struct Ground {
    pub(crate) plan: Plan,
    runtime: Runtime,
}

impl Ground {
    pub(crate) fn new(plan: &Plan) -> Outcome<Self> {
        // One thread: the client's part of the two cores; the other is the server's.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { plan: plan.clone(), runtime })
    }

    /// A private server. Nothing is written to disk unless `appendonly` says so; its file is not rewritten meanwhile.
    pub(crate) fn server(&self, appendonly: Appendonly) -> Outcome<Server> {
        let options = ServerOptions::new().appendonly(appendonly).line("auto-aof-rewrite-percentage 0");
        Ok(Server::start(options)?)
    }

    /// Runs a client's loop to its end.
    pub(crate) fn run<T>(&self, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        self.runtime.block_on(work)
    }

    /// The jobs of this plan.
    pub(crate) fn workload(&self, ids: Ids) -> Outcome<Workload> {
        let payload: Vec<u8> = (0..self.plan.payload_bytes).map(|_| rand::random()).collect();
        Ok(Workload {
            queue: queue(self.plan.partitions)?,
            ids,
            prefix: "key",
            keys: self.plan.keys,
            payload: Bytes::from(payload),
            trace_context: self.plan.trace_context,
        })
    }

    /// Lets time pass: the pace of samples and the moment of a kill are what is measured here.
    pub(crate) fn pause(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
