//! length_limit: how many jobs each partition of a queue may hold; beyond it enqueue is refused.

use crate::error::CallError;
use crate::keys::QueueDefinition;
use crate::link::Connection;
use crate::reply::Words;
use crate::script::LENGTH_LIMIT;
use redis::Pipeline;

impl Connection {
    /// From now on each partition takes jobs only up to `jobs` that are ready, claimed or for later; 0 is no limit. What is there
    /// stays. False where there is no such queue.
    ///
    /// # Errors
    /// [`CallError`]; harmless to repeat.
    pub async fn set_length_limit(&self, queue: &QueueDefinition, jobs: u64) -> Result<bool, CallError> {
        let count = usize::from(queue.partitions);
        let mut pipeline = Pipeline::with_capacity(count);
        for partition in 0..queue.partitions {
            let mut script = LENGTH_LIMIT.call(&[queue.partition(partition).meta.as_bytes()]);
            script.arg(jobs);
            pipeline.add_command(script);
        }
        let mut there = true;
        for answer in self.many(pipeline, count).await? {
            let words = Words::read(answer, "the answer of length_limit")?;
            match words.tag() {
                "ok" => {}
                "no_queue" => there = false,
                _ => return Err(words.unknown("ok or no_queue")),
            }
        }
        Ok(there)
    }
}
