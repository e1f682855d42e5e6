//! A handler of many jobs at a time: one write to a search index for up to a hundred of them.

use gristmill::{BatchOptions, HandlerError, Item, KindOptions, Rate, Registry, State};
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize)]
struct Product {
    name: String,
}

struct Index;

impl Index {
    /// Which of them were taken.
    async fn write(&self, names: &[&str]) -> Result<Vec<bool>, std::io::Error> {
        Ok(names.iter().map(|name| !name.is_empty()).collect())
    }
}

async fn index(
    products: Vec<Item<Product>>,
    index: State<Index>,
) -> Result<Vec<Result<(), HandlerError>>, HandlerError> {
    let names: Vec<&str> = products.iter().map(|product| product.payload.name.as_str()).collect();
    // An error here is one of each job: all of them are tried again.
    let taken = index.write(&names).await?;
    // One answer for each, in their order.
    let answer =
        |taken| if taken { Ok(()) } else { Err(HandlerError::permanent("a product without a name")) };
    Ok(taken.into_iter().map(answer).collect())
}

fn main() -> std::process::ExitCode {
    let limited = KindOptions::new().rate(Rate::per_second(1000));
    let options = BatchOptions::new(100, Duration::from_millis(20)).kind(limited);
    gristmill::main(Registry::new().state(Index).batch("product.changed", options, index))
}
