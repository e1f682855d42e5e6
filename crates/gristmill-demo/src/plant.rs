//! Breaking a promise on purpose, to show that the account tells. Each plant really does the bad thing, once, and turns
//! one field of the last line.
//!
//! | plant | what is done | field |
//! |---|---|---|
//! | `lost` | a job is acknowledged without its effect | `lost` |
//! | `doubled` | the last change of a file is applied a second time, past the dedupe: under another id, as a newer version | `doubled` |
//! | `reordered` | a handler does the work of a file's next version before that of its own | `out_of_order` |
//! | `stale` | when all is done, an older state is written over a newer one, past the version guard | `mismatched` |

use crate::{
    failure::Failure,
    input::{Event, Input, Op},
    projection,
};
use clap::ValueEnum;
use gristmill_broker::QueueDefinition;
use gristmill_job::partition_of;
use gristmill_testkit::{seed::SplitMix64, server::Server};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Which promise to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    Lost,
    Doubled,
    Reordered,
    Stale,
}

impl Plant {
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Doubled => "doubled",
            Self::Reordered => "out_of_order",
            Self::Stale => "mismatched",
        }
    }
}

/// What a handler is told to do wrong.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InHandler {
    /// Answers without an effect for this id.
    NoEffect { id: String },
    /// Does the work of `next` before that of the job with this id, and none for `next` itself.
    NextFirst { id: String, next: Event },
}

/// What to do wrong, and where. Events by index.
#[derive(Debug)]
pub(crate) enum Planted {
    InHandler(InHandler),
    /// Enqueue this event once more, under another id and with the version that would be next.
    Again(usize),
    /// At the end, write `old`'s state over that of its path.
    Overwrite {
        old: usize,
    },
}

/// Chooses the victim by the seed.
pub(crate) fn choose(plant: Plant, input: &Input, rng: &mut SplitMix64) -> Result<Planted, Failure> {
    let mut keys: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, event) in input.events.iter().enumerate() {
        keys.entry(&event.key).or_default().push(index);
    }
    let mut pairs: Vec<(usize, usize)> =
        keys.values().flat_map(|own| own.windows(2).map(|pair| (pair[0], pair[1]))).collect();
    pairs.sort_unstable();
    let event = |index: usize| &input.events[index];
    let is_last = |index: usize| keys[event(index).key.as_str()].last() == Some(&index);
    pairs.retain(|(old, new)| match plant {
        // The one that is lost has a successor, so that the end state is right all the same.
        Plant::Lost | Plant::Reordered => true,
        Plant::Doubled => is_last(*new),
        Plant::Stale => {
            let (old, newest) = (event(*old), event(*new));
            is_last(*new) && old.op != Op::Delete && newest.op != Op::Delete && old.state() != newest.state()
        }
    });
    let Some((old, new)) = rng.pick(&pairs).copied() else {
        let why = "expected a file with two versions that suit it, found none";
        return Err(Failure::Input(format!("{plant:?} cannot be planted in this input: {why}")));
    };
    Ok(match plant {
        Plant::Lost => Planted::InHandler(InHandler::NoEffect { id: event(old).id.clone() }),
        Plant::Reordered => {
            Planted::InHandler(InHandler::NextFirst { id: event(old).id.clone(), next: event(new).clone() })
        }
        Plant::Doubled => Planted::Again(new),
        Plant::Stale => Planted::Overwrite { old },
    })
}

/// What a writer without fence and guard would do that comes back late.
pub(crate) fn overwrite(server: &Server, queue: &QueueDefinition, old: &Event) -> Result<(), Failure> {
    let key = old.key.as_bytes();
    let entity = queue.partition(partition_of(key, queue.partitions)).entity(key);
    let state = serde_json::to_vec(&old.state()).map_err(Failure::while_doing("encoding a state"))?;
    let version = format!("{:020}", old.version);
    let words: [&[u8]; 6] = [b"HSET", &entity, b"version", version.as_bytes(), b"state", &state];
    server.command(&words)?;
    Ok(())
}

/// The id of a change that is applied a second time.
pub(crate) fn second_id(event: &Event) -> String {
    format!("{}:{}:again", projection::KIND, event.id)
}
