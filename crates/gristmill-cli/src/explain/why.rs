//! Why a job does not run now, and who could change that. Pure.

use super::live::Around;
use super::unordered;
use crate::keys::typed;
use crate::output::when;
use crate::reason::{self, Reason};
use gristmill_broker::Mode;
use gristmill_broker::keys::HANDED_BACK;
use gristmill_broker::limit::{Holder, SlotName};
use gristmill_broker::locate::JobView;
use gristmill_job::{Envelope, UnixMillis};
use std::time::Duration;

/// In the order in which they would have to go. Never empty.
pub(super) fn reasons(around: &Around) -> Vec<Reason> {
    let Around { job, kind, .. } = around;
    let mut reasons = Vec::new();
    reasons.extend(no_owner(around));
    let paused = |pause| crate::pause::reason(&around.queue.name, pause, job.now);
    reasons.extend(around.pauses.iter().map(paused));
    reasons.extend(held(around));
    reasons.extend(behind(around));
    reasons.extend(reason::of_line(&job.line, kind.as_deref(), job.now));
    reasons.extend(limited(around));
    if let Some(run) = &around.hung {
        let (node, since) = (&run.incarnation, when(run.since, job.now));
        let text = format!(
            "a run of it that began before holds a thread of {node} ({since}) and cannot be stopped; it was given up there, \
             and its result will be refused"
        );
        reasons.push(Reason::new("hung", text));
    }
    if around.served == Some(false) {
        let kind = kind.as_deref().unwrap_or_default();
        reasons.push(Reason::new(
            "unserved_kind",
            format!("no living node serves kind {kind}: start one that does"),
        ));
    }
    // What keeps it from running is told: then it does not run.
    let blocked = reasons
        .iter()
        .any(|it| ["paused", "held", "behind_key", "limit"].contains(&it.code) || it.until.is_some());
    reasons.push(match around.queue.mode {
        Mode::Key => where_it_stands(around, blocked),
        Mode::None => unordered::where_it_stands(around, blocked),
    });
    reasons
}

/// How many holders of a full limit are named.
const NAMED: usize = 5;

