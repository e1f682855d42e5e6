//! Product updates of a shop: each event once, each product at its newest version, in two tables that two languages keep.
//!
//! ```text
//! queue shop ─▶ product.changed (here) ─▶ product, change, inbox, outbox ─(relay)─▶ queue catalogue ─▶ catalogue.update (Python)
//! ```
//!
//! Events come doubled, late, and in the middle of a deploy. What holds all the same, and why, is told in README.md.

use gristmill::postgres::{Tx, sqlx};
use gristmill::{Context, HandlerError, NewJob, QueueName, Registry, WithClass};
use std::process::ExitCode;

#[derive(serde::Deserialize, serde::Serialize)]
struct Product {
    cents: i64,
}

async fn product_changed(product: Product, mut tx: Tx, context: Context) -> Result<(), HandlerError> {
    let (sku, version) = (tx.key_text()?.to_owned(), tx.version()?);
    let put = sqlx::query(
        "insert into product (sku, version, cents) values ($1, $2, $3)
         on conflict (sku) do update set version = excluded.version, cents = excluded.cents
         where product.version < excluded.version",
    );
    tx.newer(put.bind(&sku).bind(version).bind(product.cents)).await?; // not newer: the job ends as stale
    let note = sqlx::query("insert into change (sku, version, cents) values ($1, $2, $3)");
    note.bind(&sku).bind(version).bind(product.cents).execute(&mut *tx).await?;

    // An id that follows from the event's: whoever asks for it again asks for the same job.
    let update = NewJob::new("catalogue.update", sku, &product).permanent()?;
    let update = update.with_id(&format!("catalogue of {}", context.id())).permanent()?;
    tx.emit(&QueueName::new("catalogue").permanent()?, update.with_version(context.version())).await?;
    Ok(()) // the node commits: products, the inbox row and the outbox row together
}

fn main() -> ExitCode {
    gristmill::main(Registry::new().kind("product.changed", product_changed))
}
