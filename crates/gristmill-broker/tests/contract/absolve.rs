//! A node that lives takes back what the loss of its lease made of a run that was alone.

use crate::fixture::*;
use gristmill_broker::absolve::Absolved;
use gristmill_broker::start::How;
use gristmill_broker::state::{Crash, StartMark, Suspicion};
use gristmill_broker::{Entry, Fence};
use gristmill_job::{Place, UnixMillis};

impl World {
    async fn absolve(&self, run: &Fence, turn: u32, place: Place) -> Absolved {
        self.connection.absolve(&self.keys, run, turn, place).await.unwrap()
    }
}

/// V32: nobody at the take-over can tell a node that pauses from one that is dead.
#[test]
fn v32_a_node_that_lives_takes_back_its_mark_or_its_charge_once() {
    on_each(async |world| {
        let places = world.enqueue(&[own("1", "k"), own("2", "other")]).await;
        let mut a = world.dying("a").await;
        let entries = world.claim(&mut a).await;
        world.start(&mut a, How::Alone, &[&entries[0], &entries[1]]).await;
        assert_eq!(world.absolve(&a.fence, 0, places[0]).await, Absolved::Mine);
        assert_eq!(
            world.line(places[0]).unwrap().mark,
            Some(StartMark { fence: a.fence.clone(), alone: true }),
            "its own lease: nothing to take back"
        );

        // Before anybody recovered: the mark goes, and nothing is charged later.
        let mut b = world.dying("b").await;
        assert_eq!(world.absolve(&a.fence, 0, places[0]).await, Absolved::Absolved);
        assert_eq!(world.absolve(&a.fence, 0, places[0]).await, Absolved::Nothing, "once");
        assert_eq!(world.line(places[0]), None);
        let found = world.recover(&mut b).await;
        let charges = |entry: &Entry| entry.state.line().map_or(0, |line| line.crashes.len());
        assert_eq!(found.iter().map(charges).collect::<Vec<_>>(), [0, 1]);

        // Charged already: the charge goes that names this run, the suspicion stays, and so do the others.
        let other = Crash { fence: b.fence.clone(), turn: 0, at: UnixMillis(5) };
        let mut line = world.line(places[1]).unwrap();
        line.crashes.insert(0, other.clone());
        line.crashes.push(Crash { turn: 1, fence: a.fence.clone(), at: UnixMillis(7) });
        world.set_line(places[1], &line.write());
        let stranger = Fence { epoch: gristmill_broker::Epoch(a.fence.epoch.0 / 10), ..a.fence.clone() };
        for (fence, turn) in [(&stranger, 0), (&a.fence, 2), (&a.fence, 10)] {
            assert_eq!(world.absolve(fence, turn, places[1]).await, Absolved::Nothing);
        }
        assert_eq!(world.line(places[1]), Some(line.clone()));
        assert_eq!(world.absolve(&a.fence, 0, places[1]).await, Absolved::Absolved);
        line.crashes.remove(1);
        assert_eq!(world.line(places[1]), Some(line.clone()));
        assert_eq!(line.suspicion, Suspicion::Strong);
        assert_eq!(world.absolve(&a.fence, 0, places[1]).await, Absolved::Nothing, "once");
        assert_eq!(world.absolve(&a.fence, 0, Place { ms: 1, seq: 1 }).await, Absolved::Nothing);
        assert_eq!(world.absolve(&a.fence, 1, places[1]).await, Absolved::Absolved);
        assert_eq!(world.line(places[1]).unwrap().crashes, [other]);
    });
}

/// The mark of a run beside others was never a charge, and another run's mark is not this one's to remove.
#[test]
fn absolve_touches_no_other_mark() {
    on_each(async |world| {
        let place = world.enqueue(&[own("1", "k")]).await[0];
        let mut a = world.dying("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        world.start(&mut a, How::Beside, &[&entry]).await;
        let mut b = world.dying("b").await;
        assert_eq!(world.absolve(&a.fence, 0, place).await, Absolved::Nothing);
        let found = world.recover(&mut b).await.remove(0);
        world.start(&mut b, How::Alone, &[&found]).await;
        let before = world.line(place);
        assert_eq!(world.absolve(&a.fence, 0, place).await, Absolved::Nothing);
        assert_eq!(world.line(place), before);
    });
}

/// Who lost its lease to another that charged it, and has the lease again, was charged all the same.
#[test]
fn v32_a_charge_is_taken_back_also_by_an_owner_that_came_back() {
    on_each(async |world| {
        let place = world.enqueue(&[own("1", "k")]).await[0];
        let mut a = world.dying("a").await;
        let entry = world.claim(&mut a).await.remove(0);
        world.start(&mut a, How::Alone, &[&entry]).await;
        let mut b = world.dying("b").await;
        world.recover(&mut b).await;
        world.acquire("a").await;
        assert_eq!(world.line(place).unwrap().crashes.len(), 1);
        assert_eq!(world.absolve(&a.fence, 0, place).await, Absolved::Absolved);
        assert_eq!(world.line(place).unwrap().crashes, []);
        assert_eq!(world.absolve(&a.fence, 0, place).await, Absolved::Mine);
    });
}
