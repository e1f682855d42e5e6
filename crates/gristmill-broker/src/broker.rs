//! The producer's handle: a cheap clone over one link. Its methods are the table of contents of what needs no lease.

use crate::call::{MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL};
use crate::create::CreateError;
use crate::delayed::Member;
use crate::enqueue::{Accepted, EnqueueAnswer};
use crate::error::CallError;
use crate::keys::QueueDefinition;
use crate::link::{Connection, Link, RedisConfig};
use gristmill_job::{
    EncodeError, EncodedJob, JobId, JobLimits, NewJob, Place, QueueName, UnixMillis, partition_of,
};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::others::EnqueueRepeated;
use gristmill_telemetry::trace::sending::Sending;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Jobs in, questions about queues out.
#[derive(Debug, Clone)]
pub struct Broker {
    link: Link,
    known: Arc<Mutex<HashMap<QueueName, QueueDefinition>>>,
    limits: JobLimits,
    patience: Duration,
    telemetry: Telemetry,
}

/// What became of one job that was enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enqueued {
    /// Its id: the producer's, or the one we made.
    pub id: JobId,
    /// Its place; `None` where it was accepted by a call whose answer was lost, is for later, or is a duplicate.
    pub place: Option<Place>,
    /// What names it in `delayed` until it is due, where it was enqueued for later.
    pub delayed: Option<Member>,
    /// How the first job of this id stands, if this one was absorbed as its duplicate.
    pub duplicate_of: Option<String>,
}

/// Why jobs were not enqueued, or may not have been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueError {
    /// A job that cannot be encoded. Nothing was sent.
    #[error("job {index} of the call: {error}")]
    Encode {
        /// Which job, from 0.
        index: usize,
        /// What is wrong with it.
        error: EncodeError,
    },
    /// There is no such queue.
    #[error("there is no queue {0}; start a node that serves it, or create it")]
    NoQueue(QueueName),
    /// The queue was made with another number of partitions than this producer read; it was deleted and made again.
    #[error("queue {queue} now has {partitions} partitions")]
    Differs {
        /// Which.
        queue: QueueName,
        /// How many it has.
        partitions: String,
    },
    /// A partition is at its length limit.
    #[error("a partition of queue {queue} is at its limit of {limit} jobs; slow down and try again")]
    Full {
        /// Which.
        queue: QueueName,
        /// Jobs per partition.
        limit: String,
    },
    /// A job is due further away than queues take; nothing of its call was enqueued.
    #[error(
        "expected due times within ten years, got {due:?} for a job of queue {queue}; times are in milliseconds (since 1970, \
         if absolute)"
    )]
    TooFar {
        /// Which queue.
        queue: QueueName,
        /// As it was sent.
        due: String,
    },
    /// Redis refused or did not answer in the time allowed.
    #[error("{0} (jobs with ids of their own can be enqueued again safely)")]
    Call(#[from] CallError),
}

impl EnqueueError {
    /// A word for it, for metrics and spans.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Encode { .. } => "not_encodable",
            Self::NoQueue(_) => "no_queue",
            Self::Differs { .. } => "queue_changed",
            Self::Full { .. } => "queue_full",
            Self::TooFar { .. } => "too_far",
            Self::Call(_) => "redis",
        }
    }
}

impl Broker {
    /// A broker on a connection of its own, kept alive on the current runtime.
    #[must_use]
    pub fn connect(config: RedisConfig) -> Self {
        let telemetry = config.telemetry.clone();
        Self { telemetry, ..Self::over(Link::start(config, "producer")) }
    }

    /// A broker over a link that is there already.
    #[must_use]
    pub fn over(link: Link) -> Self {
        Self {
            link,
            known: Arc::default(),
            limits: JobLimits::default(),
            patience: Duration::from_secs(10),
            telemetry: Telemetry::default(),
        }
    }

    /// With another longest time for one call in all, its repeats included (default 10 s).
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Tells here what becomes of jobs that are enqueued.
    #[must_use]
    pub fn telling(mut self, telemetry: Telemetry) -> Self {
        self.telemetry = telemetry;
        self
    }

    /// The current connection, once there is one.
    ///
    /// # Errors
    /// [`CallError::NotConnected`] when there is none within the patience.
    pub async fn connection(&self) -> Result<Connection, CallError> {
        tokio::time::timeout(self.patience, self.link.connected()).await.map_err(|_| {
            CallError::NotConnected(format!("none within {} s; is Redis reachable?", self.patience.as_secs()))
        })
    }

