use super::tests::{Folder, load};
use super::*;
use gristmill_job::UnixMillis;

#[test]
fn schedules_are_read_from_every_layer_with_what_holds_for_all() {
    let folder = Folder::new("schedules");
    let text = "[schedule]\ntimezone = \"Europe/Berlin\"\ncatch_up = \"all\"\n\
                [schedules.nightly]\nqueue = \"reports\"\nkind = \"report.make\"\ncron = \"30 2 * * *\"\n\
                payload = { Format = \"pdf\", pages = [1, 2.5, true], deep = { Inner = {} } }\n\
                [schedules.often]\nqueue = \"q\"\nkind = \"k\"\nevery = \"90s\"\nanchor = \"2026-01-01T00:00:30Z\"\n\
                key = \"other\"\noverlap = \"skip\"\ncatch_up = \"skip\"\ncatch_up_window_ms = 20000\nenabled = false\n";
    let file = folder.file("a.toml", text);
    let set = [("schedules.often.key", "third")];
    let variables = [
        ("GRISTMILL__SCHEDULES__ENV__CRON", "@daily"),
        ("GRISTMILL__SCHEDULES__ENV__QUEUE", "q"),
        ("GRISTMILL__SCHEDULES__ENV__KIND", "k"),
        ("GRISTMILL__SCHEDULES__ENV__ENABLED", "false"),
        ("GRISTMILL__SCHEDULES__ENV__CATCH_UP_WINDOW_MS", "30000"),
    ];
    let settings = load(Some(&file), &variables, &set).unwrap();
    let schedules = settings.schedules().unwrap();
    let stored: Vec<String> = schedules.iter().map(gristmill_schedule::Schedule::stored).collect();
    assert_eq!(
        stored[1],
        r#"{"queue":"reports","kind":"report.make","key":"nightly","cron":"30 2 * * *","timezone":"Europe/Berlin","payload":{"Format":"pdf","deep":{"Inner":{}},"pages":[1,2.5,true]},"catch_up":"all","catch_up_window_ms":86400000,"overlap":"allow","enabled":true}"#
    );
    assert_eq!(
        stored[2],
        r#"{"queue":"q","kind":"k","key":"third","every":"90s","anchor":"2026-01-01T00:00:30Z","payload":null,"catch_up":"skip","catch_up_window_ms":20000,"overlap":"skip","enabled":false}"#
    );
    assert!(
        stored[0].contains("\"cron\":\"@daily\"") && stored[0].contains("\"enabled\":false"),
        "{}",
        stored[0]
    );
    assert!(stored[0].contains("\"catch_up_window_ms\":30000"), "{}", stored[0]);
    let shown: BTreeMap<String, String> =
        settings.entries().into_iter().map(|entry| (entry.key.clone(), entry.shown())).collect();
    assert_eq!(
        shown["schedules.nightly.payload"],
        r#"{"Format":"pdf","deep":{"Inner":{}},"pages":[1,2.5,true]}"#
    );
    assert_eq!(
        (shown["schedules.often.key"].as_str(), shown["schedules.env.catch_up_window_ms"].as_str()),
        ("\"third\"", "30000")
    );

    let told = settings.told().unwrap();
    let told: Vec<&str> =
        told.iter().filter(|told| told.about == "schedules").map(|told| told.text.as_str()).collect();
    assert!(told[0].contains("nightly: cron 30 2 * * * in Europe/Berlin"), "{told:?}");
    assert!(told[1].starts_with("env, nightly, often: of queues that are not in queues"), "{told:?}");
    let next = schedules[1].timing().next_after(UnixMillis(1_790_000_000_000));
    assert_eq!(next.map(gristmill_schedule::timing::moment_text), Some("2026-09-22T00:30:00Z".into()));
}

