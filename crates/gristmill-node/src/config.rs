//! What a node is told. Constructors refuse nonsense and say what was expected.

pub use gristmill_broker::Mode;
use gristmill_broker::keys::{DEFAULT_PARTITIONS, MAX_PARTITIONS};
use gristmill_broker::{QueueDefinition, RedisConfig};
use gristmill_job::{JobLimits, QueueName, RetryBudget, RetryPolicy, UnixMillis};
use gristmill_schedule::Schedule;
use gristmill_telemetry::Telemetry;
use std::time::Duration;

/// What becomes of a key after one of its jobs became a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfterDeadLetter {
    /// Its later jobs go on.
    #[default]
    Continue,
    /// They wait until a person acts on the dead letter, or releases the key.
    Hold,
}

impl AfterDeadLetter {
    /// The word used in settings and lists.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Hold => "hold",
        }
    }

    /// By its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Continue, Self::Hold].into_iter().find(|policy| policy.as_str() == word)
    }
}

/// One queue to serve.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueConfig {
    /// Its name.
    pub name: QueueName,
    /// How many partitions it has; fixed when the queue is first made.
    pub partitions: u16,
    /// What order its jobs keep; fixed when the queue is first made.
    pub mode: Mode,
    /// With [`Mode::None`]: how long a claim stands that is not prolonged; within [`VISIBILITY_TIMEOUTS`].
    pub visibility_timeout: Duration,
    /// How many of the node's starts it has beside the other queues, where they wait for slots: 1 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// How failed jobs are tried again.
    pub retry: RetryPolicy,
    /// How many retries it affords.
    pub retry_budget: RetryBudget,
    /// What becomes of a key after one of its jobs became a dead letter.
    pub after_dead_letter: AfterDeadLetter,
    /// After so many charged crashes a job is a dead letter `crashed`; at least 1. A kind may say otherwise.
    pub crash_budget: u32,
    /// How long a job waits for a node that serves its kind before it is a dead letter `unknown_kind`.
    pub unknown_kind_wait: Duration,
    /// Dead letters that are older are discarded, counted; `None`: they are kept until a person acts.
    pub dead_max_age: Option<Duration>,
    /// How many jobs each of its partitions may hold: ready, claimed and for later. Beyond it enqueue is refused. 0: no limit.
    pub length_limit: u64,
    /// How long after it became ready a job may start that says nothing of that, nor its kind; then it ends unrun, as `expired`.
    /// `None`: as long as it takes.
    pub expires_in: Option<Duration>,
    /// How long a producer's id absorbs its repeats after the job's verdict; `None`: as [`NodeConfig::seen_window`] says.
    pub seen_window: Option<Duration>,
}

impl QueueConfig {
    /// A queue with 64 partitions and the defaults for everything else.
    #[must_use]
    pub fn new(name: QueueName) -> Self {
        Self {
            name,
            partitions: DEFAULT_PARTITIONS,
            mode: Mode::Key,
            visibility_timeout: Duration::from_secs(30),
            weight: 1,
            retry: RetryPolicy::default(),
            retry_budget: RetryBudget::default(),
            after_dead_letter: AfterDeadLetter::default(),
            crash_budget: 3,
            unknown_kind_wait: Duration::from_secs(3600),
            dead_max_age: None,
            length_limit: 0,
            expires_in: None,
            seen_window: None,
        }
    }

    /// With another order.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// With another number of partitions.
    #[must_use]
    pub fn with_partitions(mut self, partitions: u16) -> Self {
        self.partitions = partitions;
        self
    }

    /// As it is made in Redis.
    #[must_use]
    pub fn definition(&self) -> QueueDefinition {
        QueueDefinition::new(self.name.clone(), self.partitions).with_mode(self.mode)
    }

