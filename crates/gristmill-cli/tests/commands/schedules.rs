//! `schedules`: listed, paused, resumed, triggered, removed; each on what a node wrote, and on what was put there by hand.

use crate::asked::{address, metric, wait_metric};
use crate::fixture::{Fixture, SOON};
use crate::keys::keys_of;
use gristmill_testkit::eventually;
use gristmill_testkit::server::Reply;
use serde_json::Value;

/// A schedule of the settings, every second, of a kind that every stubborn node serves.
const TICK: &str =
    "--set schedules.tick.queue=q --set schedules.tick.kind=quick --set schedules.tick.every=1s";

#[track_caller]
fn listed(fixture: &Fixture, more: &str) -> Vec<Value> {
    let said = fixture.run(&format!("{more} schedules list --json"));
    assert_eq!(said.code, 0, "{said:?}");
    said.json()["schedules"].as_array().unwrap().clone()
}

fn fired(fixture: &Fixture) -> u64 {
    listed(fixture, "")[0]["last_ms"].as_u64().unwrap_or_default()
}

#[test]
fn a_schedule_is_listed_paused_resumed_triggered_and_explained() {
    let fixture = Fixture::new();
    let said = fixture.run("schedules list");
    assert_eq!((said.code, said.out.as_str()), (0, ""));
    assert!(said.err.contains("there are no schedules"), "{said:?}");
    // Of the settings alone, before any node lived.
    let row = &listed(&fixture, TICK)[0];
    assert_eq!((row["state"].as_str(), row["defined_here"].as_bool()), (Some("new"), Some(true)));
    assert_eq!(row["next_ms"].as_array().unwrap().len(), 3);

    let node = fixture.stubborn_node(TICK);
    eventually(SOON, "a slot is fired", || (fired(&fixture) > 0).then_some(()));
    let row = &listed(&fixture, "")[0];
    assert_eq!((row["state"].as_str(), row["differs_here"].as_bool()), (Some("fires"), Some(false)));
    assert_eq!(row["definition"]["every"], "1s");
    let said = fixture.run("schedules list");
    assert!(said.out.contains("tick  q      quick  every 1s  -"), "{said:?}");
    let job = row["last_job"].as_str().unwrap().to_owned();
    let explained = fixture.run(&format!("explain {job} --json")).json().to_string();
    assert!(explained.contains("\"schedule\":{\"name\":\"tick\",\"slot_ms\":"), "{explained}");

    assert_eq!(fixture.run("schedules pause tick").code, 2, "why, must be said");
    assert_eq!(fixture.run("schedules pause nobody --reason x").code, 1);
    let dry = fixture.run("schedules pause tick --reason flood --dry-run --json").json();
    assert_eq!(dry["result"], "would_pause");
    assert_eq!(fixture.run("schedules pause tick --reason flood --json").json()["result"], "paused");
    let said = fixture.run("schedules pause tick --reason other");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("flood"), "{said:?}");
    let row = &listed(&fixture, "")[0];
    assert_eq!((row["state"].as_str(), row["paused"]["reason"].as_str()), (Some("paused"), Some("flood")));
    assert_eq!(row["next_ms"].as_array().unwrap().len(), 0);
    let stands = fired(&fixture);

    // A job by hand does not move what was fired.
    let told = fixture.run("schedules trigger tick --json --reason now").json();
    let id = told["job"].as_str().unwrap().to_owned();
    assert!(id.starts_with("tick@trigger-"), "{told}");
    eventually(SOON, "it is done", || {
        (fixture.run(&format!("explain {id}")).out.contains("done")).then_some(())
    });
    assert_eq!(fired(&fixture), stands);

    let resumed = fixture.run("schedules resume tick --reason over --json").json();
    assert_eq!(resumed["result"], "resumed");
    assert_eq!(fixture.run("schedules resume tick").code, 1);
    eventually(SOON, "it fires again", || (fired(&fixture) > stands).then_some(()));

    let audit = fixture.run("audit --json").json().to_string();
    for what in ["schedules pause", "schedules trigger", "schedules resume"] {
        assert!(audit.contains(&format!("\"what\":\"{what}\"")), "{what}: {audit}");
    }
    drop(node);
}

