//! What needs no claim: time passes, a job is deleted by hand, a letter comes back, a run is absolved.

use super::plan::{Job, STEP};
use crate::both::{Both, Outcome, agree, incarnation};
use crate::heard;
use bytes::Bytes;
use gristmill_broker::Fence;
use gristmill_broker::replay::{Replay, Replayed};
use gristmill_broker::state::Suspicion;
use std::collections::BTreeSet;

impl Both {
    /// For claims that nobody extends, and for jobs for later.
    pub(super) fn pass(&mut self) -> Outcome {
        let keys = self.keys.clone();
        let step = STEP.as_millis() as u64;
        let (stream, delayed) = (keys.stream.as_bytes(), keys.delayed.as_bytes());
        let words: [&[u8]; 6] = [b"XPENDING", stream, b"workers", b"-", b"+", b"1000"];
        let pending = self.raw.command(&words).map_err(|error| error.to_string())?;
        let words: [&[u8]; 5] = [b"ZRANGE", delayed, b"0", b"-1", b"WITHSCORES"];
        let later = self.raw.command(&words).map_err(|error| error.to_string())?;
        let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
        for row in pending.as_array().unwrap_or_default() {
            let row = row.as_array().unwrap_or_default();
            let idle = row[2].as_int().unwrap_or_default() as u64 + step;
            let [place, holder] = [&row[0], &row[1]].map(|word| word.as_str().unwrap_or_default());
            let words: [&[u8]; 9] = [
                b"XCLAIM",
                stream,
                b"workers",
                holder.as_bytes(),
                b"0",
                place.as_bytes(),
                b"IDLE",
                b"",
                b"JUSTID",
            ];
            let mut words = words.map(<[u8]>::to_vec);
            words[7] = idle.to_string().into_bytes();
            commands.push(words.to_vec());
        }
        for pair in later.as_array().unwrap_or_default().chunks(2) {
            let due: u64 = pair[1].as_str().and_then(|due| due.parse().ok()).unwrap_or_default();
            let due = due.saturating_sub(step).to_string().into_bytes();
            let member = pair[0].as_str().unwrap_or_default().as_bytes().to_vec();
            commands.push(vec![b"ZADD".to_vec(), delayed.to_vec(), b"XX".to_vec(), due, member]);
        }
        if !commands.is_empty() {
            self.raw.pipeline(&commands).map_err(|error| error.to_string())?;
        }
        self.model.pass(&keys, STEP);
        self.hear("passed")
    }

    pub(super) async fn absolve_unordered(&mut self, who: Option<usize>, job: Job) -> Outcome {
        let Some(index) = self.job(who.unwrap_or_default(), job) else { return Ok(()) };
        let line = self.model.state(&self.keys, self.given[1].places[index]).unwrap_or_default();
        let charge = line.crashes.first().map(|crash| (crash.fence.clone(), crash.turn));
        let marked = line.mark.map(|mark| (mark.fence, line.turn));
        let run = match who {
            Some(who) => (Fence::unordered(&incarnation(who)), self.turn(index)),
            None => match charge.or(marked) {
                Some(run) => run,
                None => return Ok(()),
            },
        };
        let places = [0, 1].map(|side: usize| self.given[side].places[index]);
        let real = self.connection.absolve(&self.keys, &run.0, run.1, places[0]).await;
        let model = self.model.absolve(&self.keys, &run.0, run.1, places[1]);
        let answer = agree(real.map_err(|e| e.to_string())?, model)?;
        self.hear(heard::absolved(answer))
    }

    pub(super) async fn replay(&mut self, letters: &[u8], edited: bool, strong: bool) -> Outcome {
        let there = self.model.dead_letters(&self.queue, 0, 0, 100);
        let of = |number: &u8| match there.get(usize::from(*number)) {
            Some(letter) => letter.id.clone(),
            None => format!("letter{number}"),
        };
        let letters: BTreeSet<String> = letters.iter().map(of).collect();
        let replays = |side: usize| {
            let of = |name: &String| {
                let record = there.iter().find(|letter| letter.id == *name);
                let record = record.and_then(|letter| letter.letter.as_ref().ok());
                let index = record.and_then(|record| record.place.parse::<usize>().ok()).unwrap_or(0);
                let known = self.jobs.get(index)?;
                Some(Replay {
                    letter: name.clone().into(),
                    place: self.given[side].places[index],
                    turn: record.map_or(0, |record| record.turn),
                    job: known.id.clone(),
                    key: known.key.clone(),
                    envelope: Bytes::from(if edited { "edited" } else { "as it was" }),
                    suspicion: if strong { Suspicion::Strong } else { Suspicion::None },
                    replays: 1,
                    original: edited.then(|| Bytes::from_static(b"as it was")),
                })
            };
            letters.iter().filter_map(of).collect::<Vec<Replay>>()
        };
        let (real, model) = (replays(0), replays(1));
        let real = self.connection.replay(&self.keys, &real).await.map_err(|e| e.to_string())?;
        let answers = agree(real, self.model.replay(&self.keys, &model))?;
        let replayed = answers.iter().filter(|answer| **answer == Replayed::Replayed).count();
        self.heard.extend(answers.iter().map(|answer| match answer {
            Replayed::Replayed => "replay:replayed",
            Replayed::Gone => "replay:gone",
            Replayed::Waits => "replay:waits",
        }));
        self.moved(replayed)
    }

    pub(super) fn delete(&mut self, job: Job) -> Outcome {
        let Some(index) = self.job(0, job) else { return Ok(()) };
        let [real, model] = [0, 1].map(|side: usize| self.given[side].places[index]);
        let there = self.model.jobs(&self.keys).into_iter().any(|(place, ..)| place == model);
        let claimed = self.model.claims(&self.keys).into_iter().any(|(place, _)| place == model);
        self.heard.extend((there && claimed).then_some("deleted, and claimed"));
        self.model.delete_job(&self.keys, model);
        let (stream, place) = (self.keys.stream.as_bytes().to_vec(), real.to_string().into_bytes());
        self.raw(&[b"XDEL".to_vec(), stream, place])
    }
}
