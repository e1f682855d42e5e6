//! Schedules: their definitions, their slots, and what people do with them.

use crate::both::{Both, Outcome, agree, id, key};
use crate::given::rounded;
use crate::plan::{IDS, Span, span, who};
use bytes::Bytes;
use gristmill_broker::schedule::define::{Define, DefineAnswer, Defined};
use gristmill_broker::schedule::fire::{self, FireAnswer, Fired};
use gristmill_broker::schedule::pause_schedule::PausedSchedule;
use gristmill_broker::schedule::remove_schedule::RemovedSchedule;
use gristmill_broker::schedule::{Pause, Record};
use gristmill_job::{Due, EncodedJob, UnixMillis};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) enum Recurring {
    /// One of three definitions; known is a slot.
    Define {
        definition: u8,
        tells: bool,
        known: Option<u64>,
        stands: Span,
    },
    Fire(Fire),
    Pause {
        who: usize,
    },
    Resume,
    Remove {
        also_defined: bool,
    },
}

impl Recurring {
    /// What every sequence begins with.
    pub(crate) fn first() -> Self {
        Self::Define { definition: 0, tells: true, known: Some(0), stands: Span::Hour }
    }

    /// What it confirms is over for the next one that says so.
    pub(crate) fn is_momentary(&self) -> bool {
        matches!(self, Self::Define { .. })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Fire {
    pub(crate) partitions: u16,
    pub(crate) definition: u8,
    /// Else one of the future.
    pub(crate) slot: Option<u64>,
    /// It knows an earlier state.
    pub(crate) stale: bool,
    pub(crate) pass: bool,
    pub(crate) unless_alive: bool,
    pub(crate) id: u8,
    pub(crate) before: u8,
    /// Under the name of the call before.
    pub(crate) again: bool,
}

pub(crate) fn operation() -> impl Strategy<Value = Recurring> {
    let define =
        (definition(), proptest::bool::weighted(0.8), proptest::option::weighted(0.8, 0..20u64), span());
    prop_oneof![
        8 => define.prop_map(|(definition, tells, known, stands)| Recurring::Define { definition, tells, known, stands }),
        20 => fire().prop_map(Recurring::Fire),
        1 => who().prop_map(|who| Recurring::Pause { who }),
        1 => Just(Recurring::Resume),
        1 => any::<bool>().prop_map(|also_defined| Recurring::Remove { also_defined }),
    ]
}

fn definition() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0), 1 => Just(1), 1 => Just(2u8)]
}

fn fire() -> impl Strategy<Value = Fire> {
    let partitions = prop_oneof![15 => Just(1), 1 => Just(2u16)];
    let what = (definition(), proptest::option::weighted(0.9, 0..40u64), proptest::bool::weighted(0.1));
    let how = (proptest::bool::weighted(0.1), any::<bool>(), proptest::bool::weighted(0.1));
    (partitions, what, how, 0..IDS, 0..IDS).prop_map(
        |(partitions, (definition, slot, stale), (pass, unless_alive, again), id, before)| Fire {
            partitions,
            definition,
            slot,
            stale,
            pass,
            unless_alive,
            id,
            before,
            again,
        },
    )
}

/// The one schedule there is.
const NAME: &str = "tick";
/// Slots and what nodes know of them: so many seconds after this much before the sequence began.
const BEFORE: Duration = Duration::from_secs(1000);

fn fingerprint(definition: u8) -> (String, String) {
    // Two of three have the same timing.
    (format!("{:x}", 10 + definition / 2), format!("{:x}", 20 + definition))
}

impl Both {
    fn slot(&self, number: u64) -> UnixMillis {
        UnixMillis(self.began.0 - BEFORE.as_millis() as u64 + number * 1000)
    }

    pub(crate) async fn recurring(&mut self, recurring: &Recurring) -> Outcome {
        match recurring {
            Recurring::Define { definition, tells, known, stands } => {
                self.define(*definition, *tells, *known, *stands).await
            }
            Recurring::Fire(fire) => self.fire(fire).await,
            Recurring::Pause { who } => self.pause_schedule(*who).await,
            Recurring::Resume => self.resume_schedule().await,
            Recurring::Remove { also_defined } => self.remove_schedule(*also_defined).await,
        }
    }

