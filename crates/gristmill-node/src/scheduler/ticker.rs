//! One schedule, as a node sees it: how its record stands, what is due, what to ask Redis for. Pure.
//!
//! ```text
//!            stands                       moved, unknown, other, failed
//!   unknown ────────▶ stands ──▶ due ──▶ asked ─────────────────────────▶ unknown
//!      │  ▲ other        ▲                  │ fired, passed, overlaps
//!      ▼  │              └──────────────────┘
//!   another definition stands
//! ```

use gristmill_broker::schedule::define::{Define, Defined};
use gristmill_broker::schedule::fire::{Fire, Fired};
use gristmill_job::{EncodeError, JobLimits, NewJob, UnixMillis};
use gristmill_schedule::{Fingerprint, Overlap, Plan, Schedule, decide};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// How often a node confirms its definitions: three times within the time they stand.
pub(super) const CONFIRM_EVERY: Duration = Duration::from_secs(2);
/// Nodes that did not fire the slot before wait between these for one that did, so that most calls are needed.
const JITTER_MS: std::ops::Range<u64> = 5..30;
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_CAP: Duration = Duration::from_secs(2);
/// So many failures in a row, about two seconds, and what was to be fired is decided anew.
const GIVES_UP_AFTER: u32 = 6;
/// A queue that is full is tried again after this.
const FULL_REST: Duration = Duration::from_secs(1);

/// The time on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    /// `None` before Redis has told it.
    pub(super) redis: Option<UnixMillis>,
}

/// What a ticker asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    /// Nothing until then, or an answer.
    Nothing(Instant),
    /// [`Ticker::define`].
    Define,
    /// [`Ticker::fire`].
    Fire,
}

/// What is worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    /// This definition is the one that stands, from now on.
    Stands,
    /// Another one does.
    Waits,
    /// A job was enqueued, so late; so many slots before it were passed over.
    Fired {
        slot: UnixMillis,
        late: Duration,
        missed: u64,
    },
    /// Slots were passed over that were missed.
    Missed(u64),
    /// A slot was passed over, since the job before is not done; so many before it, since they were missed.
    Overlaps {
        slot: UnixMillis,
        missed: u64,
    },
    /// It cannot be fired, or defined, for now.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stand {
    Unknown,
    Other,
    Mine { after: UnixMillis, fired: UnixMillis, paused: bool },
}

pub(super) struct Ticker {
    schedule: Schedule,
    mark: Fingerprint,
    incarnation: String,
    limits: JobLimits,
    stand: Stand,
    /// Up to which slot all was dealt with, as far as was ever heard.
    known: Option<UnixMillis>,
    told: bool,
    /// What was decided last, as long as nothing moved.
    plan: Option<Plan>,
    /// A call of fire that is on its way, or whose answer is unknown.
    call: Option<Fire>,
    asked: bool,
    calls: u64,
    won: bool,
    confirm_at: Option<Instant>,
    rest_until: Option<Instant>,
    failures: u32,
}

impl Ticker {
    pub(super) fn new(schedule: Schedule, incarnation: &str, limits: JobLimits) -> Self {
        Self {
            mark: schedule.fingerprint(),
            schedule,
            incarnation: incarnation.to_owned(),
            limits,
            stand: Stand::Unknown,
            known: None,
            told: false,
            plan: None,
            call: None,
            asked: false,
            calls: 0,
            won: false,
            confirm_at: None,
            rest_until: None,
            failures: 0,
        }
    }

