//! What may be asked, and how it is drawn.

use crate::recurring::{self, Recurring};
use gristmill_broker::start::How;
use gristmill_broker::state::Why;
use proptest::collection::vec;
use proptest::prelude::*;

/// A time that is surely over when the next question is asked, or surely not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// It is over when it begins.
    Nothing,
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
        /// [`OWNER`] is whoever owns it then.
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
    /// The owner dies, and another builds its lanes.
    Succeed {
        who: usize,
        ttl: Span,
        count: usize,
    },
    /// A job that is nowhere any more comes back from the dead, counted from the newest; or one of another time.
    ComeBack {
        nth: Option<usize>,
        turn: u32,
        edited: bool,
        /// It died `crashed`.
        strong: bool,
    },
    /// Writes a line by hand, of a job or of none.
    Line {
        job: Option<Which>,
        line: Line,
    },
    /// Writes a hold by hand that names no letter.
    Hold {
        key: u8,
    },
    Recurring(Recurring),
    Absolve {
        /// Whose tenure and how long ago; else the run that its line names.
        run: Option<(usize, usize)>,
        /// Else the turn it stands at, or that its line names.
        turn: Option<u32>,
        job: Which,
    },
    /// These, and the nth of those for later; whether the lease is as it was seen, and the jobs by their ids.
    Purge {
        jobs: Vec<Which>,
        nth: Option<usize>,
        knows: bool,
        named: bool,
    },
    /// The nth of those for later.
    CancelDelayed {
        nth: usize,
        window: Span,
    },
    /// Named by its id, or by another.
    Cancel {
        job: Which,
        named: bool,
        window: Span,
    },
    Load {
        jobs: Vec<Which>,
    },
    /// Of no tenure; what that actor was told last, or whatever is there.
    Promote {
        who: Option<usize>,
        count: usize,
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
            Self::Enqueue { repeat_last_call, jobs, .. } => {
                *repeat_last_call || jobs.iter().any(|job| job.due == When::In(Span::Moment))
            }
            Self::Want { stands, .. } => *stands == Span::Moment,
            Self::Recurring(recurring) => recurring.is_momentary(),
            Self::Discard { window, .. }
            | Self::Cancel { window, .. }
            | Self::CancelDelayed { window, .. } => *window == Span::Moment,
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
    pub(crate) due: When,
}

/// When a job is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    Past,
    /// A moment ago, and behind whatever was to be due then.
    Just,
    In(Span),
    /// In two hours, as a time of the clock.
    At,
    Never,
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
        /// Where no lease guards them.
        claims: Vec<u64>,
        stopped: usize,
    },
    Take {
        go_on: bool,
        count: usize,
    },
    /// Each with its turn, else the one it stands at.
    Start {
        starts: Vec<(Which, Option<u32>, How)>,
    },
    Census,
    /// Outbox entries counted from the oldest.
    Forward {
        entries: Vec<usize>,
    },
    /// What was named last, or whatever is there.
    Promote {
        go_on: bool,
        count: usize,
    },
    Release,
}

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) turn: u32,
    pub(crate) suspicion: u8,
    pub(crate) interrupted: bool,
    pub(crate) asked: bool,
    /// Whose, of which tenure, and whether alone.
    pub(crate) mark: Option<(usize, usize, bool)>,
    pub(crate) charges: Vec<(usize, u32)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    /// Of those that are claimed, the oldest first.
    Claimed(usize),
    /// Of those that came back from the dead, the oldest first.
    Returned(usize),
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
    Retry { attempts: u32, delay: Span, why: Why, history: Vec<u8> },
    Discard,
    Duplicate,
    Stale,
    Cancelled,
    Expired,
    Dead { letter: u8, at_ms: u64, hold: bool, acknowledged: bool },
}

pub(crate) const ACTORS: usize = 3;
pub(crate) const OWNER: usize = ACTORS;
pub(crate) const KEYS: u8 = 2;
pub(crate) const IDS: u8 = 4;
pub(crate) const LETTERS: u8 = 3;