    async fn define(&mut self, definition: u8, tells: bool, known: Option<u64>, stands: Span) -> Outcome {
        let (timing, whole) = fingerprint(definition);
        let text = if tells { format!("definition {definition}") } else { String::new() };
        let known = known.map(|number| self.slot(number));
        let one = [Define { name: NAME.into(), timing, whole, definition: text, known }];
        let (stands, restored) = (crate::both::time(stands), BEFORE * 2);
        let real = self.connection.define_for(&self.keys, &one, stands, restored).await;
        let model = self.model.define_for(&self.keys, &one, stands, restored);
        let shown = |answer| match answer {
            DefineAnswer::NoQueue => DefineAnswer::NoQueue,
            DefineAnswer::Defined(_, defined) => {
                DefineAnswer::Defined(UnixMillis(0), defined.into_iter().map(|d| self.defined(d)).collect())
            }
        };
        let answer = agree(shown(real.map_err(|e| e.to_string())?), shown(model))?;
        self.hear(match answer {
            DefineAnswer::NoQueue => "define:no_queue",
            DefineAnswer::Defined(_, defined) => match &defined[0] {
                Defined::Stands { paused: true, .. } => "define:paused",
                Defined::Stands { .. } => "define:stands",
                Defined::Other { .. } => "define:other",
                Defined::Tell => "define:tell",
            },
        })
    }

    /// A slot is as it is; the moment of an answer is none that both sides know.
    fn moment(&self, at: UnixMillis) -> UnixMillis {
        match at.0.checked_sub(self.began.0) {
            Some(since) => UnixMillis(rounded(Duration::from_millis(since)).as_secs()),
            None => at,
        }
    }

    fn defined(&self, defined: Defined) -> Defined {
        match defined {
            Defined::Stands { after, fired, call, paused } => {
                Defined::Stands { after: self.moment(after), fired, call, paused }
            }
            Defined::Other { confirmed } => Defined::Other { confirmed: self.moment(confirmed) },
            Defined::Tell => Defined::Tell,
        }
    }

    async fn fire(&mut self, fire: &Fire) -> Outcome {
        let (timing, whole) = fingerprint(fire.definition);
        let records = self.records().await?;
        let known = |side: usize| {
            let record: Option<&Record> = records[side].as_ref();
            let known = record.map_or((UnixMillis(1), UnixMillis(0)), |record| (record.after, record.fired));
            if fire.stale { (UnixMillis(known.0.0 + 1), known.1) } else { known }
        };
        let slot = fire.slot.map_or(UnixMillis(self.began.0 + 3_600_000), |number| self.slot(number));
        let before = id(fire.before);
        self.fires += u64::from(!fire.again);
        let one = |side: usize| {
            let (after, fired) = known(side);
            fire::Fire {
                name: NAME.into(),
                timing: timing.clone(),
                whole: whole.clone(),
                after,
                fired,
                before: before.clone(),
                slot,
                job: EncodedJob {
                    id: id(fire.id),
                    key: key(0),
                    envelope: Bytes::from_static(b"recurring"),
                    own_id: true,
                    due: Due::Now,
                },
                pass: fire.pass,
                unless_alive: fire.unless_alive,
                call: format!("fire{}", self.fires),
            }
        };
        let real = self.connection.fire(&self.keys, fire.partitions, &one(0)).await;
        let model = self.model.fire(&self.keys, fire.partitions, &one(1));
        let mut answers = [real.map_err(|e| e.to_string())?, model];
        for answer in &mut answers {
            if let FireAnswer::Fired(_, Fired::Moved { after, .. }) = answer {
                *after = self.moment(*after);
            }
        }
        for (answer, given) in answers.iter_mut().zip(&mut self.given) {
            if let FireAnswer::Fired(now, fired) = answer {
                *now = UnixMillis(0);
                if let Fired::At(place) = fired {
                    given.places.push(*place);
                    *place = given.place(*place);
                }
            }
        }
        let [real, model] = answers;
        let fired = match agree(real, model)? {
            FireAnswer::NoQueue => return self.hear("fire:no_queue"),
            FireAnswer::Differs { .. } => return self.hear("fire:differs"),
            FireAnswer::Fired(_, fired) => fired,
        };
        if let Fired::At(_) = fired {
            self.jobs.push(crate::both::Known { id: id(fire.id), key: key(0), own_id: true });
        }
        self.hear(match fired {
            Fired::At(_) => "fire:fired",
            Fired::Passed => "fire:passed",
            Fired::Overlaps => "fire:overlaps",
            Fired::Before => "fire:before",
            Fired::Already { .. } => "fire:already",
            Fired::Unknown => "fire:unknown",
            Fired::Other => "fire:other",
            Fired::Moved { .. } => "fire:moved",
            Fired::Paused => "fire:paused",
            Fired::Behind => "fire:behind",
            Fired::Early => "fire:early",
            Fired::Full { .. } => "fire:full",
        })
    }

