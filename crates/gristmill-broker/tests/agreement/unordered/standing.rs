//! What lies in a partition, read after each call: one round trip.

use crate::both::{Both, Outcome, agree, id};
use crate::given::rounded;
use crate::plan::IDS;
use gristmill_broker::StateLine;
use gristmill_broker::delayed::Body;
use gristmill_job::UnixMillis;
use gristmill_testkit::server::Reply;
use std::collections::BTreeMap;
use std::time::Duration;

/// In the words of both sides: places by the order in which they were given, times from now.
#[derive(Debug, PartialEq, Default)]
struct Standing {
    jobs: Vec<(String, String)>,
    /// Place, holder, age in seconds, deliveries.
    claims: Vec<(String, String, u64, u64)>,
    lines: BTreeMap<String, Option<StateLine>>,
    /// Member, due in seconds, line.
    delayed: Vec<(Vec<u8>, u64, Option<StateLine>)>,
    marks: Vec<Option<String>>,
    letters: Vec<String>,
    originals: BTreeMap<String, Vec<u8>>,
    outbox: u64,
}

fn items(reply: &Reply) -> &[Reply] {
    reply.as_array().unwrap_or_default()
}

fn text(reply: Option<&Reply>) -> &str {
    reply.and_then(Reply::as_str).unwrap_or_default()
}

fn bytes(reply: &Reply) -> &[u8] {
    match reply {
        Reply::Bulk(bytes) => bytes,
        _ => b"",
    }
}

fn number(reply: Option<&Reply>) -> u64 {
    reply.and_then(Reply::as_int).map_or(0, |number| number as u64)
}

impl Both {
    /// Whether both sides are in the same state.
    pub(crate) fn stand_alike(&mut self) -> Outcome {
        agree(self.real_standing()?, self.model_standing()).map(drop)
    }

    fn real_standing(&mut self) -> Result<Standing, String> {
        let keys = self.keys.clone();
        let is_there = self.model.definition(&self.queue.name).is_some();
        let command = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let mut commands = vec![
            command(&["XRANGE", &keys.stream, "-", "+"]),
            command(&["HGETALL", &keys.state]),
            command(&["ZRANGE", &keys.delayed, "0", "-1", "WITHSCORES"]),
            command(&["HGETALL", &keys.delayed_bodies]),
            command(&["ZRANGE", &keys.dead, "0", "-1"]),
            command(&["HGETALL", &keys.originals]),
            command(&["XLEN", &keys.outbox]),
        ];
        let marks = (0..IDS).map(|number| keys.seen(id(number).as_bytes()));
        commands.push(std::iter::once(b"MGET".to_vec()).chain(marks).collect());
        if is_there {
            commands.push(command(&["XPENDING", &keys.stream, "workers", "-", "+", "1000"]));
        }
        let replies = self.raw.pipeline(&commands).map_err(|error| error.to_string())?;
        let (given, now) = (&self.given[0], self.model.now());
        let line = |line: &[u8]| StateLine::parse(line).map(|line| given.line(line, now.0));
        let pairs = |reply| items(reply).chunks(2).map(|pair: &[Reply]| (&pair[0], bytes(&pair[1])));
        let bodies: BTreeMap<&[u8], &[u8]> =
            pairs(&replies[3]).map(|(field, body)| (bytes(field), body)).collect();
        let claim = |row: &Reply| {
            let row = items(row);
            let idle = rounded(Duration::from_millis(number(row.get(2)))).as_secs();
            (given.place_text(text(row.first())), given.text(text(row.get(1))), idle, number(row.get(3)))
        };
        let delayed = items(&replies[2]).chunks(2).map(|pair| {
            let body = bodies.get(bytes(&pair[0])).copied().unwrap_or_default().to_vec();
            let due = UnixMillis(text(pair.get(1)).parse().unwrap_or_default());
            (
                bytes(&pair[0]).to_vec(),
                rounded(now.age_at(due)).as_secs(),
                line(&Body::read(body.into()).line),
            )
        });
        Ok(Standing {
            jobs: items(&replies[0])
                .iter()
                .map(|row| {
                    (
                        given.place_text(text(items(row).first())),
                        text(items(&items(row)[1]).get(1)).to_owned(),
                    )
                })
                .collect(),
            claims: replies.get(8).map(items).unwrap_or_default().iter().map(claim).collect(),
            lines: pairs(&replies[1])
                .map(|(place, it)| (given.place_text(text(Some(place))), line(it)))
                .collect(),
            delayed: delayed.collect(),
            marks: items(&replies[7]).iter().map(|mark| mark.as_str().map(|mark| given.text(mark))).collect(),
            letters: items(&replies[4]).iter().map(|letter| text(Some(letter)).to_owned()).collect(),
            originals: pairs(&replies[5])
                .map(|(place, it)| (given.place_text(text(Some(place))), it.to_vec()))
                .collect(),
            outbox: number(replies.get(6)),
        })
    }

    fn model_standing(&self) -> Standing {
        let (given, keys, now, model) = (&self.given[1], &self.keys, self.model.now(), &self.model);
        let place = |place: gristmill_job::Place| given.place_text(&place.to_string());
        let line = |line| given.line(line, now.0);
        let view = model.partitions(&self.queue).remove(0);
        Standing {
            jobs: model.jobs(keys).into_iter().map(|(at, id, _)| (place(at), id.to_string())).collect(),
            claims: model
                .claims(keys)
                .into_iter()
                .map(|(at, it)| {
                    let idle = rounded(Duration::from_millis(it.idle_ms)).as_secs();
                    (place(at), given.text(&it.holder), idle, it.deliveries)
                })
                .collect(),
            lines: model.states(keys).into_iter().map(|(at, it)| (place(at), Some(line(it)))).collect(),
            delayed: model
                .delayed(keys)
                .into_iter()
                .map(|(member, due, _, it)| {
                    let it = (it != StateLine::default()).then(|| line(it));
                    (member.as_bytes().to_vec(), rounded(now.age_at(due)).as_secs(), it)
                })
                .collect(),
            marks: (0..IDS)
                .map(|number| model.mark(keys, &id(number)).map(|(standing, _)| given.text(&standing)))
                .collect(),
            letters: model.dead_letters(&self.queue, 0, 0, 100).into_iter().map(|letter| letter.id).collect(),
            originals: model.originals(keys).into_iter().map(|(at, it)| (place(at), it.to_vec())).collect(),
            outbox: view.outbox,
        }
    }
}
