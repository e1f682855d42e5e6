//! The arguments of every command.

use crate::audit::AuditArguments;
use crate::cancel::CancelArguments;
use crate::dead::discard::DiscardArguments;
use crate::dead::list::ListArguments;
use crate::dead::replay::ReplayArguments;
use crate::dead::show::ShowArguments;
use crate::explain::ExplainArguments;
use crate::keys::KeysArguments;
use crate::kinds::KindsArguments;
use crate::pause::{PauseArguments, PausesArguments, ResumeArguments};
#[cfg(feature = "postgres")]
use crate::postgres::PostgresCommand;
use crate::purge::PurgeArguments;
use crate::roundtrip::RoundtripArguments;
use crate::schedules::SchedulesCommand;
use crate::settings::{Layers, Override, SettingsError};
use clap::{ArgGroup, Args, Parser, Subcommand};
use gristmill_broker::Mode;
use gristmill_job::UnixMillis;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "\
Results go to standard output, messages and the log to standard error.

Exit codes:
  0  done (a node: drained, also when jobs were handed back)
  1  failed, or `doctor` found something bad
  2  wrong usage or wrong settings
  3  done in part: `enqueue` met bad lines and enqueued the others, `dead replay` or `dead discard` left some
  4  a node left while handlers could not be stopped; their jobs run again elsewhere";

