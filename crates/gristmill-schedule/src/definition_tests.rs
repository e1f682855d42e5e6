use super::*;
use serde_json::json;

fn nightly() -> Schedule {
    let timing = Timing::cron("30  2 * * *", "europe/berlin").unwrap();
    Schedule::new("nightly", "reports", "report.make", timing).unwrap()
}

#[test]
fn the_job_of_a_slot_is_the_same_whoever_makes_it() {
    let schedule = nightly().with_payload(json!({"b": 1, "a": [true, null]})).unwrap();
    let job = schedule.job(UnixMillis(1_790_000_000_000)).unwrap();
    assert_eq!(job.id.as_ref().map(ToString::to_string), Some("nightly@1790000000000".into()));
    assert_eq!((job.version, job.key.as_bytes()), (1_790_000_000_000, &b"nightly"[..]));
    assert_eq!(job.payload, r#"{"a":[true,null],"b":1}"#);
    let headers = [("schedule", "nightly"), ("slot", "1790000000000")];
    assert_eq!(job.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let id = job.id.unwrap();
    assert_eq!(slot_of_job(id.as_bytes()), Some((schedule.name().clone(), UnixMillis(1_790_000_000_000))));
    for other in ["nightly", "@5", "nightly@", "nightly@x", "nightly@+5", "a.b@5", "n@5@6"] {
        assert_eq!(slot_of_job(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn what_is_stored_is_read_again_and_is_the_same_one() {
    let window = Duration::from_secs(600);
    let every = Timing::every("90s", Some("2026-01-31T06:00:00+01:00")).unwrap();
    let all = [
        nightly(),
        nightly().with_payload(json!({"text": "ü\u{1}"})).unwrap().with_overlap(Overlap::Skip),
        Schedule::new("often", "q", "k", every).unwrap().with_key("other").unwrap(),
        nightly().with_catch_up(CatchUp::All, window).unwrap().with_enabled(false),
    ];
    for schedule in all {
        let stored = schedule.stored();
        let read = Schedule::from_stored(schedule.name().as_str(), stored.as_bytes()).unwrap();
        assert_eq!((&read, read.fingerprint()), (&schedule, schedule.fingerprint()), "{stored}");
    }
    let newer = nightly().stored().replacen('{', "{\"new\":1,", 1);
    assert_eq!(Schedule::from_stored("nightly", newer.as_bytes()).unwrap(), nightly());
}

#[test]
fn a_definition_that_cannot_be_read_says_why() {
    let huge = " ".repeat(MAX_DEFINITION_BYTES + 1);
    let both = nightly().stored().replacen('{', "{\"every\":\"1h\",", 1);
    let word = nightly().stored().replace("\"allow\"", "\"maybe\"");
    for stored in ["", "{}", "[1]", &huge, &both, &word] {
        let read = Schedule::from_stored("nightly", stored.as_bytes());
        assert!(matches!(read, Err(ScheduleError::Stored(_))), "{read:?}");
    }
    assert!(Schedule::from_stored("Nightly", nightly().stored().as_bytes()).is_err());
}

#[test]
fn fingerprints_tell_when_from_what() {
    let (one, mark) = (nightly(), nightly().fingerprint());
    assert_eq!(nightly().fingerprint(), mark);
    let payload = one.clone().with_payload(json!(1)).unwrap().fingerprint();
    assert!(payload.timing == mark.timing && payload.whole != mark.whole);
    let other =
        Schedule::new("nightly", "reports", "report.make", Timing::cron("31 2 * * *", "UTC").unwrap());
    assert!(other.unwrap().fingerprint().timing != mark.timing);
    assert!(one.with_enabled(false).fingerprint().timing != mark.timing, "enabled again, it begins anew");
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    assert!(Schedule::new("with.dot", "q", "k", Timing::every("1h", None).unwrap()).is_err());
    assert!(Schedule::new("", "q", "k", Timing::every("1h", None).unwrap()).is_err());
    assert!(nightly().with_key("").is_err());
    let large = json!("x".repeat(MAX_PAYLOAD_BYTES));
    assert_eq!(nightly().with_payload(large), Err(ScheduleError::Payload(MAX_PAYLOAD_BYTES + 2)));
    for window in [Duration::from_secs(9), LONGEST_WINDOW + Duration::from_secs(1)] {
        assert!(nightly().with_catch_up(CatchUp::All, window).is_err());
    }
}
