//! `cargo xtask test`: the servers, the binaries that tests start, then the whole suite with its output untouched, and at
//! the end again what failed.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::chart;
use crate::child::{self, Failure};
use crate::debian;
use crate::failures::Failures;
use crate::faketime;
use crate::ground;
use crate::servers::{self, Wanted};

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// The whole suite on every server, instead of a contract on the newer ones.
    every_server: bool,
    /// Only these packages; the workspace when empty.
    packages: Vec<OsString>,
    /// For the test binaries: filters first, then what followed `--`.
    to_tests: Vec<OsString>,
}

pub(crate) fn run(args: &[OsString]) -> Result<(), Failure> {
    let request = parse(args)?;
    let started = Instant::now();
    debian::c_compiler()?;
    let found = servers::ensure(Wanted::Every)?;
    let mut tools = chart::tools();
    tools.take(faketime::VARIABLE, "libfaketime".to_owned(), faketime::fetch);
    let python = debian::python();
    let interpreter = python.as_deref().map(|path| (debian::PYTHON_VARIABLE, path));
    let variables = found.variables().chain(tools.variables()).chain(interpreter);
    tell_about_data();

    // Tests start the real programs, and `cargo test` alone does not build another package's binaries.
    let mut build = ground::cargo();
    build.current_dir(ground::root()).args(["build", "--workspace", "--bins"]);
    let mut failures = Failures::default();
    let mut hear = |bytes: &[u8]| failures.hear(bytes);
    let result = child::pass_through_heard(coloured(&mut build), &mut hear).and_then(|()| {
        child::pass_through_heard(coloured(&mut test_command(&request, variables)), &mut hear)
    });

    found.repeat_what_is_missing();
    tools.repeat_what_is_missing();
    if python.is_none() {
        eprintln!("xtask: MISSING Python 3 with its clients: tests of examples in Python were skipped");
    }
    if result.is_err() {
        eprint!("{}", failures.said());
    }
    let code = result.as_ref().map_or_else(|failure| failure.code, |()| 0);
    eprintln!("xtask test: exit code {code} after {} s", started.elapsed().as_secs());
    result
}

fn parse(args: &[OsString]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            request.to_tests.extend(args.cloned());
            break;
        } else if arg == "--all" {
            request.every_server = true;
        } else if arg == "-p" || arg == "--package" {
            let package = args.next().ok_or_else(|| {
                Failure::usage(format!("{} needs the name of a crate", arg.to_string_lossy()))
            })?;
            request.packages.push(package.clone());
        } else if arg.to_string_lossy().starts_with('-') {
            return Err(Failure::usage(format!(
                "`test` knows --all and -p CRATE, not `{}`; arguments for the test binaries follow `--`",
                arg.to_string_lossy()
            )));
        } else {
            request.to_tests.push(arg.clone());
        }
    }
    Ok(request)
}

fn test_command<'a>(request: &Request, variables: impl Iterator<Item = (&'static str, &'a Path)>) -> Command {
    let mut command = ground::cargo();
    command.current_dir(ground::root()).args(["test", "--no-fail-fast"]).envs(variables);
    match request.packages.is_empty() {
        true => {
            command.arg("--workspace");
        }
        false => {
            for package in &request.packages {
                command.arg("--package").arg(package);
            }
        }
    }
    if request.every_server {
        command.env("GRISTMILL_TEST_ALL", "1");
    }
    command.arg("--").args(&request.to_tests);
    command
}

/// Cargo itself no longer sees the terminal that its output goes to.
fn coloured(command: &mut Command) -> &mut Command {
    if io::stdout().is_terminal() && env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command
}

/// Some tests replay real events, which lie beside the checkout and not in it.
fn tell_about_data() {
    let data = ground::data();
    if !data.is_dir() {
        eprintln!(
            "xtask: NOTE: there is no folder ../shared/data beside this checkout: tests that replay it are skipped, and say so"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &str) -> Result<Request, Failure> {
        parse(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn filters_and_what_follows_the_dashes_go_to_the_test_binaries() {
        let request = request("--all drain -p gristmill-node fenced -- --nocapture --all").unwrap();
        assert!(request.every_server);
        assert_eq!(request.packages, ["gristmill-node"]);
        assert_eq!(request.to_tests, ["drain", "fenced", "--nocapture", "--all"]);
    }

    #[test]
    fn an_unknown_switch_is_wrong_usage() {
        let failure = request("--everything").unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.text.unwrap().contains("--everything"));
        assert_eq!(request("-p").unwrap_err().code, 2);
    }

    #[test]
    fn the_whole_workspace_is_tested_unless_a_crate_is_named() {
        let none = std::iter::empty;
        let whole = test_command(&request("").unwrap(), none());
        assert!(child::spoken(&whole).ends_with("test --no-fail-fast --workspace --"));
        let one = test_command(&request("-p xtask words").unwrap(), none());
        assert!(child::spoken(&one).ends_with("test --no-fail-fast --package xtask -- words"));
    }
}
