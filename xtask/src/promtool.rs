//! promtool, which judges the alerts, and prometheus, which watches a run: programs of Debian's package `prometheus`. The package is downloaded and unpacked, not
//! installed: its installation would set up a service.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::child::{self, Failure};
use crate::debian;
use crate::ground;
use crate::wheel::{self, trouble};

/// The variable that tells a child the path.
pub(crate) const VARIABLE: &str = "GRISTMILL_PROMTOOL";

/// The first release that knows `keep_firing_for`.
const OLDEST: (u32, u32) = (2, 42);

const PACKAGE: &str = "prometheus";

/// From PATH, from an earlier run, or from the distribution.
pub(crate) fn fetch() -> Result<PathBuf, Failure> {
    let folder = ground::target().join("tools");
    let home = folder.join("promtool");
    let found = ground::on_path("promtool").into_iter().chain([home.clone()]);
    let whole = |program: &PathBuf| is_right(program) && program.with_file_name("prometheus").is_file();
    if let Some(program) = found.into_iter().find(whole) {
        return Ok(program);
    }
    wheel::on_workbench(&folder, "promtool", |workbench| {
        fs::create_dir_all(workbench).map_err(|error| trouble("make the folder", workbench, &error))?;
        let archive = debian::download(PACKAGE, "promtool is needed to test the alerts", workbench)?;
        let mut unpack = Command::new("dpkg-deb");
        child::pass_through(unpack.arg("--extract").arg(archive).arg(workbench).stdin(Stdio::null()))?;
        let program = workbench.join("usr/bin/promtool");
        if !is_right(&program) {
            return Err(Failure::missing(format!(
                "the package `{PACKAGE}` holds no promtool of version {}.{} or newer; set {VARIABLE} to the path of one",
                OLDEST.0, OLDEST.1
            )));
        }
        // The server lies in the same package, and tests look for it beside promtool.
        wheel::settle(&workbench.join("usr/bin/prometheus"), &folder.join("prometheus"))?;
        wheel::settle(&program, &home)
    })?;
    Ok(home)
}

fn is_right(program: &Path) -> bool {
    let says = child::answer(program, &["--version"]);
    says.and_then(|says| version(&says)).is_some_and(|version| version >= OLDEST)
}

/// `promtool, version 2.42.0+ds (branch: …`
fn version(says: &str) -> Option<(u32, u32)> {
    let mut numbers = says.strip_prefix("promtool, version ")?.split(['.', '+', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_and_too_old_ones_are_told() {
        let of = |text: &str| version(text);
        assert_eq!(of("promtool, version 2.42.0+ds (branch: debian/sid, revision: 2.42.0)"), Some((2, 42)));
        assert!(of("promtool, version 3.4.1 (branch: HEAD)") >= Some(OLDEST));
        assert!(of("promtool, version 2.31.2+ds1") < Some(OLDEST));
        assert_eq!(of("prometheus, version 2.42.0"), None);
    }
}
