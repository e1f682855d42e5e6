//! Everything around a job that waits or runs: its key, its partition, what is before it, and who serves its kind.

use crate::exit::Failure;
use crate::kinds::Served;
use gristmill_broker::dead::DeadFound;
use gristmill_broker::hung::HungRun;
use gristmill_broker::limit::{Holder, LimitView};
use gristmill_broker::locate::JobView;
use gristmill_broker::pause::{Pause, Target};
use gristmill_broker::survey::{Seen, Sought};
use gristmill_broker::waiting::HeldKey;
use gristmill_broker::{Connection, Mode, QueueDefinition};
use gristmill_job::{Envelope, Key, Place};
use std::time::Duration;

/// A number of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counted {
    pub(super) jobs: u64,
    /// Whether there may be more.
    pub(super) at_least: bool,
}

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let jobs = if self.jobs == 1 { "job" } else { "jobs" };
        write!(f, "{}{} {jobs}", if self.at_least { "at least " } else { "" }, self.jobs)
    }
}

/// A job and what is around it.
#[derive(Debug, Clone)]
pub(super) struct Around {
    pub(super) queue: QueueDefinition,
    pub(super) partition: u16,
    pub(super) job: JobView,
    /// Its kind, where its envelope can be read.
    pub(super) kind: Option<String>,
    /// Its version, where its envelope can be read.
    pub(super) version: Option<u64>,
    /// The hold of its key.
    pub(super) hold: Option<HeldKey>,
    /// Jobs of its key before it.
    pub(super) of_key: Counted,
    /// Jobs of its partition before it.
    pub(super) of_partition: Counted,
    /// The first job of its key, where that is another.
    pub(super) first: Option<JobView>,
    /// A run of it that holds a thread of a living node, and was given up there.
    pub(super) hung: Option<HungRun>,
    /// What is paused of its queue and stops it, or the first job of its key.
    pub(super) pauses: Vec<Pause>,
    /// How the limit of its kind stands, where it has one.
    pub(super) limit: Option<Limited>,
    /// Whether a living node serves its kind; `None` where that is not known.
    pub(super) served: Option<bool>,
    /// How long a claim stands unless its node says so again; `None` where that is not known.
    pub(super) visibility: Option<Duration>,
}

impl Around {
    pub(super) async fn look(
        connection: &Connection,
        queue: &QueueDefinition,
        partition: u16,
        job: &JobView,
        scan: u64,
    ) -> Result<Self, Failure> {
        let keys = queue.partition(partition);
        let sought = Sought { keys: vec![job.key.clone()], before: Some(job.place), ..Sought::default() };
        // Without order nothing is before it, and it waits for no other job.
        let ordered = queue.mode == Mode::Key;
        let seen = match ordered {
            true => connection.survey(&keys, &sought, scan).await?,
            false => Seen::default(),
        };
        let mut first = seen.first.first().copied().flatten();
        let (mut of_key, mut of_partition) = (seen.of_key.first().copied().unwrap_or_default(), seen.jobs);
        // Jobs that came back lie beside the stream and have their places in the same order.
        let mut cursor = ordered.then_some(0);
        while let Some(from) = cursor {
            let slice = connection.stored_lines(&keys, from).await?;
            for stored in slice.items.into_iter().filter(|stored| stored.returned && stored.place < job.place)
            {
                of_partition += 1;
                if stored.key.as_ref() == Some(&job.key) {
                    of_key += 1;
                    first = Some(first.map_or(stored.place, |first| first.min(stored.place)));
                }
            }
            cursor = (slice.next != 0).then_some(slice.next);
        }
        let first = match first {
            Some(place) => connection.job_at(&keys, place).await?,
            None => None,
        };
        let envelope = Envelope::decode(&job.envelope, usize::MAX).ok();
        let kind = envelope.as_ref().map(|envelope| envelope.kind.to_owned());
        let nodes = Served::look(connection, queue).await?;
        let served = kind.as_ref().and_then(|kind| nodes.serves(kind));
        let hung = connection.hung(&queue.name).await?.into_iter().find(|run| {
            let living = nodes.nodes.iter().any(|node| node == run.incarnation.as_str());
            living && (run.partition, run.place) == (partition, job.place)
        });
        let first_kind = first.as_ref().and_then(|first: &JobView| {
            Envelope::decode(&first.envelope, usize::MAX).ok().map(|envelope| envelope.kind.to_owned())
        });
        let (_, mut pauses) = connection.pauses(&queue.name).await?;
        pauses.retain(|pause| match &pause.target {
            Target::Queue => true,
            Target::Key(key) => *key == job.key,
            Target::Kind(paused) => Some(paused) == kind.as_ref() || Some(paused) == first_kind.as_ref(),
        });
        let limit = match &kind {
            Some(kind) => Limited::look(connection, queue, kind, job.key.as_bytes()).await?,
            None => None,
        };
        let at_least = seen.cut_short;
        Ok(Self {
            queue: queue.clone(),
            partition,
            hold: connection.hold_of(&keys, &job.key).await?,
            version: envelope.map(|envelope| envelope.version),
            kind,
            of_key: Counted { jobs: of_key, at_least },
            of_partition: Counted { jobs: of_partition, at_least },
            first,
            hung,
            pauses,
            limit,
            served,
            visibility: None,
            job: job.clone(),
        })
    }
}

/// How the limit of a kind stands.
#[derive(Debug, Clone)]
pub(super) struct Limited {
    pub(super) view: LimitView,
    /// Runs that have a slot, the first to lapse first; not all of them, where they are many.
    pub(super) holders: Vec<Holder>,
    pub(super) running: u64,
    /// Until the rate has its next token; `None` where it has one.
    pub(super) rate: Option<Duration>,
}

/// Holders of a limit that are read.
const HOLDERS: usize = 200;

impl Limited {
    async fn look(
        connection: &Connection,
        queue: &QueueDefinition,
        kind: &str,
        key: &[u8],
    ) -> Result<Option<Self>, Failure> {
        let limits = connection.limits(&queue.name).await?;
        let Some(view) = limits.into_iter().find(|limit| limit.kind == kind) else { return Ok(None) };
        let (holders, running, _) = connection.holders(&queue.name, kind, HOLDERS).await?;
        let rate = connection.rate_wait(&queue.name, &view, key).await?;
        Ok(Some(Self { view, holders, running, rate }))
    }
}

/// What lies beside a dead letter.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside {
    /// Whether it holds the key of its job; `None` where its record cannot tell.
    pub(super) holds: Option<bool>,
    /// The size of the envelope it had before a person edited it, in bytes; `None` if nobody did.
    pub(super) original_bytes: Option<u64>,
}

impl Beside {
    pub(super) async fn look(
        connection: &Connection,
        queue: &QueueDefinition,
        found: &DeadFound,
    ) -> Result<Self, Failure> {
        let Ok(letter) = &found.letter else { return Ok(Self::default()) };
        let keys = queue.partition(found.position.partition);
        let hold = connection.hold_of(&keys, &Key::from_stored(letter.key.clone().into())).await?;
        let original = match Place::parse(letter.place.as_bytes()) {
            Some(place) => connection.original(&keys, place).await?,
            None => None,
        };
        Ok(Self {
            holds: Some(hold.is_some_and(|hold| hold.letter.as_bytes() == found.position.id)),
            original_bytes: original.map(|original| original.len() as u64),
        })
    }
}
