//! `postgres`: the tables of effects in Postgres, the relay of the outbox, the pruning of the inbox.

use crate::exit::{End, Failure};
use crate::health;
use crate::node::Signals;
use crate::output;
use crate::settings::Settings;
use crate::settings::postgres::RelaySettings;
use crate::telemetry::{SHORT, Told};
use clap::{Args, Subcommand};
use gristmill_broker::{Broker, RedisConfig};
use gristmill_postgres::{Probe, Relay, migrate, prune};
use gristmill_telemetry::metrics::Role;
use gristmill_telemetry::{Stage, Telemetry};
use std::time::Duration;
use tokio::runtime::Handle;

/// Between two questions whether Postgres is there.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub(crate) enum PostgresCommand {
    /// Make or update the tables, in the schema `gristmill`; safe to repeat
    Migrate(DatabaseArguments),
    /// Enqueue what is committed in the outbox, until SIGTERM or Ctrl-C; any number may run
    Relay {
        #[command(flatten)]
        database: DatabaseArguments,
        /// Remove inbox rows that are older (postgres.prune_inbox_after_days)
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
        prune_inbox_after_days: Option<u32>,
    },
    /// Remove inbox rows by age, once
    Prune {
        #[command(flatten)]
        database: DatabaseArguments,
        /// Rows that are older go; more than the longest time after which a job may come again
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
        older_than_days: u32,
    },
}

#[derive(Args)]
pub(crate) struct DatabaseArguments {
    /// The database (postgres.url): postgres://user@host/name; passwords belong in postgres.url_file or PGPASSFILE, since
    /// others see arguments
    #[arg(long = "database", value_name = "URL")]
    url: Option<String>,
}

impl PostgresCommand {
    /// What its arguments say instead of settings: the key, the value and the argument.
    pub(crate) fn overrides(&self) -> Vec<(&'static str, Option<String>, &'static str)> {
        let (database, days) = match self {
            Self::Migrate(database) | Self::Prune { database, .. } => (database, None),
            Self::Relay { database, prune_inbox_after_days } => (database, *prune_inbox_after_days),
        };
        let days = days.map(|days| days.to_string());
        vec![
            ("postgres.url", database.url.clone(), "--database"),
            ("postgres.prune_inbox_after_days", days, "--prune-inbox-after-days"),
        ]
    }
}

pub(crate) async fn command(settings: &Settings, command: &PostgresCommand) -> Result<End, Failure> {
    let Some(database) = settings.database()? else {
        let text = "which database? --database postgres://user@host/name, or postgres.url or postgres.url_file in the settings";
        return Err(Failure::Usage(text.into()));
    };
    match command {
        PostgresCommand::Migrate(_) => {
            migrate(database.pool()).await.map_err(failed)?;
            output::print("the tables in the schema `gristmill` are up to date")?;
        }
        PostgresCommand::Prune { older_than_days, .. } => {
            let age = Duration::from_secs(u64::from(*older_than_days) * 24 * 3600);
            let gone = prune(database.pool(), age).await.map_err(failed)?;
            output::print(&format!("pruned={gone}"))?;
        }
        PostgresCommand::Relay { .. } => {
            let told = Told::start(settings, Role::Relay)?;
            let telemetry = told.telemetry.clone();
            let probe = Probe::new(database.clone());
            let wanted = RelaySettings { database, prune_after: settings.prune_inbox_after()? };
            let redis = RedisConfig { telemetry: telemetry.clone(), ..settings.redis()? };
            health::start(settings, &telemetry)?;
            health::beat(&Handle::current(), telemetry.pulse("runtime"));
            let broker = Broker::connect(redis);
            tokio::spawn(reached(probe, broker.clone(), telemetry.clone()));
            let relay = over(broker, &wanted)?;
            count(&relay, &telemetry);
            let mut signals = Signals::listen()?;
            output::complain("gristmill: the relay runs");
            let asked = async {
                signals.next().await;
                telemetry.reach(Stage::Leaving);
            };
            relay.run(asked).await;
            output::print(&said(&relay))?;
            let _ = tokio::task::spawn_blocking(|| told.finish(SHORT)).await;
        }
    }
    Ok(End::Done)
}

/// A relay is ready once both of its sides have answered.
async fn reached(probe: Probe, broker: Broker, telemetry: Telemetry) {
    while probe.look().await.is_err() {
        tokio::time::sleep(ASK_AGAIN).await;
    }
    health::reached(broker, telemetry).await;
}

/// A relay from this database to the Redis of `redis`. Call it on a runtime.
pub(crate) fn relay(redis: RedisConfig, wanted: &RelaySettings) -> Result<Relay, Failure> {
    over(Broker::connect(redis), wanted)
}

fn over(broker: Broker, wanted: &RelaySettings) -> Result<Relay, Failure> {
    let relay = Relay::new(&wanted.database, broker);
    match wanted.prune_after {
        Some(age) => relay.prune_inbox_after(age).map_err(failed),
        None => Ok(relay),
    }
}

/// What it has done is told whenever somebody asks for metrics.
pub(crate) fn count(relay: &Relay, telemetry: &Telemetry) {
    let relay = relay.clone();
    telemetry.ask(move |metrics| {
        let counts = relay.counts();
        metrics.outbox_relayed_total.one().set(counts.relayed);
        metrics.outbox_refused_total.one().set(counts.refused);
    });
}

/// What it has done, in a line.
pub(crate) fn said(relay: &Relay) -> String {
    let counts = relay.counts();
    format!(
        "relayed={} refused={} errors={} pruned={}",
        counts.relayed, counts.refused, counts.errors, counts.pruned
    )
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("Postgres: {error}"))
}
