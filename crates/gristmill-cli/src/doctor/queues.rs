//! Judges one queue: is everything there, and does somebody work on it?

use super::Finding;
use crate::output::age;
use gristmill_broker::Mode;
use gristmill_broker::doctor::{ClaimsOver, MemberView};
use gristmill_broker::hung::HungRun;
use gristmill_broker::inspect::PartitionView;
use gristmill_broker::limit::LimitView;
use gristmill_handler::KindDescription;
use gristmill_job::{QueueName, UnixMillis};
use std::collections::BTreeMap;
use std::time::Duration;

/// From which age on the oldest job of a queue is looked at.
const OLD: Duration = Duration::from_secs(15 * 60);
/// Emitted jobs on their way are normal; so many are not.
const OUTBOX_MANY: u64 = 1000;
/// A claim that was extended for so many visibility timeouts by nobody is looked at.
pub(super) const CLAIM_OLD: u32 = 3;
/// Partitions that are named before the rest is only counted.
const NAMED: usize = 8;

pub(super) struct Facts {
    /// Whether each partition has its consumer group.
    pub(super) groups: Vec<bool>,
    pub(super) views: Vec<PartitionView>,
    pub(super) members: Vec<MemberView>,
    /// Runs that hold their threads, also of nodes that have died since.
    pub(super) hung: Vec<HungRun>,
    /// What is limited, and how living nodes announce the kinds.
    pub(super) limits: Vec<LimitView>,
    pub(super) kinds: BTreeMap<String, Vec<(KindDescription, Vec<String>)>>,
    /// The Redis clock when the members were read.
    pub(super) now: UnixMillis,
    pub(super) mode: Mode,
    /// Where no order is kept: how long a claim stands, as these settings say.
    pub(super) visibility: Duration,
    /// Claims that stand [`CLAIM_OLD`] times as long.
    pub(super) over: ClaimsOver,
}

pub(super) fn judge(queue: &QueueName, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![groups(queue, facts)];
    match facts.mode {
        Mode::Key => findings.push(leases(queue, facts)),
        Mode::None => {
            findings.extend(served(queue, facts));
            findings.push(claims(queue, facts));
        }
    }
    findings.extend(members(queue, facts));
    findings.extend(hung(queue, facts));
    findings.extend(super::limits::judge(queue, &facts.limits, &facts.kinds));
    findings.extend(backlog(queue, facts));
    findings.extend(outbox(queue, facts));
    findings.extend(dead(queue, facts));
    findings
}

fn check(queue: &QueueName, what: &str) -> String {
    format!("{queue}: {what}")
}

/// `partitions 1, 5 and 7 more`.
fn named(partitions: &[usize]) -> String {
    let names: Vec<String> = partitions.iter().take(NAMED).map(usize::to_string).collect();
    let more = partitions.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("partition{} {}{more}", if partitions.len() == 1 { "" } else { "s" }, names.join(", "))
}

fn which<T>(of: &[T], pick: impl Fn(&T) -> bool) -> Vec<usize> {
    of.iter().enumerate().filter(|(_, one)| pick(one)).map(|(at, _)| at).collect()
}

fn groups(queue: &QueueName, facts: &Facts) -> Finding {
    let check = check(queue, "streams");
    let missing = which(&facts.groups, |there| !there);
    match missing.as_slice() {
        [] => {
            Finding::ok(check, format!("{} partitions, each with its stream and group", facts.groups.len()))
        }
        missing => Finding::bad(
            check,
            format!("no stream or group in {}: the data was flushed, or a key deleted", named(missing)),
            format!(
                "start a node that serves {queue}, or run `gristmill enqueue {queue} --from /dev/null --create --partitions {} --ordering {}`: both make what is missing",
                facts.groups.len(),
                facts.mode.as_str()
            ),
        ),
    }
}

fn is_owned(view: &PartitionView) -> bool {
    !view.owner.is_empty() && view.expires > view.now
}