pub(crate) fn sequence() -> impl Strategy<Value = Vec<Operation>> {
    vec(operation(), 1..70)
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        1 => prop_oneof![3 => Just(1), 1 => Just(2u16)].prop_map(|partitions| Operation::Create { partitions }),
        1 => prop_oneof![4 => Just(Operation::Limit { jobs: 0 }), 1 => Just(Operation::Limit { jobs: 4 }),
            1 => Just(Operation::Flush)],
        20 => enqueue(),
        2 => (who(), span(), knows()).prop_map(|(who, ttl, knows)| Operation::Acquire { who, ttl, knows }),
        8 => (who(), span()).prop_map(|(who, ttl)| Operation::Take { who, ttl }),
        5 => (who(), span()).prop_map(|(who, stands)| Operation::Want { who, stands }),
        3 => (who(), ago(), span(), prop_oneof![5 => Just(0), 1 => Just(9u64)]).prop_map(
            |(who, tenures_ago, ttl, answered_ahead)| Operation::Renew { who, tenures_ago, ttl, answered_ahead }),
        60 => (prop_oneof![2 => Just(OWNER), 1 => who()], ago(), number(), call()).prop_map(
            |(who, tenures_ago, number, call)| Operation::Call { who, tenures_ago, number, call }),
        2 => (who(), proptest::option::of(span()), any::<bool>())
            .prop_map(|(who, ttl, draining)| Operation::Announce { who, ttl, draining }),
        1 => (0..KEYS).prop_map(|key| Operation::SpoilEntity { key }),
        8 => (who(), span(), 1..5usize).prop_map(|(who, ttl, count)| Operation::Succeed { who, ttl, count }),
        8 => (proptest::option::of(0..4usize), 1..4u32, any::<bool>(), proptest::bool::weighted(0.2))
            .prop_map(|(nth, turn, edited, strong)| Operation::ComeBack { nth, turn, edited, strong }),
        3 => (proptest::option::weighted(0.7, which()), line()).prop_map(|(job, line)| Operation::Line { job, line }),
        1 => (0..KEYS).prop_map(|key| Operation::Hold { key }),
        8 => (proptest::option::weighted(0.2, (0..ACTORS, 0..3usize)), turn(), which())
            .prop_map(|(run, turn, job)| Operation::Absolve { run, turn, job }),
        2 => vec(which(), 1..4).prop_map(|jobs| Operation::Load { jobs }),
        15 => recurring::operation().prop_map(Operation::Recurring),
        6 => (which(), proptest::bool::weighted(0.9), span())
            .prop_map(|(job, named, window)| Operation::Cancel { job, named, window }),
        2 => (vec(which(), 0..4), proptest::option::of(0..3usize), proptest::bool::weighted(0.9),
            proptest::bool::weighted(0.9))
            .prop_map(|(jobs, nth, knows, named)| Operation::Purge { jobs, nth, knows, named }),
        2 => (0..4usize, span()).prop_map(|(nth, window)| Operation::CancelDelayed { nth, window }),
        3 => (proptest::option::of(who()), 1..5usize).prop_map(|(who, count)| Operation::Promote { who, count }),
        4 => (vec((0..LETTERS, names()), 1..4), span())
            .prop_map(|(letters, window)| Operation::Discard { letters, window }),
    ]
}

fn names() -> impl Strategy<Value = Names> {
    prop_oneof![6 => Just(Names::Its), 1 => Just(Names::None), 1 => (0..IDS).prop_map(Names::Other)]
}

pub(crate) fn who() -> impl Strategy<Value = usize> {
    prop_oneof![6 => Just(0), 2 => Just(1), 1 => Just(2usize)]
}

fn ago() -> impl Strategy<Value = usize> {
    prop_oneof![12 => Just(0), 1 => Just(1usize)]
}

pub(crate) fn span() -> impl Strategy<Value = Span> {
    prop_oneof![4 => Just(Span::Hour), 1 => Just(Span::Moment)]
}

fn knows() -> impl Strategy<Value = Knows> {
    prop_oneof![Just(Knows::All), Just(Knows::Nothing), Just(Knows::LowEpoch)]
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![16 => Just(Number::Next), 2 => Just(Number::Again), 1 => Just(Number::Skip)]
}