#[test]
fn what_is_kept_of_a_schedule_is_removed_and_living_nodes_begin_anew() {
    let fixture = Fixture::new();
    let node = fixture.stubborn_node(TICK);
    eventually(SOON, "a slot is fired", || (fired(&fixture) > 0).then_some(()));
    assert_eq!(fixture.run("schedules remove tick").code, 2);
    let dry = fixture.run("schedules remove tick --dry-run");
    assert!(dry.out.contains("nodes define it still"), "{dry:?}");
    let before = fired(&fixture);
    assert_eq!(fixture.run("schedules remove tick --yes --json").json()["result"], "removed");
    eventually(SOON, "its nodes made it anew", || {
        (listed(&fixture, "").first().is_some_and(|row| row["last_ms"].as_u64() > Some(before))).then_some(())
    });
    drop(node);
    // Its node is gone: it stays until somebody removes it.
    eventually(SOON, "nobody defines it", || (listed(&fixture, "")[0]["state"] == "left").then_some(()));
    assert_eq!(fixture.run("schedules remove tick --yes --json").json()["result"], "removed");
    assert_eq!(listed(&fixture, ""), Vec::<Value>::new());
    assert_eq!(fixture.run("schedules remove tick --yes").code, 1);
    let said = fixture.run(&format!("{TICK} schedules remove tick --yes"));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("in the settings here alone"), "{said:?}");
}

#[test]
fn what_a_hand_has_broken_is_shown_and_breaks_nothing() {
    let fixture = Fixture::new();
    fixture.enqueue("x", &[]);
    let keys = keys_of(b"tick");
    let put =
        |hash: &str, name: &str, value: &str| fixture.server.command(&["HSET", hash, name, value]).unwrap();
    assert_eq!(put(&keys.schedules, "tick", "garbage"), Reply::Int(1));
    put(&keys.schedule_definitions, "tick", "{\"new\":true}");
    put(&keys.schedules_paused, "other\u{1b}[2J", "x");
    let rows = listed(&fixture, "");
    assert_eq!(rows.len(), 2);
    let state = |name: &str| {
        rows.iter().find(|row| row["name"].as_str().unwrap().starts_with(name)).unwrap()["state"].clone()
    };
    assert_eq!((state("tick"), state("other")), ("unknown".into(), "paused".into()));
    let said = fixture.run("schedules list");
    assert!(!said.out.contains('\u{1b}') && said.code == 0, "{said:?}");
    let said = fixture.run("schedules trigger tick");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("cannot be read"), "{said:?}");
    assert_eq!(fixture.run("schedules remove tick --yes").code, 0);
}

#[test]
fn a_monitor_tells_how_long_a_slot_is_overdue_and_nothing_of_what_is_paused_or_gone() {
    let fixture = Fixture::new();
    let node = fixture.stubborn_node(TICK);
    eventually(SOON, "a slot is fired", || (fired(&fixture) > 0).then_some(()));
    let monitor = fixture.stubborn("monitor --set health.listen=127.0.0.1:0 --set monitor.every_ms=100");
    let at = address(&monitor);
    let overdue = "schedule_overdue_seconds{queue=\"q\",schedule=\"tick\"}";
    wait_metric(at, overdue, |late| late < 2.0);
    drop(node);
    wait_metric(at, overdue, |late| late > 2.0);
    assert_eq!(fixture.run("schedules pause tick --reason x").code, 0);
    wait_metric(at, overdue, |late| late == 0.0);
    assert_eq!(fixture.run("schedules remove tick --yes").code, 0);
    eventually(SOON, "no number", || metric(at, overdue).is_none().then_some(()));
}