/// What the limit of its kind says: nothing in its way where it is neither full nor used up. Only the first of a key asks.
fn limited(around: &Around) -> Option<Reason> {
    let (limit, job) = (around.limit.as_ref()?, &around.job);
    if around.first.is_some() || around.hold.is_some() {
        return None;
    }
    let (kind, most) = (&limit.view.kind, u64::from(limit.view.max_running));
    let name = SlotName { partition: around.partition, place: job.place };
    if let Some(own) = limit.holders.iter().find(|holder| holder.name == name) {
        let (node, since) = (&own.owner.incarnation, when(own.since, job.now));
        let text = format!(
            "holds one of {most} slots of kind {kind} on {node} ({since}): it runs there, or ran and is settled"
        );
        return Some(Reason::new("has_slot", text));
    }
    if most > 0 && limit.running >= most {
        let named: Vec<String> = limit.holders.iter().take(NAMED).map(|it| holder(it, job.now)).collect();
        let more = limit.running.saturating_sub(named.len() as u64);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!("the limit of kind {kind} is full ({most}): held by {}{more}", named.join(", "));
        return Some(Reason::new("limit", text));
    }
    let wait = limit.rate?;
    let until = UnixMillis(job.now.0 + u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let of = if limit.view.per_key { "its key" } else { "the kind" };
    let text = format!(
        "the rate of kind {kind} ({}) is used up: the next token of {of} comes {}",
        limit.view.shown(),
        when(until, job.now)
    );
    Some(Reason { until: Some(until), ..Reason::new("rate", text) })
}

fn holder(holder: &Holder, now: UnixMillis) -> String {
    format!("job {} on {} since {}", holder.job, holder.owner.incarnation, when(holder.since, now))
}

/// Whether the lease of its partition stands.
fn owned(job: &JobView) -> bool {
    !job.owner.is_empty() && job.expires > job.now
}

fn no_owner(around: &Around) -> Option<Reason> {
    let (job, partition) = (&around.job, around.partition);
    if owned(job) || around.queue.mode == Mode::None {
        return None;
    }
    let since = match (job.owner.is_empty(), job.epoch) {
        (true, 0) => "nobody ever owned it".to_owned(),
        (true, _) => "its last owner gave it up".to_owned(),
        (false, _) => format!("the lease of {} expired {}", job.owner, when(job.expires, job.now)),
    };
    Some(Reason::new(
        "no_owner",
        format!("partition {partition} has no owner: {since}; `gristmill queues` shows the nodes there are"),
    ))
}

fn held(around: &Around) -> Option<Reason> {
    let hold = around.hold.as_ref()?;
    let (queue, key, letter) = (&around.queue.name, typed(&hold.key), &hold.letter);
    let since = when(hold.since, around.job.now);
    Some(Reason::new(
        "held",
        format!(
            "its key is held since dead letter {letter} ({since}), until a person acts: `gristmill dead replay {letter}`, \
             `gristmill keys release {queue} {key}` or `gristmill keys skip {queue} {key}`"
        ),
    ))
}

fn behind(around: &Around) -> Option<Reason> {
    let first = around.first.as_ref()?;
    let kind = Envelope::decode(&first.envelope, usize::MAX).ok().map(|envelope| envelope.kind.to_owned());
    let why: Vec<Reason> = reason::of_line(&first.line, kind.as_deref(), first.now);
    let until = why.iter().find_map(|reason| reason.until);
    let what: Vec<String> = why.into_iter().map(|reason| reason.text).collect();
    let what = if what.is_empty() { String::new() } else { format!(", which is {}", what.join("; ")) };
    let text = format!(
        "waits behind {} of its key; the first is job {} at place {}{what}",
        around.of_key, first.id, first.place
    );
    Some(Reason { until, ..Reason::new("behind_key", text) })
}

/// What Redis knows about a run of it. A job that is claimed or came back may run, unless it is known what it waits for.
fn where_it_stands(around: &Around, blocked: bool) -> Reason {
    let job = &around.job;
    let mine = |incarnation: &str| owned(job) && job.owner == incarnation;
    if let Some(mark) = &job.line.mark {
        let (node, alone) = (&mark.fence.incarnation, if mark.alone { ", alone in its process" } else { "" });
        return match mine(node.as_str()) {
            true => Reason::new("running", format!("running now on {node} under a start mark{alone}")),
            false => Reason::new(
                "left_running",
                format!(
                    "{node} started it under a start mark{alone} and no longer owns the partition: whether the run goes \
                     on is not known; the next owner finds the mark"
                ),
            ),
        };
    }
    let unknown = |why: &str| match blocked {
        true => String::new(),
        false => format!("; whether it runs at this moment is not known: {why}"),
    };
    const NO_TRACE: &str = "a run without a start mark leaves no trace until it ends";
    if job.returned {
        let text = "it came back from the dead by a replay, and its owner takes it within a second of that";
        return Reason::new("returned", format!("{text}{}", unknown(NO_TRACE)));
    }
    let Some(claim) = &job.claim else {
        return Reason::new(
            "unclaimed",
            format!("no node has claimed it; before it {} of its partition", around.of_partition),
        );
    };
    let since = crate::output::age(Duration::from_millis(claim.idle_ms));
    let node = claim.holder.rsplit_once('#').map_or(claim.holder.as_str(), |(node, _)| node);
    match (claim.holder == HANDED_BACK, mine(node)) {
        (true, _) => Reason::new(
            "handed_back",
            format!("a node that left handed it back {since} ago; the next owner takes it"),
        ),
        (false, true) => Reason::new(
            "claimed",
            format!(
                "claimed by {node} for {since}, before it {} of its partition{}",
                around.of_partition,
                unknown(NO_TRACE)
            ),
        ),
        (false, false) => Reason::new(
            "left_claimed",
            format!(
                "claimed by {node} since {since}, which no longer owns the partition; the next owner takes it"
            ),
        ),
    }
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
