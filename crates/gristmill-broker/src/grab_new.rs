//! grab_new: claims jobs that nobody has claimed, of a queue with ordering none, without a script: where much waits, Lua would cost
//! as much again as the reading itself. What was handed back, [`grab`](super::grab) takes.
//!
//! `XREADGROUP` names two streams, the partition's and the open gate, which exists only where the ordering is none; Redis delivers
//! nothing if either is missing. The lines of what was claimed are read behind it, if there are any lines at all.

use crate::claim;
use crate::error::CallError;
use crate::fence::{Fence, Incarnation};
use crate::grab::Grabbed;
use crate::inspect;
use crate::keys::{GROUP, PartitionKeys};
use crate::link::Connection;
use crate::promote;
use crate::reply;
use crate::state::JobState;
use redis::{Pipeline, Value};

const READS: usize = 4;

impl Connection {
    /// Claims up to `count` new jobs, 1 to [`MAX_JOBS_PER_CALL`](crate::call::MAX_JOBS_PER_CALL); `delivered` is not told.
    /// Where the gate is closed, or the stream or its group is missing, it is a [`grab`](Self::grab), which opens it or says why
    /// not.
    ///
    /// # Errors
    /// [`CallError`]; what a call without an answer claimed comes back when its visibility timeout is over.
    pub async fn grab_new(
        &self,
        keys: &PartitionKeys,
        incarnation: &Incarnation,
        count: usize,
    ) -> Result<Grabbed, CallError> {
        let mut pipeline = Pipeline::with_capacity(READS);
        let read = pipeline.cmd("XREADGROUP").arg("GROUP").arg(GROUP);
        read.arg(Fence::unordered(incarnation).consumer()).arg("COUNT").arg(count);
        read.arg("STREAMS").arg(&keys.stream).arg(keys.open_gate()).arg(">").arg(">");
        pipeline.cmd("EXISTS").arg(&keys.state);
        pipeline.cmd("ZRANGE").arg(&keys.delayed).arg(0).arg(0).arg("WITHSCORES");
        pipeline.cmd("TIME");
        let answers = self.timed("grab", self.many(pipeline, READS)).await?;
        let Ok([read, lined, first, time]) = <[Value; READS]>::try_from(answers) else {
            return Err(CallError::Unexpected(format!("expected {READS} answers of a grab")));
        };
        if matches!(&read, Value::ServerError(error) if error.code() == "NOGROUP") {
            return self.grab(keys, incarnation, count).await;
        }
        let now = inspect::time(time)?;
        let mut entries = claim::entries(read)?;
        if !entries.is_empty() && reply::number(lined)? > 0 {
            let mut pipeline = Pipeline::with_capacity(1);
            let lines = pipeline.cmd("HMGET").arg(&keys.state);
            for entry in &entries {
                lines.arg(entry.place.to_string());
            }
            let lines = self.timed("grab", self.many(pipeline, 1)).await?.pop().unwrap_or(Value::Nil);
            for (entry, line) in entries.iter_mut().zip(reply::list(lines, "state lines")?) {
                if line != Value::Nil {
                    entry.state = JobState::parse(&reply::bytes(line)?, now.0);
                }
            }
        }
        // A key of another type holds none.
        let first = reply::list(first, "the first job for later").unwrap_or_default().pop();
        let next_due = first.map_or(Ok(None), promote::due_time)?;
        Ok(Grabbed::Jobs { entries, delivered: None, next_due, now })
    }
}
