//! `postgres`: the tables of effects in Postgres, the relay of the outbox, the pruning of the inbox.

use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use clap::{Args, Subcommand};
use gristmill_broker::Broker;
use gristmill_postgres::{Database, Relay, migrate, prune};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Subcommand)]
pub(crate) enum PostgresCommand {
    /// Make or update the tables, in the schema `gristmill`; safe to repeat
    Migrate(DatabaseArguments),
    /// Enqueue what is committed in the outbox, until SIGTERM or Ctrl-C; any number may run
    Relay {
        #[command(flatten)]
        database: DatabaseArguments,
        /// Remove inbox rows that are older; more than the longest time after which a job may come again
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
    /// The database: postgres://user@host/name; passwords belong in PGPASSFILE, since others see arguments
    #[arg(long = "database", value_name = "URL", env = "GRISTMILL_POSTGRES_URL", hide_env_values = true)]
    url: String,
}

impl DatabaseArguments {
    fn database(&self) -> Result<Database, Failure> {
        Database::new(&self.url).map_err(|error| Failure::Usage(error.to_string()))
    }
}

pub(crate) async fn command(settings: &Settings, command: &PostgresCommand) -> Result<End, Failure> {
    match command {
        PostgresCommand::Migrate(database) => {
            migrate(database.database()?.pool()).await.map_err(failed)?;
            output::print("the tables in the schema `gristmill` are up to date")?;
        }
        PostgresCommand::Prune { database, older_than_days } => {
            let gone = prune(database.database()?.pool(), days(*older_than_days)).await.map_err(failed)?;
            output::print(&format!("pruned={gone}"))?;
        }
        PostgresCommand::Relay { database, prune_inbox_after_days } => {
            let broker = Broker::connect(settings.redis()?);
            let mut relay = Relay::new(&database.database()?, broker);
            if let Some(age) = prune_inbox_after_days {
                relay = relay.prune_inbox_after(days(*age)).map_err(failed)?;
            }
            let (mut terminate, mut interrupt) =
                (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            output::complain("gristmill: the relay runs");
            relay
                .run(async {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                })
                .await;
            let counts = relay.counts();
            output::print(&format!(
                "relayed={} refused={} errors={} pruned={}",
                counts.relayed, counts.refused, counts.errors, counts.pruned
            ))?;
        }
    }
    Ok(End::Done)
}

fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 24 * 3600)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("Postgres: {error}"))
}
