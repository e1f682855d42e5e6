//! Which words an answer consists of, to be counted: what was never heard was not compared.

use crate::plan;
use gristmill_broker::call::Answer;
use gristmill_broker::{Refusal, Settled};
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
        }
        Answer::Settled { jobs, first } => {
            heard.push(if *first { "settle:first" } else { "settle:repeat" });
            heard.extend(jobs.iter().map(|job| match job {
                Settled::Done => "settled:done",
                Settled::Stale => "settled:stale",
                Settled::Duplicate => "settled:duplicate",
                Settled::Discarded => "settled:discarded",
                Settled::Retried => "settled:retried",
                Settled::Dead => "settled:dead",
                Settled::Gone => "settled:gone",
                Settled::AtTurn(_) => "settled:at_turn",
                Settled::Rejected(_) => "settled:rejected",
            }));
        }
        _ => {}
    }
}
