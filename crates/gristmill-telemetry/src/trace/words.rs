//! Names and words of spans: OpenTelemetry's conventions for messaging (1.44, still in development; copied, since their
//! crate keeps them behind an experimental feature), and our own.

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $on:literal, $help:literal;)*) => {
        $(#[doc = $help] pub const $name: &str = $word;)*

        /// Every attribute: its name, on which spans it is, what it tells.
        pub const ATTRIBUTES: &[(&str, &str, &str)] = &[$(($word, $on, $help)),*];
    };
}

words! {
    SYSTEM = "messaging.system", "all", "`gristmill`: Redis is not among the systems that the conventions know.";
    OPERATION_NAME = "messaging.operation.name", "all", "`send`, `process` or `settle`.";
    OPERATION_TYPE = "messaging.operation.type", "all", "`send`, `process` or `settle`.";
    DESTINATION = "messaging.destination.name", "all", "The queue.";
    PARTITION = "messaging.destination.partition.id", "process, settle", "The partition.";
    GROUP = "messaging.consumer.group.name", "process, settle", "`workers`: the consumer group in Redis.";
    CLIENT_ID = "messaging.client.id", "process, settle", "Which start of which node.";
    MESSAGE_ID = "messaging.message.id", "all", "The job's id.";
    ERROR_TYPE = "error.type", "process, settle, send", "Of what sort the error was: `transient`, `permanent`, `unknown`, `panic`, `timeout`, or why an enqueue failed.";
    KIND = "gristmill.job.kind", "all", "What sort of work it is.";
    VERSION = "gristmill.job.version", "process", "The producer's number for the state of the entity.";
    PLACE = "gristmill.job.place", "send, process", "Where it stands in the order of its key.";
    ATTEMPT = "gristmill.job.attempt", "process", "Which attempt; 1 for the first.";
    TURN = "gristmill.job.turn", "process", "How often the job was put back before.";
    REPLAYS = "gristmill.job.replays", "process", "How often it came back from the dead, where it did.";
    RECOVERED = "gristmill.job.recovered", "process", "Whether it was taken back from an owner that is gone.";
    RECONCILE = "gristmill.job.reconcile", "process", "Whether not the handler ran, but what looks how an interrupted run ended.";
    WAIT_MS = "gristmill.job.wait_ms", "process", "From when it was ready, or due again, to the start of the run.";
    RUN_MS = "gristmill.run_ms", "process", "How long the handler ran; the span ends with the answer to its settle.";
    OUTCOME = "gristmill.outcome", "process", "What became of it, as in the metric `gristmill_job_attempts_total`.";
    REASON = "gristmill.dead_letter.reason", "process", "Why the job is a dead letter, where it is one.";
    EFFECT = "gristmill.effect", "process", "`put`, `delete` or `none`: what the run did to its entity.";
    EMITTED = "gristmill.emitted", "process", "How many jobs it emitted, where it did.";
    SCHEDULE = "gristmill.schedule.name", "send", "The schedule whose slot was fired, where one was.";
    SLOT_MS = "gristmill.schedule.slot_ms", "send", "That slot, in ms since 1970.";
    RELATION = "gristmill.relation", "links", "`creation`, `previous_attempt` or `replay_of`.";
}

/// The value of [`SYSTEM`].
pub const GRISTMILL: &str = "gristmill";
/// The value of [`GROUP`].
pub const WORKERS: &str = "workers";

/// A link to the span that made the job.
pub const CREATION: &str = "creation";
/// A link to the attempt before.
pub const PREVIOUS_ATTEMPT: &str = "previous_attempt";
/// A link to the attempt after which the job was a dead letter.
pub const REPLAY_OF: &str = "replay_of";

/// The handler answered.
pub const ANSWERED: &str = "answered";
/// The verdict is written.
pub const SETTLED: &str = "settled";
