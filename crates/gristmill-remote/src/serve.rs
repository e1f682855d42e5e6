//! Kinds of a configuration as handlers: places, limits, and what a run is given.

use crate::config::{ConfigError, Form, KindConfig, Limits, Way};
use crate::exec::Exec;
use crate::http::Http;
use crate::lines::Lines;
use crate::outcome::Said;
use crate::told::Told;
use bytes::Bytes;
use gristmill_handler::{Context, FromPayload, HandlerError, KindOptions, Raw, Registry};
use gristmill_job::{ContentType, Effects};
use std::fmt;
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Kinds that are served from outside.
#[derive(Clone, Default)]
pub struct Remote(Arc<Vec<Arc<Served>>>);

struct Served {
    config: KindConfig,
    side: Side,
    places: Option<Semaphore>,
}

/// Who does the work.
enum Side {
    Http(Box<Http>),
    Exec(Exec),
    Lines(Lines),
}

/// One run, as the other side is to get it.
pub(crate) struct Job {
    pub(crate) told: Told,
    pub(crate) payload: Bytes,
    pub(crate) context: Context,
    pub(crate) limits: Limits,
    /// When it began.
    pub(crate) at: Instant,
}

impl Remote {
    /// Checks every kind, looks for its program or reads its certificates; connects to nothing and starts nothing.
    ///
    /// # Errors
    /// The first kind that cannot be served so.
    pub fn new(kinds: Vec<KindConfig>) -> Result<Self, ConfigError> {
        let served = kinds.into_iter().map(|config| Served::new(config).map(Arc::new));
        Ok(Self(Arc::new(served.collect::<Result<_, _>>()?)))
    }

    /// Whether it serves nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What it serves, and how.
    pub fn kinds(&self) -> impl Iterator<Item = &KindConfig> {
        self.0.iter().map(|served| &served.config)
    }

    /// Adds its kinds. Each call leaks their names, which a registry wants for as long as the program lives: call it once.
    #[must_use]
    pub fn add_to(&self, mut registry: Registry) -> Registry {
        for served in self.0.iter() {
            let kind: &'static str = Box::leak(served.config.kind.clone().into_boxed_str());
            let served = Arc::clone(served);
            let Limits { soft, hard } = served.config.limits;
            // Those of the node would count the wait for a place, too.
            let mut options = KindOptions::new().keeps_limits(soft, hard);
            if served.config.review {
                options = options.review();
            }
            registry = registry.kind_with(kind, options, move |payload: Raw, context: Context| {
                let served = Arc::clone(&served);
                async move { served.run(payload, context).await }
            });
        }
        registry
    }

    /// Ends the processes that stay and have nothing to do: their standard input is closed, and who has not left in
    /// two seconds is killed. For when no run is left.
    pub async fn close(&self) {
        let mut closing = Vec::new();
        for served in self.0.iter() {
            if let Side::Lines(lines) = &served.side {
                closing.extend(lines.dismiss());
            }
        }
        for farewell in closing {
            let _ = farewell.await;
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|served| &served.config)).finish()
    }
}

impl Served {
    fn new(config: KindConfig) -> Result<Self, ConfigError> {
        let fault =
            |(setting, expected, got)| ConfigError { kind: config.kind.clone(), setting, expected, got };
        if let Some(wrong) = config.fault() {
            return Err(fault(wrong));
        }
        let side = match &config.way {
            Way::Http(http) => Side::Http(Box::new(Http::new(http, config.max_answer_bytes).map_err(fault)?)),
            Way::Exec(exec) => {
                let once = Exec::new(exec, &config.kind, config.max_answer_bytes).map_err(fault)?;
                match exec.form {
                    Form::Once => Side::Exec(once),
                    Form::Lines => Side::Lines(Lines::new(once)),
                }
            }
        };
        let places = config.concurrency.map(|most| Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        Ok(Self { side, places, config })
    }

    async fn run(&self, payload: Raw, context: Context) -> Result<Effects, HandlerError> {
        let (payload, content_type) = self.payload(payload, &context)?;
        let _place = self.place(&context).await?;
        let limits = self.config.limits;
        let told = Told::of(&context, content_type, limits.hard);
        let job = Job { told, payload, context, limits, at: Instant::now() };
        match &self.side {
            Side::Http(http) => http.run(job).await,
            Side::Exec(exec) => exec.run(job).await,
            Side::Lines(lines) => lines.run(job).await,
        }
    }

    fn payload(&self, payload: Raw, context: &Context) -> Result<(Bytes, ContentType), HandlerError> {
        if !self.config.as_json || payload.content_type == ContentType::Json {
            return Ok((payload.bytes, payload.content_type));
        }
        let value = serde_json::Value::from_payload(context)?;
        let text = serde_json::to_vec(&value).map_err(HandlerError::permanent)?;
        Ok((text.into(), ContentType::Json))
    }

    /// A place among the runs of this kind.
    async fn place(&self, context: &Context) -> Result<Option<SemaphorePermit<'_>>, HandlerError> {
        let Some(places) = &self.places else { return Ok(None) };
        tokio::select! {
            // It is never closed.
            place = places.acquire() => Ok(place.ok()),
            () = context.cancelled() => {
                Err(HandlerError::transient(Said::new("asked to stop before it had a place to run")))
            }
        }
    }
}
