//! Kinds whose jobs are handled many at a time, and what settings say of kinds.

use super::{Registry, RegistryFault, Served, UserCode};
use crate::batch::{BatchHandler, BatchOptions, Batches, Gatherer};
use crate::extract::Needs;
use gristmill_job::Limit;
use std::sync::Arc;
use std::time::Duration;

impl Registry {
    /// Serves `kind` with a handler of many jobs at a time: as many as `options` say, one answer for each.
    ///
    /// Each of them is a run of its own, with its slot, its time limits and its cancellation: their handler is told through
    /// [`Item::context`](crate::Item), and a run that is stopped is left out, or its answer dropped. Two jobs of one key are never in
    /// one batch. An error of the whole, a panic, or another number of answers is an error of each.
    #[must_use]
    pub fn batch<H, A>(mut self, kind: &'static str, options: BatchOptions, handler: H) -> Self
    where
        H: BatchHandler<A>,
        A: 'static,
    {
        let inner = Arc::make_mut(&mut self.0);
        if let Some(fault) = options.fault() {
            inner.faults.push(RegistryFault::Options { kind, fault });
        }
        let mut needs = Needs::default();
        H::needs(&mut needs);
        let gatherer = Gatherer::new(handler, &options);
        inner.batches.insert(kind, gatherer.clone());
        let run = Arc::new(move |context, shared| gatherer.clone().run::<A>(context, shared));
        self.serve_with(kind, UserCode { run, needs }, Some(options.kind_options()))
    }

    /// No batch has more jobs than this: as many as a node has slots. Tells the kinds whose batches were to be larger, and
    /// how large.
    #[must_use]
    pub fn cap_batches(&self, jobs: usize) -> Vec<(&'static str, usize)> {
        let capped = |(kind, batches): (&&'static str, &Arc<dyn Batches>)| Some((*kind, batches.cap(jobs)?));
        self.0.batches.iter().filter_map(capped).collect()
    }

    /// Tells of each batch that is handed to its handler: the kind, and how many jobs it has. Only who asks first is told.
    pub fn observe_batches(&self, told: impl Fn(&'static str, usize) + Send + Sync + 'static) {
        let told = Arc::new(told);
        for (kind, batches) in &self.0.batches {
            let (kind, told) = (*kind, told.clone());
            batches.observe(Box::new(move |jobs| told(kind, jobs)));
        }
    }

    /// Limits this kind across the fleet: what is said here, by settings, wins over its options in code. A kind that is not
    /// served here is passed over.
    #[must_use]
    pub fn limit(mut self, kind: &str, limit: Limit) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        if let Some((kind, _)) = inner.served.get_key_value(kind) {
            match limit.fault() {
                Some(fault) => inner.faults.push(RegistryFault::Options { kind, fault }),
                None => drop(inner.limits.insert(kind, limit)),
            }
        }
        self
    }

    /// Jobs of this kind that say nothing themselves expire so long after they became ready: what is said here, by settings,
    /// wins over its options in code. A kind that is not served here is passed over.
    #[must_use]
    pub fn expire(mut self, kind: &str, limit: Duration) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        if let Some((&kind, _)) = inner.served.get_key_value(kind)
            && let Some(served) = inner.served.get_mut(kind)
        {
            let options = served.options.as_deref().cloned().unwrap_or_default().expires_in(limit);
            if let Some(fault) = options.fault() {
                inner.faults.push(RegistryFault::Options { kind, fault });
            }
            served.options = Some(Arc::new(options));
        }
        self
    }

    /// The kinds that are limited across the fleet, and to what.
    pub fn limits(&self) -> impl Iterator<Item = (&'static str, Limit)> {
        let of = |(kind, served): (&&'static str, &Served)| (*kind, self.limit_of(kind, served));
        self.0.served.iter().map(of).filter(|(_, limit)| !limit.is_none())
    }

    pub(super) fn limit_of(&self, kind: &str, served: &Served) -> Limit {
        let said = self.0.limits.get(kind).copied().unwrap_or_default();
        let code = served.options.as_ref().map(|options| options.limit()).unwrap_or_default();
        Limit { max_running: said.max_running.or(code.max_running), rate: said.rate.or(code.rate) }
    }
}
