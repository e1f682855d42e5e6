//! discard: as `lua/discard.lua`.

use super::partition::{Mark, Partition, Standing};
use crate::discard::{Discard, Discarded};

impl Partition {
    pub(super) fn discard(&mut self, now_ms: u64, window_ms: u64, letters: &[Discard]) -> Vec<Discarded> {
        letters.iter().map(|letter| self.discard_one(now_ms, window_ms, letter)).collect()
    }

    fn discard_one(&mut self, now_ms: u64, window_ms: u64, letter: &Discard) -> Discarded {
        let id = String::from_utf8_lossy(&letter.letter).into_owned();
        let listed = self.dead.len();
        self.dead.retain(|(_, dead)| *dead != id);
        let kept = self.dead_bodies.remove(&id).is_some();
        if self.dead.len() == listed && !kept {
            return Discarded::Gone;
        }
        if let Some(job) = &letter.job
            && self.mark(now_ms, job) == Some(&Standing::Dead(id))
        {
            let expires_ms = Some(now_ms.saturating_add(window_ms.max(1)));
            self.seen.insert(job.clone(), Mark { standing: Standing::Discarded, expires_ms });
        }
        Discarded::Discarded
    }
}
