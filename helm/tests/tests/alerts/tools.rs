//! The programs that judge, and where things are.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program that `cargo xtask test` tells of; without it the test says that it was skipped.
pub(crate) fn tool(variable: &str, test: &str) -> Option<PathBuf> {
    let found = env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    if found.is_none() {
        eprintln!("SKIPPED {test}: {variable} names no program; `cargo xtask test` fetches it");
    }
    found
}

pub(crate) fn helm(test: &str) -> Option<PathBuf> {
    tool("GRISTMILL_HELM_4", test)
}

pub(crate) fn promtool(test: &str) -> Option<PathBuf> {
    tool("GRISTMILL_PROMTOOL", test)
}

/// Both outputs, as a person would see them.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Its standard output; what it said where it failed.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(said(&output)),
    }
}

/// The folder `helm`. Asked at run time: two checkouts that share a target folder share this binary too.
pub(crate) fn helm_folder() -> PathBuf {
    let own =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    own.parent().unwrap().to_path_buf()
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// An empty folder of this test.
pub(crate) fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("alerts-{test}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}
