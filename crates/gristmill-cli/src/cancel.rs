//! `cancel`: a person takes back a job that waits, wherever it stands. Looked up as `explain` looks it up, ended by one script or
//! by the owner of its partition, and noted in the audit log.

use crate::audit::Act;
use crate::dead::choice::said;
use crate::exit::{End, Failure};
use crate::explain::find::{Search, Spot};
use crate::output;
use crate::settings::Settings;
use bytes::Bytes;
use clap::Args;
use gristmill_broker::cancel::{Cancel, Cancelled, Stands};
use gristmill_broker::delayed::Member;
use gristmill_broker::locate::JobView;
use gristmill_broker::said::Said;
use gristmill_broker::state::Request;
use gristmill_broker::{Connection, Mode, QueueDefinition};
use gristmill_job::{Envelope, JobId, Key};
use serde_json::json;

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct CancelArguments {
    /// The job: its id, or PARTITION:MS-SEQ (with --queue)
    job: String,
    /// Only look in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Why; `explain` and the audit log show it
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: String,
    /// How many jobs of a queue to look through at most
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    scan: u64,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// The result as one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
A job that nobody has claimed is gone at once (`cancelled`). One that a node holds is ended by that node within a second (in a \
queue without order, within a third of its visibility timeout), also in the middle of its key, which goes on (`asked`); if it \
runs, its handler is asked to stop, and a run that finishes all the same wins. `explain` shows what became of it. The id of a cancelled job may be enqueued again.

A job that is dead, done or not there is left (exit code 1).";

/// One job, and where it was found.
struct Target {
    queue: QueueDefinition,
    partition: u16,
    id: JobId,
    waits: Waits,
}

enum Waits {
    /// At its place.
    At(Box<JobView>),
    /// It is for later.
    Delayed(Member),
}

impl Target {
    /// `None` where there is none that waits, with what to say.
    async fn find(
        connection: &Connection,
        arguments: &CancelArguments,
    ) -> Result<Result<Self, String>, Failure> {
        let CancelArguments { job, queue, scan, .. } = arguments;
        let search = Search::new(job, queue.as_deref())?;
        let queues = crate::dead::queues(connection, queue.as_deref()).await?;
        let found = search.run(connection, &queues, *scan).await?;
        let mut why = search.nothing(&found, queue.as_deref());
        let mut targets = Vec::new();
        for spot in found.spots {
            match spot {
                Spot::Job { queue, partition, job } => {
                    targets.push(Self { queue, partition, id: job.id.clone(), waits: Waits::At(job) });
                }
                Spot::Delayed { queue, partition, job } => {
                    let (member, (id, _)) = (job.member.clone(), job.member.id());
                    targets.push(Self { queue, partition, id, waits: Waits::Delayed(member) });
                }
                Spot::Letter { letter, .. } => {
                    let id = crate::dead::lossy(&letter.position.id);
                    why = format!(
                        "{job} is dead, and waits for a person: `gristmill dead discard {id}` removes it"
                    );
                }
                Spot::Mark { mark, now, .. } => {
                    why =
                        format!("{job} does not wait, it is {}", crate::explain::told::standing(&mark, now));
                }
            }
        }
        if targets.len() > 1 {
            let places: Vec<String> = targets.iter().map(Self::place).collect();
            return Err(Failure::Usage(format!(
                "there are {} jobs {job}: {}; name one by --queue and its place",
                places.len(),
                places.join(", ")
            )));
        }
        Ok(targets.pop().ok_or(why))
    }

    /// Where it stands, in words.
    fn place(&self) -> String {
        let (partition, queue) = (self.partition, &self.queue.name);
        match &self.waits {
            Waits::At(job) => format!("{partition}:{} of queue {queue}", job.place),
            Waits::Delayed(_) => format!("partition {partition} of queue {queue}, for later,"),
        }
    }

    fn job(&self) -> Option<&JobView> {
        match &self.waits {
            Waits::At(job) => Some(job),
            Waits::Delayed(_) => None,
        }
    }

    /// Whether a node holds it, or it came back and its owner knows of it.
    fn is_held(&self) -> bool {
        self.job().is_some_and(|job| job.claim.is_some() || job.returned)
    }

    fn asked(&self, said: Said) -> Cancel {
        let id = self.id.clone();
        match &self.waits {
            Waits::At(job) => {
                let envelope = Envelope::decode(&job.envelope, usize::MAX).ok();
                let own_id = envelope.is_none_or(|envelope| envelope.own_id);
                Cancel { stands: Stands::At(job.place), id, key: job.key.clone(), own_id, said }
            }
            Waits::Delayed(member) => {
                let (own_id, stands) = (member.id().1, Stands::Delayed(member.clone()));
                // Nobody need find its lane: it has none.
                Cancel { stands, id, key: Key::from_stored(Bytes::new()), own_id, said }
            }
        }
    }

    fn print(&self, result: &str, text: &str, json: bool) -> Result<End, Failure> {
        let end = if result == "not_waiting" { End::Bad } else { End::Done };
        if json {
            let told = json!({
                "result": result,
                "queue": self.queue.name.as_str(),
                "partition": self.partition,
                "place": self.job().map(|job| job.place.to_string()),
                "delayed": self.job().is_none(),
                "id": self.id.to_string(),
                "owner": self.owner(),
            });
            output::print(&told.to_string())?;
        } else if end == End::Done {
            output::print(&output::visible(text))?;
        }
        if end == End::Bad {
            output::complain(&output::visible(text));
        }
        Ok(end)
    }

    fn owner(&self) -> Option<&str> {
        let job = self.job()?;
        (!job.owner.is_empty() && job.expires > job.now).then_some(job.owner.as_str())
    }

    /// Who ends it, and when.
    fn next(&self) -> String {
        if self.queue.mode == Mode::None {
            return "the node that holds its claim hears of it when it prolongs that, and ends it unless its run finishes first; \
                    where that node is gone, the one that takes it over does"
                .to_owned();
        }
        match self.owner() {
            Some(owner) => format!(
                "node {owner}, which holds it, ends it within a second, unless its run finishes first"
            ),
            None => format!("nobody owns partition {} now: whoever takes it ends it then", self.partition),
        }
    }
}

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &CancelArguments) -> Result<End, Failure> {
    let CancelArguments { job, queue, reason, dry_run, json, .. } = arguments;
    // Before anything is asked of Redis: a place without a queue is wrong anyway.
    Search::new(job, queue.as_deref())?;
    let connection = crate::connect(settings).await?;
    let target = match Target::find(&connection, arguments).await? {
        Ok(target) => target,
        Err(why) => {
            if *json {
                output::print(&json!({ "result": "not_waiting", "id": job }).to_string())?;
            }
            output::complain(&output::visible(&why));
            return Ok(End::Bad);
        }
    };
    let asked_before = match target.job().and_then(|job| job.line.request.as_ref()) {
        Some(Request::Cancel(said)) => format!(" ({} had asked before)", said.who),
        _ => String::new(),
    };
    if *dry_run {
        return match target.is_held() {
            true => {
                let text = format!(
                    "job {job} at {} is held by a node, which would be asked to end it",
                    target.place()
                );
                target.print("would_ask", &text, *json)
            }
            false => {
                let text =
                    format!("job {job} at {} would be cancelled: nobody has claimed it", target.place());
                target.print("would_cancel", &text, *json)
            }
        };
    }
    let queue = &target.queue;
    let place = target.job().map_or_else(|| "delayed".to_owned(), |job| job.place.to_string());
    let filter =
        format!("queue={} job={} partition={} place={place}", queue.name, target.id, target.partition);
    let act = Act::new("cancel", filter, reason);
    let asked = target.asked(Said::new(act.who(), reason));
    act.begin(&connection).await?;
    let window_ms = settings.seen_window_ms(&queue.name);
    let done = connection.cancel(&queue.partition(target.partition), window_ms, &asked).await;
    let count = u64::from(matches!(done, Ok(Cancelled::Cancelled | Cancelled::Asked)));
    act.end(&connection, count, done.is_ok()).await;
    match done? {
        Cancelled::Cancelled => {
            let text = format!("cancelled: job {job} at {} is gone; nobody had claimed it", target.place());
            target.print("cancelled", &text, *json)
        }
        Cancelled::Asked => {
            let text =
                format!("asked: job {job} at {} is to end{asked_before}; {}", target.place(), target.next());
            target.print("asked", &text, *json)
        }
        Cancelled::NotWaiting => {
            let text = format!("job {job} waits no more; `gristmill explain {job}` tells what became of it");
            target.print("not_waiting", &text, *json)
        }
    }
}
