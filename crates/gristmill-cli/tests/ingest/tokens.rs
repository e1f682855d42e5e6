//! Who may ask.

use crate::fixture::{Fixture, JSON, SOON, TOKEN, gristmill, job};
use gristmill_testkit::eventually;
use gristmill_testkit::process::ProcessOptions;

fn with(fixture: &Fixture, authorization: &str) -> u16 {
    let headers = format!("{authorization}Content-Type: {JSON}\r\n");
    fixture.raw("POST", "/v1/queues/q/jobs", &headers, job("a", "k").as_bytes()).status
}

#[test]
fn only_a_whole_token_opens() {
    let fixture = Fixture::new("");
    for wrong in [
        String::new(),
        "Authorization: Bearer\r\n".into(),
        "Authorization: Bearer \r\n".into(),
        format!("Authorization: {TOKEN}\r\n"),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: Bearer {TOKEN}x\r\n"),
        format!("Authorization: Bearer {}\r\n", &TOKEN[1..]),
        format!("Authorization: Bearer {TOKEN} {TOKEN}\r\n"),
        "Authorization: Bearer # of the shop\r\n".into(),
        format!("Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer {TOKEN}\r\n"),
        "Authorization: Bearer \u{e9}\r\n".into(),
    ] {
        assert_eq!(with(&fixture, &wrong), 401, "{wrong}");
        assert_eq!(fixture.raw("GET", "/v1/jobs/a", &wrong, b"").status, 401, "{wrong}");
    }
    assert_eq!(fixture.stored(), 0);
    assert_eq!(with(&fixture, &format!("Authorization: bearer  {TOKEN}\r\n")), 200);
    assert_eq!(fixture.raw("GET", "/v1/openapi.json", "", b"").status, 200, "the document is for everybody");
    let said = fixture.process.lines();
    assert!(!said.iter().any(|line| line.text.contains(TOKEN)), "a token in the log");
}

#[test]
fn tokens_change_while_the_server_runs() {
    let fixture = Fixture::new("");
    let put = |text: &str| {
        // Moved into place, so that no half of it is read.
        let beside = fixture.folder.join("tokens.new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, fixture.folder.join("tokens")).unwrap();
    };
    let (old, new) =
        (format!("Authorization: Bearer {TOKEN}\r\n"), "Authorization: Bearer another-token-entirely\r\n");
    assert_eq!((with(&fixture, &old), with(&fixture, new)), (200, 401));
    put(&format!("{TOKEN}\nanother-token-entirely\n"));
    eventually(SOON, "the new token opens", || (with(&fixture, new) == 200).then_some(()));
    assert_eq!(with(&fixture, &old), 200, "both do while it is changed");
    put("another-token-entirely\n");
    eventually(SOON, "the old token is gone", || (with(&fixture, &old) == 401).then_some(()));
    put("short\n");
    let line = fixture.process.wait_line(|line| line.text.contains("stay as they were"), SOON).unwrap();
    assert!(line.text.contains("line 1") && !line.text.contains("short"), "{}", line.text);
    assert_eq!(with(&fixture, new), 200);
}

#[test]
fn without_tokens_it_listens_to_this_machine_alone() {
    for (args, part) in [
        ("ingest --listen 0.0.0.0:0", "expected a file of tokens, or a loopback address"),
        ("ingest --listen 127.0.0.1:0 --tokens-file /nowhere/tokens", "/nowhere/tokens"),
        ("ingest --listen nowhere", "ingest.listen: expected an address and a port"),
    ] {
        let mut process = ProcessOptions::new(gristmill()).args(args.split(' ')).spawn().unwrap();
        assert_eq!(process.wait(SOON).unwrap().code(), Some(2), "{args}");
        assert!(process.stderr_tail().contains(part), "{}", process.stderr_tail());
    }
    let open = ProcessOptions::new(gristmill()).args(["ingest", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    open.wait_line(|line| line.text.contains(" ready "), SOON).unwrap();
}
