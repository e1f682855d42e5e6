//! Where a job of a queue with ordering none stands: nobody owns its partition, and nothing of its key is before it. Pure.

use super::live::Around;
use crate::output::age;
use crate::reason::Reason;
use gristmill_broker::keys::HANDED_BACK;
use gristmill_broker::locate::ClaimView;
use std::time::Duration;

/// What Redis knows about a run of it. `blocked`: whether something was told that keeps it from running.
pub(super) fn where_it_stands(around: &Around, blocked: bool) -> Reason {
    let job = &around.job;
    let Some(claim) = &job.claim else {
        let text = match blocked {
            true => "no node has claimed it",
            false => "no node has claimed it; the next one with a free slot does, whichever that is",
        };
        return Reason::new("unclaimed", text);
    };
    let idle = Duration::from_millis(claim.idle_ms);
    if claim.holder == HANDED_BACK {
        let text = format!("a node handed it back {} ago; the next one with a free slot takes it", age(idle));
        return Reason::new("handed_back", text);
    }
    let node = holder(claim);
    if let Some(over) = around.visibility.and_then(|timeout| idle.checked_sub(timeout)) {
        let text = format!(
            "claimed by {node}, which was last heard of {} ago: the claim is over for {}, and the next node that looks takes it{}",
            age(idle),
            age(over),
            if blocked { "" } else { "; whether a run of it goes on there is not known" }
        );
        return Reason::new("claim_over", text);
    }
    let again = match around.visibility {
        Some(timeout) => {
            let left = age(timeout.saturating_sub(idle));
            format!(
                "visible to others in about {left} (queue.visibility_timeout_ms here: {} ms)",
                timeout.as_millis()
            )
        }
        None => "visible to others when its visibility timeout is over, which is not known here".to_owned(),
    };
    let claimed =
        format!("claimed by {node}, which last said so {} ago; {again}, unless it says so again", age(idle));
    match &job.line.mark {
        Some(mark) if mark.fence.incarnation.as_str() == node => {
            let alone = if mark.alone { ", alone in its process" } else { "" };
            Reason::new("running", format!("running now on {node} under a start mark{alone}: {claimed}"))
        }
        Some(mark) => {
            let other = &mark.fence.incarnation;
            let text = format!(
                "{claimed}; {other} had started it under a start mark and lost its claim: whether that run goes on is not known"
            );
            Reason::new("left_running", text)
        }
        None if blocked => Reason::new("claimed", claimed),
        None => {
            let text = format!(
                "{claimed}; whether it runs at this moment is not known: a run without a start mark leaves no trace until it ends"
            );
            Reason::new("claimed", text)
        }
    }
}

/// The node that holds a claim.
fn holder(claim: &ClaimView) -> &str {
    claim.holder.rsplit_once('#').map_or(claim.holder.as_str(), |(node, _)| node)
}