    fn check(
        &self,
        ensure: impl Fn(bool, &'static str, &str, String) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        let legal = (1..=MAX_WEIGHT).contains(&self.weight);
        ensure(legal, "queues.weight", "1 to 100", self.weight.to_string())?;
        let RetryBudget { share, per_second } = self.retry_budget;
        let legal = share.is_finite() && share >= 0.0;
        ensure(legal, "queues.retry_budget.share", "a number from 0", share.to_string())?;
        let legal = per_second.is_finite() && per_second > 0.0;
        let expected = "more than 0, or jobs that all wait for their retry would wait for ever";
        ensure(legal, "queues.retry_budget.per_second", expected, per_second.to_string())?;
        let timeout = self.visibility_timeout;
        let expected = "1000 to 3600000 ms: it is prolonged every third of it";
        let got = format!("{} ms", timeout.as_millis());
        ensure(VISIBILITY_TIMEOUTS.contains(&timeout), "queues.visibility_timeout_ms", expected, got)?;
        let holds = self.mode == Mode::None && self.after_dead_letter == AfterDeadLetter::Hold;
        let expected = "continue, since its ordering is none: there are no lanes that could wait";
        ensure(!holds, "queues.after_dead_letter", expected, "hold".into())?;
        ensure(self.crash_budget > 0, "queues.crash_budget", "1 or more", "0".into())?;
        let kept = self.dead_max_age.is_none_or(|age| age >= SHORTEST_DEAD_AGE);
        let expected = "1000 ms or more, or nothing: kept until a person acts";
        let got = self.dead_max_age.unwrap_or_default();
        ensure(kept, "queues.dead_max_age_ms", expected, format!("{} ms", got.as_millis()))
    }
}

/// What a visibility timeout may be: it is prolonged every third of it, and a dead node's jobs wait about as long.
pub const VISIBILITY_TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

/// Most that a queue's weight may be.
pub const MAX_WEIGHT: u32 = crate::worker::turns::MAX_WEIGHT;
/// Younger dead letters are never discarded by age.
const SHORTEST_DEAD_AGE: Duration = Duration::from_secs(1);

/// Schedules of one node.
const MOST_SCHEDULES: usize = 10_000;

/// Everything a node needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// The node's name: its host or pod. A restart under the same name is another incarnation.
    pub name: String,
    /// How Redis is reached.
    pub redis: RedisConfig,
    /// The queues to serve.
    pub queues: Vec<QueueConfig>,
    /// How many handlers may run at a time.
    pub slots: usize,
    /// How long a lease is granted for.
    pub lease_ttl: Duration,
    /// How often leases are renewed.
    pub lease_renewal: Duration,
    /// How much earlier than Redis a node stops trusting its lease; at least one renewal interval.
    pub lease_margin: Duration,
    /// Longest a hand-over waits for runs before the owner goes on with the partition.
    pub handover_wait: Duration,
    /// How long a drain lets running jobs finish.
    pub drain_window: Duration,
    /// How long after the window the process is gone at the latest.
    pub drain_grace: Duration,
    /// Jobs claimed and not settled, per partition.
    pub window_jobs: usize,
    /// Bytes of jobs claimed and not settled, for the whole node.
    pub window_bytes: usize,
    /// Largest envelope that is decoded, in bytes.
    pub max_envelope_bytes: usize,
    /// How long the mark of a producer's id stays after its job's verdict.
    pub seen_window: Duration,
    /// A handler that holds its thread for longer without an await is given up, and its slot replaced. For a kind with a
    /// hard limit that limit and a second count instead.
    pub blocked_after: Duration,
    /// How often an owner counts what Redis holds of a partition, and repairs what waits for nothing.
    pub census_every: Duration,
    /// Recurring jobs; those of queues that are not served here are left to the nodes that serve them.
    pub schedules: Vec<Schedule>,
    /// Where is told what happens.
    pub telemetry: Telemetry,
}

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: expected {expected}, got {got}")]
pub struct ConfigError {
    /// Which setting.
    pub setting: &'static str,
    /// What was expected, and why.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl NodeConfig {
    /// The defaults, for one Redis and some queues.
    #[must_use]
    pub fn new(name: impl Into<String>, redis: RedisConfig, queues: Vec<QueueConfig>) -> Self {
        Self {
            name: name.into(),
            redis,
            queues,
            slots: 100,
            lease_ttl: Duration::from_secs(5),
            lease_renewal: Duration::from_secs(1),
            lease_margin: Duration::from_millis(1500),
            handover_wait: Duration::from_secs(5),
            drain_window: Duration::from_secs(25),
            drain_grace: Duration::from_secs(5),
            window_jobs: 512,
            window_bytes: 256 * 1024 * 1024,
            max_envelope_bytes: 1024 * 1024,
            seen_window: Duration::from_secs(24 * 3600),
            blocked_after: Duration::from_secs(30),
            census_every: Duration::from_secs(30),
            schedules: Vec::new(),
            telemetry: Telemetry::default(),
        }
    }

