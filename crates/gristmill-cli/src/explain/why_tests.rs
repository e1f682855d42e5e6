//! Each state has its words, and what is not known is not claimed.

use super::super::live::{Counted, Limited};
use super::*;
use bytes::Bytes;
use gristmill_broker::hung::HungRun;
use gristmill_broker::limit::LimitView;
use gristmill_broker::locate::ClaimView;
use gristmill_broker::state::{StartMark, Suspicion, Why};
use gristmill_broker::waiting::HeldKey;
use gristmill_broker::{Epoch, Fence, Incarnation, QueueDefinition, StateLine};
use gristmill_job::{JobId, Key, Place, QueueName};

fn view(place: u64) -> JobView {
    JobView {
        place: Place { ms: place, seq: 0 },
        id: JobId::new("j").unwrap(),
        key: Key::new("k").unwrap(),
        envelope: Bytes::new(),
        returned: false,
        claim: Some(ClaimView { holder: "n~1#5".into(), idle_ms: 3000, deliveries: 1 }),
        line: StateLine::default(),
        original_bytes: None,
        owner: "n~1".into(),
        epoch: 5,
        expires: UnixMillis(15_000),
        now: UnixMillis(10_000),
    }
}

fn around(job: JobView) -> Around {
    Around {
        queue: QueueDefinition::new(QueueName::new("q").unwrap(), 4),
        partition: 2,
        job,
        kind: Some("mail".into()),
        version: Some(1),
        hold: None,
        of_key: Counted::default(),
        of_partition: Counted { jobs: 7, at_least: false },
        first: None,
        hung: None,
        pauses: Vec::new(),
        limit: None,
        served: Some(true),
        visibility: None,
    }
}

fn codes(around: &Around) -> Vec<&'static str> {
    reasons(around).into_iter().map(|reason| reason.code).collect()
}

#[track_caller]
fn says(around: &Around, code: &str, words: &[&str]) {
    let all = reasons(around);
    let reason = all.iter().find(|reason| reason.code == code).unwrap_or_else(|| panic!("{code} in {all:?}"));
    for word in words {
        assert!(reason.text.contains(word), "{word:?} in {:?}", reason.text);
    }
}

fn marked(alone: bool) -> StateLine {
    let fence = Fence { incarnation: Incarnation::from_stored("n~1"), epoch: Epoch(5) };
    StateLine { mark: Some(StartMark { fence, alone }), ..StateLine::default() }
}

#[test]
fn a_claim_is_no_proof_of_a_run() {
    says(&around(view(9)), "claimed", &["claimed by n~1 for 3s", "7 jobs of its partition", "is not known"]);
    assert_eq!(codes(&around(view(9))), ["claimed"]);
    let unclaimed = around(JobView { claim: None, ..view(9) });
    says(&unclaimed, "unclaimed", &["no node has claimed it", "7 jobs"]);
    let handed = ClaimView { holder: HANDED_BACK.into(), idle_ms: 5, deliveries: 1 };
    says(&around(JobView { claim: Some(handed), ..view(9) }), "handed_back", &["the next owner takes it"]);
    let returned = around(JobView { claim: None, returned: true, ..view(9) });
    says(&returned, "returned", &["by a replay", "is not known"]);
}

#[test]
fn without_order_a_claim_stands_until_its_timeout_and_nobody_owns_anything() {
    let with = |job: JobView, visibility| {
        let it = around(JobView { owner: String::new(), epoch: 0, expires: UnixMillis(0), ..job });
        Around { queue: it.queue.clone().with_mode(Mode::None), visibility, ..it }
    };
    let held = |holder: &str, idle_ms| JobView {
        claim: Some(ClaimView { holder: holder.into(), idle_ms, deliveries: 1 }),
        ..view(9)
    };
    let timeout = Some(Duration::from_secs(30));
    let unclaimed = with(JobView { claim: None, ..view(9) }, timeout);
    says(&unclaimed, "unclaimed", &["the next one with a free slot does"]);
    says(
        &with(held("n~1#0", 12_000), timeout),
        "claimed",
        &["claimed by n~1,", "12s ago", "in about 18s", "30000 ms", "is not known"],
    );
    says(&with(held("n~1#0", 12_000), None), "claimed", &["which is not known here"]);
    says(
        &with(held("n~1#0", 30_000), timeout),
        "claim_over",
        &["n~1", "over for", "the next node that looks"],
    );
    says(&with(held(HANDED_BACK, 90_000), timeout), "handed_back", &["the next one with a free slot"]);
    let runs = |node: &str| {
        let mut line = marked(true);
        line.mark.as_mut().unwrap().fence = Fence::unordered(&Incarnation::from_stored(node));
        with(JobView { line, ..held("n~1#0", 12_000) }, timeout)
    };
    says(&runs("n~1"), "running", &["running now on n~1", "alone", "in about 18s"]);
    says(&runs("m~2"), "left_running", &["m~2 had started it", "claimed by n~1"]);
    for it in [unclaimed, with(held("n~1#0", 1), timeout), with(held(HANDED_BACK, 1), timeout), runs("n~1")] {
        let all = reasons(&it);
        assert_eq!(all.len(), 1, "{all:?}");
        for word in ["owner", "lease", "lane", "before it"] {
            assert!(!all[0].text.contains(word), "{word}: {all:?}");
        }
    }
    let mut waits = with(JobView { claim: None, ..view(9) }, timeout);
    waits.served = Some(false);
    assert_eq!(codes(&waits), ["unserved_kind", "unclaimed"]);
}

