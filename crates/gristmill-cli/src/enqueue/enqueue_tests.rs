use super::job::Shape;
use super::*;
use gristmill_job::Due;
use gristmill_job::Envelope;
use std::io::{BufReader, Write};

const LIMITS: JobLimits = JobLimits { max_envelope_bytes: 4096 };

fn untraced() -> Traced {
    Traced::new(&Telemetry::default(), &QueueName::new("q").unwrap())
}

fn by_fields() -> Form {
    Form {
        shape: Shape::Payload {
            kind: "file.changed".into(),
            id: Some("id".into()),
            key: "path".into(),
            version: Some("v".into()),
        },
        due: Due::Now,
        expires_in: None,
    }
}

/// Every job as `id|key|kind|version|payload`, every bad line as `number: why`.
fn read_all(input: &[u8], form: &Form) -> (Vec<String>, Vec<String>) {
    let (mut jobs, mut bad) = (Vec::new(), Vec::new());
    let lines = Lines::new(BufReader::with_capacity(16, input), 4500);
    each(lines, form, LIMITS, &untraced(), |read| {
        match read {
            Read::Jobs(batch, _) => jobs.extend(batch.iter().map(|job| {
                let envelope = Envelope::decode(&job.envelope, 4096).unwrap();
                assert_eq!(envelope.content_type, gristmill_job::ContentType::Json);
                let id = if job.own_id { job.id.to_string() } else { "-".into() };
                let payload = std::str::from_utf8(envelope.payload).unwrap();
                format!("{id}|{}|{}|{}|{payload}", job.key, envelope.kind, envelope.version)
            })),
            Read::Bad(number, why) => bad.push(format!("{number}: {why}")),
            Read::Broken(why) => panic!("{why}"),
        }
        true
    })
    .unwrap();
    (jobs, bad)
}

#[test]
fn lines_that_describe_jobs() {
    let input = br#"{"id":"a","key":"k","version":7,"kind":"x","payload":{"b": [1, 2.50]}}

{"key":12,"kind":"x","payload":null}
{"id":99,"key":"caf\u00e9","version":"18446744073709551615","kind":"y\u002e1","payload":"t"}"#;
    let (jobs, bad) = read_all(input, &Form { shape: Shape::Envelope, due: Due::Now, expires_in: None });
    assert_eq!(bad, [""; 0]);
    assert_eq!(
        jobs,
        ["a|k|x|7|{\"b\": [1, 2.50]}", "-|12|x|0|null", "99|caf\u{e9}|y.1|18446744073709551615|\"t\"",]
    );
}

#[test]
fn lines_that_are_payloads_keep_their_bytes() {
    let input =
        b"{\"id\":\"a\", \"path\":\"src/x\",\"v\":3, \"n\":1.10}\r\n{\"id\":1,\"path\":\"y\",\"v\":\"4\"}\n";
    let (jobs, bad) = read_all(input, &by_fields());
    assert_eq!(bad, [""; 0]);
    assert_eq!(
        jobs,
        [
            "a|src/x|file.changed|3|{\"id\":\"a\", \"path\":\"src/x\",\"v\":3, \"n\":1.10}",
            "1|y|file.changed|4|{\"id\":1,\"path\":\"y\",\"v\":\"4\"}",
        ]
    );
    // One field may serve twice, and only the key is needed.
    let form = Form {
        shape: Shape::Payload { kind: "x".into(), id: Some("k".into()), key: "k".into(), version: None },
        due: Due::Now,
        expires_in: None,
    };
    assert_eq!(read_all(b"{\"k\":\"a\"}", &form).0, ["a|a|x|0|{\"k\":\"a\"}"]);
}

