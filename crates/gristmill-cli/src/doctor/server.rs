//! Judges the server by what it says about itself.

use super::patch_levels::{self, Product, Verdict};
use super::{Finding, millis};
use gristmill_broker::doctor::ServerFacts;
use std::time::Duration;

/// A median round trip from which on it is looked at, and from which on it is bad: a settle waits for one.
const SLOW: Duration = Duration::from_millis(5);
const TOO_SLOW: Duration = Duration::from_millis(100);
/// Parts of `maxmemory`, in percent.
const MEMORY_WARN: u64 = 80;
const MEMORY_BAD: u64 = 95;

pub(super) fn judge(facts: &ServerFacts, pings: &[Duration]) -> Vec<Finding> {
    let mut findings = vec![version(facts), eviction(facts), memory(facts)];
    findings.extend(persistence(facts));
    findings.extend(replication(facts));
    findings.extend(latency(pings));
    findings
}

fn info<'a>(facts: &'a ServerFacts, field: &str) -> &'a str {
    facts.info.get(field).map_or("", String::as_str)
}

fn number(facts: &ServerFacts, field: &str) -> u64 {
    info(facts, field).parse().unwrap_or(0)
}

fn version(facts: &ServerFacts) -> Finding {
    const CHECK: &str = "server version";
    // Valkey says `redis_version` too: the version whose commands it has.
    let (product, name, text) = match info(facts, "valkey_version") {
        "" => (Product::Redis, "Redis", info(facts, "redis_version")),
        text => (Product::Valkey, "Valkey", text),
    };
    let other =
        ["dragonfly_version", "keydb_version"].into_iter().find(|field| !info(facts, field).is_empty());
    if let Some(field) = other {
        let found = format!("{field} {}", info(facts, field));
        return Finding::warn(
            CHECK,
            found,
            "gristmill is tested on Redis and Valkey; try it on this server before you rely on it",
        );
    }
    let Some(version) = patch_levels::parse(text) else {
        let found = format!("{name} {text:?}, which is no release");
        return Finding::warn(CHECK, found, "use a released version, so that its known holes can be told");
    };
    match patch_levels::judge(product, version) {
        Verdict::TooOld => {
            let mend = "upgrade to Redis 7.4 or newer, or Valkey 8.1 or newer; 7.0 is the oldest that gristmill runs on";
            Finding::bad(CHECK, format!("{name} {text}"), mend)
        }
        Verdict::Behind(mended, holes) => Finding::warn(
            CHECK,
            format!("{name} {text} has known holes: {holes}"),
            format!("upgrade to {name} {mended} or newer"),
        ),
        Verdict::Abandoned(holes) => Finding::warn(
            CHECK,
            format!("{name} {text}: its makers no longer mend this line, known holes: {holes}"),
            "see whether your distribution has mended its package, or upgrade to Redis 7.4.9 or newer",
        ),
        Verdict::Fine => {
            Finding::ok(CHECK, format!("{name} {text}, no hole known in {}", patch_levels::looked_at()))
        }
    }
}

fn eviction(facts: &ServerFacts) -> Finding {
    const CHECK: &str = "eviction policy";
    let said = facts.config.get("maxmemory-policy").map_or(info(facts, "maxmemory_policy"), String::as_str);
    match said {
        "noeviction" => Finding::ok(CHECK, "noeviction"),
        "" => Finding::warn(
            CHECK,
            "the server does not tell",
            "make sure that it is noeviction, or jobs are lost when memory is full",
        ),
        other => Finding::bad(
            CHECK,
            format!("{other}: jobs, leases and marks vanish when memory is full; nodes refuse to start"),
            "CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration",
        ),
    }
}

fn memory(facts: &ServerFacts) -> Finding {
    const CHECK: &str = "memory";
    let (used, limit) = (number(facts, "used_memory"), number(facts, "maxmemory"));
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    if limit == 0 {
        let found = format!(
            "{} in use, no limit: the system ends the server when its memory is used up",
            megabytes(used)
        );
        return Finding::warn(
            CHECK,
            found,
            "set maxmemory below what the machine can spare; enqueue is then refused instead",
        );
    }
    let percent = used.saturating_mul(100) / limit;
    let found = format!("{} of {} in use ({percent} %)", megabytes(used), megabytes(limit));
    let mend = "let the backlog drain, purge what is not needed, or raise maxmemory; at the limit enqueue is refused, settling is not";
    match percent {
        ..MEMORY_WARN => Finding::ok(CHECK, found),
        MEMORY_WARN..MEMORY_BAD => Finding::warn(CHECK, found, mend),
        _ => Finding::bad(CHECK, found, mend),
    }
}

