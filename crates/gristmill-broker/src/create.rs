//! create: makes a queue: its definition, and each partition's `meta`, stream and group.

use crate::error::CallError;
use crate::keys::{Mode, QUEUES, QueueDefinition};
use crate::link::Connection;
use crate::reply::{self, Words};
use crate::script::CREATE;
use gristmill_job::QueueName;
use redis::Pipeline;
use std::ops::Range;

/// Why a queue was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// It exists, made differently.
    #[error(
        "queue {queue} exists with ordering {mode:?} and {partitions} partitions, configured are \
         {configured_mode:?} and {configured}; they cannot be changed: configure what is there, or use another \
         queue name"
    )]
    Differs {
        /// Which.
        queue: QueueName,
        /// The ordering it has.
        mode: String,
        /// The number of partitions it has.
        partitions: String,
        /// The ordering configured here.
        configured_mode: &'static str,
        /// The number configured here.
        configured: u16,
    },
    /// Redis did not do it.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Connection {
    /// Makes the queue, or confirms that it is there as described. Harmless to repeat; mends what a flush took.
    ///
    /// # Errors
    /// [`CreateError::Differs`] where it exists with another number of partitions or ordering.
    pub async fn create(&self, queue: &QueueDefinition) -> Result<(), CreateError> {
        // The first one alone: a queue that differs is not given partitions it never had.
        self.create_partitions(queue, 0..1).await?;
        self.create_partitions(queue, 1..queue.partitions).await?;
        // Written only where it is missing, so that a node starts when memory is full.
        if self.definition(&queue.name).await?.as_ref() != Some(queue) {
            let mut define = redis::cmd("HSET");
            let definition = format!("{} {}", queue.mode.as_str(), queue.partitions);
            define.arg(QUEUES).arg(queue.name.as_str()).arg(definition);
            self.one(define).await?;
        }
        Ok(())
    }

    async fn create_partitions(&self, queue: &QueueDefinition, which: Range<u16>) -> Result<(), CreateError> {
        if which.is_empty() {
            return Ok(());
        }
        let count = which.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for partition in which {
            let keys = queue.partition(partition);
            let mut script = CREATE.call(&[keys.meta.as_bytes(), keys.stream.as_bytes()]);
            script.arg(queue.mode.as_str()).arg(queue.partitions).arg(0);
            pipeline.add_command(script);
        }
        for answer in self.many(pipeline, count).await? {
            let mut words = Words::read(answer, "the answer of create")?;
            match words.tag() {
                "ok" => {}
                "differs" => {
                    return Err(CreateError::Differs {
                        queue: queue.name.clone(),
                        mode: words.next_text()?,
                        partitions: words.next_text()?,
                        configured_mode: queue.mode.as_str(),
                        configured: queue.partitions,
                    });
                }
                _ => return Err(words.unknown("ok or differs").into()),
            }
        }
        Ok(())
    }

    /// The definition of a queue by name, `None` where there is no such queue.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn definition(&self, name: &QueueName) -> Result<Option<QueueDefinition>, CallError> {
        let mut get = redis::cmd("HGET");
        get.arg(QUEUES).arg(name.as_str());
        match self.one(get).await? {
            redis::Value::Nil => Ok(None),
            value => parse(name, &reply::text(value)?).map(Some),
        }
    }
}

/// Reads `key 64` or `none 64`.
pub(crate) fn parse(name: &QueueName, text: &str) -> Result<QueueDefinition, CallError> {
    let parse = || {
        let (mode, partitions) = text.split_once(' ')?;
        Some((Mode::parse(mode)?, partitions.parse().ok()?))
    };
    parse()
        .map(|(mode, partitions)| QueueDefinition::new(name.clone(), partitions).with_mode(mode))
        .ok_or_else(|| {
            CallError::Unexpected(format!(
                "expected `key <partitions>` or `none <partitions>` as the definition of {name}, got {text:?}"
            ))
        })
}
