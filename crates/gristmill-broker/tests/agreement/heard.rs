//! Which words an answer consists of, to be counted: what was never heard was not compared.

use crate::plan;
use gristmill_broker::absolve::Absolved;
use gristmill_broker::call::Answer;
use gristmill_broker::promote::Promoted;
use gristmill_broker::start::Marked;
use gristmill_broker::state::Suspicion;
use gristmill_broker::{Entry, Refusal, Settled};
use gristmill_job::Place;

/// The words of one answer to a numbered call.
pub(crate) fn words(call: &plan::Call, answer: &Answer, heard: &mut Vec<&'static str>) {
    let refused_gap = matches!(answer, Answer::Refused(Refusal::Gap { .. }));
    let refused = matches!(answer, Answer::Refused(_));
    let already = matches!(answer, Answer::Already);
    heard.push(match call {
        plan::Call::Claim { .. } if refused_gap => "claim:refused gap",
        plan::Call::Claim { .. } if refused => "claim:refused fenced",
        plan::Call::Claim { .. } if already => "claim:already",
        plan::Call::Claim { .. } => "claim:claimed",
        plan::Call::Recover { .. } if refused => "recover:refused",
        plan::Call::Recover { .. } if already => "recover:already",
        plan::Call::Recover { .. } => "recover:recovered",
        plan::Call::Settle { .. } if refused => "settle:refused",
        plan::Call::Settle { .. } => "settle:answered",
        plan::Call::HandBack { .. } if refused_gap => "hand_back:refused gap",
        plan::Call::HandBack { .. } if refused => "hand_back:refused fenced",
        plan::Call::HandBack { .. } => "hand_back:done",
        plan::Call::Forward { .. } if refused => "forward:refused",
        plan::Call::Forward { .. } => "forward:done",
        plan::Call::Take { .. } if refused => "take:refused",
        plan::Call::Take { .. } if already => "take:already",
        plan::Call::Take { .. } => "take:taken",
        plan::Call::Start { .. } if refused => "start:refused",
        plan::Call::Start { .. } => "start:answered",
        plan::Call::Census if refused => "census:refused",
        plan::Call::Census => "census:answered",
        plan::Call::Promote { .. } if refused => "promote:refused",
        plan::Call::Promote { .. } => "promote:answered",
        plan::Call::Release if refused => "release:refused",
        plan::Call::Release => "release:done",
    });
    match answer {
        Answer::Recovered { entries, next } => {
            if *next != Place::ZERO {
                heard.push("recover:more");
            }
            heard.extend(entries.iter().map(|entry| match entry.recovered {
                true => "recover:of another",
                false => "recover:handed back",
            }));
            heard.extend(entries.iter().map(|entry| found("recover", entry)));
        }
        Answer::Settled { jobs, first } => {
            heard.push(if *first { "settle:first" } else { "settle:repeat" });
            heard.extend(jobs.iter().map(|job| match job {
                Settled::Done => "settled:done",
                Settled::Stale => "settled:stale",
                Settled::Duplicate => "settled:duplicate",
                Settled::Discarded => "settled:discarded",
                Settled::Cancelled => "settled:cancelled",
                Settled::Expired => "settled:expired",
                Settled::Retried => "settled:retried",
                Settled::Dead => "settled:dead",
                Settled::Gone => "settled:gone",
                Settled::AtTurn(_) => "settled:at_turn",
                Settled::Rejected(_) => "settled:rejected",
            }));
        }
        Answer::Taken(taken) => {
            if taken.more {
                heard.push("take:more");
            }
            if !taken.held.is_empty() {
                heard.push("take:held");
            }
            if !taken.asked.is_empty() {
                heard.push("take:asked");
            }
            heard.extend(taken.entries.iter().map(|entry| found("take", entry)));
        }
        Answer::Started(marked) => heard.extend(marked.iter().map(|marked| match marked {
            Marked::Started => "marked:started",
            Marked::Gone => "marked:gone",
            Marked::AtTurn(_) => "marked:at_turn",
        })),
        Answer::Promoted(promoted) => heard.extend(promotion(promoted)),
        Answer::Counted(None) => heard.push("census:already"),
        Answer::Counted(Some(census)) => {
            heard.push("census:counted");
            if census.holds_removed > 0 {
                heard.push("census:holds removed");
            }
            if census.lines_removed > 0 {
                heard.push("census:lines removed");
            }
            if census.returned > 0 {
                heard.push("census:returned");
            }
        }
        _ => {}
    }
}

/// What a slice did.
pub(crate) fn promotion(promoted: &Promoted) -> impl Iterator<Item = &'static str> {
    let words = [
        (promoted.moved > 0).then_some("promote:moved"),
        (promoted.moved > 1).then_some("promote:moved many"),
        (promoted.moved > 0 && !promoted.due.is_empty()).then_some("promote:more"),
        promoted.next.map(|_| "promote:next"),
        (promoted.due.is_empty() && promoted.next.is_none()).then_some("promote:nothing"),
    ];
    words.into_iter().flatten()
}

/// How a job stands that was reclaimed.
pub(crate) fn reclaimed(entry: &Entry) -> &'static str {
    match (entry.recovered, found("recover", entry)) {
        (false, _) => "reclaim:handed back",
        (_, "recover:marked still") => "reclaim:marked still",
        (_, "recover:charged") => "reclaim:charged",
        (_, "recover:unsuspected") => "reclaim:unsuspected",
        (_, "recover:weak") => "reclaim:weak",
        _ => "reclaim:strong",
    }
}

/// What became of a mark or a charge.
pub(crate) fn absolved(absolved: Absolved) -> &'static str {
    match absolved {
        Absolved::Absolved => "absolve:absolved",
        Absolved::Nothing => "absolve:nothing",
        Absolved::Mine => "absolve:mine",
    }
}

/// How a job stands that was recovered or taken.
fn found(how: &str, entry: &Entry) -> &'static str {
    let line = entry.state.line().cloned().unwrap_or_default();
    match (how, line.mark.is_some(), line.crashes.is_empty(), line.suspicion) {
        ("recover", true, ..) => "recover:marked still",
        ("recover", _, false, _) => "recover:charged",
        ("recover", _, _, Suspicion::None) => "recover:unsuspected",
        ("recover", _, _, Suspicion::Weak) => "recover:weak",
        ("recover", _, _, Suspicion::Strong) => "recover:strong",
        (_, true, ..) => "take:marked still",
        (_, _, false, _) => "take:charged",
        (_, _, _, Suspicion::None) => "take:unsuspected",
        (_, _, _, Suspicion::Weak) => "take:weak",
        (_, _, _, Suspicion::Strong) => "take:strong",
    }
}
