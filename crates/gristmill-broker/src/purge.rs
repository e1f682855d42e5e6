//! purge: a person removes the waiting jobs of a partition, slice by slice ([`crate::purgeable`] names them). What its owner
//! held of them ends its tenure.

use crate::call::MAX_JOBS_PER_CALL;
use crate::delayed::Member;
use crate::error::CallError;
use crate::fence::{Epoch, Fence, Incarnation};
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::purgeable::Until;
use crate::reply::{self, Words};
use crate::script::PURGE;
use gristmill_job::{JobId, Place};

/// Rounds in which nothing of what lies beside a stream could be removed, after which it is left.
const IDLE_ROUNDS: usize = 3;

/// A job to be purged, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purge {
    /// In the stream, or back from the dead.
    At(Place, JobId),
    /// For later.
    Later(Member),
}

/// The lease of a partition, as it was read: empty where nobody ever had it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseSeen {
    /// Whose.
    pub owner: String,
    /// The last epoch, as it stands.
    pub epoch: String,
}

/// What became of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purged {
    /// For each job whether it was there.
    Done {
        /// In their order.
        jobs: Vec<bool>,
        /// Whether the owner held one of them, so that its tenure ended.
        tenure_ended: bool,
    },
    /// The lease is another's meanwhile: nothing was done.
    Changed(LeaseSeen),
}

impl Connection {
    /// Purges whatever waits in a partition and was there at `until`, slice by slice; `purged` hears of each. Beside running
    /// producers and consumers: what comes later stays. A job for later that becomes ready meanwhile may stay too.
    ///
    /// # Errors
    /// [`CallError`]; some of it is purged then, and the same may be asked again.
    pub async fn purge_waiting(
        &self,
        keys: &PartitionKeys,
        until: &Until,
        mut purged: impl FnMut(u64),
    ) -> Result<(), CallError> {
        let mut lease = self.purgeable(keys, None, Some(Place::ZERO)).await?.lease;
        let (mut passed, mut idle) = (0, 0);
        while idle < IDLE_ROUNDS {
            let (jobs, later) = self.purgeable_beside(keys, until, passed).await?;
            if jobs.is_empty() && later == 0 {
                break;
            }
            passed += later;
            match self.purge(keys, &lease, &jobs).await? {
                Purged::Done { jobs, .. } => {
                    let gone = jobs.iter().filter(|purged| **purged).count() as u64;
                    idle = if gone == 0 && later == 0 { idle + 1 } else { 0 };
                    purged(gone);
                    lease = self.purgeable(keys, None, Some(Place::ZERO)).await?.lease;
                }
                Purged::Changed(now) => lease = now,
            }
        }
        let mut after = None;
        loop {
            let slice = self.purgeable(keys, after, Some(until.place)).await?;
            let Some(Purge::At(last, _)) = slice.jobs.last() else { return Ok(()) };
            if let Purged::Done { jobs, .. } = self.purge(keys, &slice.lease, &slice.jobs).await? {
                purged(jobs.iter().filter(|purged| **purged).count() as u64);
                after = Some(*last);
            }
        }
    }

    /// Purges at most [`MAX_JOBS_PER_CALL`] jobs.
    ///
    /// # Errors
    /// [`CallError`]; may be repeated: what is gone is passed over.
    pub async fn purge(
        &self,
        keys: &PartitionKeys,
        lease: &LeaseSeen,
        jobs: &[Purge],
    ) -> Result<Purged, CallError> {
        debug_assert!(jobs.len() <= MAX_JOBS_PER_CALL);
        let gate = keys.gate(&Fence {
            incarnation: Incarnation::from_stored(&lease.owner),
            epoch: Epoch(lease.epoch.parse().unwrap_or_default()),
        });
        let mut script = PURGE.call_sized(9 + jobs.len(), 2 + 3 * jobs.len(), 128 * jobs.len());
        script.arg(&keys.lease).arg(&keys.stream).arg(&keys.state).arg(&keys.returned);
        script.arg(&keys.returned_bodies).arg(&keys.originals);
        script.arg(&keys.delayed).arg(&keys.delayed_bodies).arg(gate);
        for job in jobs {
            script.arg(keys.seen(job.id().as_bytes()));
        }
        script.arg(&lease.owner).arg(&lease.epoch);
        for job in jobs {
            match job {
                Purge::At(place, id) => script.arg("at").arg(place.to_string()).arg(id.as_bytes()),
                Purge::Later(member) => script.arg("later").arg(member.as_bytes()).arg(""),
            };
        }
        let mut words = Words::read(self.one(script).await?, "the answer of purge")?;
        match words.tag() {
            "ok" => {
                let jobs = words.next_answers(jobs.len(), |answer| match reply::text(answer)?.as_str() {
                    "purged" => Ok(true),
                    "gone" => Ok(false),
                    other => Err(CallError::Unexpected(format!("expected purged or gone, got {other:?}"))),
                })?;
                Ok(Purged::Done { jobs, tenure_ended: words.next_text()? == "1" })
            }
            "changed" => {
                Ok(Purged::Changed(LeaseSeen { owner: words.next_text()?, epoch: words.next_text()? }))
            }
            _ => Err(words.unknown("ok or changed")),
        }
    }
}

impl Purge {
    fn id(&self) -> JobId {
        match self {
            Self::At(_, id) => id.clone(),
            Self::Later(member) => member.id().0,
        }
    }
}