fn persistence(facts: &ServerFacts) -> Vec<Finding> {
    const CHECK: &str = "persistence";
    let aof = info(facts, "aof_enabled") == "1";
    let rdb = facts.config.get("save").map(|save| !save.trim().is_empty());
    let sync = facts.config.get("appendfsync").map(String::as_str);
    let mend = "CONFIG SET appendonly yes (appendfsync everysec or always), and the same in the server's configuration";
    let mut findings = vec![match (aof, sync, rdb) {
        (true, Some("always"), _) => {
            Finding::ok(CHECK, "append-only file, written to disk before each answer")
        }
        (true, Some("everysec"), _) => Finding::ok(
            CHECK,
            "append-only file, written to disk every second: a crash of the machine loses up to a second, a restart of the server nothing",
        ),
        (true, Some(other), _) => Finding::warn(
            CHECK,
            format!(
                "append-only file with appendfsync {other}: a crash of the machine loses what the system had not written, often 30 s"
            ),
            "CONFIG SET appendfsync everysec",
        ),
        (true, None, _) => {
            Finding::ok(CHECK, "append-only file; the server does not tell how often it is written to disk")
        }
        (false, _, Some(false)) => {
            Finding::bad(CHECK, "none: when the server restarts every job is lost", mend)
        }
        (false, _, _) => Finding::warn(
            CHECK,
            "no append-only file, snapshots at most: a restart of the server loses every job since the last one, and \
             brings back those settled since",
            mend,
        ),
    }];
    let failed = |field: &str| !matches!(info(facts, field), "" | "ok");
    if failed("aof_last_write_status")
        || failed("aof_last_bgrewrite_status")
        || failed("rdb_last_bgsave_status")
    {
        findings.push(Finding::bad(
            "persistence errors",
            "the server's last write of its data to disk failed",
            "look into its log; mostly the disk is full or not writable",
        ));
    }
    findings
}

fn replication(facts: &ServerFacts) -> Vec<Finding> {
    const CHECK: &str = "replication";
    let replicas = number(facts, "connected_slaves");
    if info(facts, "role") == "slave" {
        return vec![Finding::bad(
            CHECK,
            "this server is a replica: nothing can be written here",
            "let redis.url name the primary",
        )];
    }
    let needed = facts.config.get("min-replicas-to-write").and_then(|text| text.parse::<u64>().ok());
    vec![match (replicas, needed) {
        (0, Some(needed)) if needed > 0 => Finding::bad(
            CHECK,
            format!("min-replicas-to-write is {needed} and no replica is connected: every write is refused"),
            "bring the replicas back, or set min-replicas-to-write to 0",
        ),
        (0, _) => {
            Finding::ok(CHECK, "a primary without replicas: no failover, and nothing that one could lose")
        }
        (_, Some(needed)) if needed > 0 => {
            Finding::ok(CHECK, format!("a primary with {replicas} replicas, min-replicas-to-write {needed}"))
        }
        (_, _) => Finding::warn(
            CHECK,
            format!(
                "a primary with {replicas} replicas, and writes do not wait for any: a failover may lose what was answered"
            ),
            "CONFIG SET min-replicas-to-write 1 (and min-replicas-max-lag) bounds how much",
        ),
    }]
}

