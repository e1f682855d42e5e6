//! What happens to single jobs.

use super::events;

events! {
    /// Whatever else became of a job than done or dead.
    JobSettled "job.settled" DEBUG "gristmill_node" "settled"
        { queue: str, partition: num, job: show, place: show, attempt: num, trace_id: show, settled: str }
        {}
    /// A job became a dead letter.
    JobDead "job.dead" WARN "gristmill_node" "a job is now a dead letter"
        { queue: str, partition: num, job: show, place: show, attempt: num, trace_id: show, reason: str }
        { dead_letters_total[queue, reason] += 1 }
    /// A job that a person cancelled has ended.
    JobCancelled "job.cancelled" INFO "gristmill_node" "a job has ended, since a person cancelled it"
        { queue: str, partition: num, job: show, place: show, attempt: num, trace_id: show }
        { jobs_cancelled_total[queue] += 1 }
    /// A job was not started in time.
    JobExpired "job.expired" INFO "gristmill_node" "a job has ended unrun: it was not started before it expired"
        { queue: str, partition: num, job: show, place: show, attempt: num, trace_id: show }
        { jobs_expired_total[queue] += 1 }
    /// Redis refused the writes of a job.
    JobRejected "job.rejected" WARN "gristmill_node" "Redis refused to write what a job asked for"
        { queue: str, partition: num, job: show, place: show, attempt: num, trace_id: show, why: str }
        {}
    /// A suspect waits until nothing else runs.
    JobAlone "job.alone" WARN "gristmill_node" "a job that may kill its process is run alone: other jobs wait"
        { queue: str, partition: num, place: show }
        {}
    /// A lone run lost its lease.
    JobAbsolved "job.absolved" INFO "gristmill_node" "a run that was alone lost its lease, not its process"
        { place: show, absolved: show }
        {}
    /// The same could not be told to Redis.
    JobNotAbsolved "job.not_absolved" WARN "gristmill_node" "a false charge cannot be taken back now, will try again"
        { place: show, error: show }
        {}
    /// A run holds its thread.
    HandlerGivenUp "handler.given_up" ERROR "gristmill_node" "a handler holds its thread and cannot be stopped: it is given up and its slot replaced; restart the node"
        { queue: str, partition: num, job: show, place: show, attempt: num, trace_id: show, kind: str, seconds: num }
        { handlers_given_up_total[queue] += 1 }
    /// The same has ended at last.
    HandlerCameBack "handler.came_back" WARN "gristmill_node" "a run that was given up has ended; its result is refused"
        { queue: str, partition: num, job: show, place: show }
        {}
    /// Things were found that waited for nothing.
    JobsRepaired "jobs.repaired" ERROR "gristmill_node" "found jobs or keys that waited for nothing, and repaired them"
        { queue: str, partition: num, things: num }
        { jobs_repaired_total[queue] += things }
    /// Jobs were acknowledged and not run.
    JobsUnstarted "jobs.unstarted" ERROR "gristmill_node" "jobs that may run at most once were acknowledged, and are lost unrun"
        { queue: str, partition: num, jobs: num }
        { jobs_unstarted_total[queue] += jobs }
    /// Jobs for later became ready.
    JobsPromoted "jobs.promoted" DEBUG "gristmill_node" "jobs for later are due"
        { queue: str, partition: num, jobs: num, late_ms: ms }
        { jobs_promoted_total[queue] += jobs, promotion_late_seconds[queue] <= late_ms }
    /// Jobs for later were named, and nothing of them is left.
    JobsWithoutBody "jobs.without_body" ERROR "gristmill_node" "jobs for later are lost: somebody removed a half of them by hand"
        { queue: str, partition: num, jobs: num }
        {}
    /// Jobs were laid down for the next owner.
    JobsHandedBack "jobs.handed_back" DEBUG "gristmill_node" "jobs are laid down for the next owner"
        { queue: str, partition: num, jobs: num }
        {}
    /// Claims without a lease were lost.
    ClaimsLost "claims.lost" WARN "gristmill_node" "claims were lost before their jobs were settled; what they ran for is refused, and runs elsewhere"
        { queue: str, partition: num, claims: num }
        { claims_lost_total[queue] += claims }
    /// Claims were taken whose visibility timeout was over.
    ClaimsRecovered "claims.recovered" INFO "gristmill_node" "took claims that nobody extended any more"
        { queue: str, partition: num, claims: num }
        { claims_recovered_total[queue] += claims }
    /// The same, by a node that leaves.
    JobsHandedBackInDrain "jobs.handed_back_in_drain" INFO "gristmill_node" "jobs are laid down for others, since the node leaves"
        { queue: str, partition: num, jobs: num }
        { drain_handed_back_jobs_total[] += jobs }
    /// Runs outlive the node.
    RunsAbandoned "runs.abandoned" ERROR "gristmill_node" "runs that cannot be stopped are abandoned; their jobs run again elsewhere"
        { queue: show, partition: num, runs: num }
        {}
    /// Parked jobs could not be read.
    ParkedUnread "parked.unread" WARN "gristmill_node" "parked jobs cannot be read now, will try again"
        { error: show }
        {}
    /// An emitted job cannot be read.
    EmittedUnreadable "emitted.unreadable" ERROR "gristmill_node" "an outbox entry cannot be read; it stays"
        { id: show, error: show }
        {}
    /// An emitted job has no queue.
    EmittedWaits "emitted.waits" WARN "gristmill_node" "emitted jobs wait for their queue"
        { queue: show, error: show }
        {}
    /// Emitted jobs could not be enqueued.
    EmittedUnsent "emitted.unsent" WARN "gristmill_node" "emitted jobs wait: they cannot be enqueued now"
        { error: show }
        {}
    /// Old dead letters were discarded.
    LettersExpired "letters.expired" INFO "gristmill_node" "dead letters beyond their age were discarded"
        { queue: str, count: num, max_age_ms: num }
        { dead_letters_expired_total[queue] += count }
    /// Some of them were not.
    LettersNotExpired "letters.not_expired" WARN "gristmill_node" "dead letters beyond their age are not all discarded; the next look goes on"
        { queue: str, count: num, error: show }
        { dead_letters_expired_total[queue] += count }
    /// What was discarded is not in the audit log.
    LettersNotNoted "letters.not_noted" WARN "gristmill_node" "discarded dead letters cannot be noted in the audit log"
        { count: num, error: show }
        {}
}
