use super::tests::{Folder, load};
use super::*;

#[test]
fn kinds_that_others_serve_are_read_from_every_layer_and_shown_without_secrets() {
    let folder = Folder::new("kinds");
    let text = "[remote]\nhard_limit_ms = 9000\nstatus = [\"404=done\"]\n\
                [kinds.\"price.changed\"]\nhttp = \"https://shop.example/jobs?token=hunter2\"\nhard_limit_ms = 12000\n\
                [kinds.mail]\nexec = [\"sh\", \"-c\", \"true\"]\nexit = \"3=discard, 4=done\"\nsoft_limit_ms = 100\n";
    let file = folder.file("a.toml", text);
    let set = [("kinds.price.changed.hard_limit_ms", "15000"), ("kinds.x.http", "http://h")];
    let variables =
        [("GRISTMILL__KINDS__Y__EXEC", "sh,-c,exit 0"), ("GRISTMILL__KINDS__MAIL__EXEC_FORM", "lines")];
    let settings = load(Some(&file), &variables, &set).unwrap();
    let remote = settings.remote().unwrap();
    let registry = remote.add_to(gristmill_handler::Registry::new());
    assert_eq!(registry.kinds().collect::<Vec<_>>(), ["mail", "price.changed", "x", "y"]);
    let told = format!("{remote:?}");
    for part in [
        "kind: \"mail\", way: Exec(ExecConfig { command: [\"sh\", \"-c\", \"true\"], folder: None, form: Lines, \
         exit: ExitTable([(3, Discard), (4, Done)]) }), limits: Limits { soft: Some(100ms), hard: 9s }",
        "limits: Limits { soft: Some(12.5s), hard: 15s }",
        "status: StatusTable([(One(404), Done)])",
        "command: [\"sh\", \"-c\", \"exit 0\"], folder: None, form: Once",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let shown: BTreeMap<String, Entry> =
        settings.entries().into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    let of = |key: &str| (shown[key].value.to_string(), shown[key].origin.clone());
    assert_eq!(of("kinds.price.changed.hard_limit_ms"), ("15000".into(), "--set".into()));
    assert_eq!(of("kinds.price.changed.http").0, "\"https://shop.example/jobs?…\"");
    assert_eq!(
        of("kinds.y.exec"),
        ("\"sh,-c,exit 0\"".into(), "the variable GRISTMILL__KINDS__Y__EXEC".into())
    );
    assert!(load(None, &[], &[]).unwrap().remote().unwrap().is_empty());
}

#[test]
fn kinds_that_cannot_be_are_refused_by_key() {
    let folder = Folder::new("kinds-wrong");
    let short = folder.file("short", "hunter2\n").display().to_string();
    let empty = folder.file("empty", "\n").display().to_string();
    let refused = |set: &[(&str, &str)]| match load(None, &[], set) {
        Err(error) => error,
        Ok(settings) => settings.remote().unwrap_err().to_string(),
    };
    let http = ("kinds.a.b.http", "http://h/");
    for (set, expected) in [
        (
            vec![("kinds.a.htp", "http://h")],
            "kinds.a.htp: there is no such setting (from --set); did you mean kinds.a.http?",
        ),
        (vec![("kinds.a.timeout_ms", "1")], "kinds.a.timeout_ms: there is no such setting"),
        (vec![("kinds", "a")], "kinds: expected a section with settings of its own, got a text (from --set)"),
        (vec![("kinds.a", "http://h")], "kinds.a: there is no such setting"),
        (vec![("kinds.a.status", "404=done")], "kinds.a.status: expected `http` (an address) or `exec`"),
        (vec![("kinds.a.http", "")], "kinds.a.http: expected `http` (an address) or `exec`"),
        (vec![http, ("kinds.a.b.exec", "sh")], "kinds.a.b.exec: expected nothing beside kinds.a.b.http"),
        (
            vec![http, ("kinds.a.b.exit", "3=done")],
            "kinds.a.b.exit: expected to be used with `exec`, got \"3=done\"",
        ),
        (
            vec![("kinds.a.exec", "sh"), ("kinds.a.token_file", "x")],
            "kinds.a.token_file: expected to be used with `http`",
        ),
        (
            vec![http, ("kinds.a.b.hard_limit_ms", "soon")],
            "expected a whole number of milliseconds, got \"soon\"",
        ),
        (
            vec![http, ("kinds.a.b.hard_limit_ms", "0")],
            "kinds.a.b.hard_limit_ms: expected more than 0 ms, got 0 ms",
        ),
        (
            vec![http, ("remote.hard_limit_ms", "0")],
            "remote.hard_limit_ms: expected more than 0 ms, got 0 ms (from --set)",
        ),
        (
            vec![http, ("kinds.a.b.soft_limit_ms", "30000")],
            "soft_limit_ms: expected less than hard_limit_ms (30000 ms)",
        ),
        (
            vec![http, ("kinds.a.b.payload", "xml")],
            "kinds.a.b.payload: expected as_sent or json, got \"xml\"",
        ),
        (
            vec![http, ("remote.interrupted", "ask")],
            "remote.interrupted: expected rerun or review, got \"ask\"",
        ),
        (vec![http, ("kinds.a.b.http_version", "3")], "http_version: expected auto or 1 or 2, got \"3\""),
        (
            vec![http, ("kinds.a.b.status", "404=ok")],
            "kinds.a.b.status: expected STATUS=OUTCOME, such as 404=done",
        ),
        (vec![("kinds.a.exec", "sh"), ("kinds.a.exit", "999=done")], "kinds.a.exit: expected CODE=OUTCOME"),
        (
            vec![("kinds.a.exec", "sh"), ("kinds.a.exec_form", "stay")],
            "kinds.a.exec_form: expected once or lines",
        ),
        (
            vec![("kinds.a.exec", "sh"), ("kinds.a.folder", "/no/such")],
            "kinds.a.folder: expected a folder that is there",
        ),
        (
            vec![http, ("kinds.a.b.connect_timeout_ms", "0")],
            "connect_timeout_ms: expected 1 ms or more, got 0 ms",
        ),
        (
            vec![http, ("kinds.a.b.secret_file", "/no/such")],
            "kinds.a.b.secret_file: expected a file that can be read",
        ),
        (
            vec![http, ("kinds.a.b.secret_file", &short)],
            "kinds.a.b.secret_file: expected secrets of at least 16 bytes",
        ),
        (
            vec![http, ("kinds.a.b.secret_file", &empty)],
            "kinds.a.b.secret_file: expected a file with a secret on each line",
        ),
        (vec![http, ("kinds.a.b.token_file", &empty)], "kinds.a.b.token_file: expected a file with one line"),
        (
            vec![http, ("kinds.a.b.ca_file", &short)],
            "kinds.a.b.ca_file: expected to be used with an address that begins with",
        ),
        (vec![("kinds.a.http", "http://u:hunter2@h/")], "kinds.a.http: expected http://host[:port]/path"),
    ] {
        let error = refused(&set);
        assert!(error.contains(expected), "{set:?}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
