//! What a ticker's news are called.

use super::ticker::{News, Ticker};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::schedule::{
    ScheduleFailed, ScheduleFired, ScheduleMissed, ScheduleOverlaps, ScheduleStands, ScheduleWaits,
};

pub(super) fn tell(telemetry: &Telemetry, ticker: &Ticker, news: News) {
    let schedule = ticker.schedule().name().as_str();
    let missed = |missed: u64| {
        if missed > 0 {
            telemetry.tell(&ScheduleMissed { schedule, missed });
        }
    };
    match news {
        News::Nothing => {}
        News::Stands => telemetry.tell(&ScheduleStands { schedule }),
        News::Waits => telemetry.tell(&ScheduleWaits { schedule }),
        News::Fired { slot, late, missed: before } => {
            missed(before);
            telemetry.tell(&ScheduleFired { schedule, slot_ms: slot.0, late_ms: late });
        }
        News::Missed(before) => missed(before),
        News::Overlaps { slot, missed: before } => {
            missed(before);
            telemetry.tell(&ScheduleOverlaps { schedule, slot_ms: slot.0 });
        }
        News::Failed(why) => telemetry.tell(&ScheduleFailed { schedule, why: &why }),
    }
}
