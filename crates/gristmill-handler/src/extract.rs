//! The arguments of a handler behind its payload.

use crate::context::Context;
use crate::error::{Classifier, HandlerError};
use crate::scope::Scope;
use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

/// What a handler may take behind its payload: [`State`], [`Context`], or a type of your own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    note = "behind its payload a handler takes up to four of `State<S>`, `Context`, or types that implement `FromDelivery`"
)]
pub trait FromDelivery: Sized + Send {
    /// Makes the argument for one run.
    ///
    /// # Errors
    /// Ends the run before the handler starts; the class says whether it is tried again.
    fn from_delivery(context: &Context, shared: &Shared) -> Result<Self, HandlerError>;

    /// The same for an argument that must wait for something before the handler's first line, or that has something to do
    /// after its answer, which it leaves in `scope`. What a node calls; by default [`FromDelivery::from_delivery`].
    ///
    /// # Errors
    /// As [`FromDelivery::from_delivery`].
    fn open(
        context: &Context,
        shared: &Shared,
        scope: &mut Scope,
    ) -> impl Future<Output = Result<Self, HandlerError>> + Send {
        let _ = scope;
        std::future::ready(Self::from_delivery(context, shared))
    }

    /// Names what must be registered for it to work, so that a node refuses to start without it.
    fn needs(needs: &mut Needs) {
        let _ = needs;
    }
}

impl FromDelivery for Context {
    fn from_delivery(context: &Context, _: &Shared) -> Result<Self, HandlerError> {
        Ok(context.clone())
    }
}

/// Something all runs share, put in place by `Registry::state`: a pool, a client, a setting.
#[derive(Debug)]
pub struct State<S>(pub Arc<S>);

impl<S> Clone for State<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Deref for State<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: Send + Sync + 'static> FromDelivery for State<S> {
    fn from_delivery(_: &Context, shared: &Shared) -> Result<Self, HandlerError> {
        shared.state::<S>().map(Self).ok_or_else(|| {
            let name = type_name::<S>();
            HandlerError::permanent(format!(
                "the handler takes State<{name}>, but no `.state(…)` of that type was registered"
            ))
        })
    }

    fn needs(needs: &mut Needs) {
        needs.state::<S>();
    }
}

/// What a registry shares with every run.
#[derive(Clone, Default)]
pub struct Shared {
    states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    classifiers: Vec<Classifier>,
}

impl Shared {
    /// The state of that type, where one was registered.
    #[must_use]
    pub fn state<S: Send + Sync + 'static>(&self) -> Option<Arc<S>> {
        Arc::clone(self.states.get(&TypeId::of::<S>())?).downcast().ok()
    }

    /// Whether the type had none yet.
    pub(crate) fn add_state<S: Send + Sync + 'static>(&mut self, state: S) -> bool {
        self.states.insert(TypeId::of::<S>(), Arc::new(state)).is_none()
    }

    pub(crate) fn add_classifier(&mut self, classifier: Classifier) {
        self.classifiers.push(classifier);
    }

    pub(crate) fn classifiers(&self) -> &[Classifier] {
        &self.classifiers
    }

    pub(crate) fn lacks<'a>(&self, needs: &'a Needs) -> impl Iterator<Item = &'static str> + use<'_, 'a> {
        needs.states.iter().filter(|(id, _)| !self.states.contains_key(id)).map(|(_, name)| *name)
    }
}

/// What must be registered for a handler to work.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    states: Vec<(TypeId, &'static str)>,
}

impl Needs {
    /// A state of type `S`.
    pub fn state<S: Send + Sync + 'static>(&mut self) {
        self.states.push((TypeId::of::<S>(), type_name::<S>()));
    }
}
