//! The house rules, as tests. Each rule is a pure function from text to complaints, run twice: over the tree, and
//! over planted text that must be refused.
//!
//! * [`directions`]: which crate may depend on which;
//! * [`scripts`]: every script carries its contract on top and has a Rust file of its name;
//! * [`sizes`]: a file that grows past 400 lines of code is looked at twice;
//! * [`waiting`]: tests do not sleep until something has probably happened;
//! * [`places`]: no path of somebody's machine in the tree;
//! * [`spelling`]: keys are spelled in one file.
//!
//! [`tree`] walks the files, [`source`] tells production code from tests, comments and strings.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod directions;
mod places;
mod scripts;
mod sizes;
mod source;
mod spelling;
mod tree;
mod waiting;

/// Fails with every complaint on a line of its own.
fn accept(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
