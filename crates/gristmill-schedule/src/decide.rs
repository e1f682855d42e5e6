//! Which slots are due, which were missed, and when to look again.
//!
//! ```text
//!        after            now - window        now - ON_TIME        now
//!   ───────┼───────────────────┼───────────────────┼────────────────┼──────▶
//!          │      missed, and gone                 │     on time    │  waited for
//!          │                   │ missed: made up   │   always due   │
//!          │                   │ as the policy says│                │
//! ```

use crate::timing::Timing;
use gristmill_job::UnixMillis;
use std::collections::VecDeque;
use std::time::Duration;

/// A slot is missed once nobody has fired it for so long.
pub const ON_TIME: Duration = Duration::from_secs(10);
/// Most slots that are made up at a time, the newest; and so far missed ones are counted.
pub const MOST_SLOTS: usize = 1000;
/// Longest window.
pub const LONGEST_WINDOW: Duration = Duration::from_secs(31 * 24 * 3600);

/// What becomes of slots that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CatchUp {
    /// None of them is made up.
    Skip,
    /// The newest one is, unless it is older than the window, or a later slot is due.
    #[default]
    Last,
    /// Those within the window are, in their order, at most [`MOST_SLOTS`] of them.
    All,
}

/// What becomes of a slot while the job of the slot before is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Overlap {
    /// Its job joins the queue all the same.
    #[default]
    Allow,
    /// It is passed over.
    Skip,
}

macro_rules! words {
    ($type:ident, $($variant:ident = $word:literal),*) => {
        impl $type {
            /// The word used in settings and lists.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }

            /// By its word.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                [$(Self::$variant),*].into_iter().find(|policy| policy.as_str() == word)
            }
        }
    };
}

words!(CatchUp, Skip = "skip", Last = "last", All = "all");
words!(Overlap, Allow = "allow", Skip = "skip");

/// What is made up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Which missed slots.
    pub catch_up: CatchUp,
    /// How old they may be; at least [`ON_TIME`] counts.
    pub window: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { catch_up: CatchUp::default(), window: Duration::from_secs(24 * 3600) }
    }
}

/// What there is to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Slots to fire, in this order, each after the one before was answered.
    pub due: VecDeque<UnixMillis>,
    /// Where nothing is due: the newest of the slots that were missed and are not made up, to be passed over.
    pub pass: Option<UnixMillis>,
    /// How many slots are passed over before the first that is due, or with `pass`; at most [`MOST_SLOTS`] are counted.
    pub missed: u64,
    /// When the next slot is; `None` if there is none.
    pub next: Option<UnixMillis>,
}

/// What is to be done at `now`, where every slot up to `after` is dealt with.
#[must_use]
pub fn decide(timing: &Timing, rules: Rules, after: UnixMillis, now: UnixMillis) -> Plan {
    // What nearly always is: the next slot, on time, alone.
    let first = timing.next_after(after);
    if let Some(slot) = first.filter(|slot| *slot <= now && slot.age_at(now) <= ON_TIME) {
        let next = timing.next_after(slot);
        if next.is_none_or(|next| next > now) {
            return Plan { due: VecDeque::from([slot]), next, ..Plan::default() };
        }
    }
    // A clock that was set back: what was fired stays fired, and the next is one that never was.
    let next = timing.next_after(after.max(now));
    let Some(newest) = timing.latest(after, now) else {
        return Plan { next, ..Plan::default() };
    };
    let back = |span: Duration| UnixMillis(now.0.saturating_sub(millis(span)));
    let (on_time, window) = (back(ON_TIME), back(rules.window.clamp(ON_TIME, LONGEST_WINDOW)));
    let from = match rules.catch_up {
        CatchUp::Skip => on_time,
        CatchUp::Last => on_time.min(window.max(newest)),
        CatchUp::All => window,
    };
    let before = UnixMillis(from.0.saturating_sub(1)).max(after);
    let due = newest_slots(timing, before, now);
    let first = due.front().copied();
    let (until, pass) = match first {
        Some(first) => (UnixMillis(first.0 - 1), None),
        None => (newest, Some(newest)),
    };
    Plan { missed: count(timing, after, until, MOST_SLOTS) as u64, due, pass, next }
}

/// Those after `after` and not after `until`, at most [`MOST_SLOTS`], the newest.
fn newest_slots(timing: &Timing, after: UnixMillis, until: UnixMillis) -> VecDeque<UnixMillis> {
    let (mut low, mut high) = (after.0, until.0);
    // The earliest moment behind which no more than so many come.
    if count(timing, after, until, MOST_SLOTS + 1) > MOST_SLOTS {
        while low < high {
            let middle = low + (high - low) / 2;
            match count(timing, UnixMillis(middle), until, MOST_SLOTS + 1) > MOST_SLOTS {
                true => low = middle + 1,
                false => high = middle,
            }
        }
    }
    slots(timing, UnixMillis(low), until).collect()
}

fn count(timing: &Timing, after: UnixMillis, until: UnixMillis, most: usize) -> usize {
    slots(timing, after, until).take(most).count()
}

fn slots(timing: &Timing, after: UnixMillis, until: UnixMillis) -> impl Iterator<Item = UnixMillis> {
    let next = move |slot: UnixMillis| timing.next_after(slot).filter(|slot| *slot <= until);
    std::iter::successors(next(after), move |slot| next(*slot))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
