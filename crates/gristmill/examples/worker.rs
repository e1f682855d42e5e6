//! A worker is the whole command line with handlers of its own: `worker node --queues prices:8`, `worker --help`.

use gristmill::{Context, Effects, HandlerError, Registry, WithClass};
use std::process::ExitCode;

#[derive(serde::Deserialize)]
struct PriceChanged {
    sku: String,
    cents: i64,
}

async fn reprice(price: PriceChanged, context: Context) -> Result<Effects, HandlerError> {
    let cents = u32::try_from(price.cents).permanent()?; // no retry helps: a dead letter
    let state = format!("{} costs {cents} cents, says event {}", price.sku, context.version());
    Ok(Effects::put(state)) // written once, together with the acknowledgement
}

fn main() -> ExitCode {
    gristmill::main(Registry::new().kind("price.changed", reprice))
}
