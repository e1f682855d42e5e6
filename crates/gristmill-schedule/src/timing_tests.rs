use super::*;
use proptest::prelude::*;

fn at(text: &str) -> UnixMillis {
    UnixMillis(text.parse::<Timestamp>().unwrap().as_millisecond() as u64)
}

/// So many slots after a moment.
fn slots(timing: &Timing, after: &str, count: usize) -> Vec<String> {
    let next = |slot: &UnixMillis| timing.next_after(*slot);
    let first = timing.next_after(at(after));
    std::iter::successors(first, next).take(count).map(moment_text).collect()
}

fn cron(text: &str, zone: &str) -> Timing {
    Timing::cron(text, zone).unwrap()
}

#[test]
fn a_time_in_a_gap_comes_once_behind_it() {
    // On 29 March 2026 Berlin goes from 02:00 to 03:00, which is 01:00 UTC.
    let daily = cron("30 2 * * *", "Europe/Berlin");
    let expected = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(slots(&daily, "2026-03-27T12:00:00Z", 3), expected);
    // A list is no time of day.
    let twice = cron("15,45 2 * * *", "Europe/Berlin");
    let expected = ["2026-03-30T00:15:00Z", "2026-03-30T00:45:00Z"];
    assert_eq!(slots(&twice, "2026-03-28T12:00:00Z", 2), expected);
    // A step has no slots in it.
    let stepped = cron("*/30 2 * * *", "Europe/Berlin");
    let expected = ["2026-03-30T00:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(slots(&stepped, "2026-03-28T12:00:00Z", 2), expected);
}

#[test]
fn a_time_that_comes_twice_is_one_slot_and_a_step_goes_by_the_wall() {
    // On 25 October 2026 Berlin goes from 03:00 back to 02:00, which is 01:00 UTC.
    let daily = cron("30 2 * * *", "Europe/Berlin");
    let expected = ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
    assert_eq!(slots(&daily, "2026-10-24T12:00:00Z", 2), expected);
    let hourly = cron("0 * * * *", "Europe/Berlin");
    let expected = ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"];
    assert_eq!(slots(&hourly, "2026-10-24T23:00:00Z", 3), expected);
    // Half an hour, at midnight: Lord Howe Island.
    let every_ten = cron("*/10 * * * *", "Australia/Lord_Howe");
    let all = slots(&every_ten, "2026-04-04T13:00:00Z", 18);
    assert_eq!((all[0].as_str(), all[17].as_str()), ("2026-04-04T13:10:00Z", "2026-04-04T16:00:00Z"));
}

#[test]
fn zones_that_skip_a_midnight_or_a_day_keep_their_slots() {
    // On 6 September 2026 Santiago has no midnight: it is one o'clock at once.
    let midnight = cron("0 0 * * *", "America/Santiago");
    let expected = ["2026-09-05T04:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"];
    assert_eq!(slots(&midnight, "2026-09-04T12:00:00Z", 3), expected);
    // Samoa had no 30 December 2011. Nothing comes twice or goes back.
    let noon = cron("0 12 * * *", "Pacific/Apia");
    let all = slots(&noon, "2011-12-28T00:00:00Z", 4);
    assert!(all.is_sorted() && all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
}

#[test]
fn leap_days_weekdays_and_the_last_of_a_month() {
    let leap = cron("0 0 29 2 *", "UTC");
    let expected = ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"];
    assert_eq!(slots(&leap, "2026-01-01T00:00:00Z", 2), expected);
    let last = cron("0 0 L * *", "UTC");
    let expected = ["2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z"];
    assert_eq!(slots(&last, "2028-01-30T00:00:00Z", 2), expected);
    // Day and weekday, both said, are either, as in Vixie cron.
    let either = cron("0 0 13 * FRI", "UTC");
    let expected = ["2026-11-06T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"];
    assert_eq!(slots(&either, "2026-11-01T00:00:00Z", 3), expected);
    let seconds = cron("*/20 * * * * *", "UTC");
    let expected = ["2026-11-01T00:00:20Z", "2026-11-01T00:00:40Z"];
    assert_eq!(slots(&seconds, "2026-11-01T00:00:00.001Z", 2), expected);
}

#[test]
fn an_interval_goes_by_its_anchor_before_it_and_after() {
    let every = Timing::every("90s", Some("2026-01-01T00:00:30Z")).unwrap();
    let expected = ["2025-12-31T23:59:00Z", "2026-01-01T00:00:30Z", "2026-01-01T00:02:00Z"];
    assert_eq!(slots(&every, "2025-12-31T23:58:00Z", 3), expected);
    assert_eq!(Timing::every("1d", None).unwrap().next_after(UnixMillis(0)), Some(UnixMillis(86_400_000)));
    // Before 1970 there are none, and at the end of time none is left.
    let far = Timing::Every { every_ms: 1000, anchor: UnixMillis(u64::MAX) };
    assert_eq!(far.next_after(UnixMillis(u64::MAX)), None);
    assert_eq!(cron("* * * * *", "UTC").next_after(UnixMillis(u64::MAX)), None);
}

#[test]
fn what_says_no_timing_is_refused_with_what_was_expected() {
    let long = "*".repeat(MAX_CRON_BYTES + 1);
    for text in ["", "* * * *", "61 * * * *", "0 0 30 2 *", "* * * * * * 2026", "@reboot", "0 0 * * ß", &long]
    {
        let error = Timing::cron(text, "UTC").unwrap_err();
        assert!(error.to_string().contains("expected cron of 5 fields"), "{text:?}: {error}");
    }
    for zone in ["", "Berlin", "Europe/Atlantis", "CET-1", "../../etc/passwd"] {
        assert_eq!(Timing::cron("* * * * *", zone), Err(TimingError::Zone(zone.into())), "{zone:?}");
    }
    for every in ["", "90", "s", "0s", "500ms", "3661d", "1.5h", "-1s", "1 s", "99999999999999999999d"] {
        assert_eq!(Timing::every(every, None), Err(TimingError::Interval(every.into())), "{every:?}");
    }
    for anchor in ["", "tomorrow", "2026-01-31", "2026-01-31T06:00:00", "1960-01-01T00:00:00Z"] {
        let error = Timing::every("1h", Some(anchor));
        assert_eq!(error, Err(TimingError::Anchor(anchor.into())), "{anchor:?}");
    }
}

#[test]
fn intervals_are_said_in_their_largest_unit_and_read_again() {
    for (ms, text) in [(1500, "1500ms"), (90_000, "90s"), (3_600_000, "1h"), (172_800_000, "2d")] {
        assert_eq!(interval_text(ms), text);
        assert_eq!(Timing::every(text, None).unwrap(), Timing::Every { every_ms: ms, anchor: UnixMillis(0) });
    }
}

pub(crate) fn timings() -> impl Strategy<Value = Timing> {
    const TEXTS: &[&str] = &[
        "* * * * * *",
        "*/7 * * * * *",
        "* * * * *",
        "*/15 * * * *",
        "0 * * * *",
        "30 2 * * *",
        "15,45 2 * * *",
        "0 0 * * *",
        "0 3 * * SUN",
        "0 0 L * *",
        "0 0 29 2 *",
        "30 1-3 * * *",
        "0 0 1 JAN *",
        "@daily",
    ];
    const ZONES: &[&str] = &[
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Santiago",
        "Australia/Lord_Howe",
        "Asia/Kolkata",
        "Pacific/Apia",
        "Africa/Casablanca",
        "America/St_Johns",
    ];
    prop_oneof![
        (proptest::sample::select(TEXTS), proptest::sample::select(ZONES))
            .prop_map(|(text, zone)| cron(text, zone)),
        (1000..200_000_000u64, 0..4_000_000_000_000u64)
            .prop_map(|(every_ms, anchor)| Timing::Every { every_ms, anchor: UnixMillis(anchor) }),
    ]
}

/// From 2010 to 2033.
pub(crate) fn moments() -> impl Strategy<Value = UnixMillis> {
    (1_262_304_000_000..2_000_000_000_000u64).prop_map(UnixMillis)
}

proptest! {
    #[test]
    fn the_next_slot_is_the_same_from_wherever_it_is_looked_for(
        timing in timings(), from in moments(), ahead in 0..10_000u64,
    ) {
        if let Some(next) = timing.next_after(from) {
            prop_assert!(next > from);
            let between = from.0 + ahead % (next.0 - from.0);
            prop_assert_eq!(timing.next_after(UnixMillis(between)), Some(next));
            prop_assert_eq!(timing.next_after(UnixMillis(next.0 - 1)), Some(next));
        }
    }

    #[test]
    fn the_latest_slot_is_the_last_of_the_walk(timing in timings(), from in moments(), span in 0..400_000u64) {
        let until = UnixMillis(from.0 + span);
        let next = |slot: &UnixMillis| timing.next_after(*slot).filter(|slot| *slot <= until);
        let walked = std::iter::successors(next(&from), next).last();
        prop_assert_eq!(timing.latest(from, until), walked);
    }
}