    pub(super) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// What to ask for now. Whatever is asked for is marked as asked by [`Ticker::define`] and [`Ticker::fire`].
    pub(super) fn ask(&mut self, now: Now) -> Ask {
        let far = now.instant + CONFIRM_EVERY;
        if self.asked {
            return Ask::Nothing(far);
        }
        if let Some(rest) = self.rest_until.filter(|rest| *rest > now.instant) {
            return Ask::Nothing(rest);
        }
        if self.call.is_some() {
            return Ask::Fire;
        }
        let confirm_at = self.confirm_at.unwrap_or(now.instant);
        let (Stand::Mine { after, paused, .. }, Some(redis)) = (&self.stand, now.redis) else {
            return match self.stand {
                Stand::Other if confirm_at > now.instant => Ask::Nothing(confirm_at),
                _ => Ask::Define,
            };
        };
        if confirm_at <= now.instant {
            return Ask::Define;
        }
        if *paused || !self.schedule.enabled() {
            return Ask::Nothing(confirm_at);
        }
        let outdated = |plan: &Plan| {
            plan.due.is_empty() && plan.pass.is_none() && plan.next.is_some_and(|next| next <= redis)
        };
        if self.plan.as_ref().is_none_or(outdated) {
            self.plan = Some(decide(self.schedule.timing(), self.schedule.rules(), *after, redis));
        }
        let Some(plan) = &self.plan else { return Ask::Nothing(confirm_at) };
        let waited_for = match (plan.due.front(), plan.pass) {
            (None, Some(_)) => return Ask::Fire,
            (Some(due), _) => *due,
            (None, None) => match plan.next {
                Some(next) => next,
                None => return Ask::Nothing(confirm_at),
            },
        };
        let fires_at = UnixMillis(waited_for.0.saturating_add(self.jitter_ms(waited_for)));
        match fires_at > redis {
            true => Ask::Nothing(confirm_at.min(now.instant + redis.age_at(fires_at))),
            false if plan.due.is_empty() => Ask::Nothing(now.instant),
            false => Ask::Fire,
        }
    }

