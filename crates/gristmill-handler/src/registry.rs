//! Which handler serves which kind, and how a delivery becomes a run.

use crate::context::Context;
use crate::delivery::{Delivery, Facts, RunFuture, Started};
use crate::error::{Classify, capped, classifier};
use crate::extract::{Needs, Shared};
use crate::handler::Handler;
use crate::options::KindOptions;
use gristmill_job::{DeadReason, Envelope, Kind, NameError};
use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Handlers by kind, with the state they share. Clones are cheap.
///
/// Building it never fails; [`Registry::check`] tells everything that is wrong with it at once.
#[derive(Clone, Default)]
pub struct Registry(Arc<Inner>);

#[derive(Clone, Default)]
struct Inner {
    served: BTreeMap<&'static str, Served>,
    shared: Arc<Shared>,
    faults: Vec<RegistryFault>,
}

#[derive(Clone)]
struct Served {
    run: Arc<dyn Fn(Context, Arc<Shared>) -> RunFuture + Send + Sync>,
    needs: Needs,
    options: Option<Arc<KindOptions>>,
}

impl Registry {
    /// Serves nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Shares `state` with every handler that takes `State<S>`; one per type.
    #[must_use]
    pub fn state<S: Send + Sync + 'static>(mut self, state: S) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        if !Arc::make_mut(&mut inner.shared).add_state(state) {
            inner.faults.push(RegistryFault::StateTwice(type_name::<S>()));
        }
        self
    }

    /// Makes every error of type `E` say its class itself, also one that `?` turned into a `HandlerError`, or that is a
    /// source of another error. A class that was given at the place (`.transient()?`) stays.
    #[must_use]
    pub fn classify<E: Classify>(mut self) -> Self {
        Arc::make_mut(&mut Arc::make_mut(&mut self.0).shared).add_classifier(classifier::<E>);
        self
    }

    /// Serves `kind` with `handler`. The kind is a constant of the protocol: renaming it strands the jobs that wait.
    #[must_use]
    pub fn kind<H, A>(self, kind: &'static str, handler: H) -> Self
    where
        H: Handler<A>,
    {
        self.serve(kind, handler, None)
    }

    /// The same, with a retry policy or limits of its own.
    #[must_use]
    pub fn kind_with<H, A>(self, kind: &'static str, options: KindOptions, handler: H) -> Self
    where
        H: Handler<A>,
    {
        self.serve(kind, handler, Some(options))
    }

    fn serve<H, A>(mut self, kind: &'static str, handler: H, options: Option<KindOptions>) -> Self
    where
        H: Handler<A>,
    {
        let inner = Arc::make_mut(&mut self.0);
        if let Err(error) = Kind::new(kind) {
            inner.faults.push(RegistryFault::Name(error));
        } else if inner.served.contains_key(kind) {
            inner.faults.push(RegistryFault::KindTwice(kind));
        } else if let Some(fault) = options.as_ref().and_then(KindOptions::fault) {
            inner.faults.push(RegistryFault::Options { kind, fault });
        } else {
            let mut needs = Needs::default();
            H::needs(&mut needs);
            let handler = Arc::new(handler);
            let run = Arc::new(move |context, shared| Arc::clone(&handler).run(context, shared));
            inner.served.insert(kind, Served { run, needs, options: options.map(Arc::new) });
        }
        self
    }

    /// The kinds it serves, sorted.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.served.keys().copied()
    }

    /// Whether it serves `kind`.
    #[must_use]
    pub fn serves(&self, kind: &str) -> bool {
        self.0.served.contains_key(kind)
    }

    /// Whether it can be used; asked once, when a node starts.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn check(&self) -> Result<(), RegistryError> {
        let missing = self.0.served.iter().flat_map(|(kind, served)| {
            self.0.shared.lacks(&served.needs).map(|state| RegistryFault::StateMissing { kind, state })
        });
        let faults: Vec<RegistryFault> = self.0.faults.iter().cloned().chain(missing).collect();
        if faults.is_empty() { Ok(()) } else { Err(RegistryError { faults }) }
    }

    /// Decodes the envelope, finds the handler, and returns the run. The payload is decoded, and all user code runs,
    /// when that future is polled. `max_envelope_bytes` is the queue's limit.
    #[must_use]
    pub fn start(&self, delivery: Delivery, max_envelope_bytes: usize) -> Started {
        let envelope = match Envelope::decode(&delivery.envelope, max_envelope_bytes) {
            Ok(envelope) => envelope,
            Err(error) => {
                let (reason, error) = (DeadReason::Undecodable, capped(error));
                return Started::Refused { reason, error, facts: Facts::UNREADABLE };
            }
        };
        let mut facts = Facts {
            version: envelope.version,
            own_id: envelope.own_id,
            max_attempts: envelope.limits.max_attempts,
            kind: None,
            options: None,
        };
        let Some((kind, served)) = self.0.served.get_key_value(envelope.kind) else {
            let (reason, error) = (DeadReason::UnknownKind, self.unknown_kind(envelope.kind));
            return Started::Refused { reason, error, facts };
        };
        facts.kind = Some(kind);
        facts.options.clone_from(&served.options);
        // The payload lies inside the envelope; as a range it needs neither a copy nor one more count of references.
        let at = (envelope.payload.as_ptr().addr()).saturating_sub(delivery.envelope.as_ptr().addr());
        let payload = at..at + envelope.payload.len();
        let content_type = envelope.content_type;
        let context = Context::new(delivery, kind, facts.version, content_type, payload);
        Started::Run { future: (served.run)(context, Arc::clone(&self.0.shared)), facts }
    }

    fn unknown_kind(&self, kind: &str) -> String {
        let shown: String = kind.chars().take(80).collect();
        let served = self.kinds().collect::<Vec<_>>().join(", ");
        capped(format_args!(
            "no handler here serves the kind {shown:?}; served are: {served}. Register it, then replay"
        ))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("kinds", &self.kinds().collect::<Vec<_>>())
            .field("faults", &self.0.faults)
            .finish_non_exhaustive()
    }
}

/// Why a registry cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryError {
    /// What is wrong with it; never empty.
    pub faults: Vec<RegistryFault>,
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the handlers cannot be used: ")?;
        for (n, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for RegistryError {}

/// One thing that is wrong with a registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryFault {
    /// A kind outside its limits.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Two handlers for one kind.
    #[error("kind {0:?} is registered twice; a kind has one handler")]
    KindTwice(&'static str),
    /// Options that contradict each other.
    #[error("kind {kind:?}: {fault}")]
    Options {
        /// The kind they are for.
        kind: &'static str,
        /// What is wrong.
        fault: &'static str,
    },
    /// Two states of one type.
    #[error("state {0} is registered twice; give one of them a type of its own")]
    StateTwice(&'static str),
    /// A handler that takes a state which is not there.
    #[error("the handler of kind {kind:?} takes State<{state}>; register one with `.state(…)`")]
    StateMissing {
        /// The kind it serves.
        kind: &'static str,
        /// The state's type.
        state: &'static str,
    },
}
