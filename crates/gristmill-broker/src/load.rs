//! load: reads claimed jobs again that their owner has parked, by place. A plain read: the claims stay as they are.

use crate::entry::{self, Entry};
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use gristmill_job::Place;
use redis::Pipeline;

impl Connection {
    /// The jobs at `places`, in that order; `None` for one that is not in the stream any more. What is stored about them
    /// is not read: their owner knows it.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn load(
        &self,
        keys: &PartitionKeys,
        places: &[Place],
    ) -> Result<Vec<(Place, Option<Entry>)>, CallError> {
        let mut pipeline = Pipeline::with_capacity(places.len());
        for place in places {
            let place = place.to_string();
            pipeline.cmd("XRANGE").arg(&keys.stream).arg(&place).arg(&place);
        }
        let answers = self.many(pipeline, places.len()).await?;
        let read = |(place, rows): (&Place, _)| Ok((*place, entry::read_all(rows)?.pop()));
        places.iter().zip(answers).map(read).collect()
    }
}
