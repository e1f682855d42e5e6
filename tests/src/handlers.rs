//! Handlers that do what their jobs say, and write what they did to a history.

use crate::fleet::{QUEUE, SWITCHES};
use crate::script::{Death, KIND, Look, Script};
use gristmill_handler::{Context, HandlerError, Item, Reconciled, State};
use gristmill_job::{ContentType, Effects, NewJob, QueueName};
use gristmill_testkit::Error;
use gristmill_testkit::history::{HistoryWriter, Job, Outcome};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What the handlers of a process share.
pub struct Recorder {
    history: HistoryWriter,
    incarnation: String,
    snoozed: Mutex<HashSet<String>>,
    switches: PathBuf,
}

impl Recorder {
    /// Writes to this history, as this node.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(history: &Path, incarnation: String) -> Result<Self, Error> {
        Ok(Self {
            history: HistoryWriter::open(history)?,
            incarnation,
            snoozed: Mutex::default(),
            switches: history.parent().unwrap_or(Path::new(".")).join(SWITCHES),
        })
    }

    /// Whether a switch is on; where none is named, it is.
    fn is_on(&self, switch: Option<&str>) -> bool {
        switch.is_none_or(|name| self.switches.join(name).exists())
    }

    /// Whether this is the first time here that the job is asked.
    fn snoozed(&self, id: &str) -> bool {
        self.snoozed.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned())
    }
}

/// Never returns.
fn die(how: Death) -> ! {
    if how == Death::Memory {
        std::hint::black_box(Vec::<u8>::with_capacity(isize::MAX as usize));
    }
    if how == Death::Kill {
        let pid = std::process::id().to_string();
        let _ = std::process::Command::new("kill").args(["-9", &pid]).status();
    }
    std::process::abort();
}

/// What became of an interrupted run, as the job's script says.
///
/// # Errors
/// Never.
pub async fn look(script: Script, context: Context) -> Result<Reconciled, HandlerError> {
    println!("looks at {}", context.id());
    Ok(match script.look {
        Look::Done if script.effect => Reconciled::Done(Effects::put(context.version().to_string())),
        Look::Done => Reconciled::Done(Effects::none()),
        Look::Again => Reconciled::RunAgain,
        Look::Dies => die(Death::Abort),
        Look::Person => Reconciled::AskAPerson("as the job's script says".into()),
    })
}

/// A run as the job's script says.
///
/// # Errors
/// As the script says; permanent where the history cannot be written.
pub async fn scripted(
    script: Script,
    State(recorder): State<Recorder>,
    context: Context,
) -> Result<Effects, HandlerError> {
    // Order is promised within a queue: the same key in another is another key of the history.
    let key = match context.queue().as_str() {
        QUEUE => context.key().to_string(),
        other => format!("{other}/{}", context.key()),
    };
    let job = Job::new(context.id().to_string(), key, context.version());
    let run = recorder
        .history
        .start(&job, &recorder.incarnation, context.attempt())
        .map_err(HandlerError::permanent)?;
    if let Some(death) = script.dies.filter(|_| recorder.is_on(script.dies_while.as_deref())) {
        // not a wait: others run meanwhile
        tokio::time::sleep(Duration::from_millis(script.dies_after_ms)).await;
        die(death);
    }
    if script.block_ms > 0 && !(script.recovered_free && context.recovered()) {
        // not a wait: a handler that hogs its thread
        std::thread::sleep(Duration::from_millis(script.block_ms));
    }
    let wait_ms = script.recovered_wait_ms.filter(|_| context.recovered()).unwrap_or(script.wait_ms);
    if wait_ms > 0 {
        // not a wait: the handler's work
        let work = tokio::time::sleep(Duration::from_millis(wait_ms));
        if script.heeds_cancel || script.fails_when_cancelled {
            tokio::select! {
                () = work => {}
                () = context.cancelled() => {
                    if script.fails_when_cancelled {
                        run.end(Outcome::Failed).map_err(HandlerError::permanent)?;
                        return Err(HandlerError::transient("cancelled"));
                    }
                }
            }
        } else {
            work.await;
        }
    }
    if context.attempt() <= script.panic_until {
        drop(run);
        panic!("as the job's script says");
    }
    if script.snooze_ms > 0 && recorder.snoozed(&context.id().to_string()) {
        run.end(Outcome::Stopped).map_err(HandlerError::permanent)?;
        return Err(HandlerError::snooze(Duration::from_millis(script.snooze_ms)));
    }
    if script.discard {
        run.end(Outcome::Failed).map_err(HandlerError::permanent)?;
        return Err(HandlerError::discard("as the job's script says"));
    }
    let fails = script.permanent || context.attempt() <= script.fail_until;
    if fails && recorder.is_on(script.fails_while.as_deref()) {
        run.end(Outcome::Failed).map_err(HandlerError::permanent)?;
        let error = format!("as the job's script says, at attempt {}", context.attempt());
        return Err(if script.permanent {
            HandlerError::permanent(error)
        } else {
            HandlerError::transient(error).retry_after(Duration::from_millis(script.retry_after_ms))
        });
    }
    let mut effects = Effects::none();
    if script.effect {
        effects = Effects::put(script.state.unwrap_or_else(|| context.version().to_string()));
    }
    if script.delete {
        effects = Effects::delete();
    }
    if let Some(queue) = &script.emit {
        let queue = QueueName::new(queue).map_err(HandlerError::permanent)?;
        let script_of_it = serde_json::to_vec(&Script { effect: true, ..Script::default() })
            .map_err(HandlerError::permanent)?;
        let job = NewJob::from_bytes(KIND, context.key().as_bytes(), script_of_it, ContentType::Json);
        let mut job = job.map_err(HandlerError::permanent)?.with_version(context.version());
        if script.emit_in_ms > 0 {
            job = job.due_in(Duration::from_millis(script.emit_in_ms));
        }
        effects = effects.and_emit(queue, job);
    }
    run.end(Outcome::Done).map_err(HandlerError::permanent)?;
    Ok(effects)
}

/// Runs that are handled together, each as its job's script says: it waits, fails, or has its effect. The batch ends when the
/// last of them would.
///
/// # Errors
/// Permanent where the history cannot be written.
pub async fn batched(
    items: Vec<Item<Script>>,
    State(recorder): State<Recorder>,
) -> Result<Vec<Result<Effects, HandlerError>>, HandlerError> {
    println!("batch of {}", items.len());
    let mut runs = Vec::new();
    for Item { payload, context } in &items {
        let job = Job::new(context.id().to_string(), context.key().to_string(), context.version());
        let run = recorder.history.start(&job, &recorder.incarnation, context.attempt());
        runs.push((payload, context, run.map_err(HandlerError::permanent)?));
    }
    let wait_ms = items.iter().map(|item| item.payload.wait_ms).max().unwrap_or_default();
    // not a wait: the handler's work
    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    let block_ms = items.iter().map(|item| item.payload.block_ms).max().unwrap_or_default();
    if block_ms > 0 {
        // not a wait: what handlers must not do
        std::thread::sleep(Duration::from_millis(block_ms));
    }
    let mut answers = Vec::new();
    for (script, context, run) in runs {
        let fails = script.permanent || context.attempt() <= script.fail_until;
        run.end(if fails { Outcome::Failed } else { Outcome::Done }).map_err(HandlerError::permanent)?;
        answers.push(match fails {
            true if script.permanent => Err(HandlerError::permanent("as the job's script says")),
            true => Err(HandlerError::transient("as the job's script says")),
            false if script.effect => Ok(Effects::put(context.version().to_string())),
            false => Ok(Effects::none()),
        });
    }
    Ok(answers)
}
