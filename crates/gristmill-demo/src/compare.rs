//! The entities as they stand in Redis, beside the truth and the number of events of each key.

use crate::{failure::Failure, input::Input, projection::FileState};
use gristmill_broker::{Broker, QueueDefinition, inspect::EntityView};
use std::collections::BTreeSet;

/// Entities of one round trip.
const AT_ONCE: usize = 500;
/// Examples kept per run.
const SHOWN: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// The sum of all `changes`.
    pub(crate) applied: u64,
    /// Effects that are missing.
    pub(crate) lost: u64,
    /// Effects that are too many.
    pub(crate) doubled: u64,
    /// Paths whose state is not that of the truth.
    pub(crate) mismatched: u64,
    pub(crate) examples: Vec<String>,
}

impl Compared {
    pub(crate) fn is_clean(&self) -> bool {
        (self.lost, self.doubled, self.mismatched) == (0, 0, 0)
    }

    fn look(&mut self, key: &str, due: u64, truth: Option<&FileState>, entity: Option<&EntityView>) {
        let changes = entity.map_or(0, |entity| entity.changes);
        self.applied += changes;
        self.lost += due.saturating_sub(changes);
        self.doubled += changes.saturating_sub(due);
        if changes != due {
            self.example(format!("{key}: {due} events, {changes} effects applied"));
        }
        let state = entity.filter(|entity| !entity.deleted).map(|entity| entity.state.as_ref());
        let is = state.map(serde_json::from_slice::<FileState>);
        let told = match (truth, &is) {
            (None, None) => return,
            (Some(truth), Some(Ok(is))) if truth == is => return,
            (_, None) => "absent".to_owned(),
            (_, Some(Ok(is))) => format!("{} {}", is.mode, is.blob),
            (_, Some(Err(error))) => format!("unreadable ({error})"),
        };
        self.mismatched += 1;
        let truth = truth.map_or("absent".to_owned(), |truth| format!("{} {}", truth.mode, truth.blob));
        self.example(format!("{key}: the truth is {truth}, the entity is {told}"));
    }

    fn example(&mut self, text: String) {
        if self.examples.len() < SHOWN {
            self.examples.push(text);
        }
    }
}

/// Looks at every path of the input and of the truth.
pub(crate) async fn compare(
    broker: &Broker,
    queue: &QueueDefinition,
    input: &Input,
) -> Result<Compared, Failure> {
    let due = input.per_key();
    let keys: BTreeSet<&str> = due.keys().copied().chain(input.truth.keys().map(String::as_str)).collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    let connection = broker.connection().await?;
    let mut compared = Compared::default();
    for keys in keys.chunks(AT_ONCE) {
        let entities = connection.entities(queue, keys).await?;
        if entities.len() != keys.len() {
            let text = format!("expected {} entities, got {}", keys.len(), entities.len());
            return Err(Failure::Run(text));
        }
        for (key, entity) in keys.iter().zip(&entities) {
            let due = due.get(key).copied().unwrap_or(0);
            compared.look(key, due, input.truth.get(*key), entity.as_ref());
        }
    }
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(blob: &str) -> FileState {
        FileState { mode: "100644".to_owned(), blob: blob.to_owned() }
    }

    fn entity(blob: &str, changes: u64, deleted: bool) -> EntityView {
        let state = if deleted { vec![] } else { serde_json::to_vec(&truth(blob)).unwrap() };
        EntityView { version: changes, state: state.into(), deleted, changes }
    }

    type Case = (u64, Option<&'static str>, Option<EntityView>, [u64; 3]);

    #[test]
    fn each_difference_turns_its_own_field() {
        let cases: [Case; 9] = [
            (2, Some("a"), Some(entity("a", 2, false)), [0, 0, 0]),
            (2, None, Some(entity("", 2, true)), [0, 0, 0]),
            (3, Some("a"), Some(entity("a", 2, false)), [1, 0, 0]),
            (1, Some("a"), Some(entity("a", 3, false)), [0, 2, 0]),
            (2, Some("a"), Some(entity("b", 2, false)), [0, 0, 1]),
            (2, None, Some(entity("a", 2, false)), [0, 0, 1]),
            (2, Some("a"), Some(entity("", 2, true)), [0, 0, 1]),
            (1, Some("a"), None, [1, 0, 1]),
            (0, Some("a"), None, [0, 0, 1]),
        ];
        for (due, blob, entity, expected) in cases {
            let mut compared = Compared::default();
            compared.look("k", due, blob.map(truth).as_ref(), entity.as_ref());
            let fields = [compared.lost, compared.doubled, compared.mismatched];
            assert_eq!(fields, expected, "{due} {blob:?} {entity:?}");
            assert_eq!(compared.is_clean(), expected == [0, 0, 0]);
        }
    }
}
