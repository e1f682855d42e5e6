use super::*;
use gristmill_job::ErrorClass;

fn wrap(inner: &str) -> Answered {
    wrapped(format!("{{\"ok\":true,\"gristmill\":{inner}}}").as_bytes(), false)
}

#[test]
fn what_is_not_meant_for_us_means_nothing() {
    for text in ["", "fine", "[1]", "null", "{\"ok\":true}", "{\"outcome\":\"permanent\"}", "{\"a\":"] {
        assert!(wrapped(text.as_bytes(), false).unwrap().is_empty(), "{text}");
    }
    for text in ["", " ", "[1]", "null", "{\"ok\":true}"] {
        assert!(wrapped(text.as_bytes(), true).unwrap().is_empty(), "{text}");
    }
    assert!(wrapped(b"fine", true).is_err());
    assert!(wrapped(b"{\"gristmill\": {\"delete\"", false).is_err(), "a part of an answer is no answer");
}

#[test]
fn effects_and_jobs_are_read() {
    let effects = wrap(
        r#"{"state": {"price": 1.50}, "emit": [{"queue":"mail","kind":"price.mail","key":"a","version":3,
            "payload":{"n":1},"headers":{"x":"y"},"max_attempts":2},{"queue":"q","kind":"k","key":"b"}]}"#,
    )
    .unwrap();
    assert_eq!(effects.entity, Some(EntityChange::Put(Bytes::from_static(b"{\"price\": 1.50}"))));
    let (queue, job) = &effects.emit[0];
    assert_eq!((queue.as_str(), job.kind.as_str(), job.version), ("mail", "price.mail", 3));
    assert_eq!((&job.payload[..], job.content_type), (&b"{\"n\":1}"[..], ContentType::Json));
    assert_eq!((job.headers.len(), job.limits.max_attempts), (1, Some(2)));
    assert_eq!(&effects.emit[1].1.payload[..], b"null");
    let due = |more: &str| {
        let emit = format!(r#"{{"emit":[{{"queue":"q","kind":"k","key":"b"{more}}}]}}"#);
        wrap(&emit).map(|effects| effects.emit[0].1.due)
    };
    let noon = Due::At(UnixMillis(1_798_099_200_000));
    assert_eq!(due("").unwrap(), Due::Now);
    assert_eq!(due(r#","in_ms":1500"#).unwrap(), Due::In(Duration::from_millis(1500)));
    assert_eq!(due(r#","at":"2026-12-24T08:00:00Z""#).unwrap(), noon);
    assert_eq!(due(r#","at":1798099200000"#).unwrap(), noon);
    for (bad, why) in [
        (r#","at":1,"in_ms":1"#, "one of `at` and `in_ms`"),
        (r#","at":"noon""#, "expected a time"),
        (r#","at":-1"#, "expected a time"),
        (r#","in_ms":-1"#, "invalid value"),
    ] {
        let error = due(bad).unwrap_err().to_string();
        assert!(error.contains(why), "{bad}: {error}");
    }
    let bytes = wrap(r#"{"state_base64":"AP8="}"#).unwrap();
    assert_eq!(bytes.entity, Some(EntityChange::Put(Bytes::from_static(&[0, 255]))));
    assert_eq!(wrap(r#"{"delete":true}"#).unwrap().entity, Some(EntityChange::Delete));
    assert!(wrap("{}").unwrap().is_empty());
}

#[test]
fn other_outcomes_are_heeded() {
    let class = |text: &str| wrap(text).unwrap_err().class();
    assert_eq!(class(r#"{"outcome":"transient","retry_after_ms":5}"#), ErrorClass::Transient);
    assert_eq!(class(r#"{"outcome":"unknown"}"#), ErrorClass::Unknown);
    let error = wrap(r#"{"outcome":"permanent","error":"no such sku"}"#).unwrap_err();
    assert_eq!(error.chain(), ["the handler says permanent", "no such sku"]);
    assert_eq!(wrap(r#"{"snooze_ms":1500}"#).unwrap_err().chain(), ["snoozed for 1500 ms"]);
    assert_eq!(
        wrap(r#"{"snooze_ms":18446744073709551615}"#).unwrap_err().chain(),
        ["snoozed for 86400000 ms"]
    );
}

#[test]
fn what_cannot_be_is_refused_with_what_was_expected() {
    let cases = [
        (r#"{"snoze_ms":1}"#, "unknown field `snoze_ms`"),
        (r#"{"outcome":"ok"}"#, "done, discard, transient"),
        (r#"{"snooze_ms":1,"delete":true}"#, "`snooze_ms` alone"),
        (r#"{"snooze_ms":-1}"#, "invalid value"),
        (r#"{"outcome":"transient","delete":true}"#, "no effects beside"),
        (r#"{"error":"x"}"#, "beside another outcome"),
        (r#"{"state":1,"delete":true}"#, "one of `state`"),
        (r#"{"state_base64":"?"}"#, "to be base64"),
        (r#"{"emit":[{"queue":"Q","kind":"k","key":"a"}]}"#, "`emit`, number 0"),
        (r#"{"emit":[{"queue":"q","kind":"k"}]}"#, "missing field `key`"),
        (r#"{"emit":[{"queue":"q","kind":"k","key":""}]}"#, "needs a key"),
        (r#"{"id":"a"}"#, "no member `id`"),
        ("7", "expected an object"),
        ("[\"a\"]", "expected an object"),
    ];
    for (text, expected) in cases {
        let error = wrap(text).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Permanent, "{text}");
        assert!(error.to_string().contains(expected), "{text}: {error}");
    }
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(wrap(&deep).unwrap_err().class(), ErrorClass::Permanent);
}

#[test]
fn a_line_must_name_its_job() {
    assert!(line(br#"{"id":"a"}"#, "a").unwrap().unwrap().is_empty());
    assert_eq!(
        line(br#"{"id":"a","outcome":"unknown"}"#, "a").unwrap().unwrap_err().class(),
        ErrorClass::Unknown
    );
    assert!(line(br#"{"id":"a","more":1}"#, "a").unwrap().is_err());
    for (text, got) in
        [("{}", "one without id"), (r#"{"id":"b"}"#, "\"b\""), ("Traceback", "9 bytes that are no object")]
    {
        let error = line(text.as_bytes(), "a").unwrap_err().to_string();
        assert!(error.contains(got), "{text}: {error}");
    }
}
