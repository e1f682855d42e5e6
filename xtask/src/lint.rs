//! `cargo xtask lint`: formatting and clippy, warnings denied.

use crate::child::{self, Failure};
use crate::debian;
use crate::ground;

pub(crate) fn run() -> Result<(), Failure> {
    debian::c_compiler()?;
    let root = ground::root();
    child::pass_through(ground::cargo().current_dir(&root).args(["fmt", "--all", "--check"]))?;
    child::pass_through(ground::cargo().current_dir(&root).args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}
