//! The command line, as a library: a worker of one's own is this whole program with its own handlers.
//!
//! In reading order:
//!
//! * [`main`]: arguments, settings, log, command, exit code. `args` lists the commands and the exit codes.
//! * [`settings`]: every layer of them, checked.
//! * [`node`]: run until a signal, then drain. `ingest`: the same for a server that takes jobs by HTTP. `monitor`: looks at queues.
//! * `enqueue`, `queues`, `dead`, `explain`, `cancel`, `pause` (with `resume` and `pauses`), `purge`, `keys`, `schedules`, `kinds`, `audit`, `doctor`, `roundtrip`, `postgres`, `config`, `dev`: a file per command, with a folder
//!   where it has parts; `reason` and `history` are what several of them say about a job.
//! * `health`: what every role that stays answers about itself.
//! * [`logging`], `output`, [`exit`]: where words go.
//!
//! Invariants: results on standard output, everything else on standard error; no message shows a secret; a command
//! other than `node`, `ingest`, `dev`, `roundtrip` and `enqueue --create` changes nothing but what it was asked to; what a person replays,
//! releases, skips, cancels, purges, pauses, resumes or removes is noted in the audit log before it is done.

mod args;
mod audit;
mod cancel;
mod config;
mod dead;
mod dev;
mod doctor;
mod enqueue;
pub mod exit;
mod explain;
mod health;
mod history;
mod ingest;
mod keys;
mod kinds;
pub mod logging;
mod monitor;
pub mod node;
mod output;
mod pause;
#[cfg(feature = "postgres")]
mod postgres;
mod purge;
mod queues;
mod reason;
mod roundtrip;
mod schedules;
pub mod settings;
mod telemetry;

use args::{Arguments, Command, ConfigCommand, DeadCommand};
use clap::Parser;
use exit::{End, Failure};
use gristmill_broker::Connection;
use gristmill_handler::Registry;
use gristmill_schedule::Schedule;
use settings::Settings;
use std::process::ExitCode;

/// The whole program: reads the arguments of this process and does what they ask for, with these handlers.
///
/// The exit code is 0 when done, 1 when failed, 2 for wrong usage or settings, 3 when done in part, 4 when a node left
/// while handlers could not be stopped.
#[must_use]
pub fn main(registry: Registry) -> ExitCode {
    main_with(registry, Vec::new())
}

/// The same for a program that defines schedules in its code, beside those of the settings: no name may be both.
#[must_use]
pub fn main_with(registry: Registry, schedules: Vec<Schedule>) -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come this way too, with code 0.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(&arguments, registry, schedules) {
        Ok(end) => end.into(),
        Err(failure) => {
            output::complain(&format!("gristmill: {failure}"));
            failure.code()
        }
    }
}

fn run(arguments: &Arguments, registry: Registry, schedules: Vec<Schedule>) -> Result<End, Failure> {
    let layers = arguments.layers()?;
    let settings = Settings::load(&layers)?;
    let serves = arguments.command.serves();
    logging::start(&settings, !serves);
    match &arguments.command {
        Command::Node(_) => node::command(&settings, registry, schedules),
        Command::Dev(dev) => dev::command(layers, &settings, dev, registry),
        Command::Ingest(_) => ingest::command(&settings),
        Command::Monitor => monitor::command(&settings),
        Command::Healthcheck => health::check::command(&settings),
        Command::Enqueue(enqueue) => enqueue::command(&settings, enqueue),
        Command::Queues { json } => block_on(queues::command(&settings, *json)),
        Command::Dead(DeadCommand::List(list)) => block_on(dead::list::command(&settings, list)),
        Command::Dead(DeadCommand::Show(show)) => block_on(dead::show::command(&settings, show)),
        Command::Dead(DeadCommand::Replay(replay)) => block_on(dead::replay::command(&settings, replay)),
        Command::Dead(DeadCommand::Discard(discard)) => block_on(dead::discard::command(&settings, discard)),
        Command::Explain(explain) => block_on(explain::command(&settings, explain)),
        Command::Cancel(cancel) => block_on(cancel::command(&settings, cancel)),
        Command::Pause(pause) => block_on(pause::pause(&settings, pause)),
        Command::Resume(resume) => block_on(pause::resume(&settings, resume)),
        Command::Pauses(pauses) => block_on(pause::pauses(&settings, pauses)),
        Command::Purge(purge) => block_on(purge::command(&settings, purge)),
        Command::Keys(keys) => block_on(keys::command(&settings, keys)),
        Command::Schedules(schedules) => block_on(schedules::command(&settings, schedules)),
        Command::Kinds(kinds) => block_on(kinds::command(&settings, kinds)),
        Command::Audit(audit) => block_on(audit::command(&settings, audit)),
        Command::Doctor { json } => block_on(doctor::command(&settings, *json)),
        Command::Roundtrip(roundtrip) => block_on(roundtrip::command(&settings, roundtrip)),
        #[cfg(feature = "postgres")]
        Command::Postgres(command) => block_on(postgres::command(&settings, command)),
        Command::Config(ConfigCommand::Show { json }) => config::show(&settings, *json),
        Command::Config(ConfigCommand::Check { json }) => config::check(&settings, *json),
    }
}

fn block_on(command: impl Future<Output = Result<End, Failure>>) -> Result<End, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

/// One connection, at once or not at all: a person waits for the answer.
async fn connect(settings: &Settings) -> Result<Connection, Failure> {
    Connection::open(&settings.redis()?, 1).await.map_err(|error| {
        Failure::Failed(format!("{error}; `gristmill config show` tells where redis.url comes from"))
    })
}
