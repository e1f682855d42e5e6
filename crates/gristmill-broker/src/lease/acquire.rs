//! acquire: the exclusive right to a partition, if it is free, expired or already mine.

use crate::error::CallError;
use crate::fence::{Epoch, Fence, Incarnation};
use crate::keys::QueueDefinition;
use crate::link::Connection;
use crate::reply::Words;
use crate::script::ACQUIRE;
use redis::Value;
use std::time::Duration;

/// What an acquire is asked with.
#[derive(Debug, Clone)]
pub struct Acquire<'a> {
    /// The queue as its definition says.
    pub queue: &'a QueueDefinition,
    /// Which of its partitions.
    pub partition: u16,
    /// Who asks.
    pub incarnation: &'a Incarnation,
    /// For how long.
    pub ttl: Duration,
    /// The highest epoch this incarnation has held of this partition; the grant is above it.
    pub highest: Epoch,
    /// The owner before, as far as the caller knows.
    pub before: &'a Before,
}

/// The owner before, as the last answer told it, and the least epoch that may follow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Before {
    /// Its incarnation, empty if nobody.
    pub owner: String,
    /// Its epoch in digits, empty if there was none.
    pub epoch: String,
    /// The least epoch that may be granted now.
    pub least: u64,
}

/// What an acquire answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// Mine, in this epoch.
    Granted(Epoch),
    /// Another's.
    Held {
        /// Whose.
        owner: Incarnation,
        /// In which epoch.
        epoch: Epoch,
        /// Until it expires.
        left: Duration,
        /// Who wants it.
        wanted_by: Option<Incarnation>,
    },
    /// The owner before is another than the caller knew: ask again with this.
    Changed(Before),
    /// The partition does not exist; create the queue first.
    NoQueue,
    /// The queue was made with another number of partitions.
    Differs {
        /// The number it was made with.
        partitions: String,
    },
    /// The queue was made with ordering `none`: nobody owns its partitions.
    Unordered,
}

/// How far above the least epoch a grant is asked for, in ms: the clock moves on while the call is under way.
const EPOCH_SLACK_MS: u64 = 1000;

impl Acquire<'_> {
    /// The epoch this call asks for.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch((self.highest.0 + 1).max(self.before.least + EPOCH_SLACK_MS))
    }

    fn write(&self) -> redis::Cmd {
        let keys = self.queue.partition(self.partition);
        let epoch = self.epoch();
        let before = Fence {
            incarnation: Incarnation::from_stored(&self.before.owner),
            epoch: Epoch(self.before.epoch.parse().unwrap_or_default()),
        };
        let mine = Fence { incarnation: self.incarnation.clone(), epoch };
        let (closes, opens) = (keys.gate(&before), keys.gate(&mine));
        let mut script = ACQUIRE.call(&[
            keys.lease.as_bytes(),
            keys.meta.as_bytes(),
            keys.stream.as_bytes(),
            &closes,
            &opens,
        ]);
        script.arg(self.incarnation.as_str()).arg(millis(self.ttl)).arg(self.queue.partitions);
        script.arg(epoch.0).arg(&self.before.owner).arg(&self.before.epoch);
        script
    }
}

fn read(value: Value) -> Result<Acquired, CallError> {
    let mut words = Words::read(value, "the answer of acquire")?;
    Ok(match words.tag() {
        "granted" => Acquired::Granted(Epoch(words.next_number()?)),
        "held" => Acquired::Held {
            owner: Incarnation::from_stored(&words.next_text()?),
            epoch: Epoch(words.next_number()?),
            left: Duration::from_millis(words.next_number()?),
            wanted_by: Some(words.next_text()?)
                .filter(|w| !w.is_empty())
                .map(|w| Incarnation::from_stored(&w)),
        },
        "changed" => Acquired::Changed(Before {
            owner: words.next_text()?,
            epoch: words.next_text()?,
            least: words.next_number()?,
        }),
        "no_queue" => Acquired::NoQueue,
        "differs" => Acquired::Differs { partitions: words.next_text()? },
        "unordered" => Acquired::Unordered,
        _ => return Err(words.unknown("granted, held, changed, no_queue, differs or unordered")),
    })
}

impl Connection {
    /// One call of acquire. Repeating it is harmless: a second grant has a new epoch.
    ///
    /// # Errors
    /// [`CallError`]; after an unknown answer the lease may be mine in an epoch I do not know, which only costs a rebuild.
    pub async fn acquire(&self, acquire: &Acquire<'_>) -> Result<Acquired, CallError> {
        read(self.timed("acquire", self.one(acquire.write())).await?)
    }
}

/// Whole milliseconds, for scripts.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
