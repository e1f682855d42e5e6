//! extend: the visibility timeout of claims begins anew, as far as they are still this incarnation's.

use crate::call::MAX_JOBS_PER_CALL;
use crate::error::CallError;
use crate::fence::{Fence, Incarnation};
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::EXTEND;
use gristmill_job::{Place, UnixMillis};

/// What an extend answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extended {
    /// Those of the places that this incarnation does not claim any more.
    pub lost: Vec<Place>,
    /// Those that are, and that a person cancelled.
    pub cancelled: Vec<Place>,
    /// The Redis clock.
    pub now: UnixMillis,
}

impl Connection {
    /// Extends the claims of one partition at these places, at most [`MAX_JOBS_PER_CALL`], in ascending order.
    ///
    /// # Errors
    /// [`CallError`]; may be repeated.
    pub async fn extend(
        &self,
        keys: &PartitionKeys,
        incarnation: &Incarnation,
        places: &[Place],
    ) -> Result<Extended, CallError> {
        debug_assert!(places.len() <= MAX_JOBS_PER_CALL && places.is_sorted());
        let mut script = EXTEND.call(&[keys.stream.as_bytes(), keys.state.as_bytes()]);
        script.arg(Fence::unordered(incarnation).consumer());
        for place in places {
            script.arg(place.to_string());
        }
        let mut words = Words::read(self.timed("extend", self.one(script)).await?, "the answer of extend")?;
        if words.tag() != "ok" {
            return Err(words.unknown("ok"));
        }
        let now = UnixMillis(words.next_number()?);
        let lost = places_of(words.next(), "the places that are lost")?;
        let cancelled = places_of(words.next(), "the places that are cancelled")?;
        Ok(Extended { lost, cancelled, now })
    }
}

fn places_of(value: redis::Value, what: &str) -> Result<Vec<Place>, CallError> {
    let mut places = Vec::new();
    for place in reply::list(value, what)? {
        places.extend(Place::parse(&reply::bytes(place)?));
    }
    Ok(places)
}
