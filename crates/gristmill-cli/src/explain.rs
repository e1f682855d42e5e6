//! `explain`: where a job is, what happened to it, and why it does not run now; from what stands in Redis, never guessed.
//!
//! * `find`: a job by its producer's id, its place, its dead letter's id, or by looking through what there is;
//! * `live`: everything around one that waits; `why`: what follows from that;
//! * `told`: the words.

mod find;
mod live;
mod told;
mod why;

use crate::exit::{End, Failure};
use crate::output;
use crate::settings::Settings;
use clap::Args;
use find::{Search, Spot};
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
and one whose mark has expired, is looked for in streams, returned jobs and dead letters, up to --scan of each. Exit code \
1 where nothing is found.

What Redis does not know is said to be not known: a run without a start mark, for example, leaves no trace there until it \
ends.";

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &ExplainArguments) -> Result<End, Failure> {
    let search = Search::new(&arguments.job, arguments.queue.as_deref())?;
    let connection = crate::connect(settings).await?;
    let queues = crate::dead::queues(&connection, arguments.queue.as_deref()).await?;
    let found = search.run(&connection, &queues, arguments.scan).await?;
    let (mut texts, mut all) = (Vec::new(), Vec::new());
    for spot in &found.spots {
        let (text, value) = match spot {
            Spot::Job { queue, partition, job } => {
                let around = live::Around::look(&connection, queue, *partition, job, arguments.scan).await?;
                (told::live_text(&around), told::live_json(&around))
            }
            Spot::Letter { queue, letter } => {
                let beside = live::Beside::look(&connection, queue, letter).await?;
                (told::dead_text(letter, beside), told::dead_json(letter, beside))
            }
            Spot::Mark { queue, mark, now } => {
                (told::mark_text(queue, mark, &search.job, *now), told::mark_json(queue, mark))
            }
        };
        texts.push(text);
        all.push(value);
    }
    let nothing = found.spots.is_empty();
    if arguments.json {
        let looked = json!({ "jobs": found.jobs, "letters": found.letters, "cut_short": found.cut_short });
        let all: Vec<Value> = all;
        output::print(&json!({ "job": arguments.job, "found": all, "looked_through": looked }).to_string())?;
    } else if !nothing {
        output::print(&texts.join("\n\n"))?;
    }
    if !nothing {
        return Ok(End::Done);
    }
    output::complain(&output::visible(&search.nothing(&found, arguments.queue.as_deref())));
    Ok(End::Bad)
}
