//! What happens to recurring jobs.

use super::events;

events! {
    /// A slot's job was enqueued.
    ScheduleFired "schedule.fired" DEBUG "gristmill_node" "the job of a slot is enqueued"
        { schedule: str, slot_ms: num, late_ms: ms }
        { schedule_fired_total[schedule] += 1, schedule_lateness_seconds[schedule] <= late_ms }
    /// Slots were missed and are not made up.
    ScheduleMissed "schedule.missed" WARN "gristmill_node" "slots were missed and are passed over"
        { schedule: str, missed: num }
        { schedule_missed_total[schedule] += missed }
    /// A slot was passed over since the job before is not done.
    ScheduleOverlaps "schedule.overlaps" INFO "gristmill_node" "a slot is passed over: the job of the slot before is not done"
        { schedule: str, slot_ms: num }
        { schedule_overlapped_total[schedule] += 1 }
    /// This node's definition stands.
    ScheduleStands "schedule.stands" INFO "gristmill_node" "this node's definition of the schedule stands"
        { schedule: str }
        {}
    /// Another definition stands.
    ScheduleWaits "schedule.waits" INFO "gristmill_node" "another definition of the schedule stands, as long as nodes have it"
        { schedule: str }
        {}
    /// It cannot be asked for now.
    ScheduleFailed "schedule.failed" WARN "gristmill_node" "a schedule cannot be served now, will try again"
        { schedule: str, why: str }
        {}
}