/// Jobs from Redis streams: in order per key, each effect once.
#[derive(Parser)]
#[command(version, about, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) settings: SettingsArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct SettingsArguments {
    /// A settings file, instead of one per environment
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        conflicts_with = "env",
        env = "GRISTMILL_CONFIG",
        hide_env_values = true
    )]
    config: Option<PathBuf>,
    /// The environment: its settings are in ENV.toml in the settings folder
    #[arg(long, global = true, env = "GRISTMILL_ENV", hide_env_values = true)]
    env: Option<String>,
    /// The folder with a settings file per environment
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "config",
        env = "GRISTMILL_CONFIG_DIR",
        hide_env_values = true
    )]
    config_dir: PathBuf,
    /// The address of Redis (redis.url); passwords belong in redis.password_file, since others see arguments
    #[arg(long, global = true, value_name = "URL")]
    redis: Option<String>,
    /// Any setting: SECTION.KEY=VALUE, as often as needed
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Claim jobs and run their handlers until SIGTERM or Ctrl-C, then drain
    Node(NodeArguments),
    /// Take jobs by HTTP until SIGTERM or Ctrl-C, then drain
    Ingest(IngestArguments),
    /// Look at every queue again and again, and tell how it stands: metrics, and a number for autoscalers (health.listen)
    Monitor,
    /// Ask the process that runs with these settings whether it is ready (health.listen); 0 if it is, 1 if not
    Healthcheck,
    /// Enqueue newline-delimited JSON, plain or gzip
    Enqueue(EnqueueArguments),
    /// How every queue stands
    Queues {
        /// One JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Dead letters
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Where a job is, what happened to it, and why it does not run now
    Explain(ExplainArguments),
    /// Take back a job that waits
    Cancel(CancelArguments),
    /// Remove what waits in a queue
    Purge(PurgeArguments),
    /// Let nothing of a queue, a kind or a key start
    Pause(PauseArguments),
    /// End a pause
    Resume(ResumeArguments),
    /// What is paused, by whom, until when and why
    Pauses(PausesArguments),
    /// Keys whose lanes wait, why, and until when; release them, or skip what they wait for
    Keys(KeysArguments),
    /// Recurring jobs: how their schedules stand; pause, resume or trigger one
    #[command(subcommand)]
    Schedules(SchedulesCommand),
    /// The kinds that living nodes serve
    Kinds(KindsArguments),
    /// What people did by hand, newest first
    Audit(AuditArguments),
    /// Judge the server and the queues; each finding says how to mend it
    Doctor {
        /// One JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// One job all the way, in a queue of its own: enqueued, claimed, run, settled
    Roundtrip(RoundtripArguments),
    /// Effects in Postgres: its tables, the relay of its outbox, the pruning of its inbox
    #[cfg(feature = "postgres")]
    #[command(subcommand)]
    Postgres(PostgresCommand),
    /// The settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// A private Redis and a node, for trying things; both end with this command
    Dev(DevArguments),
}

impl Command {
    /// Whether it runs until it is told to stop, and logs what it does.
    pub(crate) fn serves(&self) -> bool {
        match self {
            Self::Node(_) | Self::Ingest(_) | Self::Monitor | Self::Dev(_) => true,
            #[cfg(feature = "postgres")]
            Self::Postgres(command) => matches!(command, PostgresCommand::Relay { .. }),
            _ => false,
        }
    }
}

#[derive(Args)]
pub(crate) struct NodeArguments {
    /// The queues to serve (queues): name or name:partitions, separated by commas
    #[arg(long, value_name = "QUEUES")]
    queues: Option<String>,
    /// The node's name (node.name)
    #[arg(long)]
    name: Option<String>,
    /// How many handlers may run at a time (node.slots)
    #[arg(long)]
    slots: Option<String>,
}

#[derive(Args)]
pub(crate) struct IngestArguments {
    /// The address to listen at (ingest.listen)
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The file with the tokens of those who may ask (ingest.tokens_file)
    #[arg(long, value_name = "FILE")]
    tokens_file: Option<String>,
}

#[derive(Args)]
#[command(group = ArgGroup::new("fields").multiple(true).args(["id", "key", "version"]).requires("kind"), after_help = LINES)]
pub(crate) struct EnqueueArguments {
    /// The queue
    pub(crate) queue: String,
    /// The file to read, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
    /// Every line is the payload of a job of this kind; id, key and version are fields of it
    #[arg(long, requires = "key")]
    pub(crate) kind: Option<String>,
    /// With --kind: the field that holds the job's id; without it, repeats cannot be known
    #[arg(long, value_name = "FIELD")]
    pub(crate) id: Option<String>,
    /// With --kind: the field that holds the key
    #[arg(long, value_name = "FIELD")]
    pub(crate) key: Option<String>,
    /// With --kind: the field that holds the version; 0 without it
    #[arg(long, value_name = "FIELD")]
    pub(crate) version: Option<String>,
    /// Due so long from now, such as 500ms, 90s, 5m, 36h or 7d; a line's own `at` or `in_ms` goes before it
    #[arg(long = "in", value_name = "TIME", value_parser = crate::dead::filter::duration)]
    pub(crate) due_in: Option<Duration>,
    /// Due then, such as 2026-12-24T08:00:00Z; a line's own `at` or `in_ms` goes before it
    #[arg(long, value_name = "TIME", conflicts_with = "due_in", value_parser = UnixMillis::from_rfc3339)]
    pub(crate) at: Option<UnixMillis>,
    /// Not to be started later than so long after it became ready; a line's own `expires_in_ms` goes before it
    #[arg(long, value_name = "TIME", value_parser = crate::dead::filter::duration)]
    pub(crate) expires_in: Option<Duration>,
    /// Make the queue if there is none
    #[arg(long)]
    pub(crate) create: bool,
    /// With --create: its number of partitions, fixed from then on [default: 64]
    #[arg(long, requires = "create", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) partitions: Option<u16>,
    /// With --create: what order its jobs keep, key or none, fixed from then on [default: key]
    #[arg(long, requires = "create", value_parser = ordering)]
    pub(crate) ordering: Option<Mode>,
    /// The summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn ordering(word: &str) -> Result<Mode, String> {
    Mode::parse(word).ok_or_else(|| format!("expected key or none, got {word:?}"))
}

const LINES: &str = "\
A line is {\"id\": …, \"key\": …, \"version\": …, \"kind\": …, \"payload\": …, \"at\": …, \"in_ms\": …, \"expires_in_ms\": …}: key, kind and payload are \
required, the payload is any JSON, at (a time, or Unix ms) or in_ms says when the job is due, expires_in_ms how long after that it may start. With --kind the whole line is the payload instead, byte for byte.

A bad line is reported with its number and reason, and the others are enqueued (exit code 3). Jobs with ids can \
be enqueued again at any time: what is known already is counted as a duplicate.";

#[derive(Subcommand)]
pub(crate) enum DeadCommand {
    /// List them page by page, oldest first
    List(ListArguments),
    /// Show one in full, its payload decoded
    Show(ShowArguments),
    /// Bring them back as jobs, by id or by filter, or one with another payload
    Replay(ReplayArguments),
    /// Remove them for good, by id or by filter
    Discard(DiscardArguments),
}

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Whether the settings can be, all of them, and what they amount to; connects to nothing
    Check {
        /// One JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Every setting, where it came from, and no secrets
    Show {
        /// One JSON object instead of text
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub(crate) struct DevArguments {
    /// The port of the private Redis; a free one where it is 0
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// The queues to serve [default: dev:8]
    #[arg(long, value_name = "QUEUES")]
    queues: Option<String>,
}

impl Arguments {
    /// The layers of settings that these arguments ask for.
    pub(crate) fn layers(&self) -> Result<Layers, SettingsError> {
        let file = match (&self.settings.config, &self.settings.env) {
            (Some(file), _) => Some(file.clone()),
            (None, Some(env)) => Some(self.settings.config_dir.join(format!("{env}.toml"))),
            (None, None) => None,
        };
        let mut overrides = Vec::new();
        let mut over = |key: &str, value: &Option<String>, origin: &str| {
            if let Some(value) = value {
                overrides.push(Override { key: key.into(), value: value.clone(), origin: origin.into() });
            }
        };
        for text in &self.settings.set {
            let (key, value) = text.split_once('=').unwrap_or(("", text));
            over(key, &Some(value.to_owned()), "--set");
        }
        over("redis.url", &self.settings.redis, "--redis");
        match &self.command {
            Command::Node(node) => {
                over("queues", &node.queues, "--queues");
                over("node.name", &node.name, "--name");
                over("node.slots", &node.slots, "--slots");
            }
            Command::Ingest(ingest) => {
                over("ingest.listen", &ingest.listen, "--listen");
                over("ingest.tokens_file", &ingest.tokens_file, "--tokens-file");
            }
            Command::Dev(dev) => over("queues", &dev.queues, "--queues"),
            #[cfg(feature = "postgres")]
            Command::Postgres(command) => {
                for (key, value, origin) in command.overrides() {
                    over(key, &value, origin);
                }
            }
            _ => {}
        }
        Ok(Layers { file, overrides, ..Layers::default() }.with_process_environment()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_fit_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn fields_are_named_only_for_lines_that_are_payloads() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        assert!(parse("gristmill enqueue q --from - --kind k --key k --id i").is_ok());
        for refused in [
            "gristmill enqueue q --from - --key k",
            "gristmill enqueue q --from - --kind k",
            "gristmill enqueue q --from - --partitions 8",
            "gristmill enqueue q --from - --create --partitions 0",
            "gristmill enqueue q --from - --ordering none",
            "gristmill enqueue q --from - --create --ordering fifo",
            "gristmill enqueue q",
            "gristmill --config a --env b queues",
        ] {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }
}

#[cfg(test)]
mod runbook_tests;
