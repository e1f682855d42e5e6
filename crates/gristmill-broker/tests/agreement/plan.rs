//! What may be asked, and how it is drawn.

use proptest::collection::vec;
use proptest::prelude::*;

/// A time that is surely over when the next question is asked, or surely not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Moment,
    Hour,
}

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Create {
        partitions: u16,
    },
    Flush,
    Enqueue {
        repeat_last_call: bool,
        partitions: u16,
        jobs: Vec<Job>,
    },
    /// One call, knowing what it knows, nothing, or too low an epoch.
    Acquire {
        who: usize,
        ttl: Span,
        knows: Knows,
    },
    /// Until it is granted or held.
    Take {
        who: usize,
        ttl: Span,
    },
    Want {
        who: usize,
        stands: Span,
    },
    Renew {
        who: usize,
        tenures_ago: usize,
        ttl: Span,
        answered_ahead: u64,
    },
    Call {
        who: usize,
        tenures_ago: usize,
        number: Number,
        call: Call,
    },
    /// Of one call, by their numbers; each names a job's id as its own, or another's, or none.
    Discard {
        letters: Vec<(u8, Names)>,
        window: Span,
    },
    Announce {
        who: usize,
        ttl: Option<Span>,
        draining: bool,
    },
    SpoilEntity {
        key: u8,
    },
    Limit {
        jobs: u64,
    },
}

