//! `cargo xtask demo` and `cargo xtask bench`: a server, a release build, and the program with the person's arguments.

use std::ffi::OsString;

use crate::child::{self, Failure};
use crate::debian;
use crate::ground;
use crate::servers::{self, Wanted};

/// Runs `package` in the caller's folder, so that relative paths among its arguments mean what they say.
pub(crate) fn run(package: &str, wanted: Wanted, args: &[OsString]) -> Result<(), Failure> {
    debian::c_compiler()?;
    let found = servers::ensure(wanted)?;
    let manifest = ground::root().join("Cargo.toml");
    child::pass_through(
        ground::cargo()
            .args(["run", "--release", "--quiet", "--package", package])
            .arg("--manifest-path")
            .arg(manifest)
            .arg("--")
            .args(args)
            .envs(found.variables()),
    )
}
