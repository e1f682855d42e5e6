//! `dead replay`: brings dead letters back as jobs, by id or by filter, perhaps one with an edited payload; noted in the
//! audit log before and after.

use super::choice::{Breaker, Choice, Work, said};
use super::edit::Edit;
use crate::audit::Act;
use crate::exit::{End, Failure};
use crate::output::{self, visible};
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::call::MAX_JOBS_PER_CALL;
use gristmill_broker::dead::DeadFound;
use gristmill_broker::replay::{Replay, Replayed};
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_job::{Place, QueueName};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

/// Letters that are refused and named one by one; the others are counted.
const REFUSALS_SHOWN: usize = 20;

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    choice: Choice,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", value_parser = said)]
    reason: Option<String>,
    /// At most so many letters per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// Leave letters that were replayed so often before
    #[arg(long, value_name = "N", default_value_t = 10)]
    cap: u32,
    /// One letter only: replay it with this file (- is standard input) as its payload
    #[arg(long, value_name = "FILE")]
    payload: Option<PathBuf>,
}

const AFTER: &str = "\
A job that is replayed has its old place, so that its key stays in order, its id, and new attempts; a key that waited \
for it goes on. One that died with its process comes back under suspicion and runs alone. Its node takes it within a \
second.

With --payload, kind, key, version, headers and limits stay as they were. JSON is taken as JSON, also where the payload \
was MessagePack before; `dead show` shows a payload in that form. The first envelope is kept until the job is done.

Letters are left, counted, and named with what to do, where they cannot be read, or were replayed --cap times already \
(exit code 3, or 1 if none was replayed). A second time finds nothing. Ctrl-C ends it between two steps.";

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &ReplayArguments) -> Result<End, Failure> {
    let choice = &arguments.choice;
    choice.check()?;
    if arguments.payload.is_some() && choice.ids.len() != 1 {
        let came = choice.ids.len();
        return Err(Failure::Usage(format!("--payload is for one letter: expected one id, got {came}")));
    }
    let edit = arguments.payload.as_deref().map(Edit::read).transpose()?;
    let connection = crate::connect(settings).await?;
    let queues = super::queues(&connection, choice.queue.as_deref()).await?;
    let breaker = Breaker::new();
    let mut work = Replaying {
        connection: &connection,
        queues: &queues,
        breaker: &breaker,
        edit: edit.as_ref(),
        cap: arguments.cap,
        rate: arguments.rate,
        dry_run: choice.dry_run,
        done: HashSet::new(),
        count: 0,
        capped: 0,
        refused: 0,
        refusals: Vec::new(),
    };
    let original = match (&edit, choice.ids.first()) {
        // It has to be known before the act is noted, and so it is refused here where it cannot be edited.
        (Some(edit), Some(id)) => work.original(edit, id).await?,
        _ => None,
    };
    let mut filter = choice.described();
    if edit.is_some() {
        filter.push_str(" payload=edited");
    }
    let act = Act::new("dead replay", filter, arguments.reason.as_deref().unwrap_or_default());
    let act = act.instead_of(original.as_ref());
    let missing = choice.noted(act, &connection, &queues, &breaker, &mut work).await?;
    work.tell(&missing, choice.json)
}

struct Replaying<'a> {
    connection: &'a Connection,
    queues: &'a [QueueDefinition],
    breaker: &'a Breaker,
    edit: Option<&'a Edit>,
    cap: u32,
    rate: Option<u32>,
    dry_run: bool,
    /// Jobs that came back; one that dies again meanwhile is left dead.
    done: HashSet<(QueueName, u16, Place)>,
    count: u64,
    capped: u64,
    refused: u64,
    /// The first of them: id and why.
    refusals: Vec<(String, String)>,
}

