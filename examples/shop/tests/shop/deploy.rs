//! A deploy under load: events come twice, once more under another id, and late, from a producer in Python, while every node
//! is replaced, one of them is killed instead, and the catalogue's handler is killed too.

use crate::world::{Plan, SOON, Shop, example};
use gristmill_testkit::process::ProcessOptions;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_testkit::{eventually, python};
use std::path::PathBuf;

const SKUS: u64 = 30;
const VERSIONS: u64 = 12;
const PRODUCER: &[&str] = &["redis", "msgpack", "xxhash"];

/// Lines for the producer: every version of every product in its order, the products mixed; a third of the events twice, and a
/// tenth once more under another id, some time later.
fn events(random: &mut SplitMix64) -> (Vec<String>, u64) {
    let line = |id: &str, sku: u64, version: u64| {
        format!(
            "{{\"id\":\"{id}\",\"key\":\"sku-{sku}\",\"version\":{version},\"kind\":\"product.changed\",\"payload\":{{\"cents\":{version}}}}}"
        )
    };
    let mut next = vec![1; SKUS as usize];
    let (mut lines, mut copies) = (Vec::new(), 0);
    while lines.len() < 10_000 {
        let open: Vec<u64> = (0..SKUS).filter(|sku| next[*sku as usize] <= VERSIONS).collect();
        if open.is_empty() {
            break;
        }
        let sku = open[random.below(open.len() as u64) as usize];
        let version = next[sku as usize];
        next[sku as usize] += 1;
        lines.push(line(&format!("event-{sku}-{version}"), sku, version));
        if random.below(3) == 0 {
            lines.push(line(&format!("event-{sku}-{version}"), sku, version));
        }
        if version > 2 && random.below(10) == 0 {
            // What was told before, by somebody who does not remember that he did.
            lines.push(line(&format!("again-{sku}-{version}"), sku, version - 2));
            copies += 1;
        }
    }
    (lines, copies)
}

fn feed(python: &PathBuf, redis: &str, lines: &[String], number: usize) {
    let file = std::env::temp_dir().join(format!("gristmill-shop-events-{}-{number}", std::process::id()));
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let script = example("../python/enqueue.py").display().to_string();
    let mut producer =
        ProcessOptions::new(python).args([script.as_str(), redis, "shop"]).stdin(&file).spawn().unwrap();
    let ended = producer.wait(SOON).unwrap();
    let _ = std::fs::remove_file(&file);
    assert!(ended.success(), "{}", producer.stderr_tail());
    let said = producer.lines().iter().filter(|line| line.text.contains('-')).count();
    let repeated = producer.lines().iter().filter(|line| line.text.starts_with("duplicate ")).count();
    assert!(said + repeated >= lines.len(), "an answer for each event");
}

#[test]
fn doubled_and_late_events_in_the_middle_of_a_deploy_are_applied_once_and_in_order() {
    let Some(python) = python::with(PRODUCER) else {
        return eprintln!("SKIPPED: {}", python::missing(PRODUCER));
    };
    let Some(mut shop) = Shop::open_with(Plan { idle_limit_ms: 60_000, relay_inside: true }) else { return };
    let mut random = SplitMix64::new(seed());
    let (lines, copies) = events(&mut random);
    let redis = shop.redis.url();
    let portions: Vec<&[String]> = lines.chunks(lines.len().div_ceil(6)).collect();

    feed(&python, &redis, portions[0], 0);
    // Three nodes are replaced one after the other, as a rolling update does it: the next is ready before this one leaves.
    for (round, portion) in portions[1..4].iter().enumerate() {
        let mut old = shop.replace_node();
        old.terminate().unwrap();
        feed(&python, &redis, portion, round + 1);
        assert!(old.wait(SOON).unwrap().success(), "{}", old.stderr_tail());
        assert!(old.lines().iter().any(|line| line.text.starts_with("drained: ")), "it drains");
    }
    // One does not leave by itself, nor does the handler in Python.
    shop.kill_node();
    feed(&python, &redis, portions[4], 4);
    shop.kill_catalogue();
    feed(&python, &redis, portions[5], 5);

    let all = SKUS * VERSIONS;
    let newest = |table: &str| {
        let sql = format!("select count(*) from {table} where version = {VERSIONS} and cents = {VERSIONS}");
        shop.postgres.ask(&sql).unwrap()
    };
    eventually(SOON, "every product at its newest version in both tables", || {
        (newest("product") == SKUS.to_string() && newest("catalogue") == SKUS.to_string()).then_some(())
    });
    shop.wait_quiet();
    for table in ["change", "catalogue_change"] {
        let once = format!("select count(*), count(distinct (sku, version)) from {table}");
        assert_eq!(shop.postgres.ask(&once).unwrap(), format!("{all}|{all}"), "{table}: each event once");
        let reordered = format!(
            "select count(*) from {table} a join {table} b on a.sku = b.sku and a.number < b.number and a.version > b.version"
        );
        assert_eq!(shop.postgres.ask(&reordered).unwrap(), "0", "{table}: in order");
    }
    let stale = shop.postgres.ask("select count(*) from gristmill.inbox where outcome = 'stale'").unwrap();
    assert_eq!(
        stale,
        copies.to_string(),
        "what came once more under another id changed nothing, and is noted"
    );
    assert!(copies > 0, "{copies}");
    assert_eq!(shop.postgres.ask("select count(*) from gristmill.outbox").unwrap(), "0");
}
