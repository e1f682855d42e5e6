//! What a process costs: CPU time and resident memory, as the kernel counts them.

use crate::failure::{Failure, Outcome};
use gristmill_testkit::server::Server;
use std::time::Duration;

/// Linux counts CPU time in hundredths of a second, whatever its real tick is.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of a process so far, its threads included; `self` is this one.
pub(crate) fn cpu(pid: &str) -> Outcome<Duration> {
    let [user, system, ..] = times(pid)?;
    Ok(user + system)
}

/// The same, and that of its children that have ended.
pub(crate) fn family_cpu(pid: &str) -> Outcome<Duration> {
    Ok(times(pid)?.iter().sum())
}

/// User and system time of a process, and of its children that have ended.
fn times(pid: &str) -> Outcome<[Duration; 4]> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; what follows it does not.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
    match (ticks(11), ticks(12), ticks(13), ticks(14)) {
        (Some(user), Some(system), Some(users), Some(systems)) => {
            Ok([user, system, users, systems].map(|ticks| TICK * ticks))
        }
        _ => Err(Failure::Broken(format!("/proc/{pid}/stat is not as expected: {stat}"))),
    }
}

/// Peak (`VmHWM`) or present (`VmRSS`) resident memory of a process, in bytes.
pub(crate) fn resident(pid: &str, field: &str) -> Outcome<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| Failure::Broken(format!("/proc/{pid}/status shows no {field}")))
}

/// CPU time that a server has used.
pub(crate) fn server_cpu(server: &Server) -> Outcome<Duration> {
    let pid = server.pid().ok_or_else(|| Failure::Broken("the server does not run".into()))?;
    cpu(&pid.to_string())
}
