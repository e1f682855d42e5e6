//! Which servers a test runs on.
//!
//! Every test runs on Redis 7; with `GRISTMILL_TEST_ALL=1` on every flavor. A few run on every flavor always. A flavor whose
//! program is not on this machine is skipped, and said so on standard error where no test harness swallows it.

use gristmill_testkit::server::{Flavor, ServerOptions};
use std::io::Write;

/// Runs a test on Redis 7, or on all flavors where the environment asks for it.
pub fn on_servers(test: impl Fn(ServerOptions)) {
    if std::env::var("GRISTMILL_TEST_ALL").is_ok_and(|all| all == "1") {
        on_every_flavor(test);
    } else {
        test(ServerOptions::new());
    }
}

/// Runs a test on every flavor that is there, one after the other.
///
/// # Panics
/// When Redis 7 is missing, the floor that everything runs on, or a variable names a program that is not there.
pub fn on_every_flavor(test: impl Fn(ServerOptions)) {
    for flavor in Flavor::ALL {
        match flavor.binary() {
            Ok(_) => test(ServerOptions::new().flavor(flavor)),
            Err(error) if flavor == Flavor::Redis7 || std::env::var_os(flavor.variable()).is_some() => {
                panic!("{error}")
            }
            Err(error) => skipped(&flavor.to_string(), &error.to_string()),
        }
    }
}

/// A test on servers whose clocks it sets while they run, for one of the above; skipped, and said so, where this machine lacks
/// what that needs.
///
/// # Panics
/// When the variable that names it names nothing.
pub fn with_a_clock(test: impl Fn(ServerOptions)) -> impl Fn(ServerOptions) {
    move |options| match ServerOptions::find_faketime() {
        Ok(_) => test(options.settable_clock()),
        Err(error) if std::env::var_os("GRISTMILL_FAKETIME").is_some_and(|given| !given.is_empty()) => {
            panic!("{error}")
        }
        Err(error) => skipped("a clock that is set", &error.to_string()),
    }
}

/// Not `eprintln!`, which a test harness keeps to itself where the test passes.
fn skipped(what: &str, why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test} on {what}: {why}");
}
