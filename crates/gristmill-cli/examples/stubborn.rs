//! A worker whose handlers do what handlers should not, for the tests of this crate: `block` holds its thread, `hold`
//! ignores that it is asked to stop, `refuse` and `panic` fail; `quick` does as it should.

use gristmill_handler::{Context, HandlerError, Raw, Registry};
use std::process::ExitCode;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

async fn block(_: Raw) {
    eprintln!("blocking");
    std::thread::sleep(LONG);
}

async fn hold(_: Raw) {
    eprintln!("holding");
    tokio::time::sleep(LONG).await;
}

async fn refuse(_: Raw, context: Context) -> Result<(), HandlerError> {
    tracing::info!(key = %context.key(), "no use for it");
    Err(HandlerError::permanent(format!("no use for {}", context.key())))
}

async fn quick(_: Raw) {}

async fn panic(_: Raw) {
    panic!("at the disco")
}

fn main() -> ExitCode {
    let registry = Registry::new()
        .kind("block", block)
        .kind("hold", hold)
        .kind("refuse", refuse)
        .kind("panic", panic)
        .kind("quick", quick);
    gristmill_cli::main(registry)
}
