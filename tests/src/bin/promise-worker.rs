//! The whole command line, as a worker of a user's has it, with handlers that do what their jobs say and write what they did
//! to the history that `PROMISE_HISTORY` names.

use gristmill_handler::Registry;
use gristmill_tests::handlers::{Recorder, scripted};
use gristmill_tests::script::KIND;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(history) = std::env::var_os("PROMISE_HISTORY").map(PathBuf::from) else {
        return gristmill_cli::main(Registry::new());
    };
    // Its own start names the node in the history: a restart is another.
    let name = std::env::var("GRISTMILL__NODE__NAME").unwrap_or_default();
    match Recorder::open(&history, format!("{name}#{}", std::process::id())) {
        Ok(recorder) => gristmill_cli::main(Registry::new().state(recorder).kind(KIND, scripted)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
