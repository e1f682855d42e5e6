//! What happens to a node and its partitions.

use super::events;

events! {
    /// A node has its actors.
    NodeStarted "node.started" INFO "gristmill_node" "node started"
        { node: show, queues: num, slots: num }
        {}
    /// Signals are heeded, and work is done.
    NodeReady "node.ready" INFO "gristmill_cli" "ready"
        { node: show, kinds: str }
        {}
    /// It leaves.
    NodeDraining "node.draining" INFO "gristmill_node" "draining"
        { node: show, window_ms: ms }
        { node_draining[] @ 1 }
    /// The time for running jobs is over.
    DrainWindowOver "drain.window_over" WARN "gristmill_node" "the drain window is over: running jobs are asked to stop"
        { node: show }
        {}
    /// They did not.
    DrainStops "drain.stops" WARN "gristmill_node" "running jobs are stopped"
        { node: show }
        {}
    /// It has left.
    NodeDrained "node.drained" INFO "gristmill_node" "drained"
        { node: show, finished: num, handed_back: num, abandoned: num, took_ms: ms }
        { drain_duration_seconds[] = took_ms }
    /// It cannot go on.
    NodeEnds "node.ends" ERROR "gristmill_node" "the node ends: it renews its leases no more, so that others take them over"
        { why: str }
        {}
    /// An actor failed.
    ActorRestarted "actor.restarted" ERROR "gristmill_node" "an actor failed and is started again"
        { actor: str, why: str }
        { actor_restarts_total[] += 1 }
    /// The queues could not be made.
    QueuesNotPrepared "queues.not_prepared" WARN "gristmill_node" "the queues cannot be prepared yet, will try again"
        { why: str }
        {}
    /// A queue is otherwise than configured.
    QueueDiffers "queue.differs" ERROR "gristmill_node" "the queue was made with another number of partitions; this node cannot serve it"
        { queue: show, partitions: str, configured: num }
        {}
    /// Something of a queue is paused, or no more.
    QueuePauses "queue.pauses" INFO "gristmill_node" "what is paused of a queue has changed"
        { queue: str, pauses: num, targets: str }
        {}
    /// A lease could not be asked for.
    AcquireFailed "lease.acquire_failed" WARN "gristmill_node" "acquire failed"
        { queue: show, partition: num, error: show }
        {}
    /// A tenure ended by a fault.
    LeaseLost "lease.lost" WARN "gristmill_node" "a tenure ended; lanes are rebuilt"
        { queue: str, partition: num, epoch: show, cause: str }
        { leases_lost_total[] += 1 }
    /// A partition was taken over from an owner whose lease had run out.
    PartitionRecovered "partition.recovered" INFO "gristmill_node" "a partition is taken over: its owner's lease had run out"
        { queue: str, partition: num, epoch: show, owner: str }
        { recoveries_total[queue] += 1 }
    /// A partition was given to another node.
    PartitionHandedOver "partition.handed_over" DEBUG "gristmill_node" "a partition is handed over"
        { queue: str, partition: num, epoch: show, took_ms: ms }
        { handovers_total[queue] += 1, handover_duration_seconds[] <= took_ms }
    /// A batch was to be larger than the node can run.
    BatchCapped "batch.capped" WARN "gristmill_node" "batches are capped at the slots of the node, since each of their jobs holds one"
        { kind: str, max_jobs: num, slots: num }
        {}
    /// A kind was limited otherwise before.
    LimitChanged "limit.changed" INFO "gristmill_node" "a kind is limited otherwise than before, on all nodes"
        { queue: str, kind: str, limit: show, before: str }
        {}
    /// What the kinds are limited to could not be written.
    LimitsUnsaid "limit.unsaid" WARN "gristmill_node" "what kinds are limited to cannot be written yet, will try again"
        { queue: str, error: show }
        {}
    /// Runs asked for their limit, and no answer came.
    LimitUnanswered "limit.unanswered" WARN "gristmill_node" "runs of a limited kind wait: no answer came"
        { queue: str, kind: str, answer: str, error: show }
        { limit_asked_total[queue, kind, answer] += 1 }
    /// A run goes on whose slot lapsed, or was inherited by another.
    SlotLost "limit.slot_lost" WARN "gristmill_node" "a run goes on without its slot: it lapsed while Redis heard nothing, or another runs its job"
        { queue: str, kind: str, job: show }
        { limit_slots_lost_total[queue, kind] += 1 }
    /// The doorbell's connection broke.
    DoorbellLost "doorbell.lost" DEBUG "gristmill_node" "the doorbell lost its connection"
        { error: show }
        {}
}
