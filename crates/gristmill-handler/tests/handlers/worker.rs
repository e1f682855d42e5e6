//! A worker as a user writes it: twenty lines, compiled and run.

use crate::fixture::{delivery, done, failed, job};
use gristmill_job::{Effects, EntityChange, ErrorClass};

mod shop {
    use gristmill_handler::{Context, HandlerError, Registry, State, WithClass};
    use gristmill_job::Effects;

    #[derive(serde::Deserialize)]
    struct PriceChanged {
        sku: String,
        cents: u64,
    }

    struct Currency(&'static str);

    async fn reprice(
        event: PriceChanged,
        currency: State<Currency>,
        context: Context,
    ) -> Result<Effects, HandlerError> {
        let cents = u32::try_from(event.cents).permanent()?;
        if context.is_cancelled() {
            return Err(HandlerError::transient("asked to stop before the work began"));
        }
        Ok(Effects::put(format!("{} costs {} {cents}, v{}", event.sku, currency.0.0, context.version())))
    }

    pub(super) fn handlers() -> Registry {
        Registry::new().state(Currency("EUR")).kind("price.changed", reprice)
    }
}

#[tokio::test]
async fn twenty_lines_are_a_worker() {
    let handlers = shop::handlers();
    handlers.check().unwrap();
    let event =
        |cents: u64| delivery(job("price.changed", &serde_json::json!({ "sku": "apple", "cents": cents })));
    let effects: Effects = done(&handlers, event(120)).await;
    assert_eq!(effects.entity, Some(EntityChange::Put("apple costs EUR 120, v7".into())));
    let failure = failed(&handlers, event(u64::MAX)).await;
    assert_eq!(failure.class, ErrorClass::Permanent);
    let stopped = event(120);
    stopped.cancellation.hard();
    assert_eq!(failed(&handlers, stopped).await.class, ErrorClass::Transient);
}
