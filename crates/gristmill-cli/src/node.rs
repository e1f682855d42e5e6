//! The command `node`, and the same for programs of one's own: [`run`] until a signal, drain, say how it went.
//!
//! ```text
//!   start ──▶ ready ──SIGTERM or Ctrl-C──▶ draining ──▶ the drain line on stdout, exit
//!                                            └─ a second signal: to the hard stop at once
//! ```
//!
//! Two runtimes: the node and its handlers have one, signals and the drain another, on the calling thread. So a handler
//! that blocks every thread of the first delays neither the drain nor the exit. The first has some threads to spare
//! ([`SPARE_THREADS`]): so many handlers may hold one for ever, and the others go on.
//!
//! `beside`: what the settings add to the handlers of a program.

mod beside;

pub(crate) use beside::Beside;

use crate::exit::{End, Failure};
use crate::health;
use crate::output;
use crate::settings::Settings;
use crate::telemetry::Told;
use gristmill_handler::Registry;
use gristmill_node::{DrainReport, Node, NodeConfig, NodeError, SPARE_THREADS};
use gristmill_schedule::Schedule;
use gristmill_telemetry::events::node::NodeReady;
use gristmill_telemetry::metrics::Role;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// What the plain program says, which has no handlers.
const NO_HANDLERS: &str = "\
this program has no handlers: every job it claimed would become a dead letter (unknown kind).
Handlers come from a program of your own, twenty lines long:

    fn main() -> std::process::ExitCode {
        gristmill::main(gristmill::Registry::new().kind(\"price.changed\", reprice))
    }

It has this same command line: `your-program node --queues orders:64`. The README begins with a whole one;
`gristmill dev` runs a node with handlers for trying things. Or from settings alone, in any language:

    [kinds.\"price.changed\"]
    http = \"https://shop.example/jobs/price\"   # or: exec = [\"python3\", \"handler.py\"]";

/// How a node left.
#[derive(Debug)]
pub enum Left {
    /// It was asked to and drained.
    Drained(DrainReport),
    /// It was asked to before Redis answered for the first time; it never held a job.
    NeverStarted,
    /// It was asked to, and did not end inside window and grace. Its leases expire by themselves.
    Overdue,
    /// A part of it failed too often; what could be handed back was.
    GaveUp(NodeError, DrainReport),
}

/// The command.
pub(crate) fn command(
    settings: &Settings,
    registry: Registry,
    schedules: Vec<Schedule>,
) -> Result<End, Failure> {
    let beside = Beside::of(settings)?;
    let registry = beside.add_to(registry, settings)?;
    // Before the other settings: whoever has no handlers should not be told to name queues first.
    check(&registry)?;
    let mut config = settings.node()?;
    config.schedules.extend(schedules);
    let told = Told::start(settings, Role::Node)?;
    config.telemetry = told.telemetry.clone();
    health::start(settings, &config.telemetry)?;
    let (left, by) = run_with(config, registry, &beside)?;
    told.finish(by.saturating_duration_since(Instant::now()));
    said(left)
}

/// Runs until a signal and prints the one line that says how the drain went.
pub(crate) fn serve(config: NodeConfig, registry: Registry, beside: &Beside) -> Result<End, Failure> {
    said(run_with(config, registry, beside)?.0)
}

fn said(left: Left) -> Result<End, Failure> {
    match left {
        Left::Drained(report) => {
            output::print(&report.to_string())?;
            Ok(if report.abandoned == 0 { End::Done } else { End::Abandoned })
        }
        Left::NeverStarted => {
            output::print("drained: finished=0 handed_back=0 abandoned=0 took_ms=0")?;
            Ok(End::Done)
        }
        Left::Overdue => {
            output::complain("the drain did not end inside its window and grace; what ran is abandoned");
            Ok(End::Abandoned)
        }
        Left::GaveUp(error, report) => {
            output::print(&report.to_string())?;
            Err(Failure::Failed(error.to_string()))
        }
    }
}

/// Runs a node on runtimes of its own until SIGTERM or SIGINT, then drains it. Waits for Redis as long as it takes.
///
/// Threads that handlers block are left behind: the caller should end the process soon.
///
/// # Errors
/// [`Failure`] where settings, handlers or queues cannot be, or the system refuses threads.
pub fn run(config: NodeConfig, registry: Registry) -> Result<Left, Failure> {
    run_with(config, registry, &Beside::default()).map(|(left, _)| left)
}

/// The same, with what the settings add; and by when the process is to be gone.
fn run_with(mut config: NodeConfig, registry: Registry, beside: &Beside) -> Result<(Left, Instant), Failure> {
    config.redis.telemetry = config.telemetry.clone();
    check(&registry)?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from) + SPARE_THREADS;
    let handlers = Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .thread_name("gristmill-node")
        .build()?;
    health::beat(handlers.handle(), config.telemetry.pulse("runtime"));
    let control = Builder::new_current_thread().enable_all().build()?;
    let left = control.block_on(until_left(&handlers, config, registry, beside));
    handlers.shutdown_background();
    left
}

fn check(registry: &Registry) -> Result<(), Failure> {
    match registry.kinds().next() {
        Some(_) => Ok(()),
        None => Err(Failure::Usage(NO_HANDLERS.into())),
    }
}

async fn until_left(
    handlers: &Runtime,
    config: NodeConfig,
    registry: Registry,
    beside: &Beside,
) -> Result<(Left, Instant), Failure> {
    let mut signals = Signals::listen()?;
    let telemetry = config.telemetry.clone();
    let allowed = config.drain_window + config.drain_grace;
    let kinds = registry.kinds().collect::<Vec<_>>().join(", ");
    // Not after the node's own start: what is committed may be enqueued before this node has its partitions.
    let running = beside.start(handlers, &config.redis)?;
    let starting = handlers.spawn(Node::start(config, registry));
    let mut node = tokio::select! {
        started = starting => started
            .map_err(|error| Failure::Failed(format!("the node's start ended early: {error}")))?
            .map_err(refused)?,
        () = signals.next() => return Ok((Left::NeverStarted, Instant::now())),
    };
    telemetry.tell(&NodeReady { node: node.incarnation(), kinds: &kinds });
    let failure = tokio::select! {
        failure = node.failure() => Some(failure),
        () = signals.next() => None,
    };
    let by = Instant::now() + allowed;
    let drain = async {
        match failure {
            // Nothing of it can be trusted to finish: straight to the hard stop.
            Some(failure) => Left::GaveUp(failure, node.drain(std::future::ready(())).await),
            None => Left::Drained(node.drain(signals.next()).await),
        }
    };
    let left = tokio::time::timeout_at(by, drain).await.unwrap_or(Left::Overdue);
    // It belongs to the other runtime, whose threads may all be held: no longer than the rest of the time.
    let closed = handlers.spawn(running.end());
    let _ = tokio::time::timeout_at(by, closed).await;
    Ok((left, by))
}

fn refused(error: NodeError) -> Failure {
    match error {
        NodeError::Config(_) | NodeError::Registry(_) => Failure::Usage(error.to_string()),
        other => Failure::Failed(other.to_string()),
    }
}

/// The two signals that ask a process to leave.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next of either.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