#[test]
fn schedules_that_cannot_be_are_refused_by_key() {
    let refused = |set: &[(&str, &str)]| match load(None, &[], set) {
        Err(error) => error,
        Ok(settings) => settings.schedules().unwrap_err().to_string(),
    };
    let (queue, kind) = (("schedules.a.queue", "q"), ("schedules.a.kind", "k"));
    let cron = ("schedules.a.cron", "@daily");
    for (set, expected) in [
        (vec![queue, kind], "schedules.a: expected `cron` or `every` in it, got neither"),
        (vec![kind, cron], "schedules.a: expected `queue` in it, got none"),
        (vec![queue, cron], "schedules.a: expected `kind` in it, got none"),
        (
            vec![queue, kind, ("schedules.a.cron", "61 * * * *")],
            "schedules.a.cron: expected cron of 5 fields (minute hour day month weekday), or 6",
        ),
        (
            vec![queue, kind, ("schedules.a.cron", "0 0 30 2 *")],
            "(it never comes), got \"0 0 30 2 *\" (from --set)",
        ),
        (
            vec![queue, kind, cron, ("schedules.a.every", "1h")],
            "schedules.a.every: expected nothing beside schedules.a.cron",
        ),
        (
            vec![queue, kind, cron, ("schedules.a.anchor", "x")],
            "schedules.a.anchor: expected to be used with `every`",
        ),
        (
            vec![queue, kind, ("schedules.a.every", "90")],
            "schedules.a.every: expected a number and ms, s, m, h or d",
        ),
        (
            vec![queue, kind, ("schedules.a.every", "1h"), ("schedules.a.anchor", "noon")],
            "schedules.a.anchor: expected a moment with its offset",
        ),
        (
            vec![queue, kind, ("schedules.a.every", "1h"), ("schedules.a.timezone", "UTC")],
            "schedules.a.timezone: expected to be used with `cron`",
        ),
        (
            vec![queue, kind, cron, ("schedules.a.timezone", "Berlin")],
            "schedules.a.timezone: expected a time zone of the IANA database, such as UTC or Europe/Berlin, got \"Berlin\"",
        ),
        (vec![("schedule.timezone", "Mars")], "schedule.timezone: expected a time zone"),
        (
            vec![queue, kind, cron, ("schedules.a.catch_up", "some")],
            "schedules.a.catch_up: expected skip, last or all",
        ),
        (
            vec![queue, kind, cron, ("schedules.a.overlap", "some")],
            "schedules.a.overlap: expected allow or skip",
        ),
        (
            vec![queue, kind, cron, ("schedules.a.catch_up_window_ms", "5")],
            "schedules.a.catch_up_window_ms: expected 10000 to",
        ),
        (vec![queue, kind, cron, ("schedules.a.key", "")], "schedules.a.key: "),
        (vec![("schedules.a.queue", "A B"), kind, cron], "schedules.a.queue: "),
        (vec![queue, ("schedules.a.kind", "a b"), cron], "schedules.a.kind: "),
        (
            vec![queue, kind, cron, ("schedules.a.enabled", "maybe")],
            "schedules.a.enabled: expected true or false",
        ),
        (
            vec![queue, kind, ("schedules.a.corn", "@daily")],
            "schedules.a.corn: there is no such setting (from --set); did you mean schedules.a.cron?",
        ),
        (vec![("schedules.a", "x")], "schedules.a: expected a section with settings of its own"),
        (vec![("schedules", "x")], "schedules: expected a section for each schedule"),
    ] {
        let error = refused(&set);
        assert!(error.contains(expected), "{set:?}: {error}");
    }
    let folder = Folder::new("schedules-name");
    let named =
        folder.file("a.toml", "[schedules.\"a.b\"]\nqueue = \"q\"\nkind = \"k\"\ncron = \"@daily\"\n");
    let error =
        load(Some(&named), &[], &[]).map(|s| s.schedules().unwrap_err().to_string()).unwrap_or_else(|e| e);
    assert!(error.contains("the name of a schedule is 1 to 64 of a-z"), "{error}");
}