fn leases(queue: &QueueName, facts: &Facts) -> Finding {
    let check = check(queue, "leases");
    let living = facts.members.iter().filter(|member| member.expires > facts.now).count();
    let expired = which(&facts.views, |view| !view.owner.is_empty() && view.expires <= view.now);
    let free = which(&facts.views, |view| !is_owned(view));
    let waiting: u64 = facts.views.iter().filter(|view| !is_owned(view)).map(|view| view.ready).sum();
    let owned = facts.views.len() - free.len();
    if free.is_empty() {
        return Finding::ok(check, format!("all {owned} partitions have an owner"));
    }
    if living == 0 {
        return unserved(check, queue, facts, waiting);
    }
    let why = if expired.is_empty() {
        "given back and not taken yet".to_owned()
    } else {
        format!("{} of them left behind by a node that died", expired.len())
    };
    Finding::warn(
        check,
        format!("no owner for {} ({why}); {waiting} jobs wait there, {living} nodes live", named(&free)),
        "normal for about two lease times after a node came, left or died; if it stays, look into the nodes' logs",
    )
}

fn unserved(check: String, queue: &QueueName, facts: &Facts, waiting: u64) -> Finding {
    let found = format!("no node serves it; {waiting} jobs wait");
    let set = match facts.mode {
        Mode::Key => String::new(),
        Mode::None => format!(" --set queue.{queue}.ordering=none"),
    };
    let node = format!("`your-program node --queues {queue}:{}{set}`", facts.views.len());
    match waiting {
        0 => Finding::warn(check, found, format!("start one before jobs come: {node}")),
        _ => Finding::bad(check, found, format!("start one: {node}")),
    }
}

/// Without order every node takes from every partition: one that lives is enough.
fn served(queue: &QueueName, facts: &Facts) -> Option<Finding> {
    let lives = facts.members.iter().any(|member| member.expires > facts.now);
    let waiting: u64 = facts.views.iter().map(|view| view.ready).sum();
    (!lives).then(|| unserved(check(queue, "nodes"), queue, facts, waiting))
}

/// Claims that nobody extends and nobody recovers.
fn claims(queue: &QueueName, facts: &Facts) -> Finding {
    let (check, ClaimsOver { claims, at_least, oldest, holder }) = (check(queue, "claims"), &facts.over);
    let timeout = facts.visibility.as_millis();
    if *claims == 0 {
        return Finding::ok(
            check,
            format!("none is much older than queue.visibility_timeout_ms ({timeout} ms)"),
        );
    }
    let at_least = if *at_least { "at least " } else { "" };
    Finding::warn(
        check,
        format!(
            "{at_least}{claims} claims are extended and recovered by nobody: the oldest is of {holder}, not heard of for {}, and stands for {timeout} ms",
            age(*oldest)
        ),
        format!(
            "a node with a free slot takes them: start one, or more if all slots are busy; where nodes are told another \
             queue.{queue}.visibility_timeout_ms, say the same here"
        ),
    )
}

fn members(queue: &QueueName, facts: &Facts) -> Vec<Finding> {
    let (living, stale): (Vec<_>, Vec<_>) =
        facts.members.iter().partition(|member| member.expires > facts.now);
    let mut findings = Vec::new();
    if !living.is_empty() {
        let draining = living.iter().filter(|member| member.draining).count();
        let names: Vec<&str> = living.iter().take(NAMED).map(|member| member.incarnation.as_str()).collect();
        let found = format!("{} live ({draining} of them draining): {}", living.len(), names.join(", "));
        findings.push(Finding::ok(check(queue, "nodes"), found));
    }
    if !stale.is_empty() {
        let names: Vec<&str> = stale.iter().take(NAMED).map(|member| member.incarnation.as_str()).collect();
        findings.push(Finding::warn(
            check(queue, "dead nodes"),
            format!("{} ended without leaving: {}", stale.len(), names.join(", ")),
            "see why (out of memory, killed by the platform before its drain ended); the next announcement of any node removes the entry",
        ));
    }
    findings
}

