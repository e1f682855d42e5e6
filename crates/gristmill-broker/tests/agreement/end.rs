//! Compares everything that is stored.

use crate::both::{Both, id, key};
use crate::given::{Given, rounded};
use crate::plan::{IDS, KEYS};
use gristmill_broker::delayed::Body;
use gristmill_broker::inspect::PartitionView;
use gristmill_broker::model::Outgoing;
use gristmill_broker::returned::Returned;
use gristmill_broker::{Fence, Incarnation, JobState, StateLine};
use gristmill_job::{Due, Place, UnixMillis};
use gristmill_testkit::server::Reply;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

fn agree<T: PartialEq + Debug>(what: &str, real: T, model: T) -> Result<(), String> {
    if real == model {
        return Ok(());
    }
    Err(format!("at the end, {what}:\nthe server has {real:#?}\n   the model {model:#?}"))
}

pub(crate) async fn compare(both: &mut Both) -> Result<(), String> {
    let failed = |error: gristmill_broker::CallError| error.to_string();
    agree("queues", both.connection.queues().await.map_err(failed)?, both.model.queues())?;
    let real = both.connection.partitions(&both.queue).await.map_err(failed)?.remove(0);
    let model = both.model.partitions(&both.queue).remove(0);
    agree("the partition", view(&both.given[0], real), view(&both.given[1], model))?;
    for number in 0..KEYS {
        let key = key(number);
        // A key of another type cannot be read there, and is none here.
        let real = both.connection.entity(&both.queue, key.as_bytes()).await.unwrap_or_default();
        agree("an entity", real, both.model.entity(&both.queue, key.as_bytes()))?;
    }
    let real = both.connection.dead_letters(&both.queue, 0, 0, 100).await.map_err(failed)?;
    agree("dead letters", real, both.model.dead_letters(&both.queue, 0, 0, 100))?;
    let real = both.connection.outbox(&both.keys, 1000).await.map_err(failed)?;
    let now = both.model.now();
    let without_ids = |outbox: Vec<Outgoing>| {
        let told = |(_, job): Outgoing| {
            job.map(|(queue, mut job)| {
                if let Due::At(at) = job.due {
                    job.due = Due::In(rounded(now.age_at(at)));
                }
                (queue, job)
            })
        };
        outbox.into_iter().map(told).collect::<Vec<_>>()
    };
    agree("the outbox", without_ids(real), without_ids(both.model.outbox(&both.keys, 1000)))?;
    stream(both)?;
    states(both)?;
    beside(both)?;
    delayed(both)?;
    marks(both)?;
    both.same_schedules().await?;
    lease(both)
}

fn view(given: &Given, mut view: PartitionView) -> PartitionView {
    view.epoch = given.epoch(gristmill_broker::Epoch(view.epoch)).0;
    let left = Duration::from_millis(view.expires.0.saturating_sub(view.now.0));
    view.expires = UnixMillis(rounded(left).as_secs());
    view.due = view.due.map(|due| UnixMillis(rounded(view.now.age_at(due)).as_secs()));
    view.now = UnixMillis(0);
    view.oldest = view.oldest.map(|_| UnixMillis(0));
    view
}

