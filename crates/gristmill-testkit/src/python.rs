//! A Python that has what a test's script imports.

use crate::guard::find_program;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The variable that names an interpreter with the modules that examples need.
pub const VARIABLE: &str = "GRISTMILL_PYTHON";

/// An interpreter that can import all of them: the one of [`VARIABLE`], the first on PATH, or the distribution's, for which
/// the distribution has packages. A test that goes on without one must say so loudly.
pub fn with(modules: &[&str]) -> Option<PathBuf> {
    let given = env::var_os(VARIABLE).filter(|given| !given.is_empty()).map(PathBuf::from);
    let candidates = given.into_iter().chain(["python3".into(), "/usr/bin/python3".into()]);
    let import = format!("import {}", modules.join(", "));
    let works = |program: &PathBuf| {
        let mut command = Command::new(program);
        command.args(["-c", &import]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    candidates.filter_map(find_program).find(works)
}

/// What a test says that cannot go on.
pub fn missing(modules: &[&str]) -> String {
    let packages = modules.iter().map(|module| format!("python3-{module}")).collect::<Vec<_>>().join(" ");
    format!(
        "no Python with {}; `cargo xtask test` installs {packages}, or {VARIABLE} names an interpreter that has them",
        modules.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_nobody_has_is_found_nowhere() {
        assert_eq!(with(&["no_such_module_anywhere"]), None);
        let said = missing(&["psycopg2", "redis"]);
        assert!(said.contains("installs python3-psycopg2 python3-redis,"), "{said}");
    }
}
