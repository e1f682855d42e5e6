//! `enqueue`: newline-delimited JSON into a queue, plain or gzip, in bounded memory.
//!
//! * `source`: a file or standard input, unpacked where it is gzip;
//! * `lines`: lines with their numbers, never longer in memory than a job may be;
//! * `job`: what one line says, or why it is bad;
//! * this file: a thread that reads and parses, batches through a short channel, and the broker at its end.
//!
//! One batch is answered before the next is sent, so jobs of a key keep their order.

mod job;
mod lines;
mod source;

use crate::args::EnqueueArguments;
use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use crate::telemetry::{self, Told};
use gristmill_broker::keys::DEFAULT_PARTITIONS;
use gristmill_broker::{Broker, Connection, EnqueueError, Enqueued, Mode, QueueDefinition, RedisConfig};
use gristmill_job::{EncodedJob, JobLimits, NewJob, QueueName, TraceContext, UnixMillis};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::metrics::Role;
use gristmill_telemetry::trace::sending::Sending;
use job::Form;
use lines::{Line, Lines};
use std::io::BufRead;
use std::time::SystemTime;
use tokio::sync::mpsc;

/// A batch goes off with this many jobs or bytes; three of them are in memory at most.
const BATCH_JOBS: usize = 4096;
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Bad lines that are told one by one; more are counted.
const BAD_LINES_TOLD: u64 = 100;
/// What may surround the payload in a line: id, key and kind at their longest, escaped.
const LINE_AROUND_PAYLOAD_BYTES: usize = 16 * 1024;

enum Read {
    /// And their spans, in the same order.
    Jobs(Vec<EncodedJob>, Vec<Option<Sending>>),
    Bad(u64, String),
    /// The source cannot be read on.
    Broken(String),
}

/// Where jobs are traced on their way, and what this command is a part of: its `TRACEPARENT`.
struct Traced {
    telemetry: Telemetry,
    queue: QueueName,
    around: Option<TraceContext>,
}

impl Traced {
    fn new(telemetry: &Telemetry, queue: &QueueName) -> Self {
        let around = std::env::var("TRACEPARENT").ok().and_then(|text| TraceContext::parse(&text));
        Self { telemetry: telemetry.clone(), queue: queue.clone(), around }
    }

    fn send(&self, job: &mut NewJob) -> Option<Sending> {
        self.telemetry.traces()?.send(&self.queue, job.kind.as_str(), &mut job.headers, self.around)
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    enqueued: u64,
    duplicates: u64,
    bad: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "enqueued={} duplicates={} bad={}", self.enqueued, self.duplicates, self.bad)
    }
}

/// The command.
pub(crate) fn command(settings: &Settings, arguments: &EnqueueArguments) -> Result<End, Failure> {
    let told = Told::start(settings, Role::Ingest)?;
    let end = crate::block_on(enqueue(settings, arguments, &told.telemetry));
    told.finish(telemetry::SHORT);
    end
}

async fn enqueue(
    settings: &Settings,
    arguments: &EnqueueArguments,
    telemetry: &Telemetry,
) -> Result<End, Failure> {
    let queue = QueueName::new(&arguments.queue).map_err(|error| Failure::Usage(error.to_string()))?;
    let form = Form::of(arguments);
    // Before anything is asked of Redis: a file that is not there is the likelier mistake.
    let source = source::open(&arguments.from).map_err(Failure::Failed)?;
    let connection = crate::connect(settings).await?;
    prepare(&connection, &queue, arguments).await?;
    let broker = Broker::connect(RedisConfig { telemetry: telemetry.clone(), ..settings.redis()? });

    let limits = settings.job_limits();
    let traced = Traced::new(telemetry, &queue);
    let (sender, mut reads) = mpsc::channel(2);
    std::thread::Builder::new()
        .name("enqueue-reader".into())
        .spawn(move || read(source, &form, limits, &traced, &sender))?;
    let mut tally = Tally::default();
    let mut broken = None;
    while let Some(read) = reads.recv().await {
        match read {
            Read::Jobs(jobs, sendings) => {
                let failed = |error: EnqueueError| {
                    Failure::Failed(format!(
                        "{error}; until then: {tally}, and of the batch that failed some jobs may be in"
                    ))
                };
                let answers = broker.enqueue_each(&queue, jobs).await.map_err(failed)?;
                broker.sent(sendings, &answers);
                let answers: Vec<Enqueued> = answers.into_iter().collect::<Result<_, _>>().map_err(failed)?;
                count(&mut tally, &answers);
            }
            Read::Bad(number, why) => {
                tally.bad += 1;
                match tally.bad {
                    ..=BAD_LINES_TOLD => {
                        output::complain(&format!("line {number}: {}", output::visible(&why)))
                    }
                    n if n == BAD_LINES_TOLD + 1 => {
                        output::complain("more bad lines follow; they are only counted")
                    }
                    _ => {}
                }
            }
            Read::Broken(why) => broken = Some(why),
        }
    }
    if let Some(why) = broken {
        return Err(Failure::Failed(format!("{why}; what came before it: {tally}")));
    }
    print(tally, arguments.json)?;
    Ok(if tally.bad == 0 { End::Done } else { End::Partly })
}

