//! `explain`: where a job is, what happened to it, and why it does not run now; from what stands in Redis, never guessed.
//!
//! * `find`: a job by its producer's id, its place, its dead letter's id, or by looking through what there is;
//! * `live`: everything around one that waits; `why`: what follows from that;
//! * `unordered`: the same for queues without order;
//! * `told`: the words; `later`: those for a job that is not due yet.

pub(crate) mod find;
mod later;
mod live;
pub(crate) mod told;
mod unordered;
mod why;

use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use clap::Args;
use find::{Found, Search, Spot};
use gristmill_broker::Connection;
use serde_json::{Value, json};

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct ExplainArguments {
    /// The job: its id, PARTITION:MS-SEQ (with --queue), or the id of its dead letter
    job: String,
    /// Only look in this queue
    #[arg(long)]
    queue: Option<String>,
    /// How many jobs, and how many dead letters, of a queue to look through at most
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    scan: u64,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
An id that its producer chose is found at once, wherever the job is, and for a while after it ended. An id that we made, \
and one whose mark has expired, is looked for in streams, returned jobs, jobs for later and dead letters, up to --scan of each. Exit code \
1 where nothing is found.

What Redis does not know is said to be not known: a run without a start mark, for example, leaves no trace there until it \
ends.";

/// What was found of a job, and how each of it is told.
pub(crate) struct Explanation {
    search: Search,
    found: Found,
    texts: Vec<String>,
    all: Vec<Value>,
}

/// Looks for a job in one queue or in all. `settings` where they are known: they say how long a claim stands.
pub(crate) async fn look(
    connection: &Connection,
    job: &str,
    queue: Option<&str>,
    scan: u64,
    settings: Option<&Settings>,
) -> Result<Explanation, Failure> {
    let search = Search::new(job, queue)?;
    let queues = crate::dead::queues(connection, queue).await?;
    let found = search.run(connection, &queues, scan).await?;
    let (mut texts, mut all) = (Vec::new(), Vec::new());
    for spot in &found.spots {
        let (text, value) = match spot {
            Spot::Job { queue, partition, job } => {
                let mut around = live::Around::look(connection, queue, *partition, job, scan).await?;
                around.visibility = settings.map(|settings| settings.visibility_timeout(&queue.name));
                (told::live_text(&around), told::live_json(&around))
            }
            Spot::Delayed { queue, partition, job } => {
                (later::text(queue, *partition, job), later::json(queue, *partition, job))
            }
            Spot::Letter { queue, letter } => {
                let beside = live::Beside::look(connection, queue, letter).await?;
                (told::dead_text(letter, beside), told::dead_json(letter, beside))
            }
            Spot::Mark { queue, mark, now } => (
                told::mark_text(queue, mark, &search.job, *now),
                told::mark_json(queue, mark, &search.job, *now),
            ),
        };
        texts.push(text);
        all.push(value);
    }
    Ok(Explanation { search, found, texts, all })
}

impl Explanation {
    /// Whether there is nothing of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.spots.is_empty()
    }

    /// Where it was looked for.
    pub(crate) fn looked(&self) -> String {
        let Found { jobs, letters, cut_short, .. } = self.found;
        let more = if cut_short { "; there are more" } else { "" };
        format!("looked through {jobs} jobs and {letters} dead letters{more}")
    }

    /// All of it as one object.
    pub(crate) fn json(self) -> Value {
        let Found { jobs, letters, cut_short, .. } = self.found;
        let looked = json!({ "jobs": jobs, "letters": letters, "cut_short": cut_short });
        json!({ "job": self.search.job, "found": self.all, "looked_through": looked })
    }
}

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &ExplainArguments) -> Result<End, Failure> {
    let ExplainArguments { job, queue, scan, json } = arguments;
    // Before anything is asked of Redis: a place without a queue is wrong anyway.
    Search::new(job, queue.as_deref())?;
    let connection = crate::connect(settings).await?;
    let explanation = look(&connection, job, queue.as_deref(), *scan, Some(settings)).await?;
    let nothing =
        explanation.is_empty().then(|| explanation.search.nothing(&explanation.found, queue.as_deref()));
    if *json {
        output::print(&explanation.json().to_string())?;
    } else if nothing.is_none() {
        output::print(&explanation.texts.join("\n\n"))?;
    }
    let Some(nothing) = nothing else { return Ok(End::Done) };
    output::complain(&output::visible(&nothing));
    Ok(End::Bad)
}
