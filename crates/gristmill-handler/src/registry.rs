//! Which handler serves which kind, and how a delivery becomes a run.

mod bounds;

use crate::batch::Batches;
use crate::context::Context;
use crate::delivery::{Answer, Delivery, Facts, RunFuture, Started};
use crate::error::{Classifier, Classify, capped, classifier};
use crate::extract::{Needs, Shared};
use crate::handler::Handler;
use crate::options::KindOptions;
use crate::reconcile::Look;
use crate::redelivery::{DeliverySemantics, KindDescription, Redelivery, Rule};
use gristmill_job::{DeadReason, Envelope, Kind, Limit, NameError};
use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Handlers by kind, with the state they share. Clones are cheap.
///
/// Building it never fails; [`Registry::check`] tells everything that is wrong with it at once.
#[derive(Clone, Default)]
pub struct Registry(Arc<Inner>);

#[derive(Clone, Default)]
struct Inner {
    served: BTreeMap<&'static str, Served>,
    looks: BTreeMap<&'static str, UserCode>,
    shared: Arc<Shared>,
    /// The kinds whose jobs are handled many at a time.
    batches: BTreeMap<&'static str, Arc<dyn Batches>>,
    /// What settings say of kinds.
    limits: BTreeMap<&'static str, Limit>,
    faults: Vec<RegistryFault>,
    /// Whether any kind is not as every kind is by default.
    ruled: bool,
}

#[derive(Clone)]
struct UserCode {
    run: Arc<dyn Fn(Context, Arc<Shared>) -> RunFuture + Send + Sync>,
    needs: Needs,
}

#[derive(Clone)]
struct Served {
    handler: UserCode,
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