impl Replaying<'_> {
    /// The envelope that is going to be replaced; `None` where there is no such letter.
    async fn original(&self, edit: &Edit, id: &str) -> Result<Option<bytes::Bytes>, Failure> {
        let Some(found) = super::find(self.connection, self.queues, id).await? else { return Ok(None) };
        let refused = |why: String| Failure::Failed(format!("letter {id} cannot be edited: {why}"));
        let letter = found.letter.map_err(refused)?;
        edit.of(&letter.envelope).map_err(refused)?;
        Ok(Some(letter.envelope.into()))
    }

    /// A tenth of a second's worth where there is a rate.
    fn of_one_call(&self, letters: &[Replay]) -> usize {
        let paced = self.rate.map_or(MAX_JOBS_PER_CALL, |rate| (rate as usize / 10).max(1));
        Replay::of_one_call(letters).min(paced)
    }

    fn refuse(&mut self, id: String, why: String) {
        self.refused += 1;
        if self.refusals.len() < REFUSALS_SHOWN {
            self.refusals.push((id, why));
        }
    }

    fn tell(self, missing: &[String], json: bool) -> Result<End, Failure> {
        let end = match (missing.is_empty() && self.capped + self.refused == 0, self.count) {
            (true, _) => End::Done,
            (false, 0) => End::Bad,
            (false, _) => End::Partly,
        };
        if json {
            let name = if self.dry_run { "would_replay" } else { "replayed" };
            let refusals = self.refusals.iter().map(|(id, why)| json!({ "id": id, "why": why }));
            let refusals: Vec<_> = refusals.collect();
            let told = json!({
                name: self.count,
                "not_found": missing,
                "at_cap": self.capped,
                "refused": self.refused,
                "refusals": refusals,
            });
            output::print(&told.to_string())?;
        } else if self.dry_run {
            output::print(&format!("{} would be replayed", self.count))?;
        } else {
            output::print(&format!("{} replayed", self.count))?;
        }
        for id in missing {
            output::complain(&super::none_has(id, "it may have been replayed or discarded before"));
        }
        for (id, why) in &self.refusals {
            let (id, why) = (visible(id), visible(why));
            output::complain(&format!(
                "letter {id} was left: {why}; look with `gristmill dead show {id}`, then enqueue its job anew or remove it \
                 with `gristmill dead discard`"
            ));
        }
        if self.refused > self.refusals.len() as u64 {
            output::complain(&format!("{} letters were left for such reasons in all", self.refused));
        }
        if self.capped > 0 {
            output::complain(&format!(
                "{} were left: they were replayed {} times or more already; mend their cause, then say a higher --cap",
                self.capped, self.cap
            ));
        }
        Ok(end)
    }
}

impl Work for Replaying<'_> {
    async fn portion(&mut self, found: Vec<DeadFound>) -> Result<u64, Failure> {
        let mut batches: BTreeMap<(QueueName, u16), Vec<Replay>> = BTreeMap::new();
        let mut there = 0;
        for DeadFound { position, letter, .. } in found {
            let id = super::lossy(&position.id);
            let replay = letter.and_then(|record| Replay::of(position.id, record));
            let replay = replay.and_then(|replay| match self.edit {
                Some(edit) => edit.of(&replay.envelope).map(|edited| replay.with_envelope(edited.into())),
                None => Ok(replay),
            });
            match replay {
                Err(why) => {
                    there += 1;
                    self.refuse(id, why);
                }
                Ok(replay) if replay.replays >= self.cap => {
                    there += 1;
                    self.capped += 1;
                }
                Ok(replay) => {
                    let key = (position.queue, position.partition);
                    if !self.done.contains(&(key.0.clone(), key.1, replay.place)) {
                        batches.entry(key).or_default().push(replay);
                    }
                }
            }
        }
        for ((name, partition), batch) in batches {
            if self.dry_run {
                there += batch.len() as u64;
                self.count += batch.len() as u64;
                continue;
            }
            let Some(queue) = self.queues.iter().find(|queue| queue.name == name) else { continue };
            let keys = queue.partition(partition);
            let mut rest = batch.as_slice();
            while !rest.is_empty() {
                self.breaker.go_on()?;
                let (call, later) = rest.split_at(self.of_one_call(rest));
                rest = later;
                let answers = self.connection.replay(&keys, call).await?;
                for (answer, replay) in answers.iter().zip(call) {
                    match answer {
                        Replayed::Gone => {}
                        Replayed::Replayed => {
                            there += 1;
                            self.count += 1;
                            self.done.insert((name.clone(), partition, replay.place));
                        }
                        Replayed::Waits => {
                            there += 1;
                            let why = "another letter of its job was replayed, and is not settled".to_owned();
                            self.refuse(super::lossy(&replay.letter), why);
                        }
                    }
                }
                if let Some(rate) = self.rate {
                    self.breaker.pause(Duration::from_secs_f64(call.len() as f64 / f64::from(rate))).await?;
                }
            }
        }
        Ok(there)
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn done(&self) -> &'static str {
        "replayed"
    }

    fn makes_letters(&self) -> bool {
        true
    }
}
