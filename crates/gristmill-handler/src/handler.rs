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

/// The one boxed future of a run: makes the arguments, calls the user's function, reads what it returned, and lets what the
/// arguments left in the scope have the last word.
macro_rules! run_user_code {
    ($function:expr, $context:ident, $shared:ident, $Payload:ident, ($($Extractor:ident),*), $end:expr) => {
        Box::pin(async move {
            #[allow(unused_mut, reason = "nothing opens it where there are no extractors")]
            let mut scope = $crate::scope::Scope::default();
            let begun = $crate::handler::begin!($function, &$context, &$shared, &mut scope, $Payload, ($($Extractor),*));
            drop($context); // a long run must not keep what its handler did not ask for
            let ended: Result<Answer, HandlerError> = match begun {
                Ok(future) => ($end)(future.await),
                Err(error) => Err(error),
            };
            scope.close(ended).await.unwrap_or_else(|error| error.into_answer($shared.classifiers()))
        })
    };
}

/// The payload is decoded first: what cannot be read opens nothing.
macro_rules! begin {
    ($function:expr, $context:expr, $shared:expr, $scope:expr, $Payload:ident, ($($Extractor:ident),*)) => {
        async {
            let payload = $Payload::from_payload($context)?;
            Ok::<_, HandlerError>($function(payload, $($Extractor::open($context, $shared, $scope).await?),*))
        }
        .await
    };
}

pub(crate) use {begin, run_user_code};

macro_rules! handlers_with {
    ($($Extractor:ident),*) => {
        impl<F, Fut, T, $($Extractor),*> Handler<(T, $($Extractor,)*)> for F
        where
            F: Fn(T, $($Extractor),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            Fut::Output: IntoAnswer,
            T: FromPayload + Send,
            $($Extractor: FromDelivery,)*
        {
            #[allow(unused_variables)]
            fn needs(needs: &mut Needs) {
                $($Extractor::needs(needs);)*
            }

            #[allow(unused_variables)]
            fn run(self: Arc<Self>, context: Context, shared: Arc<Shared>) -> RunFuture {
                run_user_code!(self, context, shared, T, ($($Extractor),*), |answer: Fut::Output| answer
                    .into_result()
                    .map(Answer::Done))
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
