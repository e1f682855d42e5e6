//! Installing Debian and Ubuntu packages without a question asked and without starting a service.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::child::{self, Failure};
use crate::ground;

/// Package lists are fetched once per run, before the first install.
static LISTS_ARE_FRESH: AtomicBool = AtomicBool::new(false);

/// How this person may install packages.
enum Way {
    Root,
    Sudo,
}

/// Installs `packages`; `why` is told to the person first.
pub(crate) fn install(packages: &[&str], why: &str) -> Result<(), Failure> {
    let list = packages.join(" ");
    if ground::on_path("apt-get").is_none() {
        return Err(Failure::missing(format!(
            "{why}: this machine has no apt-get; install what Debian calls `{list}` with your own package manager"
        )));
    }
    let Some(way) = way() else {
        return Err(Failure::missing(format!(
            "{why}: only root may install packages; run `sudo apt-get install {list}` and try again"
        )));
    };
    eprintln!("xtask: {why}: installing {list}");
    if !LISTS_ARE_FRESH.swap(true, Ordering::Relaxed) && apt(&way, &["update"]).is_err() {
        eprintln!("xtask: package lists could not be refreshed; trying with the old ones");
    }
    let mut args = vec!["install", "--yes", "--no-install-recommends"];
    args.extend(packages);
    apt(&way, &args).map_err(|_| {
        Failure::missing(format!(
            "{why}: apt-get could not install {list} (its own words are above); is there a network?"
        ))
    })
}

/// A C compiler, which one dependency (ring) needs.
pub(crate) fn c_compiler() -> Result<(), Failure> {
    if std::env::var_os("CC").is_some() || ground::on_path("cc").is_some() {
        return Ok(());
    }
    install(&["gcc", "libc6-dev"], "a C compiler is needed to build TLS")
}

/// What the examples in Python import, and the packages that hold it.
const PYTHON_IMPORTS: &str = "import http.server, sqlite3, psycopg2, redis, msgpack, xxhash";
const PYTHON_PACKAGES: &[&str] =
    &["python3", "python3-psycopg2", "python3-redis", "python3-msgpack", "python3-xxhash"];
/// For which the distribution's packages are made, whatever other Python is first on PATH.
const PYTHON: &str = "/usr/bin/python3";
/// The variable that tells a child the path of this interpreter.
pub(crate) const PYTHON_VARIABLE: &str = "GRISTMILL_PYTHON";

/// A Python that can run the examples written in it; none, said loudly, where it cannot be had.
pub(crate) fn python() -> Option<PathBuf> {
    let works = |program: &PathBuf| {
        program.to_str().is_some_and(|program| child::answer(program, &["-c", PYTHON_IMPORTS]).is_some())
    };
    let given = std::env::var_os(PYTHON_VARIABLE).filter(|given| !given.is_empty()).map(PathBuf::from);
    let candidates = given.into_iter().chain(ground::on_path("python3")).chain([PYTHON.into()]);
    if let Some(found) = candidates.into_iter().find(works) {
        return Some(found);
    }
    if let Err(failure) = install(
        PYTHON_PACKAGES,
        "Python with clients of Redis and Postgres is needed to test the examples in it",
    ) {
        eprintln!("xtask: MISSING Python 3 with its clients: {}", failure.text.unwrap_or_default());
    }
    Some(PathBuf::from(PYTHON)).filter(works)
}

/// Downloads a package into `folder` without installing it, and answers where it lies. Apt checks what it downloads; lists
/// that are missing or old are fetched first where that is allowed.
pub(crate) fn download(package: &str, why: &str, folder: &Path) -> Result<PathBuf, Failure> {
    if ground::on_path("apt-get").is_none() {
        return Err(Failure::missing(format!("{why}: this machine has no apt-get to get `{package}` with")));
    }
    eprintln!("xtask: {why}: downloading the package {package}");
    let fetch = || {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-o", "Acquire::Retries=2", "download", package]).current_dir(folder);
        // What stands there as root, apt reads as somebody else, and says so.
        let sandbox = ["-o", "APT::Sandbox::User=root"];
        child::pass_through(command.args(sandbox).stdin(Stdio::null()).stdout(Stdio::null()))
    };
    let fetched = fetch().or_else(|failure| match way() {
        Some(way) if !LISTS_ARE_FRESH.swap(true, Ordering::Relaxed) => {
            apt(&way, &["update"])?;
            fetch()
        }
        _ => Err(failure),
    });
    let mut files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let archive = files.find(|path| path.extension().is_some_and(|end| end == "deb"));
    archive.filter(|_| fetched.is_ok()).ok_or_else(|| {
        Failure::missing(format!(
            "{why}: apt-get could not download {package} (its own words are above); is there a network?"
        ))
    })
}

fn way() -> Option<Way> {
    if child::answer("id", &["-u"]).as_deref() == Some("0") {
        return Some(Way::Root);
    }
    child::answer("sudo", &["-n", "true"]).map(|_| Way::Sudo)
}

fn apt(way: &Way, args: &[&str]) -> Result<(), Failure> {
    let mut command = match way {
        Way::Root => Command::new("env"),
        Way::Sudo => {
            let mut sudo = Command::new("sudo");
            sudo.args(["-n", "env"]);
            sudo
        }
    };
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]);
    // Another installation may be under way: wait for it instead of failing.
    command.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=2"]);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
    child::pass_through(&mut command)
}