    /// With another lease time; renewal and margin in the same proportion as the defaults.
    #[must_use]
    pub fn with_lease(mut self, ttl: Duration) -> Self {
        self.lease_ttl = ttl;
        self.lease_renewal = ttl / 5;
        self.lease_margin = ttl * 3 / 10;
        self
    }

    /// # Errors
    /// The first setting, or relation of settings, that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ensure = |ok: bool, setting, expected: &str, got: String| {
            if ok { Ok(()) } else { Err(ConfigError { setting, expected: expected.into(), got }) }
        };
        let ms = |d: Duration| format!("{} ms", d.as_millis());
        ensure(!self.name.is_empty(), "node.name", "a name", "an empty text".into())?;
        ensure(!self.queues.is_empty(), "queues", "at least one queue to serve", "none".into())?;
        let mut names: Vec<&str> = self.queues.iter().map(|queue| queue.name.as_str()).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        ensure(
            twice.is_none(),
            "queues",
            "each queue once",
            format!("{:?} twice", twice.map_or("", |pair| pair[0])),
        )?;
        for queue in &self.queues {
            let legal = (1..=MAX_PARTITIONS).contains(&queue.partitions);
            ensure(legal, "queues.partitions", "1 to 1024", queue.partitions.to_string())?;
            ensure(queue.retry.max_attempts > 0, "queues.retry.max_attempts", "1 or more", "0".into())?;
            queue.check(ensure)?;
        }
        ensure((1..=100_000).contains(&self.slots), "node.slots", "1 to 100000", self.slots.to_string())?;
        let ttl = self.lease_ttl;
        let range = Duration::from_millis(500)..=Duration::from_secs(300);
        ensure(range.contains(&ttl), "lease.ttl_ms", "500 to 300000 ms", ms(ttl))?;
        let renewals = self.lease_renewal >= Duration::from_millis(50) && self.lease_renewal * 3 <= ttl;
        let expected = "50 ms or more, and at most a third of lease.ttl_ms, so that two renewals may fail";
        ensure(renewals, "lease.renewal_ms", expected, ms(self.lease_renewal))?;
        let margin = self.lease_margin >= self.lease_renewal && self.lease_margin + self.lease_renewal < ttl;
        let expected = "at least lease.renewal_ms (a failover may lose the last renewal), and less than \
                        lease.ttl_ms - lease.renewal_ms (or nothing would ever be trusted)";
        ensure(margin, "lease.margin_ms", expected, ms(self.lease_margin))?;
        let blocked = self.blocked_after >= Duration::from_secs(1);
        let expected = "1000 ms or more: a handler may compute for a while between two awaits";
        ensure(blocked, "node.blocked_after_ms", expected, ms(self.blocked_after))?;
        let census = self.census_every >= Duration::from_millis(100);
        let expected = "100 ms or more: every partition is counted so often";
        ensure(census, "node.census_every_ms", expected, ms(self.census_every))?;
        let grace = self.drain_grace >= Duration::from_secs(1);
        ensure(grace, "drain.grace_ms", "1000 ms or more", ms(self.drain_grace))?;
        ensure(self.window_jobs > 0, "window.jobs", "1 or more", "0".into())?;
        let least = self.max_envelope_bytes;
        let expected = "at least job.max_bytes, or the largest job could never be claimed";
        ensure(self.window_bytes >= least, "window.bytes", expected, self.window_bytes.to_string())?;
        let envelope = (1024..=512 * 1024 * 1024).contains(&self.max_envelope_bytes);
        ensure(envelope, "job.max_bytes", "1 KiB to 512 MiB", self.max_envelope_bytes.to_string())?;
        self.check_schedules(ensure)
    }

    fn check_schedules(
        &self,
        ensure: impl Fn(bool, &'static str, &str, String) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        let count = self.schedules.len();
        let expected = "at most 10000: each is looked at whenever one is due";
        ensure(count <= MOST_SCHEDULES, "schedules", expected, count.to_string())?;
        let mut names: Vec<&str> = self.schedules.iter().map(|schedule| schedule.name().as_str()).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        let got = format!("{:?} twice", twice.map_or("", |pair| pair[0]));
        ensure(twice.is_none(), "schedules", "each name once", got)?;
        let limits = JobLimits { max_envelope_bytes: self.max_envelope_bytes };
        for schedule in &self.schedules {
            let fits = schedule.job(UnixMillis(0)).and_then(|job| job.encode(UnixMillis(0), limits));
            let got = fits.as_ref().err().map(|error| format!("{}: {error}", schedule.name()));
            let expected = "jobs of at most job.max_bytes";
            ensure(fits.is_ok(), "schedules", expected, got.unwrap_or_default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> NodeConfig {
        let queue = QueueConfig::new(QueueName::new("q").unwrap());
        NodeConfig::new("n", RedisConfig::new("redis://127.0.0.1"), vec![queue])
    }

    #[test]
    fn the_defaults_are_legal_and_so_is_every_lease_in_their_proportion() {
        config().check().unwrap();
        for ms in [500, 1500, 2000, 60_000] {
            config().with_lease(Duration::from_millis(ms)).check().unwrap();
        }
    }

    #[test]
    fn impossible_relations_are_refused_by_name() {
        type Breaks = fn(&mut NodeConfig);
        let broken: [(&str, Breaks); 17] = [
            ("queues.visibility_timeout_ms", |c| c.queues[0].visibility_timeout = Duration::from_millis(999)),
            ("queues.after_dead_letter", |c| {
                c.queues[0].mode = Mode::None;
                c.queues[0].after_dead_letter = AfterDeadLetter::Hold;
            }),
            ("queues", |c| c.queues.clear()),
            ("queues", |c| c.queues.push(c.queues[0].clone())),
            ("queues.partitions", |c| c.queues[0].partitions = 0),
            ("queues.weight", |c| c.queues[0].weight = 0),
            ("queues.weight", |c| c.queues[0].weight = MAX_WEIGHT + 1),
            ("lease.renewal_ms", |c| c.lease_renewal = c.lease_ttl),
            ("lease.margin_ms", |c| c.lease_margin = c.lease_ttl),
            ("lease.margin_ms", |c| c.lease_margin = Duration::ZERO),
            ("window.bytes", |c| c.window_bytes = 1),
            ("node.blocked_after_ms", |c| c.blocked_after = Duration::ZERO),
            ("node.census_every_ms", |c| c.census_every = Duration::ZERO),
            ("queues.crash_budget", |c| c.queues[0].crash_budget = 0),
            ("queues.retry_budget.share", |c| c.queues[0].retry_budget.share = f64::NAN),
            ("queues.retry_budget.per_second", |c| c.queues[0].retry_budget.per_second = 0.0),
            ("queues.dead_max_age_ms", |c| c.queues[0].dead_max_age = Some(Duration::ZERO)),
        ];
        for (setting, breaks) in broken {
            let mut config = config();
            breaks(&mut config);
            assert_eq!(config.check().unwrap_err().setting, setting);
        }
    }
}