/// One finding each: a person looks for the job, and restarts the node.
fn hung(queue: &QueueName, facts: &Facts) -> Vec<Finding> {
    let lives = |run: &&HungRun| {
        let its = |member: &&MemberView| member.incarnation == run.incarnation;
        facts.members.iter().find(its).is_some_and(|member| member.expires > facts.now)
    };
    let finding = |run: &HungRun| {
        let HungRun { incarnation, partition, place, kind, job, since } = run;
        let held = age(since.age_at(facts.now));
        Finding::bad(
            check(queue, "hung run"),
            format!(
                "a handler of kind {kind} has held a thread of {incarnation} for {held} and cannot be stopped: job {job}, \
                 partition {partition}, place {place}"
            ),
            format!(
                "restart the node {incarnation}; its slot is replaced, and its result will be refused. Move what blocks into \
                 `tokio::task::spawn_blocking`, or give it an await"
            ),
        )
    };
    facts.hung.iter().filter(lives).map(finding).collect()
}

fn backlog(queue: &QueueName, facts: &Facts) -> Option<Finding> {
    let oldest = facts.views.iter().filter_map(|view| Some(view.oldest?.age_at(view.now))).max()?;
    let ready: u64 = facts.views.iter().map(|view| view.ready).sum();
    let found = format!("{ready} jobs, the oldest has waited for {}", age(oldest));
    let check = check(queue, "backlog");
    Some(match oldest {
        oldest if oldest >= OLD => Finding::warn(
            check,
            found,
            match facts.mode {
                Mode::Key => {
                    "more nodes or slots if all are busy; a job that fails over and over holds up its own key: see the nodes' logs"
                }
                Mode::None => "more nodes or slots if all are busy: see the nodes' logs",
            },
        ),
        _ => Finding::ok(check, found),
    })
}

fn outbox(queue: &QueueName, facts: &Facts) -> Option<Finding> {
    let many: u64 = facts.views.iter().map(|view| view.outbox).sum();
    let found = format!("{many} emitted jobs are on their way");
    let check = check(queue, "outbox");
    match many {
        0 => None,
        OUTBOX_MANY.. => Some(Finding::warn(
            check,
            found,
            "nodes forward them; see in the nodes' logs whether their queue is missing or full",
        )),
        _ => Some(Finding::ok(check, found)),
    }
}