    /// Whether a state of that type is registered.
    #[must_use]
    pub fn has_state<S: Send + Sync + 'static>(&self) -> bool {
        self.0.shared.state::<S>().is_some()
    }

    /// Makes every error of type `E` say its class itself, also one that `?` turned into a `HandlerError`, or that is a
    /// source of another error. A class that was given at the place (`.transient()?`) stays.
    #[must_use]
    pub fn classify<E: Classify>(self) -> Self {
        self.classify_by(classifier::<E>)
    }

    /// The same by a function, for errors of another crate, which cannot implement [`Classify`] here.
    #[must_use]
    pub fn classify_by(mut self, classifier: Classifier) -> Self {
        Arc::make_mut(&mut Arc::make_mut(&mut self.0).shared).add_classifier(classifier);
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

    fn serve<H, A>(self, kind: &'static str, handler: H, options: Option<KindOptions>) -> Self
    where
        H: Handler<A>,
    {
        let mut needs = Needs::default();
        H::needs(&mut needs);
        let handler = Arc::new(handler);
        let run = Arc::new(move |context, shared| Arc::clone(&handler).run(context, shared));
        self.serve_with(kind, UserCode { run, needs }, options)
    }

    fn serve_with(mut self, kind: &'static str, handler: UserCode, options: Option<KindOptions>) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        if let Err(error) = Kind::new(kind) {
            inner.faults.push(RegistryFault::Name(error));
        } else if inner.served.contains_key(kind) {
            inner.faults.push(RegistryFault::KindTwice(kind));
        } else {
            if let Some(fault) = options.as_ref().and_then(KindOptions::fault) {
                inner.faults.push(RegistryFault::Options { kind, fault });
            }
            inner.ruled |=
                options.as_ref().is_some_and(|o| o.review || o.at_most_once || o.crash_budget.is_some());
            inner.served.insert(kind, Served { handler, options: options.map(Arc::new) });
        }
        self
    }

    /// After an interrupted run of `kind`, `look` says whether its work was done; see [`Redelivery`]. Before or after the
    /// kind itself is registered.
    #[must_use]
    pub fn reconcile<L, A>(mut self, kind: &'static str, look: L) -> Self
    where
        L: Look<A>,
    {
        let inner = Arc::make_mut(&mut self.0);
        if let Err(error) = Kind::new(kind) {
            inner.faults.push(RegistryFault::Name(error));
        } else if inner.looks.contains_key(kind) {
            inner.faults.push(RegistryFault::ReconcileTwice(kind));
        } else {
            let mut needs = Needs::default();
            L::needs(&mut needs);
            let look = Arc::new(look);
            let run = Arc::new(move |context, shared| Arc::clone(&look).look(context, shared));
            inner.looks.insert(kind, UserCode { run, needs });
            inner.ruled = true;
        }
        self
    }

    /// The kinds it serves, sorted.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
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
        let handlers = self.0.served.iter().map(|(kind, served)| (kind, &served.handler));
        let missing = handlers.chain(&self.0.looks).flat_map(|(kind, code)| {
            self.0.shared.lacks(&code.needs).map(|state| RegistryFault::StateMissing { kind, state })
        });
        let looks = self.0.looks.keys().filter_map(|kind| match self.0.served.get(kind) {
            None => Some(RegistryFault::ReconcileUnserved(kind)),
            Some(served) => {
                let options = served.options.as_ref()?;
                let word = match (options.review, options.at_most_once) {
                    (true, _) => "review",
                    (_, true) => "at_most_once",
                    _ => return None,
                };
                Some(RegistryFault::ReconcileExcluded { kind, word })
            }
        });
        let mut faults: Vec<RegistryFault> = Vec::new();
        for fault in self.0.faults.iter().cloned().chain(looks).chain(missing) {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(RegistryError { faults }) }
    }

    /// Whether any kind has a rule of its own, so that [`Registry::rule`] is worth a question. Costs nothing.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.0.ruled
    }

    /// What is to be heeded before the job of this envelope is started. Reads no more of it than its kind, copies
    /// nothing. `max_envelope_bytes` is the queue's limit.
    #[must_use]
    pub fn rule(&self, envelope: &[u8], max_envelope_bytes: usize) -> Rule {
        match Envelope::kind_of(envelope, max_envelope_bytes) {
            Some(kind) => match self.0.served.get(kind) {
                Some(served) => self.rule_of(kind, served),
                None => Rule { served: false, ..Rule::default() },
            },
            None => Rule::default(),
        }
    }

    /// How long after it became ready the job of this envelope may start: as it says, or as its kind does. Copies nothing.
    #[must_use]
    pub fn expires_in(&self, envelope: &[u8], max_envelope_bytes: usize) -> Option<Duration> {
        let of_kind = || {
            let kind = Envelope::kind_of(envelope, max_envelope_bytes)?;
            self.0.served.get(kind)?.options.as_deref()?.expires_in
        };
        Envelope::expires_in(envelope, max_envelope_bytes).or_else(of_kind)
    }

    fn rule_of(&self, kind: &str, served: &Served) -> Rule {
        let options = served.options.as_deref();
        let redelivery = match options {
            _ if self.0.looks.contains_key(kind) => Redelivery::Reconcile,
            Some(options) if options.review => Redelivery::Review,
            _ => Redelivery::Rerun,
        };
        let delivery = match options {
            Some(options) if options.at_most_once => DeliverySemantics::AtMostOnce,
            _ => DeliverySemantics::AtLeastOnce,
        };
        Rule { redelivery, delivery, served: true, crash_budget: options.and_then(|o| o.crash_budget) }
    }

    /// What there is to know about each kind it serves, sorted by kind.
    #[must_use]
    pub fn describe(&self) -> Vec<KindDescription> {
        let ms = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let describe = |(kind, served): (&&'static str, &Served)| {
            let Rule { redelivery, delivery, crash_budget, .. } = self.rule_of(kind, served);
            let options = served.options.as_deref();
            let kept = options.and_then(|options| options.kept_limits).map(|(soft, hard)| (soft, Some(hard)));
            let (soft, hard) = kept.or_else(|| options.map(KindOptions::limits)).unwrap_or_default();
            let policy = options.and_then(KindOptions::retry_policy);
            KindDescription {
                kind: (*kind).to_owned(),
                redelivery,
                delivery,
                max_attempts: policy.map(|policy| policy.max_attempts),
                crash_budget,
                soft_limit_ms: soft.map(ms),
                hard_limit_ms: hard.map(ms),
                limit: Some(self.limit_of(kind, served)).filter(|it| !it.is_none()).map(|it| it.stored()),
            }
        };
        self.0.served.iter().map(describe).collect()
    }

    /// Decodes the envelope, finds the handler, and returns the run. The payload is decoded, and all user code runs,
    /// when that future is polled. `max_envelope_bytes` is the queue's limit.
    ///
    /// A delivery with `reconcile` looks instead ([`Registry::reconcile`]). Where its kind has no look, a handler that may
    /// be repeated runs; of a kind that says `review`, the run answers so.
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
        let reconcile = delivery.reconcile;
        let context = Context::new(delivery, kind, facts.version, content_type, payload);
        let look = self.0.looks.get(kind).filter(|_| reconcile);
        let shared = Arc::clone(&self.0.shared);
        let future = match (look, served.options.as_deref()) {
            (Some(look), _) => (look.run)(context, shared),
            (None, Some(options)) if reconcile && options.review => {
                let why = "an earlier run was interrupted, and its kind says that a person decides then";
                Box::pin(std::future::ready(Answer::Review(why.into())))
            }
            (None, _) => (served.handler.run)(context, shared),
        };
        Started::Run { future, facts }
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
    /// Looks for a kind without a handler.
    #[error("`reconcile` names kind {0:?}, which has no handler; register it with `.kind(…)`")]
    ReconcileUnserved(&'static str),
    /// Two looks for one kind.
    #[error("kind {0:?} has two functions for `reconcile`; keep one")]
    ReconcileTwice(&'static str),
    /// A look for a kind whose interrupted runs are never looked at.
    #[error(
        "kind {kind:?} has a function for `reconcile`, but its options say `{word}`, under which it is never asked; \
         keep one of the two"
    )]
    ReconcileExcluded {
        /// The kind it is for.
        kind: &'static str,
        /// What its options say.
        word: &'static str,
    },
    /// A handler, or a function for `reconcile`, that takes a state which is not there.
    #[error("the handler of kind {kind:?} takes State<{state}>; register one with `.state(…)`")]
    StateMissing {
        /// The kind it serves.
        kind: &'static str,
        /// The state's type.
        state: &'static str,
    },
}