fn latency(pings: &[Duration]) -> Option<Finding> {
    const CHECK: &str = "latency";
    let mut pings = pings.to_vec();
    pings.sort_unstable();
    let (median, most) = (*pings.get(pings.len() / 2)?, *pings.last()?);
    let found = format!(
        "a round trip takes {} (median of {}), at most {}",
        millis(median),
        pings.len(),
        millis(most)
    );
    let mend = "bring nodes and server nearer to each other, and look for slow commands (SLOWLOG GET) or a busy machine";
    Some(match median {
        median if median >= TOO_SLOW => Finding::bad(CHECK, found, mend),
        median if median >= SLOW => Finding::warn(CHECK, found, mend),
        _ => Finding::ok(CHECK, found),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Severity::{self, Bad, Ok, Warn};
    use super::*;

    fn facts(info: &[(&str, &str)], config: &[(&str, &str)]) -> ServerFacts {
        let own = |pairs: &[(&str, &str)]| pairs.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        ServerFacts { info: own(info), config: own(config) }
    }

    fn judged(check: &str, info: &[(&str, &str)], config: &[(&str, &str)]) -> (Severity, String) {
        let found = judge(&facts(info, config), &[Duration::from_micros(200)]);
        for finding in &found {
            assert_eq!(finding.mend.is_none(), finding.severity == Ok, "{finding:?}");
        }
        let finding = found.into_iter().find(|finding| finding.check == check).unwrap();
        (finding.severity, finding.found)
    }

    #[test]
    fn versions() {
        let severity = |info: &[(&str, &str)]| judged("server version", info, &[]).0;
        assert_eq!(severity(&[("redis_version", "6.2.7")]), Bad);
        assert_eq!(severity(&[("redis_version", "8.2.2")]), Warn);
        assert_eq!(severity(&[("redis_version", "8.2.6")]), Ok);
        assert_eq!(severity(&[("redis_version", "7.2.4"), ("valkey_version", "9.1.0")]), Ok);
        assert_eq!(severity(&[("redis_version", "7.4.0"), ("dragonfly_version", "1.2")]), Warn);
        assert_eq!(severity(&[]), Warn);
    }

    #[test]
    fn eviction_and_memory() {
        let policy =
            |info: &[(&str, &str)], config: &[(&str, &str)]| judged("eviction policy", info, config).0;
        assert_eq!(policy(&[("maxmemory_policy", "noeviction")], &[]), Ok);
        assert_eq!(policy(&[("maxmemory_policy", "allkeys-lru")], &[]), Bad);
        assert_eq!(policy(&[], &[]), Warn);
        let memory = |used: &str| judged("memory", &[("used_memory", used), ("maxmemory", "1000000")], &[]);
        assert_eq!(memory("799999").0, Ok);
        assert_eq!(memory("800000").0, Warn);
        assert_eq!(memory("950000").0, Bad);
        assert_eq!(judged("memory", &[("used_memory", "5"), ("maxmemory", "0")], &[]).0, Warn);
    }

    #[test]
    fn persistence_is_judged_by_what_a_restart_loses() {
        let on = ("aof_enabled", "1");
        let of = |info: &[(&str, &str)], config: &[(&str, &str)]| judged("persistence", info, config).0;
        assert_eq!(of(&[on], &[("appendfsync", "always")]), Ok);
        assert_eq!(of(&[on], &[("appendfsync", "everysec")]), Ok);
        assert_eq!(of(&[on], &[("appendfsync", "no")]), Warn);
        assert_eq!(of(&[on], &[]), Ok);
        assert_eq!(of(&[], &[("save", "3600 1")]), Warn);
        assert_eq!(of(&[], &[("save", "")]), Bad);
        assert_eq!(of(&[], &[]), Warn);
        assert_eq!(judged("persistence errors", &[("aof_last_write_status", "err")], &[]).0, Bad);
    }

    #[test]
    fn replication() {
        let of = |info: &[(&str, &str)], needed: &str| {
            judged("replication", info, &[("min-replicas-to-write", needed)]).0
        };
        assert_eq!(of(&[("role", "slave")], "0"), Bad);
        assert_eq!(of(&[("role", "master"), ("connected_slaves", "0")], "0"), Ok);
        assert_eq!(of(&[("role", "master"), ("connected_slaves", "0")], "1"), Bad);
        assert_eq!(of(&[("role", "master"), ("connected_slaves", "2")], "0"), Warn);
        assert_eq!(of(&[("role", "master"), ("connected_slaves", "2")], "1"), Ok);
    }

    #[test]
    fn latency_is_judged_by_its_median() {
        let of = |ms: [u64; 3]| latency(&ms.map(Duration::from_millis)).unwrap().severity;
        assert_eq!(of([1, 1, 500]), Ok);
        assert_eq!(of([1, 6, 6]), Warn);
        assert_eq!(of([100, 100, 1]), Bad);
    }
}
