//! `monitor`: looks at every queue again and again, and tells how it stands: as metrics, and as one number for autoscalers.
//! It holds nothing; one is enough, and any number may run.
//!
//! ```text
//!   look at each queue (64 partitions a call) ──▶ gauges, /autoscale ──▶ rest: monitor.every_ms, and ten times the look
//! ```
//!
//! The outbox in Postgres is looked at beside it: a database that does not answer delays no number of a queue.
//!
//! What could not be looked at keeps its numbers, while `monitor_last_look_timestamp_seconds` stands still; `/autoscale`
//! tells none that is older than three rests, so that nobody scales by it.
//!
//! Here: the loop, and what becomes of a look. `autoscale` is the number.

mod autoscale;
mod schedules;

use crate::exit::{End, Failure};
use crate::health;
use crate::node::Signals;
use crate::settings::Settings;
use crate::telemetry::{SHORT, Told};
use autoscale::Autoscale;
use gristmill_broker::look::{Look, PARTITIONS};
use gristmill_broker::pause::{Pause, Target};
use gristmill_broker::{CallError, Connection, Link, Mode, QueueDefinition, RedisConfig};
use gristmill_job::UnixMillis;
use gristmill_telemetry::events::others::{LookFailed, MonitorReady};
use gristmill_telemetry::metrics::{Metrics, Role};
use gristmill_telemetry::{Stage, Telemetry};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A rest is so many times as long as the look before it, at least: Redis has other things to do.
const RESTS: u32 = 10;

/// Looks for ever.
struct Monitor {
    link: Link,
    telemetry: Telemetry,
    every: Duration,
    autoscale: Arc<Autoscale>,
    #[cfg(feature = "postgres")]
    outbox: Option<gristmill_postgres::Probe>,
}

pub(crate) fn command(settings: &Settings) -> Result<End, Failure> {
    let told = Told::start(settings, Role::Monitor)?;
    let telemetry = told.telemetry.clone();
    let (every, autoscale) = (settings.monitor_every()?, Arc::new(Autoscale::default()));
    if settings.health()?.is_none() {
        let text =
            "where shall it tell what it sees? health.listen, for example --set health.listen=127.0.0.1:9464";
        return Err(Failure::Usage(text.into()));
    }
    let redis = RedisConfig { telemetry: telemetry.clone(), ..settings.redis()? };
    let answers = autoscale.clone();
    health::start_with(settings, &telemetry, Arc::new(move |path| answers.answer(path, Instant::now())))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("gristmill-monitor")
        .build()?;
    health::beat(runtime.handle(), telemetry.pulse("runtime"));
    let end = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        telemetry.tell(&MonitorReady { every_ms: every, redis: &redis.redacted_url() });
        let monitor = Monitor {
            link: Link::start(redis, "monitor"),
            telemetry: telemetry.clone(),
            every,
            autoscale,
            #[cfg(feature = "postgres")]
            outbox: settings.database()?.map(gristmill_postgres::Probe::new),
        };
        #[cfg(not(feature = "postgres"))]
        settings.refuse_postgres()?;
        tokio::select! {
            () = monitor.queues() => {}
            () = monitor.outbox() => {}
            () = signals.next() => telemetry.reach(Stage::Leaving),
        }
        Ok(End::Done)
    });
    told.finish(SHORT);
    end
}

impl Monitor {
    async fn queues(&self) {
        loop {
            let connection = self.link.connected().await;
            let began = Instant::now();
            let whole = self.look(&connection).await;
            let took = began.elapsed();
            let rest = self.every.max(took * RESTS);
            self.autoscale.rests(rest);
            if whole {
                let metrics = self.telemetry.metrics();
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                metrics.monitor_look_duration_seconds.one().set(took.as_secs_f64());
                metrics.monitor_last_look_timestamp_seconds.one().set(since.as_secs_f64());
                self.telemetry.reach(Stage::Ready);
            }
            tokio::time::sleep(rest).await;
        }
    }

    /// Whether everything was seen.
    async fn look(&self, connection: &Connection) -> bool {
        let queues = match connection.queues().await {
            Ok(queues) => queues,
            Err(error) => {
                self.telemetry.tell(&LookFailed { what: "the list of queues", error: &error });
                return false;
            }
        };
        let mut whole = true;
        for queue in &queues {
            match seen(connection, queue).await {
                Ok(seen) => {
                    self.autoscale.saw(
                        queue.name.as_str(),
                        seen.look.ready() + seen.look.in_flight(),
                        Instant::now(),
                    );
                    tell(self.telemetry.metrics(), queue.name.as_str(), &seen);
                }
                Err(error) => {
                    whole = false;
                    self.telemetry.tell(&LookFailed { what: queue.name.as_str(), error: &error });
                }
            }
        }
        let is_there = |name: &str| queues.iter().any(|queue| queue.name.as_str() == name);
        forget(self.telemetry.metrics(), is_there);
        self.autoscale.forget(is_there);
        whole
    }

