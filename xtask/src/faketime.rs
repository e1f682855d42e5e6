//! libfaketime, by which tests set the clock of a server that runs: a library of Debian's package `libfaketime`, downloaded and
//! unpacked, not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::child::{self, Failure};
use crate::debian;
use crate::ground;
use crate::wheel;

/// The variable that tells a child the path.
pub(crate) const VARIABLE: &str = "GRISTMILL_FAKETIME";

const PACKAGE: &str = "libfaketime";
const LIBRARY: &str = "libfaketimeMT.so.1";

/// From the system, from an earlier run, or from the distribution.
pub(crate) fn fetch() -> Result<PathBuf, Failure> {
    let folder = ground::target().join("tools");
    let home = folder.join(LIBRARY);
    if let Some(library) =
        below(Path::new("/usr/lib")).into_iter().chain([home.clone()]).find(|library| works(library))
    {
        return Ok(library);
    }
    wheel::on_workbench(&folder, PACKAGE, |workbench| {
        let archive =
            debian::download(PACKAGE, "it is needed to test what a clock that jumps does", workbench)?;
        let mut unpack = Command::new("dpkg-deb");
        child::pass_through(unpack.arg("--extract").arg(archive).arg(workbench).stdin(Stdio::null()))?;
        let library = below(&workbench.join("usr/lib")).filter(|library| works(library)).ok_or_else(|| {
            Failure::missing(format!(
                "the package `{PACKAGE}` holds no {LIBRARY} that sets a program's clock; set {VARIABLE} to the path of one"
            ))
        })?;
        wheel::settle(&library, &home)
    })?;
    Ok(home)
}

/// Where the package lays it: in a folder per kind of machine.
fn below(libraries: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(libraries).into_iter().flatten().flatten().map(|entry| entry.path());
    folders.map(|folder| folder.join("faketime").join(LIBRARY)).find(|path| path.is_file())
}

/// Whether a program that is started with it believes what it is told.
fn works(library: &Path) -> bool {
    let preload = format!("LD_PRELOAD={}", library.display());
    let says = child::answer("env", &[&preload, "FAKETIME=@2001-06-15 12:00:00", "date", "+%Y"]);
    library.is_file() && says.as_deref() == Some("2001")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_no_clock_does_not_work() {
        assert!(!works(Path::new("/no/such/library.so.1")));
        // A library like any other, which changes nothing.
        let folders = fs::read_dir("/lib").into_iter().flatten().flatten().map(|entry| entry.path());
        if let Some(other) = folders.map(|folder| folder.join("libm.so.6")).find(|path| path.is_file()) {
            assert!(!works(&other));
        }
    }
}