impl Operation {
    /// Whether something it made is to be over before the next question.
    pub(crate) fn is_momentary(&self) -> bool {
        match self {
            Self::Acquire { ttl, .. } | Self::Take { ttl, .. } | Self::Renew { ttl, .. } => {
                *ttl == Span::Moment
            }
            Self::Announce { ttl, .. } => *ttl == Some(Span::Moment),
            Self::Want { stands, .. } => *stands == Span::Moment,
            Self::Discard { window, .. } => *window == Span::Moment,
            Self::Call { call: Call::Settle { window, .. }, .. } => *window == Span::Moment,
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Knows {
    All,
    Nothing,
    LowEpoch,
}

/// Which id a discard names for the mark.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Names {
    Its,
    None,
    Other(u8),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Next,
    Again,
    Skip,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: u8,
    pub(crate) own_id: bool,
    pub(crate) key: u8,
}

#[derive(Debug, Clone)]
pub(crate) enum Call {
    Claim {
        count: usize,
    },
    Recover {
        go_on: bool,
        count: usize,
    },
    Settle {
        window: Span,
        jobs: Vec<Settle>,
    },
    HandBack {
        jobs: Vec<Which>,
    },
    /// Outbox entries counted from the oldest.
    Forward {
        entries: Vec<usize>,
    },
    Release,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    /// Of those that are claimed, the oldest first.
    Claimed(usize),
    /// Of all that ever were, the newest first.
    Any(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Settle {
    pub(crate) job: Which,
    /// Else the turn it stands at.
    pub(crate) turn: Option<u32>,
    /// The opposite of whether its id is its producer's.
    pub(crate) wrong_mark: bool,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    Done { version: u64, entity: Option<Option<u8>>, emits: usize },
    Retry { attempts: u32, delay: Span },
    Discard,
    Dead { letter: u8, at_ms: u64 },
}

pub(crate) const ACTORS: usize = 3;
pub(crate) const KEYS: u8 = 2;
pub(crate) const IDS: u8 = 4;
pub(crate) const LETTERS: u8 = 3;

pub(crate) fn sequence() -> impl Strategy<Value = Vec<Operation>> {
    vec(operation(), 1..60)
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        1 => prop_oneof![3 => Just(1), 1 => Just(2u16)].prop_map(|partitions| Operation::Create { partitions }),
        1 => prop_oneof![4 => Just(Operation::Limit { jobs: 0 }), 1 => Just(Operation::Limit { jobs: 4 }),
            1 => Just(Operation::Flush)],
        20 => enqueue(),
        2 => (who(), span(), knows()).prop_map(|(who, ttl, knows)| Operation::Acquire { who, ttl, knows }),
        8 => (who(), span()).prop_map(|(who, ttl)| Operation::Take { who, ttl }),
        6 => (who(), span()).prop_map(|(who, stands)| Operation::Want { who, stands }),
        3 => (who(), ago(), span(), prop_oneof![5 => Just(0), 1 => Just(9u64)]).prop_map(
            |(who, tenures_ago, ttl, answered_ahead)| Operation::Renew { who, tenures_ago, ttl, answered_ahead }),
        60 => (who(), ago(), number(), call()).prop_map(
            |(who, tenures_ago, number, call)| Operation::Call { who, tenures_ago, number, call }),
        2 => (who(), proptest::option::of(span()), any::<bool>())
            .prop_map(|(who, ttl, draining)| Operation::Announce { who, ttl, draining }),
        1 => (0..KEYS).prop_map(|key| Operation::SpoilEntity { key }),
        6 => (vec((0..LETTERS, names()), 1..4), span())
            .prop_map(|(letters, window)| Operation::Discard { letters, window }),
    ]
}

fn names() -> impl Strategy<Value = Names> {
    prop_oneof![6 => Just(Names::Its), 1 => Just(Names::None), 1 => (0..IDS).prop_map(Names::Other)]
}

fn who() -> impl Strategy<Value = usize> {
    prop_oneof![6 => Just(0), 2 => Just(1), 1 => Just(2usize)]
}

fn ago() -> impl Strategy<Value = usize> {
    prop_oneof![12 => Just(0), 1 => Just(1usize)]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![4 => Just(Span::Hour), 1 => Just(Span::Moment)]
}

fn knows() -> impl Strategy<Value = Knows> {
    prop_oneof![Just(Knows::All), Just(Knows::Nothing), Just(Knows::LowEpoch)]
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![16 => Just(Number::Next), 2 => Just(Number::Again), 1 => Just(Number::Skip)]
}

fn enqueue() -> impl Strategy<Value = Operation> {
    let job = (0..IDS, proptest::bool::weighted(0.6), 0..KEYS).prop_map(|(id, own_id, key)| Job {
        id,
        own_id,
        key,
    });
    let partitions = prop_oneof![15 => Just(1), 1 => Just(2u16)];
    (proptest::bool::weighted(0.1), partitions, vec(job, 1..4)).prop_map(
        |(repeat_last_call, partitions, jobs)| Operation::Enqueue { repeat_last_call, partitions, jobs },
    )
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        10 => (1..5usize).prop_map(|count| Call::Claim { count }),
        6 => (proptest::bool::weighted(0.3), 1..4usize).prop_map(|(go_on, count)| Call::Recover { go_on, count }),
        20 => (span(), vec(settle(), 1..5)).prop_map(|(window, jobs)| Call::Settle { window, jobs }),
        3 => vec(which(), 0..4).prop_map(|jobs| Call::HandBack { jobs }),
        2 => vec(0..4usize, 0..3).prop_map(|entries| Call::Forward { entries }),
        1 => Just(Call::Release),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![6 => (0..4usize).prop_map(Which::Claimed), 1 => (0..12usize).prop_map(Which::Any)]
}

fn settle() -> impl Strategy<Value = Settle> {
    let turn = prop_oneof![8 => Just(None), 1 => (0..3u32).prop_map(Some)];
    (which(), turn, proptest::bool::weighted(0.1), verdict())
        .prop_map(|(job, turn, wrong_mark, verdict)| Settle { job, turn, wrong_mark, verdict })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    // Beyond 2^53 neighbours are one number in Lua.
    let version = prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(9_007_199_254_740_992), 1 => Just(9_007_199_254_740_993), 1 => Just(u64::MAX)
    ];
    prop_oneof![
        3 => Just(Verdict::Done { version: 0, entity: None, emits: 0 }),
        4 => (version, proptest::option::weighted(0.8, proptest::option::weighted(0.8, any::<u8>())), 0..3usize)
            .prop_map(|(version, entity, emits)| Verdict::Done { version, entity, emits }),
        2 => (0..5u32, span()).prop_map(|(attempts, delay)| Verdict::Retry { attempts, delay }),
        1 => Just(Verdict::Discard),
        1 => (0..LETTERS, 0..3u64).prop_map(|(letter, at_ms)| Verdict::Dead { letter, at_ms }),
    ]
}
