//! `gristmill` without handlers: everything but `node`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gristmill_cli::main(gristmill_handler::Registry::new())
}
