//! load: reads jobs again that their owner has parked, by place, wherever they lie. A plain read: the claims stay as they are.

use crate::entry::{self, Entry};
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply;
use crate::returned::Returned;
use crate::state::JobState;
use gristmill_job::Place;
use redis::{Pipeline, Value};

impl Connection {
    /// The jobs at `places`, in that order; `None` for one that is nowhere any more. What is stored about them
    /// is read with them.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn load(
        &self,
        keys: &PartitionKeys,
        places: &[Place],
    ) -> Result<Vec<(Place, Option<Entry>)>, CallError> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(places.len() + 3);
        for place in places {
            let place = place.to_string();
            pipeline.cmd("XRANGE").arg(&keys.stream).arg(&place).arg(&place);
        }
        let names: Vec<String> = places.iter().map(Place::to_string).collect();
        pipeline.cmd("HMGET").arg(&keys.state).arg(&names);
        pipeline.cmd("HMGET").arg(&keys.returned_bodies).arg(&names);
        pipeline.cmd("TIME");
        let mut answers = self.timed("load", self.many(pipeline, places.len() + 3)).await?;
        let time = reply::list(answers.pop().unwrap_or(Value::Nil), "the time")?;
        let now_ms = match &time[..] {
            [seconds, micros] => {
                reply::number(seconds.clone())? * 1000 + reply::number(micros.clone())? / 1000
            }
            _ => return Err(CallError::Unexpected("expected seconds and microseconds of TIME".into())),
        };
        let records = reply::list(answers.pop().unwrap_or(Value::Nil), "returned jobs")?;
        let lines = reply::list(answers.pop().unwrap_or(Value::Nil), "state lines")?;
        let mut loaded = Vec::with_capacity(places.len());
        for (((place, rows), record), line) in places.iter().zip(answers).zip(records).zip(lines) {
            let state = match line {
                Value::Nil => JobState::default(),
                line => JobState::parse(&reply::bytes(line)?, now_ms),
            };
            let entry = match (entry::read_all(rows)?.pop(), record) {
                (Some(entry), _) => Some(Entry { state, ..entry }),
                (None, Value::Nil) => None,
                (None, record) => Some(Returned::entry(&reply::bytes(record)?, *place, state)),
            };
            loaded.push((*place, entry));
        }
        Ok(loaded)
    }
}