#[test]
fn a_start_mark_is_a_run_as_long_as_its_node_owns_the_partition() {
    let job = JobView { line: marked(true), ..view(9) };
    says(&around(job.clone()), "running", &["running now on n~1", "alone"]);
    let beside = around(JobView { line: marked(false), ..view(9) });
    assert!(!reasons(&beside).last().unwrap().text.contains("alone"));
    for gone in
        [JobView { owner: "m~2".into(), ..job.clone() }, JobView { expires: UnixMillis(9_000), ..job }]
    {
        says(&around(gone), "left_running", &["n~1 started it", "is not known"]);
    }
}

#[test]
fn a_partition_without_owner_says_since_when() {
    let expired = around(JobView { expires: UnixMillis(4_000), ..view(9) });
    says(&expired, "no_owner", &["partition 2 has no owner", "the lease of n~1 expired 6s ago"]);
    says(&expired, "left_claimed", &["no longer owns the partition"]);
    let never = around(JobView { owner: String::new(), epoch: 0, claim: None, ..view(9) });
    says(&never, "no_owner", &["nobody ever owned it"]);
    let released = around(JobView { owner: String::new(), ..view(9) });
    says(&released, "no_owner", &["its last owner gave it up"]);
}

#[test]
fn what_stands_before_it_comes_first() {
    let waits = StateLine { turn: 1, attempts: 3, due_ms: 22_000, why: Why::Retry, ..StateLine::default() };
    let mut it = around(view(9));
    it.first = Some(JobView { line: waits, id: JobId::new("first").unwrap(), ..view(5) });
    it.of_key = Counted { jobs: 3, at_least: true };
    it.hold = Some(HeldKey {
        key: Key::new("k").unwrap(),
        letter: "2-1-0-0-5".into(),
        since: UnixMillis(4_000),
        place: None,
    });
    says(&it, "behind_key", &["at least 3 jobs of its key", "job first at place 5-0", "attempt 3", "in 12s"]);
    let behind = reasons(&it).into_iter().find(|reason| reason.code == "behind_key").unwrap();
    assert_eq!(behind.until, Some(UnixMillis(22_000)));
    says(
        &it,
        "held",
        &[
            "dead letter 2-1-0-0-5 (6s ago)",
            "gristmill dead replay 2-1-0-0-5",
            "gristmill keys release q k`",
            "gristmill keys skip q k`",
        ],
    );
    assert_eq!(codes(&it), ["held", "behind_key", "claimed"]);
    let last = reasons(&it).pop().unwrap().text;
    assert!(!last.contains("not known"), "it waits, and so it does not run: {last}");
    it.hold = it.hold.map(|hold| HeldKey { key: Key::new([0xff, 1]).unwrap(), ..hold });
    says(&it, "held", &["keys release q ff01 --key-hex`"]);
}

#[test]
fn its_own_line_and_its_kind_are_told() {
    let line = StateLine {
        turn: 1,
        due_ms: 12_000,
        why: Why::Snooze,
        suspicion: Suspicion::Strong,
        ..StateLine::default()
    };
    let mut it = around(JobView { line, ..view(9) });
    it.served = Some(false);
    assert_eq!(codes(&it), ["snooze", "alone", "unserved_kind", "claimed"]);
    says(&it, "unserved_kind", &["kind mail"]);
    it.hung = Some(HungRun {
        incarnation: Incarnation::from_stored("n~1"),
        partition: 2,
        place: it.job.place,
        kind: "mail".into(),
        job: it.job.id.clone(),
        since: UnixMillis(4_000),
    });
    says(&it, "hung", &["holds a thread of n~1 (6s ago)", "will be refused"]);
    it.served = None;
    assert!(!codes(&it).contains(&"unserved_kind"), "what is not known is not said");
}

#[test]
fn a_limit_names_its_holders_and_a_rate_its_next_token() {
    let holder = |seq: u64, node: &str| Holder {
        name: SlotName { partition: 1, place: Place { ms: 9, seq } },
        owner: Fence { incarnation: Incarnation::from_stored(node), epoch: Epoch(5) },
        job: JobId::new(&format!("job-{seq}")).unwrap(),
        since: UnixMillis(4_000),
        until: UnixMillis(12_000),
    };
    let view = LimitView {
        kind: "mail".into(),
        max_running: 2,
        interval_us: 10_000.0,
        burst: 5,
        per_key: false,
        written: UnixMillis(1),
        by: "n~1".into(),
    };
    let limit = |running, rate| Limited {
        view: view.clone(),
        holders: vec![holder(1, "a~1"), holder(2, "b~2")],
        running,
        rate,
    };
    let with = |limit| Around { limit: Some(limit), ..around(crate::explain::why::tests::view(8)) };
    says(
        &with(limit(2, None)),
        "limit",
        &["the limit of kind mail is full (2): held by job job-1 on a~1 since 6s ago, job job-2 on b~2"],
    );
    says(&with(limit(7, None)), "limit", &["and 5 more"]);
    assert_eq!(codes(&with(limit(1, None))), ["claimed"], "nothing is in its way");
    let used_up = with(limit(1, Some(Duration::from_secs(3))));
    says(
        &used_up,
        "rate",
        &["the rate of kind mail (2 at a time, 100/s (burst 5)) is used up", "comes in 3s"],
    );
    assert_eq!(reasons(&used_up)[0].until, Some(UnixMillis(13_000)));
    let mut own = limit(2, None);
    own.holders[0].name = SlotName { partition: 2, place: Place { ms: 8, seq: 0 } };
    says(&with(own), "has_slot", &["holds one of 2 slots of kind mail on a~1 (6s ago)"]);
    // Behind another of its key it does not ask.
    let behind = Around { first: Some(crate::explain::why::tests::view(3)), ..with(limit(2, None)) };
    assert!(!codes(&behind).contains(&"limit"));
}