#[test]
fn bad_lines_say_why_and_the_others_go_on() {
    let cases: [(&[u8], &str); 16] = [
        (
            b"{\"key\":\"k\",\"kind\":\"x\",\"payload\":1",
            "not JSON: EOF while parsing an object at column 33",
        ),
        (b"{\"key\":\"k\" \"kind\"}", "not JSON: expected `,` or `}` at column 12"),
        (b"[1]", "expected a JSON object, got \"[1]\""),
        (b"hello", "expected a JSON object, got \"hello\""),
        (b"{\"a\xff\":1}", "not UTF-8 text: a wrong byte at column 4"),
        (
            b"{\"kind\":\"x\",\"payload\":1}",
            "no field `key`; a job has key, kind and payload, and may have id, version, at or in_ms, and expires_in_ms",
        ),
        (b"{\"key\":\"k\",\"payload\":1}", "no field `kind`; a job has key"),
        (b"{\"key\":\"k\",\"kind\":\"x\"}", "no field `payload`; a job has key"),
        (
            b"{\"key\":\"k\",\"kind\":\"x\",\"payload\":1,\"verison\":1}",
            "unknown field `verison`, expected one of",
        ),
        (
            b"{\"key\":\"\",\"kind\":\"x\",\"payload\":1}",
            "a job of a queue that is ordered by key needs a key",
        ),
        (
            b"{\"key\":null,\"kind\":\"x\",\"payload\":1}",
            "`key`: expected a text or a whole number, got null",
        ),
        (b"{\"key\":1.5,\"kind\":\"x\",\"payload\":1}", "`key`: expected a text or a whole number, got 1.5"),
        (
            b"{\"key\":\"k\",\"kind\":\"a b\",\"payload\":1}",
            "a kind is 1 to 128 bytes of text without spaces",
        ),
        (b"{\"id\":\"\",\"key\":\"k\",\"kind\":\"x\",\"payload\":1}", "a job id is 1 to 256 bytes"),
        (
            b"{\"version\":-1,\"key\":\"k\",\"kind\":\"x\",\"payload\":1}",
            "`version` is the version: expected a whole number of 0 or more, got -1",
        ),
        (b"{\"key\":\"k\",\"kind\":\"x\",\"payload\":1} x", "not JSON: trailing characters at column 36"),
    ];
    let good = b"{\"key\":\"k\",\"kind\":\"x\",\"payload\":1}";
    for (line, expected) in cases {
        let (jobs, bad) = read_all(
            &[good, line, good].join(&b'\n'),
            &Form { shape: Shape::Envelope, due: Due::Now, expires_in: None },
        );
        assert_eq!(jobs.len(), 2);
        assert_eq!(bad.len(), 1);
        assert!(
            bad[0].starts_with(&format!("2: {expected}")),
            "{:?}: {bad:?}",
            String::from_utf8_lossy(line)
        );
    }
    let cases = [
        ("{\"id\":\"a\",\"v\":1}", "no field `path`, which is to hold the key"),
        ("{\"path\":\"a\",\"v\":1}", "no field `id`, which is to hold the id"),
        ("{\"path\":\"a\",\"id\":1}", "no field `v`, which is to hold the version"),
        ("{\"path\":\"a\",\"id\":1,\"v\":1.5}", "`v`: expected a text or a whole number, got 1.5"),
        ("{\"path\":\"a\",\"id\":1,\"v\":\"1e3\"}", "`v` is the version: expected a whole number"),
        ("{\"path\":\"a\",\"path\":\"b\",\"id\":1,\"v\":1}", "the field `path` is there twice"),
    ];
    for (line, expected) in cases {
        let (jobs, bad) = read_all(line.as_bytes(), &by_fields());
        assert!(jobs.is_empty() && bad[0].starts_with(&format!("1: {expected}")), "{line}: {bad:?}");
    }
}

#[test]
fn jobs_that_are_too_large_are_bad_lines() {
    let long = format!("{{\"key\":\"k\",\"kind\":\"x\",\"payload\":\"{}\"}}", "x".repeat(4300));
    let huge = format!("{{\"key\":\"k\",\"kind\":\"x\",\"payload\":\"{}\"}}", "x".repeat(5000));
    let (jobs, bad) = read_all(
        format!("{huge}\n{long}\n").as_bytes(),
        &Form { shape: Shape::Envelope, due: Due::Now, expires_in: None },
    );
    assert_eq!(jobs.len(), 0);
    assert!(bad[0].starts_with("1: it has 5035 bytes, a line may have 4500"), "{bad:?}");
    assert!(bad[1].starts_with("2: an envelope may have 4096 bytes, this has"), "{bad:?}");
}