fn ask(both: &mut Both, words: &[&[u8]]) -> Result<Reply, String> {
    both.raw.command(words).map_err(|error| error.to_string())
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

/// Which jobs lie there, and who holds which.
fn stream(both: &mut Both) -> Result<(), String> {
    let name = both.keys.stream.clone();
    let entries = ask(both, &[b"XRANGE", name.as_bytes(), b"-", b"+"])?;
    let group = ask(both, &[b"EXISTS", name.as_bytes()])?;
    let pending = match group {
        Reply::Int(0) => Reply::Nil,
        _ => ask(both, &[b"XPENDING", name.as_bytes(), b"workers", b"-", b"+", b"1000"])?,
    };
    let holder = |row: &Reply| (text(items(row).first()).to_owned(), text(items(row).get(1)).to_owned());
    let holders: BTreeMap<String, String> = items(&pending).iter().map(holder).collect();
    let [real, model] = &both.given;
    let real: Vec<(String, String, Option<String>)> = items(&entries)
        .iter()
        .map(|row| {
            let (place, fields) = (text(items(row).first()), items(&items(row)[1]));
            (real.place_text(place), text(fields.get(1)).to_owned(), holders.get(place).map(|h| real.text(h)))
        })
        .collect();
    let jobs = both.model.jobs(&both.keys).into_iter();
    let model = jobs
        .map(|(place, id, holder)| {
            (model.place_text(&place.to_string()), id.to_string(), holder.map(|h| model.text(&h)))
        })
        .collect();
    agree("the stream", real, model)
}

fn states(both: &mut Both) -> Result<(), String> {
    let (name, now) = (both.keys.state.clone(), both.model.now().0);
    let all = ask(both, &[b"HGETALL", name.as_bytes()])?;
    let line = |side: usize, line| both.given[side].line(line, now);
    let real: BTreeMap<String, Option<StateLine>> = items(&all)
        .chunks(2)
        .map(|pair| {
            let parsed = StateLine::parse(bytes(&pair[1])).map(|parsed| line(0, parsed));
            (both.given[0].place_text(text(pair.first())), parsed)
        })
        .collect();
    let stored = both.model.states(&both.keys).into_iter();
    let model = stored
        .map(|(place, stored)| (both.given[1].place_text(&place.to_string()), Some(line(1, stored))))
        .collect();
    agree("states", real, model)
}

/// What lies beside the stream: returned jobs, first envelopes, held keys.
fn beside(both: &mut Both) -> Result<(), String> {
    let keys = both.keys.clone();
    let shown = |both: &Both, side: usize, place: &str| both.given[side].place_text(place);
    let scores = ask(both, &[b"ZRANGE", keys.returned.as_bytes(), b"0", b"-1", b"WITHSCORES"])?;
    let bodies = pairs(both, &keys.returned_bodies)?;
    let mut real = Vec::new();
    for pair in items(&scores).chunks(2) {
        let place = text(pair.first()).to_owned();
        let record = bodies.get(place.as_bytes()).cloned().unwrap_or_default();
        let entry = Returned::entry(&record, Place::ZERO, JobState::default());
        let job = (entry.id, entry.key, entry.envelope);
        real.push((pair[1].as_int().unwrap_or_default() as u64, shown(both, 0, &place), job));
    }
    let returned = both.model.returned(&keys).into_iter();
    let model: Vec<_> = returned
        .map(|(place, at, job)| (at, shown(both, 1, &place.to_string()), (job.id, job.key, job.envelope)))
        .collect();
    agree("records of returned jobs", bodies.len(), model.len())?;
    agree("returned jobs", real, sorted(model))?;

    let real = pairs(both, &keys.originals)?.into_iter();
    let real: Vec<_> =
        real.map(|(place, envelope)| (shown(both, 0, &String::from_utf8_lossy(&place)), envelope)).collect();
    let model = both.model.originals(&keys).into_iter();
    let model = model.map(|(place, envelope)| (shown(both, 1, &place.to_string()), envelope.to_vec()));
    agree("first envelopes", sorted(real), sorted(model.collect()))?;

    let hold = |both: &Both, side: usize, hold: &str| match hold.rsplit_once(' ') {
        Some((letter, place)) => format!("{letter} {}", shown(both, side, place)),
        None => hold.to_owned(),
    };
    let real = pairs(both, &keys.held)?.into_iter();
    let real: Vec<_> =
        real.map(|(key, held)| (key, hold(both, 0, &String::from_utf8_lossy(&held)))).collect();
    let model = both.model.held(&keys).into_iter();
    let model = model.map(|(key, held)| (key.as_bytes().to_vec(), hold(both, 1, &held))).collect();
    agree("held keys", real, model)?;

    let list = ask(both, &[b"LRANGE", keys.asked.as_bytes(), b"0", b"-1"])?;
    let real: Vec<String> = items(&list)
        .iter()
        .map(|item| {
            let item = String::from_utf8_lossy(bytes(item)).into_owned();
            let (place, rest) = item.split_once(' ').unwrap_or_default();
            format!("{} {rest}", shown(both, 0, place))
        })
        .collect();
    let model = both.model.asked(&keys).into_iter().map(|asked| {
        let (place, own, id) = (shown(both, 1, &asked.place.to_string()), asked.own_id, asked.id.to_string());
        format!(
            "{place} {} {} {id}{}",
            u8::from(own),
            id.len(),
            String::from_utf8_lossy(asked.key.as_bytes())
        )
    });
    agree("jobs that are asked for", real, model.collect())
}

/// Jobs for later, and how many there ever were.
fn delayed(both: &mut Both) -> Result<(), String> {
    let (keys, now) = (both.keys.clone(), both.model.now());
    let left = |due: u64| rounded(now.age_at(UnixMillis(due))).as_secs();
    let scores = ask(both, &[b"ZRANGE", keys.delayed.as_bytes(), b"0", b"-1", b"WITHSCORES"])?;
    let bodies = pairs(both, &keys.delayed_bodies)?;
    let mut real = Vec::new();
    for pair in items(&scores).chunks(2) {
        let member = bytes(&pair[0]).to_vec();
        let body = Body::read(bodies.get(&member).cloned().unwrap_or_default().into());
        let due = text(pair.get(1)).parse().unwrap_or_default();
        let line = StateLine::parse(&body.line).map(|line| both.given[0].line(line, now.0));
        real.push((member, left(due), body.key, body.envelope, line));
    }
    let model: Vec<_> = both
        .model
        .delayed(&keys)
        .into_iter()
        .map(|(member, due, job, line)| {
            let line = (line != StateLine::default()).then(|| both.given[1].line(line, now.0));
            let key = bytes::Bytes::copy_from_slice(job.key.as_bytes());
            (member.as_bytes().to_vec(), left(due.0), key, job.envelope, line)
        })
        .collect();
    agree("bodies of jobs for later", bodies.len(), model.len())?;
    agree("jobs for later", real, model)?;
    let seq = ask(both, &[b"HGET", keys.meta.as_bytes(), b"delayed_seq"])?;
    let seq = seq.as_str().and_then(|seq| seq.parse().ok()).unwrap_or_default();
    agree("jobs ever delayed", seq, both.model.delayed_seq(&keys))
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}

/// A hash, in order of its fields.
fn pairs(both: &mut Both, key: &str) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let all = ask(both, &[b"HGETALL", key.as_bytes()])?;
    Ok(items(&all).chunks(2).map(|pair| (bytes(&pair[0]).to_vec(), bytes(&pair[1]).to_vec())).collect())
}

