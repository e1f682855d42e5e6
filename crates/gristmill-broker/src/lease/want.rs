//! want: asks the owner of a partition to hand it over. The wish names its maker and ends by itself.

use crate::error::CallError;
use crate::fence::Incarnation;
use crate::keys::PartitionKeys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::reply::Words;
use crate::script::WANT;
use redis::Value;
use std::time::Duration;

/// What a wish answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The owner will see it with its next renewal.
    Noted,
    /// Nobody holds it: acquire.
    Free,
    /// It is mine.
    Mine,
    /// Another wish stands.
    By(Incarnation),
}

impl Connection {
    /// Wants a partition for `stands_for`.
    ///
    /// # Errors
    /// [`CallError`]; a wish whose answer is lost is simply made again.
    pub async fn want(
        &self,
        keys: &PartitionKeys,
        incarnation: &Incarnation,
        stands_for: Duration,
    ) -> Result<Wanted, CallError> {
        let mut script = WANT.call(&[keys.lease.as_bytes(), keys.stream.as_bytes()]);
        script.arg(incarnation.as_str()).arg(millis(stands_for));
        read(self.timed("want", self.one(script)).await?)
    }
}

fn read(value: Value) -> Result<Wanted, CallError> {
    let mut words = Words::read(value, "the answer of want")?;
    Ok(match words.tag() {
        "wanted" => Wanted::Noted,
        "free" => Wanted::Free,
        "mine" => Wanted::Mine,
        "wanted_by" => Wanted::By(Incarnation::from_stored(&words.next_text()?)),
        _ => return Err(words.unknown("wanted, free, mine or wanted_by")),
    })
}
