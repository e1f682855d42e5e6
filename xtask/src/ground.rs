//! Where things are: the workspace, its target folder, and a cargo that starts as if a person had typed it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    // Cargo sets it at run time too: a checkout that was moved after the build is still found.
    let own = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map(Path::to_path_buf).unwrap_or(own)
}

/// The folder cargo builds into: `CARGO_TARGET_DIR` where it is set, else `target` in the workspace.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => std::path::absolute(&dir).unwrap_or_else(|_| PathBuf::from(dir)),
        None => root().join("target"),
    }
}

/// The optional folder of real events beside the checkout; some tests replay it.
pub(crate) fn data() -> PathBuf {
    root().join("../shared/data")
}

/// A cargo in the caller's folder, without what the outer `cargo run` told xtask about itself: build scripts that
/// watch such variables (ring's does) would build again and again.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if describes_this_package(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command
}

fn describes_this_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_")
        || ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_BIN_NAME", "CARGO_CRATE_NAME"].contains(&name)
}

/// Whether `name` is a program on PATH.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn cargos_own_settings_survive_and_descriptions_of_xtask_do_not() {
        assert!(describes_this_package("CARGO_PKG_NAME"));
        assert!(describes_this_package("CARGO_MANIFEST_DIR"));
        assert!(!describes_this_package("CARGO_TARGET_DIR"));
        assert!(!describes_this_package("CARGO_HOME"));
        assert!(!describes_this_package("CARGO_TERM_COLOR"));
    }

    #[test]
    fn programs_are_found_on_path_and_others_are_not() {
        assert!(on_path("sh").is_some());
        assert_eq!(on_path("no-such-program-here"), None);
    }
}