    /// What each side has of the schedule.
    async fn records(&self) -> Result<[Option<Record>; 2], String> {
        let real = self.connection.schedules(&self.queue).await.map_err(|error| error.to_string())?;
        let record = |views: Vec<gristmill_broker::schedule::ScheduleView>| {
            views.into_iter().find_map(|view| view.record)
        };
        Ok([record(real.1), record(self.model.schedules(&self.keys))])
    }

    async fn pause_schedule(&mut self, who: usize) -> Outcome {
        let (who, why) = (crate::both::incarnation(who).to_string(), "why: because");
        let real = self.connection.pause_schedule(&self.keys, NAME, &who, why).await;
        let model = self.model.pause_schedule(&self.keys, NAME, &who, why);
        let shown = |paused| match paused {
            PausedSchedule::Paused(since) => PausedSchedule::Paused(self.moment(since)),
            PausedSchedule::Already(pause) => PausedSchedule::Already(self.pause(pause)),
        };
        let word = match agree(shown(real.map_err(|e| e.to_string())?), shown(model))? {
            PausedSchedule::Paused(_) => "pause_schedule:paused",
            PausedSchedule::Already(_) => "pause_schedule:already",
        };
        self.hear(word)
    }

    fn pause(&self, pause: Pause) -> Pause {
        Pause { since: self.moment(pause.since), ..pause }
    }

    async fn resume_schedule(&mut self) -> Outcome {
        let real = self.connection.resume_schedule(&self.keys, NAME).await.map_err(|e| e.to_string())?;
        let model = self.model.resume_schedule(&self.keys, NAME);
        let word = match agree(real.map(|p| self.pause(p)), model.map(|p| self.pause(p)))? {
            Some(_) => "resume_schedule:resumed",
            None => "resume_schedule:nothing",
        };
        self.hear(word)
    }

    async fn remove_schedule(&mut self, also_defined: bool) -> Outcome {
        let real = self.connection.remove_schedule(&self.keys, NAME, also_defined).await;
        let model = self.model.remove_schedule(&self.keys, NAME, also_defined);
        let shown = |removed| match removed {
            RemovedSchedule::Stands { confirmed, now } => {
                RemovedSchedule::Stands { confirmed: self.moment(confirmed), now: self.moment(now) }
            }
            other => other,
        };
        let word = match agree(shown(real.map_err(|e| e.to_string())?), shown(model))? {
            RemovedSchedule::Removed => "remove_schedule:removed",
            RemovedSchedule::Stands { .. } => "remove_schedule:stands",
            RemovedSchedule::Nothing => "remove_schedule:nothing",
        };
        self.hear(word)
    }

    /// Records, definitions and pauses, at the end.
    pub(crate) async fn same_schedules(&self) -> Outcome {
        let (_, real) = self.connection.schedules(&self.queue).await.map_err(|error| error.to_string())?;
        let shown = |views: Vec<gristmill_broker::schedule::ScheduleView>| {
            let record = |record: Record| Record {
                after: self.moment(record.after),
                confirmed: self.moment(record.confirmed),
                ..record
            };
            let view = |view: gristmill_broker::schedule::ScheduleView| {
                (view.name, view.record.map(record), view.definition, view.pause.map(|p| self.pause(p)))
            };
            views.into_iter().map(view).collect::<Vec<_>>()
        };
        agree(shown(real), shown(self.model.schedules(&self.keys))).map(drop)
    }
}
