//! Looking whether an interrupted run did its work.

use crate::context::Context;
use crate::delivery::{Answer, RunFuture};
use crate::error::{HandlerError, capped};
use crate::extract::{FromDelivery, Needs, Shared};
use crate::handler::run_user_code;
use crate::payload::FromPayload;
use gristmill_job::Effects;
use std::sync::Arc;

/// What a look at an interrupted run found.
#[derive(Debug, Clone)]
pub enum Reconciled {
    /// The work is done: these effects are written, and the job is acknowledged.
    Done(Effects),
    /// The work was not done: the handler runs, with nothing charged.
    RunAgain,
    /// It cannot be told: a dead letter `review` with this reason, for a person.
    AskAPerson(String),
}

/// An async function or closure that looks whether an interrupted run did its work. Arguments as a
/// [`Handler`](crate::Handler) has them: the payload, and up to four extractors.
///
/// ```
/// # use gristmill_handler::{Context, HandlerError, Reconciled, Registry, State};
/// # use gristmill_job::Effects;
/// # struct Bank;
/// # impl Bank {
/// #     async fn pay(&self, key: String, cents: u64) -> Result<(), HandlerError> { Ok(()) }
/// #     async fn find(&self, key: String) -> Result<Option<u64>, HandlerError> { Ok(None) }
/// # }
/// async fn pay(cents: u64, bank: State<Bank>, context: Context) -> Result<(), HandlerError> {
///     bank.pay(context.idempotency_key(), cents).await
/// }
///
/// async fn paid(cents: u64, bank: State<Bank>, context: Context) -> Result<Reconciled, HandlerError> {
///     Ok(match bank.find(context.idempotency_key()).await? {
///         Some(booked) if booked == cents => Reconciled::Done(Effects::none()),
///         Some(booked) => Reconciled::AskAPerson(format!("{cents} were to be paid, {booked} are booked")),
///         None => Reconciled::RunAgain,
///     })
/// }
/// let registry = Registry::new().state(Bank).kind("pay", pay).reconcile("pay", paid);
/// # registry.check().unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot look at interrupted runs",
    label = "not an async function of a payload and up to four extractors that returns `Result<Reconciled, E>`",
    note = "the first argument is the payload (`T: DeserializeOwned` or `Raw`), then come `State<S>`, `Context` or other `FromDelivery` types",
    note = "it returns `Result<Reconciled, E>` with `E: Into<HandlerError>`, and its future must be `Send`"
)]
pub trait Look<Args>: Send + Sync + 'static {
    /// Names what its extractors need.
    fn needs(needs: &mut Needs);

    /// One look. All user code runs when the future is polled, none in this call.
    fn look(self: Arc<Self>, context: Context, shared: Arc<Shared>) -> RunFuture;
}

macro_rules! looks_with {
    ($($Extractor:ident),*) => {
        impl<F, Fut, E, T, $($Extractor),*> Look<(T, $($Extractor,)*)> for F
        where
            F: Fn(T, $($Extractor),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<Reconciled, E>> + Send + 'static,
            E: Into<HandlerError>,
            T: FromPayload + Send,
            $($Extractor: FromDelivery,)*
        {
            #[allow(unused_variables)]
            fn needs(needs: &mut Needs) {
                $($Extractor::needs(needs);)*
            }

            #[allow(unused_variables)]
            fn look(self: Arc<Self>, context: Context, shared: Arc<Shared>) -> RunFuture {
                run_user_code!(self, context, shared, T, ($($Extractor),*), |found: Result<Reconciled, E>| found
                    .map(into_answer)
                    .map_err(Into::into))
            }
        }
    };
}

looks_with!();
looks_with!(A);
looks_with!(A, B);
looks_with!(A, B, C);
looks_with!(A, B, C, D);

fn into_answer(found: Reconciled) -> Answer {
    match found {
        Reconciled::Done(effects) => Answer::Done(effects),
        Reconciled::RunAgain => Answer::RunAgain,
        Reconciled::AskAPerson(reason) => Answer::Review(capped(reason)),
    }
}
