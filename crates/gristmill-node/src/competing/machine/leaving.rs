//! What is handed back: at once what did not start, and at a drain whatever is held; any node takes it, uncharged.

use super::{For, Held, Machine, Phase, Sent, Stage};
use crate::competing::events::Action;
use gristmill_broker::Call;
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_job::Place;

impl Machine {
    /// Lays a claim down. `stopped`: its run was stopped hard. So it is noted, too, of one that had begun under a claim of this
    /// very node that was over, whatever became of that run.
    pub(super) fn hand_back(&mut self, place: Place, stopped: bool, actions: &mut Vec<Action>) {
        let Some(held) = self.held.get_mut(&place) else { return };
        held.stage = Stage::HandingBack;
        let stopped = stopped || held.job.stopped;
        self.to_hand_back.push((place, stopped));
        self.alone_over(place, actions);
    }

    pub(super) fn send_hand_backs(&mut self, actions: &mut Vec<Action>) {
        let mut back = std::mem::take(&mut self.to_hand_back);
        // Those that were stopped come first.
        back.sort_by_key(|(_, stopped)| !stopped);
        for chunk in back.chunks(MAX_JOBS_PER_CALL) {
            let places: Vec<Place> = chunk.iter().map(|(place, _)| *place).collect();
            let stopped = chunk.iter().filter(|(_, stopped)| *stopped).count();
            let claim = |place| self.held.get(place).map_or(0, |held| held.job.entry.claim);
            let claims = places.iter().map(claim).collect();
            actions.push(Action::HandedBack(places.len()));
            self.send(Call::HandBack { places, claims, stopped }, For::HandBack, actions);
        }
    }

    pub(super) fn handed_back(&mut self, call: &Call, actions: &mut Vec<Action>) {
        let Call::HandBack { places, .. } = call else { return };
        for place in places {
            // Claimed again before this call was answered, it is laid down by another: until then it is not begun.
            if self.is_laid_down(*place).is_some() {
                continue;
            }
            if self.held.get(place).is_none_or(|held| held.stage == Stage::HandingBack) {
                self.held.remove(place);
                actions.push(Action::Forget(*place));
            }
        }
    }

    /// Whether a call that hands back this job is under way, or about to be; and whether it says that its run was stopped.
    pub(super) fn is_laid_down(&self, place: Place) -> Option<bool> {
        let named = |sent: &Sent| match &*sent.call {
            Call::HandBack { places, stopped, .. } => {
                places.iter().position(|named| *named == place).map(|at| at < *stopped)
            }
            _ => None,
        };
        let waits =
            self.to_hand_back.iter().filter(|(named, _)| *named == place).map(|(_, stopped)| *stopped);
        waits.chain(self.calls.values().filter_map(named)).max()
    }

    /// The node leaves: nothing is claimed and nothing starts any more; what runs may end.
    pub(super) fn drain(&mut self, actions: &mut Vec<Action>) {
        if self.phase != Phase::Serving {
            return;
        }
        self.phase = Phase::Draining;
        if self.claiming.stop_asking() {
            actions.push(Action::Ask(0));
        }
        actions.push(Action::Listen(None));
        actions.push(Action::Withdraw);
        self.wait_no_more();
        let waits = |held: &&Held| matches!(held.stage, Stage::Alone | Stage::Limited);
        let waiting: Vec<Place> = self.held.values().filter(waits).map(|held| held.job.entry.place).collect();
        for place in waiting {
            self.hand_back(place, false, actions);
        }
    }

    pub(super) fn leave(&mut self, actions: &mut Vec<Action>) {
        for (_, settling) in std::mem::take(&mut self.settle_later) {
            self.hand_back(settling.place(), false, actions);
        }
        self.send_hand_backs(actions);
        let quiet =
            self.held.is_empty() && self.asking == 0 && self.calls.is_empty() && self.to_settle.is_empty();
        if quiet && self.claiming.is_idle() && self.promoting.is_idle() {
            self.phase = Phase::Left;
            actions.push(Action::Left);
        }
    }

    /// The last act before exit: lays everything down, also what still runs (it cannot be stopped). How many runs are left.
    pub(crate) fn abandon(&mut self, actions: &mut Vec<Action>) -> usize {
        let runs = |held: &&Held| matches!(held.stage, Stage::Running | Stage::Lost { .. });
        let place = |held: &Held| (held.job.entry.place, held.job.acknowledged);
        let running: Vec<(Place, bool)> = self.held.values().filter(runs).map(place).collect();
        for (place, acknowledged) in &running {
            match acknowledged {
                true => drop(self.held.remove(place)),
                false => self.hand_back(*place, true, actions),
            }
        }
        self.send_hand_backs(actions);
        running.len()
    }
}