fn print(tally: Tally, json: bool) -> std::io::Result<()> {
    let Tally { enqueued, duplicates, bad } = tally;
    match json {
        true => {
            let summary = serde_json::json!({ "enqueued": enqueued, "duplicates": duplicates, "bad": bad });
            output::print(&summary.to_string())
        }
        false => output::print(&tally.to_string()),
    }
}

fn count(tally: &mut Tally, answers: &[Enqueued]) {
    let duplicates = answers.iter().filter(|answer| answer.duplicate_of.is_some()).count() as u64;
    tally.duplicates += duplicates;
    tally.enqueued += answers.len() as u64 - duplicates;
}

/// Makes the queue where that was asked for, and else says what there is instead.
async fn prepare(
    connection: &Connection,
    queue: &QueueName,
    arguments: &EnqueueArguments,
) -> Result<(), Failure> {
    let there = connection.definition(queue).await?;
    match (there, arguments.create) {
        (Some(_), false) => Ok(()),
        // Also where it is there: a stream or a group may be missing.
        (there, true) => {
            // What was not said is as it is there, so that a refusal names what was.
            let (partitions, mode) =
                there.map_or((DEFAULT_PARTITIONS, Mode::Key), |there| (there.partitions, there.mode));
            let partitions = arguments.partitions.unwrap_or(partitions);
            let wanted =
                QueueDefinition::new(queue.clone(), partitions).with_mode(arguments.ordering.unwrap_or(mode));
            Ok(connection.create(&wanted).await?)
        }
        (None, false) => {
            let all: Vec<String> =
                connection.queues().await?.iter().map(|queue| queue.name.to_string()).collect();
            let all = if all.is_empty() { "none".into() } else { all.join(", ") };
            Err(Failure::Failed(format!(
                "there is no queue {queue} (there are: {all}); start a node that serves it, or add --create --partitions N"
            )))
        }
    }
}

/// Reads and parses to the end, on a thread of its own. Ends early when nobody listens any more.
fn read(source: source::Source, form: &Form, limits: JobLimits, traced: &Traced, to: &mpsc::Sender<Read>) {
    let longest = limits.max_envelope_bytes + if form.is_payload() { 0 } else { LINE_AROUND_PAYLOAD_BYTES };
    let source::Source { name, gzip, reader } = source;
    let ended =
        each(Lines::new(reader, longest), form, limits, traced, |read| to.blocking_send(read).is_ok());
    if let Err((number, error)) = ended {
        let what = match error.kind() {
            std::io::ErrorKind::UnexpectedEof if gzip => {
                "the gzip data ends before its end; it was cut off".into()
            }
            _ if gzip => format!("the gzip data is damaged: {error}"),
            _ => error.to_string(),
        };
        let _ = to.blocking_send(Read::Broken(format!("{name}, behind line {number}: {what}")));
    }
}

/// Gives jobs and bad lines to `tell` until it says that it has enough.
fn each(
    mut lines: Lines<impl BufRead>,
    form: &Form,
    limits: JobLimits,
    traced: &Traced,
    mut tell: impl FnMut(Read) -> bool,
) -> Result<(), (u64, std::io::Error)> {
    let (mut batch, mut sendings, mut bytes) = (Vec::new(), Vec::new(), 0);
    loop {
        let number = lines.number() + 1;
        let now = UnixMillis::from_system(SystemTime::now());
        let (job, end) = match lines.next() {
            Ok(Some(Line::Text(text))) if text.trim_ascii().is_empty() => (None, None),
            Ok(Some(Line::Text(text))) => (Some(form.job(text, now, limits, |job| traced.send(job))), None),
            Ok(Some(Line::TooLong { bytes, limit })) => (Some(Err(too_long(bytes, limit))), None),
            Ok(None) => (None, Some(Ok(()))),
            Err(error) => (None, Some(Err((number - 1, error)))),
        };
        let heard = match job {
            Some(Ok((job, sending))) => {
                bytes += job.envelope.len() + job.id.as_bytes().len() + job.key.as_bytes().len();
                batch.push(job);
                sendings.push(sending);
                true
            }
            Some(Err(why)) => tell(Read::Bad(number, why)),
            None => true,
        };
        if !heard {
            return Ok(());
        }
        let full = batch.len() >= BATCH_JOBS || bytes >= BATCH_BYTES;
        if (full || end.is_some()) && !batch.is_empty() {
            bytes = 0;
            if !tell(Read::Jobs(std::mem::take(&mut batch), std::mem::take(&mut sendings))) {
                return Ok(());
            }
        }
        if let Some(end) = end {
            return end;
        }
    }
}

fn too_long(bytes: u64, limit: usize) -> String {
    format!(
        "it has {bytes} bytes, a line may have {limit} (see job.max_bytes); keep large data elsewhere and send a reference"
    )
}

#[cfg(test)]
#[path = "enqueue/enqueue_tests.rs"]
mod tests;