    /// Makes a queue, or confirms that it is there as described.
    ///
    /// # Errors
    /// [`CreateError::Differs`] where it exists otherwise.
    pub async fn create(&self, queue: &QueueDefinition) -> Result<(), CreateError> {
        self.connection().await?.create(queue).await?;
        self.remember(queue.clone());
        Ok(())
    }

    fn remember(&self, queue: QueueDefinition) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(queue.name.clone(), queue);
    }

    fn forget(&self, queue: &QueueName) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(queue);
    }

    async fn definition(&self, name: &QueueName) -> Result<QueueDefinition, EnqueueError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some(queue) = known {
            return Ok(queue);
        }
        let found = self.connection().await?.definition(name).await?;
        let queue = found.ok_or_else(|| EnqueueError::NoQueue(name.clone()))?;
        self.remember(queue.clone());
        Ok(queue)
    }

    /// Enqueues one job.
    ///
    /// # Errors
    /// [`EnqueueError`]. After [`EnqueueError::Call`] the job may be in the queue.
    pub async fn enqueue(&self, queue: &QueueName, job: NewJob) -> Result<Enqueued, EnqueueError> {
        let mut answers = self.enqueue_all(queue, std::slice::from_ref(&job)).await?;
        answers.pop().ok_or_else(|| {
            EnqueueError::Call(CallError::Unexpected("expected one answer for one job, got none".into()))
        })
    }

    /// Enqueues many jobs, with as few calls as their partitions allow; the order of jobs of one key is kept. Not
    /// atomic: when it fails, some of them may be in the queue. The answers are in the order of `jobs`.
    ///
    /// # Errors
    /// [`EnqueueError`]; nothing is sent if one of the jobs cannot be encoded.
    pub async fn enqueue_all(
        &self,
        queue: &QueueName,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let now = UnixMillis::from_system(SystemTime::now());
        let mut encoded = Vec::with_capacity(jobs.len());
        let mut sendings = Vec::new();
        for (index, job) in jobs.iter().enumerate() {
            let job = match self.telemetry.traces() {
                None => job.encode(now, self.limits),
                Some(traces) => {
                    let mut headers = job.headers.clone();
                    sendings.push(traces.send(queue, job.kind.as_str(), &mut headers, None));
                    NewJob { headers, ..job.clone() }.encode(now, self.limits)
                }
            };
            encoded.push(job.map_err(|error| EnqueueError::Encode { index, error })?);
        }
        let answers = self.enqueue_each(queue, encoded).await?;
        self.sent(sendings, &answers);
        answers.into_iter().collect()
    }

    /// Tells what became of jobs that were traced on their way; `sendings` are in the order of the answers.
    pub fn sent(&self, sendings: Vec<Option<Sending>>, answers: &[Result<Enqueued, EnqueueError>]) {
        let Some(traces) = self.telemetry.traces() else { return };
        for (sending, answer) in sendings.into_iter().zip(answers) {
            if let Some(sending) = sending {
                traces.sent(
                    sending,
                    match answer {
                        Ok(enqueued) => Ok((enqueued.id.to_string(), enqueued.place)),
                        Err(error) => Err((error.as_str(), error.to_string())),
                    },
                );
            }
        }
    }

    /// Enqueues jobs that are encoded already, as [`Broker::enqueue_all`] does.
    ///
    /// # Errors
    /// [`EnqueueError`].
    pub async fn enqueue_encoded(
        &self,
        queue: &QueueName,
        jobs: Vec<EncodedJob>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        self.enqueue_each(queue, jobs).await?.into_iter().collect()
    }

    /// The same, with an answer for each job, in their order: a full partition does not hide what became of the jobs of
    /// others. Behind a job that failed, the later ones of its partition fail with the same error; after
    /// [`EnqueueError::Call`] each of them may be in the queue.
    ///
    /// # Errors
    /// [`EnqueueError`] where the queue is not found at all; nothing was sent.
    pub async fn enqueue_each(
        &self,
        queue: &QueueName,
        jobs: Vec<EncodedJob>,
    ) -> Result<Vec<Result<Enqueued, EnqueueError>>, EnqueueError> {
        let definition = self.definition(queue).await?;
        let mut answers: Vec<Option<Result<Enqueued, EnqueueError>>> = vec![None; jobs.len()];
        let mut by_partition: BTreeMap<u16, Vec<(usize, EncodedJob)>> = BTreeMap::new();
        for (index, job) in jobs.into_iter().enumerate() {
            let partition = partition_of(job.key.as_bytes(), definition.partitions);
            by_partition.entry(partition).or_default().push((index, job));
        }
        // Calls of one partition follow each other, so that a key keeps its order; partitions go side by side.
        let calls = by_partition.into_iter().map(|(partition, jobs)| self.fill(&definition, partition, jobs));
        for filled in futures_util::future::join_all(calls).await {
            for (index, enqueued) in filled {
                answers[index] = Some(enqueued);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    async fn fill(
        &self,
        queue: &QueueDefinition,
        partition: u16,
        jobs: Vec<(usize, EncodedJob)>,
    ) -> Vec<(usize, Result<Enqueued, EnqueueError>)> {
        let mut answers = Vec::with_capacity(jobs.len());
        let mut rest = jobs.as_slice();
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(jobs_of_one_call(rest.iter().map(|(_, job)| job)));
            rest = later;
            let indexes: Vec<usize> = chunk.iter().map(|(index, _)| *index).collect();
            let chunk: Vec<EncodedJob> = chunk.iter().map(|(_, job)| job.clone()).collect();
            let accepted = match self.until_answered(queue, partition, &chunk).await {
                Ok(accepted) => accepted,
                Err(error) => {
                    let unsent = later.iter().map(|(index, _)| *index);
                    answers
                        .extend(indexes.into_iter().chain(unsent).map(|index| (index, Err(error.clone()))));
                    return answers;
                }
            };
            for ((index, job), accepted) in indexes.into_iter().zip(chunk).zip(accepted) {
                let mut enqueued = Enqueued { id: job.id, place: None, delayed: None, duplicate_of: None };
                match accepted {
                    Accepted::At(place) => enqueued.place = Some(place),
                    Accepted::Delayed(member) => enqueued.delayed = Some(member),
                    Accepted::Before => {}
                    Accepted::Duplicate { standing } => enqueued.duplicate_of = Some(standing),
                }
                answers.push((index, Ok(enqueued)));
            }
        }
        answers
    }

    /// One call, repeated under its own id until it is answered or patience ends.
    async fn until_answered(
        &self,
        queue: &QueueDefinition,
        partition: u16,
        jobs: &[EncodedJob],
    ) -> Result<Vec<Accepted>, EnqueueError> {
        let keys = queue.partition(partition);
        let call_id = JobId::generate().to_string();
        let started = Instant::now();
        loop {
            let answer = match self.connection().await {
                Ok(connection) => connection.enqueue(&keys, queue.partitions, &call_id, jobs).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(EnqueueAnswer::Accepted(accepted)) => return Ok(accepted),
                Ok(EnqueueAnswer::NoQueue) => {
                    self.forget(&queue.name);
                    return Err(EnqueueError::NoQueue(queue.name.clone()));
                }
                Ok(EnqueueAnswer::Differs { partitions }) => {
                    self.forget(&queue.name);
                    return Err(EnqueueError::Differs { queue: queue.name.clone(), partitions });
                }
                Ok(EnqueueAnswer::Full { limit }) => {
                    return Err(EnqueueError::Full { queue: queue.name.clone(), limit });
                }
                Ok(EnqueueAnswer::TooFar { due, .. }) => {
                    return Err(EnqueueError::TooFar { queue: queue.name.clone(), due });
                }
                Err(error @ (CallError::Unknown | CallError::Lost(_) | CallError::Unserved(_)))
                    if started.elapsed() < self.patience =>
                {
                    self.telemetry.tell(&EnqueueRepeated { partition: u64::from(partition), error: &error });
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// How many of these jobs go into one call, at least one.
fn jobs_of_one_call<'a>(jobs: impl Iterator<Item = &'a EncodedJob>) -> usize {
    let mut bytes = 0;
    let fits = |job: &&EncodedJob| {
        bytes += job.envelope.len();
        bytes <= MAX_BYTES_PER_CALL
    };
    jobs.take(MAX_JOBS_PER_CALL).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use gristmill_job::{JobId, Key};

    #[test]
    fn a_call_carries_many_small_jobs_or_few_large_ones_and_always_one() {
        for (size, expected) in [(100, 200), (MAX_BYTES_PER_CALL / 4, 4), (MAX_BYTES_PER_CALL * 2, 1)] {
            let job = EncodedJob {
                id: JobId::new("id").unwrap(),
                key: Key::new("key").unwrap(),
                envelope: Bytes::from(vec![0; size]),
                own_id: true,
                due: gristmill_job::Due::Now,
            };
            assert_eq!(jobs_of_one_call(std::iter::repeat_n(&job, 300)), expected, "{size} bytes each");
        }
    }
}