    #[cfg(feature = "postgres")]
    async fn outbox(&self) {
        let Some(probe) = &self.outbox else { return std::future::pending().await };
        let metrics = self.telemetry.metrics();
        loop {
            let began = Instant::now();
            match probe.look().await {
                Ok(Some(standing)) => {
                    let oldest = standing.oldest.unwrap_or_default();
                    metrics.outbox_backlog_rows.one().set(standing.waiting as f64);
                    metrics.outbox_oldest_age_seconds.one().set(oldest.as_secs_f64());
                    metrics.outbox_refused_rows.one().set(standing.refused as f64);
                    metrics.inbox_rows.one().set(standing.inbox.unwrap_or(0) as f64);
                }
                // The tables are not there yet, so nothing waits in them.
                Ok(None) => {}
                Err(error) => self.telemetry.tell(&LookFailed { what: "Postgres", error: &error }),
            }
            tokio::time::sleep(self.every.max(began.elapsed() * RESTS)).await;
        }
    }

    #[cfg(not(feature = "postgres"))]
    async fn outbox(&self) {
        std::future::pending().await
    }
}

/// What was seen of a queue.
struct Seen {
    mode: Mode,
    look: Look,
    serving: u64,
    draining: u64,
    pauses: Vec<Pause>,
    now: UnixMillis,
    overdue: schedules::Overdue,
}

async fn seen(connection: &Connection, queue: &QueueDefinition) -> Result<Seen, CallError> {
    let mut look = Look::default();
    for from in (0..queue.partitions).step_by(usize::from(PARTITIONS)) {
        let to = from.saturating_add(PARTITIONS).min(queue.partitions);
        look = look.and(&connection.look(queue, from..to).await?);
    }
    let (now, members) = connection.members(&queue.name).await?;
    let living = members.iter().filter(|member| member.expires > now);
    let draining = living.clone().filter(|member| member.draining).count() as u64;
    let serving = living.count() as u64 - draining;
    let (now, pauses) = connection.pauses(&queue.name).await?;
    let overdue = schedules::look(connection, queue).await?;
    Ok(Seen { mode: queue.mode, look, serving, draining, pauses, now, overdue })
}

fn tell(metrics: &Metrics, queue: &str, seen: &Seen) {
    let Seen { mode, look, serving, draining, pauses, now, overdue } = seen;
    schedules::tell(metrics, queue, overdue);
    for what in ["queue", "kind", "key"] {
        let is_it = |pause: &&Pause| match pause.target {
            Target::Queue => what == "queue",
            Target::Kind(_) => what == "kind",
            Target::Key(_) => what == "key",
        };
        let longest = pauses.iter().filter(is_it).map(|pause| pause.since.age_at(*now)).max();
        metrics.queue_paused_age_seconds.with(&[queue, what]).set(longest.unwrap_or_default().as_secs_f64());
    }
    for (state, jobs) in [
        ("ready", look.ready()),
        ("in_flight", look.in_flight()),
        ("retry", look.retries),
        ("waiting", look.waiting),
        ("delayed", look.delayed),
        ("dead", look.dead),
    ] {
        metrics.queue_jobs.with(&[queue, state]).set(jobs as f64);
    }
    for (gauge, age) in [
        (&metrics.queue_oldest_ready_age_seconds, look.oldest_ready),
        (&metrics.queue_oldest_in_flight_age_seconds, look.oldest_claim),
        (&metrics.key_blocked_max_age_seconds, look.blocked),
        (&metrics.queue_delayed_overdue_seconds, look.overdue),
    ] {
        gauge.with(&[queue]).set(age.unwrap_or_default().as_secs_f64());
    }
    metrics.queue_jobs_enqueued_total.with(&[queue]).set(look.added);
    metrics.queue_jobs_settled_total.with(&[queue]).set(look.added.saturating_sub(look.jobs));
    match mode {
        Mode::Key => {
            metrics.queue_partitions.with(&[queue, "owned"]).set(look.owned as f64);
            let orphaned = look.partitions - look.owned;
            metrics.queue_partitions.with(&[queue, "orphaned"]).set(orphaned as f64);
        }
        // Nobody owns one, and nobody is missed.
        Mode::None => metrics.queue_partitions.retain(|values| values.first().is_none_or(|of| of != queue)),
    }
    metrics.queue_nodes.with(&[queue, "serving"]).set(*serving as f64);
    metrics.queue_nodes.with(&[queue, "draining"]).set(*draining as f64);
}

/// A queue that was deleted has no numbers.
fn forget(metrics: &Metrics, is_there: impl Fn(&str) -> bool) {
    let kept = |values: &[String]| values.first().is_none_or(|queue| is_there(queue));
    metrics.queue_jobs.retain(kept);
    metrics.queue_oldest_ready_age_seconds.retain(kept);
    metrics.queue_oldest_in_flight_age_seconds.retain(kept);
    metrics.key_blocked_max_age_seconds.retain(kept);
    metrics.queue_delayed_overdue_seconds.retain(kept);
    metrics.schedule_overdue_seconds.retain(kept);
    metrics.queue_jobs_enqueued_total.retain(kept);
    metrics.queue_jobs_settled_total.retain(kept);
    metrics.queue_paused_age_seconds.retain(kept);
    metrics.queue_partitions.retain(kept);
    metrics.queue_nodes.retain(kept);
}
