//! What a node tells of the partitions of one queue: how they stand, and what became of runs.

use crate::partition::tenure::Standing;
use gristmill_job::QueueName;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::metrics::series::Gauge;
use gristmill_telemetry::tally::{OfQueue, Tally};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Of one queue; shared by its partitions.
pub(crate) struct Told {
    queue: Arc<OfQueue>,
    /// By the number of a [`Standing`]; there is none for those that are another's.
    partitions: [Option<Arc<Gauge>>; 4],
}

impl Told {
    pub(crate) fn new(
        telemetry: &Telemetry,
        queue: &QueueName,
        kinds: impl Iterator<Item = &'static str>,
    ) -> Arc<Self> {
        let gauge = |state: &str| {
            let gauge = telemetry.metrics().partitions.with(&[queue.as_str(), state]);
            gauge.set(0.0);
            Some(gauge)
        };
        Arc::new(Self {
            queue: OfQueue::new(telemetry.metrics(), queue.as_str(), kinds),
            partitions: [None, gauge("recovering"), gauge("owned"), gauge("handing_over")],
        })
    }

    /// Where a partition counts its runs.
    pub(crate) fn tally(&self) -> Tally {
        Tally::new(self.queue.clone())
    }

    /// A partition stands otherwise.
    pub(crate) fn stands(&self, before: &StandsAt, now: Standing) {
        let was = before.0.swap(now as u8, Ordering::Relaxed);
        if was == now as u8 {
            return;
        }
        let gauge = |number: u8| self.partitions.get(usize::from(number)).and_then(Option::as_deref);
        if let Some(gauge) = gauge(was) {
            gauge.add(-1.0);
        }
        if let Some(gauge) = gauge(now as u8) {
            gauge.add(1.0);
        }
    }
}

/// How a partition stood last. It outlives the actor, so that one that is started again is not counted twice.
#[derive(Debug, Default)]
pub(crate) struct StandsAt(AtomicU8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_counted_where_it_stands_and_nowhere_else() {
        let telemetry = Telemetry::default();
        let told = Told::new(&telemetry, &QueueName::new("q").unwrap(), ["k"].into_iter());
        let shown = || {
            let of = |state| telemetry.metrics().partitions.with(&["q", state]).get();
            (of("recovering"), of("owned"), of("handing_over"))
        };
        let (one, other) = (StandsAt::default(), StandsAt::default());
        assert_eq!(shown(), (0.0, 0.0, 0.0));
        for (at, standing, expected) in [
            (&one, Standing::Recovering, (1.0, 0.0, 0.0)),
            (&one, Standing::Recovering, (1.0, 0.0, 0.0)),
            (&other, Standing::Owned, (1.0, 1.0, 0.0)),
            (&one, Standing::Owned, (0.0, 2.0, 0.0)),
            (&other, Standing::HandingOver, (0.0, 1.0, 1.0)),
            (&other, Standing::Idle, (0.0, 1.0, 0.0)),
        ] {
            told.stands(at, standing);
            assert_eq!(shown(), expected, "{standing:?}");
        }
    }
}