#[test]
fn batches_are_bounded_in_jobs_and_in_bytes() {
    let small = "{\"key\":\"k\",\"kind\":\"x\",\"payload\":1}\n".repeat(BATCH_JOBS + 1);
    let sizes = |input: &str, limits: JobLimits| {
        let mut sizes = Vec::new();
        let lines = Lines::new(input.as_bytes(), limits.max_envelope_bytes);
        let told = each(
            lines,
            &Form { shape: Shape::Envelope, due: Due::Now, expires_in: None },
            limits,
            &untraced(),
            |read| {
                if let Read::Jobs(jobs, _) = read {
                    sizes.push(jobs.len());
                }
                true
            },
        );
        told.unwrap();
        sizes
    };
    assert_eq!(sizes(&small, LIMITS), [BATCH_JOBS, 1]);
    let megabyte = format!("{{\"key\":\"k\",\"kind\":\"x\",\"payload\":\"{}\"}}\n", "x".repeat(1 << 20));
    assert_eq!(sizes(&megabyte.repeat(9), JobLimits { max_envelope_bytes: 2 << 20 }), [8, 1]);
}

#[test]
fn gzip_is_known_by_its_bytes_and_a_cut_one_is_named() {
    let folder = std::env::temp_dir().join(format!("gristmill-enqueue-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = "{\"key\":\"k\",\"kind\":\"x\",\"payload\":1}\n".repeat(1000);
    let pack = |text: &str| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    // Two members in a row, as `cat a.gz b.gz` makes them, under a name that says nothing.
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let run = |path: &std::path::Path| {
        let (sender, mut receiver) = mpsc::channel(64);
        read(
            source::open(path).map_err(|why| why.to_string())?,
            &Form { shape: Shape::Envelope, due: Due::Now, expires_in: None },
            LIMITS,
            &untraced(),
            &sender,
        );
        drop(sender);
        let (mut jobs, mut broken) = (0, None);
        while let Ok(read) = receiver.try_recv() {
            match read {
                Read::Jobs(batch, _) => jobs += batch.len(),
                Read::Bad(..) => {}
                Read::Broken(why) => broken = Some(why),
            }
        }
        Ok::<_, String>((jobs, broken.unwrap_or_default()))
    };
    let two = [pack(&text), pack(&text)].concat();
    assert_eq!(run(&file("two", &two)).unwrap(), (2000, String::new()));
    assert_eq!(run(&file("plain", text.as_bytes())).unwrap(), (1000, String::new()));
    assert_eq!(run(&file("empty", b"")).unwrap(), (0, String::new()));

    let packed = pack(&text);
    let (_, why) = run(&file("cut", &packed[..packed.len() - 9])).unwrap();
    assert!(why.contains("cut, behind line ") && why.contains("ends before its end"), "{why}");
    let mut damaged = packed.clone();
    let last = damaged.len() - 6;
    damaged[last] ^= 0xff;
    let (jobs, why) = run(&file("damaged", &damaged)).unwrap();
    assert!(jobs == 1000 && why.contains("the gzip data is damaged"), "{jobs} {why}");

    let not_gzip = run(&file("a.gz", text.as_bytes())).unwrap_err();
    assert!(
        not_gzip.contains("a.gz: its name ends with .gz, but it does not begin as gzip does"),
        "{not_gzip}"
    );
    assert!(run(&file("b.gz", b"")).unwrap_err().contains("but it is empty"));
    assert!(run(&folder.join("none")).unwrap_err().starts_with("there is no file "));
    assert!(run(&folder).unwrap_err().contains("is a folder"));
    std::fs::remove_dir_all(&folder).unwrap();
}
