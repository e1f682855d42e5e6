//! What a process answers about itself, on a port and a thread of its own: a runtime whose threads are all held is seen, and
//! does not hide itself.
//!
//! | path | 200 means | 503 |
//! |---|---|---|
//! | `/livez` | what does the work moves; whether Redis answers does not matter | it stood still for longer than `health.still_ms` |
//! | `/readyz` | Redis was reached once, and work looked for | not yet; or it leaves |
//! | `/startupz` | the settings were read, and the runtime ticks | it does not tick yet |
//! | `/metrics` | always | |
//!
//! Bounded: so many connections, each for so long, with heads of so many bytes; bodies are not read.
//!
//! Here: what is answered. `server` is how.

pub(crate) mod check;
mod server;

use crate::exit::Failure;
use crate::settings::Settings;
use crate::settings::health::HealthConfig;
use gristmill_broker::Broker;
use gristmill_telemetry::metrics::text::CONTENT_TYPE;
use gristmill_telemetry::pulse::{Pulse, TICK_EVERY};
use gristmill_telemetry::{Stage, Telemetry};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl Said {
    pub(crate) fn words(status: u16, words: impl Into<String>) -> Self {
        let body = format!("{}\n", words.into());
        Self { status, content_type: "text/plain; charset=utf-8", body }
    }

    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        Self { status, content_type: "application/json", body: value.to_string() }
    }
}

/// Answers of a role's own, by path; `None` where there is none.
pub(crate) type More = Arc<dyn Fn(&str) -> Option<Said> + Send + Sync>;

/// What there is to answer with.
pub(crate) struct Health {
    config: HealthConfig,
    telemetry: Telemetry,
    more: More,
}

/// Listens from now on, until the process ends. Nothing where no address is set.
pub(crate) fn start(settings: &Settings, telemetry: &Telemetry) -> Result<(), Failure> {
    start_with(settings, telemetry, Arc::new(|_| None))
}

/// The same, with answers of the role's own.
pub(crate) fn start_with(settings: &Settings, telemetry: &Telemetry, more: More) -> Result<(), Failure> {
    match settings.health()? {
        Some(config) => server::start(Health { config, telemetry: telemetry.clone(), more }),
        None => Ok(()),
    }
}

/// Ticks on this runtime for as long as it lives.
pub(crate) fn beat(runtime: &Handle, pulse: Pulse) {
    runtime.spawn(async move {
        let mut ticks = tokio::time::interval(TICK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            pulse.tick(Instant::now());
        }
    });
}

/// Tells once that Redis was reached.
pub(crate) async fn reached(broker: Broker, telemetry: Telemetry) {
    while broker.connection().await.is_err() {}
    telemetry.reach(Stage::Ready);
}

impl Health {
    pub(crate) fn answer(&self, path: &str) -> Said {
        match path {
            "/livez" => self.lives(Instant::now()),
            "/readyz" => self.is_ready(),
            "/startupz" => match self.telemetry.has_pulse() {
                true => Said::words(200, "started"),
                false => Said::words(503, "nothing ticks yet"),
            },
            "/metrics" => {
                Said { status: 200, content_type: CONTENT_TYPE, body: self.telemetry.read().text() }
            }
            other => (self.more)(other)
                .unwrap_or_else(|| Said::words(404, "there is /livez, /readyz, /startupz and /metrics")),
        }
    }

    fn lives(&self, now: Instant) -> Said {
        match self.telemetry.stillest(now) {
            Some((what, still)) if still > self.config.still => {
                Said::words(503, format!("the {what} has stood still for {} s", still.as_secs()))
            }
            _ => Said::words(200, "alive"),
        }
    }

    fn is_ready(&self) -> Said {
        match self.telemetry.stage() {
            Stage::Starting => Said::words(503, "Redis has not been reached yet"),
            Stage::Ready => Said::words(200, "ready"),
            Stage::Leaving => Said::words(503, "draining"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_telemetry::metrics::Role;
    use std::time::Duration;

    fn health() -> (Telemetry, Health) {
        let telemetry = Telemetry::new(Role::Node);
        let config = HealthConfig { listen: ([127, 0, 0, 1], 0).into(), still: Duration::from_secs(30) };
        (telemetry.clone(), Health { config, telemetry, more: Arc::new(|_| None) })
    }

    #[test]
    fn it_is_ready_from_the_first_contact_until_it_leaves_whatever_comes_between() {
        let (telemetry, health) = health();
        assert_eq!(health.answer("/readyz").status, 503);
        telemetry.reach(Stage::Ready);
        telemetry.lost(&gristmill_telemetry::events::others::RedisLost { role: "heartbeat", generation: 1 });
        assert_eq!(health.answer("/readyz").status, 200);
        telemetry.reach(Stage::Leaving);
        telemetry.reach(Stage::Ready);
        assert_eq!(health.answer("/readyz"), Said::words(503, "draining"));
        assert_eq!(health.answer("/livez").status, 200);
    }

    #[test]
    fn it_lives_while_everything_that_has_a_pulse_ticks() {
        let (telemetry, health) = health();
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(health.answer("/startupz").status, 503);
        let (runtime, supervisor) = (telemetry.pulse("runtime"), telemetry.pulse("supervisor"));
        runtime.tick(began + second);
        assert_eq!(health.answer("/startupz").status, 200);
        assert_eq!(health.lives(began + 29 * second).status, 200);
        runtime.tick(began + 60 * second);
        let dead = health.lives(began + 60 * second);
        assert_eq!((dead.status, dead.body.as_str()), (503, "the supervisor has stood still for 59 s\n"));
        supervisor.tick(began + 60 * second);
        assert_eq!(health.lives(began + 60 * second).status, 200);
        supervisor.end();
        runtime.tick(began + 120 * second);
        assert_eq!(health.lives(began + 120 * second).status, 200);
    }

    #[test]
    fn what_is_not_there_says_what_is() {
        let (_, health) = health();
        assert_eq!(health.answer("/").status, 404);
        assert!(health.answer("/metrics").body.contains("\ngristmill_redis_up 0\n"));
    }
}