fn dead(queue: &QueueName, facts: &Facts) -> Option<Finding> {
    let many: u64 = facts.views.iter().map(|view| view.dead).sum();
    (many > 0).then(|| {
        Finding::warn(
            check(queue, "dead letters"),
            format!("{many} jobs are no longer tried"),
            format!("`gristmill dead list {queue}` says why"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::Severity::{self, Bad, Ok, Warn};
    use super::*;
    use gristmill_broker::Incarnation;
    use gristmill_job::{JobId, Place};

    const NOW: UnixMillis = UnixMillis(10_000_000);

    fn view(owner: &str, expires: u64) -> PartitionView {
        PartitionView {
            owner: owner.into(),
            expires: UnixMillis(expires),
            now: NOW,
            ..PartitionView::default()
        }
    }

    fn member(expires: u64) -> MemberView {
        let incarnation = Incarnation::from_stored("n~1");
        MemberView { incarnation, expires: UnixMillis(expires), since: UnixMillis(0), draining: false }
    }

    fn healthy() -> Facts {
        Facts {
            groups: vec![true; 2],
            views: vec![view("n~1", NOW.0 + 1); 2],
            members: vec![member(NOW.0 + 1)],
            hung: Vec::new(),
            limits: Vec::new(),
            kinds: BTreeMap::new(),
            now: NOW,
            mode: Mode::Key,
            visibility: Duration::from_secs(30),
            over: ClaimsOver::default(),
        }
    }

    fn judged(facts: &Facts, what: &str) -> (Severity, String) {
        let queue = QueueName::new("q").unwrap();
        let findings = judge(&queue, facts);
        for finding in &findings {
            assert_eq!(finding.mend.is_none(), finding.severity == Ok, "{finding:?}");
        }
        let finding = findings.into_iter().find(|finding| finding.check == format!("q: {what}")).unwrap();
        (finding.severity, finding.found)
    }

    #[test]
    fn a_healthy_queue_has_nothing_but_ok() {
        let queue = QueueName::new("q").unwrap();
        assert!(judge(&queue, &healthy()).iter().all(|finding| finding.severity == Ok));
    }

    #[test]
    fn groups_that_are_gone_are_bad() {
        let facts = Facts { groups: vec![true, false], ..healthy() };
        assert_eq!(judged(&facts, "streams").0, Bad);
        assert!(judged(&facts, "streams").1.starts_with("no stream or group in partition 1:"));
    }

    #[test]
    fn partitions_without_owner_are_bad_only_where_jobs_wait_and_nobody_comes() {
        let mut facts = Facts { views: vec![view("n~1", NOW.0), view("", 0)], ..healthy() };
        let (severity, found) = judged(&facts, "leases");
        assert_eq!(severity, Warn);
        assert!(found.starts_with("no owner for partitions 0, 1 (1 of them left behind"), "{found}");
        facts.members = vec![member(NOW.0)];
        assert_eq!(judged(&facts, "leases").0, Warn);
        assert_eq!(judged(&facts, "dead nodes").0, Warn);
        facts.views[0].ready = 3;
        assert_eq!(judged(&facts, "leases"), (Bad, "no node serves it; 3 jobs wait".into()));
    }

    #[test]
    fn without_order_nobody_owns_and_a_claim_that_nobody_recovers_is_found() {
        let unowned = vec![view("", 0), view("", 0)];
        let mut facts = Facts { views: unowned, mode: Mode::None, ..healthy() };
        let queue = QueueName::new("q").unwrap();
        let all: Vec<Finding> = judge(&queue, &facts);
        assert!(all.iter().all(|it| it.severity == Ok && !it.check.contains("leases")), "{all:?}");
        assert_eq!(judged(&facts, "nodes").0, Ok);
        facts.over =
            ClaimsOver { claims: 2, at_least: false, oldest: Duration::from_secs(120), holder: "m~2".into() };
        let (severity, found) = judged(&facts, "claims");
        assert_eq!(severity, Warn);
        assert!(found.contains("2 claims") && found.contains("m~2") && found.contains("2m"), "{found}");
        facts.members.clear();
        assert_eq!(judged(&facts, "nodes").0, Warn);
        facts.views[1].ready = 3;
        assert_eq!(judged(&facts, "nodes"), (Bad, "no node serves it; 3 jobs wait".into()));
        let mends: Vec<String> = judge(&queue, &facts).into_iter().filter_map(|it| it.mend).collect();
        assert!(mends.iter().any(|mend| mend.contains("--set queue.q.ordering=none")), "{mends:?}");
    }

    #[test]
    fn backlog_outbox_and_dead_letters() {
        let mut facts = healthy();
        facts.views[0].oldest = Some(UnixMillis(NOW.0 - 1000));
        assert_eq!(judged(&facts, "backlog").0, Ok);
        facts.views[1].oldest = Some(UnixMillis(NOW.0 - 900_000));
        assert_eq!(judged(&facts, "backlog").0, Warn);
        facts.views[0].outbox = 999;
        assert_eq!(judged(&facts, "outbox").0, Ok);
        facts.views[1].outbox = 1;
        assert_eq!(judged(&facts, "outbox").0, Warn);
        facts.views[1].dead = 1;
        assert_eq!(judged(&facts, "dead letters").0, Warn);
    }

    #[test]
    fn a_hung_run_is_named_with_what_to_do_unless_its_node_is_gone() {
        let run = |incarnation: &str| HungRun {
            incarnation: Incarnation::from_stored(incarnation),
            partition: 3,
            place: Place { ms: 7, seq: 1 },
            kind: "price.changed".into(),
            job: JobId::from_stored(b"job-1".as_slice().into()),
            since: UnixMillis(NOW.0 - 90_000),
        };
        let facts = Facts { hung: vec![run("n~1"), run("gone~2")], ..healthy() };
        let queue = QueueName::new("q").unwrap();
        let found: Vec<Finding> =
            judge(&queue, &facts).into_iter().filter(|finding| finding.check == "q: hung run").collect();
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(finding.severity, Bad);
        for word in ["n~1", "price.changed", "job-1", "partition 3", "1m 30s"] {
            assert!(finding.found.contains(word), "{word}: {}", finding.found);
        }
        assert!(finding.mend.as_ref().unwrap().contains("restart the node n~1"));
    }

    #[test]
    fn many_partitions_are_counted_not_named() {
        assert_eq!(named(&[3]), "partition 3");
        assert_eq!(named(&(0..10).collect::<Vec<_>>()), "partitions 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
    }
}