    /// Whoever fired the slot before fires the next at once. Others come a little later, in an order that changes.
    fn jitter_ms(&self, slot: UnixMillis) -> u64 {
        if self.won {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (&self.incarnation, self.schedule.name().as_str(), slot.0).hash(&mut hasher);
        JITTER_MS.start + hasher.finish() % (JITTER_MS.end - JITTER_MS.start)
    }

    /// What this node says of its definition.
    pub(super) fn define(&mut self) -> Define {
        self.asked = true;
        Define {
            name: self.schedule.name().to_string(),
            timing: self.mark.timing.clone(),
            whole: self.mark.whole.clone(),
            definition: if self.told { String::new() } else { self.schedule.stored() },
            known: self.known,
        }
    }

    /// The call for the slot that is due; the same once more where its answer is unknown. `marked` may add to a job that is to be
    /// enqueued, before the call that carries it is made.
    ///
    /// # Errors
    /// A job that cannot be encoded.
    pub(super) fn fire(
        &mut self,
        label: UnixMillis,
        marked: impl FnOnce(&Schedule, UnixMillis, &mut NewJob),
    ) -> Result<Fire, EncodeError> {
        if let Some(call) = &self.call {
            self.asked = true;
            return Ok(call.clone());
        }
        let (after, known_fired) = match &self.stand {
            Stand::Mine { after, fired, .. } => (*after, *fired),
            _ => Default::default(),
        };
        let due = self.plan.as_ref().and_then(|plan| plan.due.front().copied());
        let slot = due.or(self.plan.as_ref().and_then(|plan| plan.pass)).unwrap_or_default();
        let mut job = self.schedule.job(slot)?;
        if due.is_some() {
            marked(&self.schedule, slot, &mut job);
        }
        let job = job.encode(label, self.limits)?;
        self.calls += 1;
        let call = Fire {
            name: self.schedule.name().to_string(),
            timing: self.mark.timing.clone(),
            whole: self.mark.whole.clone(),
            after,
            fired: known_fired,
            before: self.schedule.job_id(known_fired),
            slot,
            job,
            pass: due.is_none(),
            unless_alive: self.schedule.overlap() == Overlap::Skip,
            call: format!("{}.{}", self.incarnation, self.calls),
        };
        (self.asked, self.call) = (true, Some(call.clone()));
        Ok(call)
    }

    /// How its definition stands.
    pub(super) fn defined(&mut self, now: Now, defined: Defined) -> News {
        (self.asked, self.failures, self.rest_until) = (false, 0, None);
        self.confirm_at = Some(now.instant + CONFIRM_EVERY);
        match defined {
            Defined::Tell => {
                (self.told, self.confirm_at) = (false, None);
                News::Nothing
            }
            Defined::Other { .. } => {
                let before = std::mem::replace(&mut self.stand, Stand::Other);
                self.plan = None;
                // It may take over soon, and must say then what it is.
                self.told = false;
                if before == Stand::Other { News::Nothing } else { News::Waits }
            }
            Defined::Stands { after, fired, paused, .. } => {
                let stand = Stand::Mine { after, fired, paused };
                if self.stand != stand {
                    self.plan = None;
                }
                self.known = Some(after);
                let is_new = !self.told;
                (self.told, self.stand) = (true, stand);
                if is_new { News::Stands } else { News::Nothing }
            }
        }
    }

    /// What became of the slot, and the Redis clock then.
    pub(super) fn fired(&mut self, now: Now, redis: UnixMillis, became: Fired) -> News {
        (self.asked, self.rest_until) = (false, None);
        let Some(call) = self.call.take() else { return News::Nothing };
        if !matches!(became, Fired::Full { .. }) {
            self.failures = 0;
        }
        match became {
            Fired::At(_) => {
                self.won = true;
                let missed = self.dealt_with(&call, true);
                News::Fired { slot: call.slot, late: call.slot.age_at(redis), missed }
            }
            Fired::Passed => {
                let missed = self.dealt_with(&call, false);
                News::Missed(missed)
            }
            Fired::Overlaps => {
                self.won = true;
                let missed = self.dealt_with(&call, false);
                News::Overlaps { slot: call.slot, missed }
            }
            Fired::Before => {
                self.dealt_with(&call, true);
                News::Nothing
            }
            Fired::Moved { after, fired, .. } => {
                self.won = false;
                self.known = Some(after);
                self.plan = None;
                if let Stand::Mine { after: mine, fired: last, .. } = &mut self.stand {
                    (*mine, *last) = (after, fired);
                }
                News::Nothing
            }
            Fired::Paused => {
                if let Stand::Mine { paused, .. } = &mut self.stand {
                    *paused = true;
                }
                News::Nothing
            }
            // The clock is known better now.
            Fired::Early => {
                self.plan = None;
                News::Nothing
            }
            Fired::Full { limit } => {
                self.rest_until = Some(now.instant + FULL_REST);
                self.failures += 1;
                match self.failures {
                    1 => News::Failed(format!("its partition is at its limit of {limit} jobs")),
                    _ => News::Nothing,
                }
            }
            // An earlier sending of this very call did it.
            Fired::Already { fired } => {
                self.won = true;
                let missed = self.dealt_with(&call, fired == call.slot);
                match fired == call.slot {
                    true => News::Fired { slot: call.slot, late: call.slot.age_at(redis), missed },
                    false => News::Missed(missed),
                }
            }
            Fired::Unknown => {
                self.told = false;
                self.forget();
                News::Nothing
            }
            Fired::Other | Fired::Behind => {
                self.forget();
                News::Nothing
            }
        }
    }

    /// The record is as this node wrote it. How many slots were passed over before.
    fn dealt_with(&mut self, call: &Fire, has_job: bool) -> u64 {
        if let Stand::Mine { after, fired, .. } = &mut self.stand {
            *after = call.slot;
            if has_job {
                *fired = call.slot;
            }
        }
        self.known = Some(call.slot);
        let Some(plan) = &mut self.plan else { return 0 };
        plan.due.pop_front();
        plan.pass = None;
        std::mem::take(&mut plan.missed)
    }

    fn forget(&mut self) {
        (self.stand, self.plan, self.confirm_at) = (Stand::Unknown, None, None);
    }

    /// A call had no proper answer. One of fire goes out again under its name; it is told once in a row.
    pub(super) fn failed(&mut self, now: Now, why: &str) -> News {
        self.asked = false;
        self.failures = self.failures.saturating_add(1);
        let backoff = BACKOFF_FIRST * 2u32.saturating_pow(self.failures.min(8) - 1);
        self.rest_until = Some(now.instant + backoff.min(BACKOFF_CAP));
        if self.failures >= GIVES_UP_AFTER {
            // What is due may be another by then; the record will tell whether this one came to be.
            self.call = None;
            self.forget();
        }
        match self.failures {
            1 => News::Failed(why.to_owned()),
            _ => News::Nothing,
        }
    }
}

#[cfg(test)]
#[path = "ticker_tests.rs"]
mod tests;