fn enqueue() -> impl Strategy<Value = Operation> {
    let due = prop_oneof![60 => Just(When::Now), 12 => Just(When::In(Span::Moment)), 6 => Just(When::In(Span::Hour)),
        2 => Just(When::Past), 4 => Just(When::Just), 2 => Just(When::At), 1 => Just(When::Never)];
    let job = (0..IDS, proptest::bool::weighted(0.6), 0..KEYS, due).prop_map(|(id, own_id, key, due)| Job {
        id,
        own_id,
        key,
        due,
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
        32 => (span(), vec(settle(), 1..5)).prop_map(|(window, jobs)| Call::Settle { window, jobs }),
        3 => (vec(which(), 0..4), 0..4usize).prop_map(|(jobs, stopped)| Call::HandBack { jobs, claims: Vec::new(), stopped }),
        6 => (proptest::bool::weighted(0.3), 1..4usize).prop_map(|(go_on, count)| Call::Take { go_on, count }),
        18 => vec((which(), turn(), how()), 1..4).prop_map(|starts| Call::Start { starts }),
        2 => Just(Call::Census),
        2 => vec(0..4usize, 0..3).prop_map(|entries| Call::Forward { entries }),
        10 => (proptest::bool::weighted(0.7), 1..5usize).prop_map(|(go_on, count)| Call::Promote { go_on, count }),
        1 => Just(Call::Release),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        6 => (0..4usize).prop_map(Which::Claimed),
        2 => (0..3usize).prop_map(Which::Returned),
        1 => (0..12usize).prop_map(Which::Any),
    ]
}

fn turn() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![8 => Just(None), 1 => (0..3u32).prop_map(Some)]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![Just(How::Beside), Just(How::Alone), Just(How::Look)]
}

fn line() -> impl Strategy<Value = Line> {
    let mark = (0..ACTORS, 0..2usize, any::<bool>());
    let parts = (0..3u32, 0..3u8, any::<bool>(), any::<bool>(), proptest::option::of(mark));
    (parts, vec((0..ACTORS, 0..2u32), 0..3)).prop_map(
        |((turn, suspicion, interrupted, asked, mark), charges)| Line {
            turn,
            suspicion,
            interrupted,
            asked,
            mark,
            charges,
        },
    )
}

fn why() -> impl Strategy<Value = Why> {
    prop_oneof![Just(Why::Nothing), Just(Why::Retry), Just(Why::Snooze), Just(Why::Budget), Just(Why::Kind)]
}

fn settle() -> impl Strategy<Value = Settle> {
    (which(), turn(), proptest::bool::weighted(0.1), verdict())
        .prop_map(|(job, turn, wrong_mark, verdict)| Settle { job, turn, wrong_mark, verdict })
}

pub(crate) fn verdict() -> impl Strategy<Value = Verdict> {
    // Beyond 2^53 neighbours are one number in Lua.
    let version = prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(9_007_199_254_740_992), 1 => Just(9_007_199_254_740_993), 1 => Just(u64::MAX)
    ];
    prop_oneof![
        3 => Just(Verdict::Done { version: 0, entity: None, emits: 0 }),
        4 => (version, proptest::option::weighted(0.8, proptest::option::weighted(0.8, any::<u8>())), 0..3usize)
            .prop_map(|(version, entity, emits)| Verdict::Done { version, entity, emits }),
        3 => (0..5u32, span(), why(), vec(any::<u8>(), 0..6)).prop_map(
            |(attempts, delay, why, history)| Verdict::Retry { attempts, delay, why, history }),
        1 => prop_oneof![Just(Verdict::Discard), Just(Verdict::Duplicate), Just(Verdict::Stale)],
        2 => prop_oneof![2 => Just(Verdict::Cancelled), 1 => Just(Verdict::Expired)],
        2 => (0..LETTERS, 0..3u64, any::<bool>(), proptest::bool::weighted(0.2)).prop_map(
            |(letter, at_ms, hold, acknowledged)| Verdict::Dead { letter, at_ms, hold, acknowledged }),
    ]
}
