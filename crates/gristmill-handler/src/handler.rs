//! The async functions that are handlers, and what they may return.

use crate::context::Context;
use crate::delivery::{Answer, RunFuture};
use crate::error::HandlerError;
use crate::extract::{FromDelivery, Needs, Shared};
use crate::payload::FromPayload;
use gristmill_job::Effects;
use std::sync::Arc;

/// An async function or closure whose first argument is the payload, with up to four extractors behind it.
///
/// ```
/// # use gristmill_handler::{Context, HandlerError, Registry, State};
/// # use gristmill_job::Effects;
/// # struct Shop;
/// async fn reprice(price: u64, shop: State<Shop>, context: Context) -> Result<Effects, HandlerError> {
///     Ok(Effects::put(price.to_string()))
/// }
/// let registry = Registry::new().state(Shop).kind("price.changed", reprice);
/// # registry.check().unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not an async function of a payload and up to four extractors",
    note = "the first argument is the payload (`T: DeserializeOwned` or `Raw`), then come `State<S>`, `Context` or other `FromDelivery` types",
    note = "it returns `()`, `Effects`, `Result<(), E>` or `Result<Effects, E>` with `E: Into<HandlerError>`",
    note = "its future must be `Send`: nothing that is not `Send` may be held across an `.await`"
)]
pub trait Handler<Args>: Send + Sync + 'static {
    /// Names what its extractors need.
    fn needs(needs: &mut Needs);

    /// One run. All user code runs when the future is polled, none in this call.
    fn run(self: Arc<Self>, context: Context, shared: Arc<Shared>) -> RunFuture;
}

/// The one boxed future of a run: `begin` makes the arguments and calls the user's function, `end` reads what it returned.
pub(crate) fn run_user_code<Fut: Future + Send + 'static>(
    context: Context,
    shared: Arc<Shared>,
    begin: impl FnOnce(&Context, &Shared) -> Result<Fut, HandlerError> + Send + 'static,
    end: fn(Fut::Output) -> Result<Answer, HandlerError>,
) -> RunFuture {
    Box::pin(async move {
        let begun = begin(&context, &shared);
        drop(context); // a long run must not keep what its handler did not ask for
        let ended = match begun {
            Ok(future) => end(future.await),
            Err(error) => Err(error),
        };
        ended.unwrap_or_else(|error| error.into_answer(shared.classifiers()))
    })
}

macro_rules! handlers_with {
    ($($Extractor:ident),*) => {
        impl<F, Fut, T, $($Extractor),*> Handler<(T, $($Extractor,)*)> for F
        where
            F: Fn(T, $($Extractor),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            Fut::Output: IntoAnswer,
            T: FromPayload,
            $($Extractor: FromDelivery,)*
        {
            #[allow(unused_variables)]
            fn needs(needs: &mut Needs) {
                $($Extractor::needs(needs);)*
            }

            #[allow(unused_variables)]
            fn run(self: Arc<Self>, context: Context, shared: Arc<Shared>) -> RunFuture {
                let begin = move |context: &Context, shared: &Shared| {
                    let payload = T::from_payload(context)?;
                    Ok(self(payload, $($Extractor::from_delivery(context, shared)?),*))
                };
                run_user_code(context, shared, begin, |answer| answer.into_result().map(Answer::Done))
            }
        }
    };
}

handlers_with!();
handlers_with!(A);
handlers_with!(A, B);
handlers_with!(A, B, C);
handlers_with!(A, B, C, D);

/// What a handler may return: `()`, [`Effects`], `Result<(), E>`, `Result<Effects, E>` with `E: Into<HandlerError>`.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    note = "it returns `()`, `Effects`, `Result<(), E>` or `Result<Effects, E>` with `E: Into<HandlerError>`"
)]
pub trait IntoAnswer {
    /// # Errors
    /// The handler's error.
    fn into_result(self) -> Result<Effects, HandlerError>;
}

impl IntoAnswer for () {
    fn into_result(self) -> Result<Effects, HandlerError> {
        Ok(Effects::none())
    }
}

impl IntoAnswer for Effects {
    fn into_result(self) -> Result<Effects, HandlerError> {
        Ok(self)
    }
}

impl<E: Into<HandlerError>> IntoAnswer for Result<(), E> {
    fn into_result(self) -> Result<Effects, HandlerError> {
        self.map(|()| Effects::none()).map_err(Into::into)
    }
}

impl<E: Into<HandlerError>> IntoAnswer for Result<Effects, E> {
    fn into_result(self) -> Result<Effects, HandlerError> {
        self.map_err(Into::into)
    }
}