fn marks(both: &mut Both) -> Result<(), String> {
    let mut commands = Vec::new();
    for number in 0..IDS {
        let name = both.keys.seen(id(number).as_bytes());
        commands.push([b"GET".to_vec(), name.clone()]);
        commands.push([b"PTTL".to_vec(), name]);
    }
    let replies = both.raw.pipeline(&commands).map_err(|error| error.to_string())?;
    let now = both.model.now();
    for (number, pair) in (0..IDS).zip(replies.chunks(2)) {
        let standing = pair[0].as_str().map(|standing| both.given[0].text(standing));
        let left = pair[1].as_int().and_then(|ms| u64::try_from(ms).ok());
        let left = left.map(|ms| rounded(Duration::from_millis(ms)));
        let model = both.model.mark(&both.keys, &id(number)).map(|(standing, until)| {
            (both.given[1].text(&standing), until.map(|until| rounded(now.age_at(until))))
        });
        agree("a mark", standing.map(|standing| (standing, left)), model)?;
    }
    Ok(())
}

/// Its number, and which gates are open: of all tenures that were ever granted.
fn lease(both: &mut Both) -> Result<(), String> {
    let name = both.keys.lease.clone();
    let number = ask(both, &[b"HGET", name.as_bytes(), b"number"])?.as_int().unwrap_or_default();
    agree("the number", number as u64, both.model.number(&both.keys))?;
    let pattern =
        format!(
            "{}*",
            String::from_utf8_lossy(&both.keys.gate(&Fence {
                incarnation: Incarnation::from_stored(""),
                epoch: gristmill_broker::Epoch(0),
            }))
            .trim_end_matches("#0")
            .replace('[', "\\[")
        );
    let found = ask(both, &[b"KEYS", pattern.as_bytes()])?;
    let mut open = Vec::new();
    for reply in items(&found) {
        let consumer = text(Some(reply)).rsplit_once(":gate:").map_or("", |(_, consumer)| consumer);
        open.push(both.given[0].text(consumer));
    }
    let gates = both.model.gates(&both.keys).into_iter().map(|gate| both.given[1].text(&gate)).collect();
    agree("open gates", open, gates)
}
