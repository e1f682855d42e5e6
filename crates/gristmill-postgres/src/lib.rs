//! Effects in Postgres, once: a job's writes, the note that it had them (inbox) and the jobs that follow from it (outbox)
//! commit in one transaction. The acknowledgement comes after and may be lost at no cost.
//!
//! In reading order:
//!
//! * [`database`]: where it is, and how its connections are shared.
//! * `held`: a run's transaction, and its connection on the way to the next run.
//! * [`tx`]: the transaction as an argument of a handler; the node commits or rolls back, the handler cannot forget it.
//! * [`classes`]: which errors pass by themselves.
//! * [`relay`]: committed outbox rows become jobs, in order per key.
//! * [`inbox`]: pruning by age.
//! * [`look`]: how inbox and outbox stand, for people and metrics.
//! * [`migration`]: the tables, in the schema `gristmill`.
//!
//! ```no_run
//! use gristmill_handler::{HandlerError, Registry};
//! use gristmill_postgres::{Database, Tx, sqlx};
//!
//! async fn reprice(cents: i64, mut tx: Tx) -> Result<(), HandlerError> {
//!     let (sku, version) = (tx.key_text()?.to_owned(), tx.version()?);
//!     let put = sqlx::query(
//!         "insert into product (sku, version, cents) values ($1, $2, $3)
//!          on conflict (sku) do update set version = excluded.version, cents = excluded.cents
//!          where product.version < excluded.version",
//!     );
//!     tx.newer(put.bind(sku).bind(version).bind(cents)).await?;
//!     Ok(())
//! }
//!
//! # fn registry() -> Result<Registry, gristmill_postgres::DatabaseError> {
//! let shop = Database::new("postgres://shop@db/shop")?;
//! Ok(Registry::new().state(shop).kind("price.changed", reprice))
//! # }
//! ```
//!
//! Invariants: nothing commits but the end of a run that answered well, and only with its inbox row; a row leaves the
//! outbox only after its job was accepted; rows of one key are enqueued in their order, however many relays run.

pub mod classes;
pub mod database;
mod held;
pub mod inbox;
pub mod look;
pub mod migration;
pub mod relay;
pub mod tx;

pub use classes::classify;
pub use database::{Database, DatabaseError, Isolation};
pub use inbox::prune;
pub use look::{LookError, Probe, Standing};
pub use migration::migrate;
pub use relay::{Relay, RelayCounts};
/// The client library, in the version that [`Tx`] is of.
pub use sqlx;
pub use tx::Tx;
