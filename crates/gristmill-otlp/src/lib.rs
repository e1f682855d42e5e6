//! Takes spans, and metrics where that is asked for, to a collector by OTLP: over gRPC, or HTTP with protobuf. Where to is said
//! by OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, …) and by nothing else.
//!
//! ```text
//!   attempts ──▶ queue of Traces (bounded) ──▶ a thread of its own ──▶ collector
//!                     └─ full: dropped, counted     └─ not taken after its tries: dropped, counted
//! ```
//!
//! The thread has a runtime of its own, on which everything of the transport is made and lives: neither a runtime that is
//! starved nor one that ends takes spans with it. At the end of the process [`Exporter::finish`] waits for what is left, for a
//! while.
//!
//! * [`environment`]: the variables;
//! * [`client`]: HTTP by hyper and rustls, as everywhere here;
//! * [`spans`], [`metrics`]: ours in the words of OTLP.

mod client;
pub mod environment;
mod metrics;
mod spans;

use client::Client;
use environment::{Environment, Protocol, Wrong};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::others::{TelemetryNotTaken, TelemetryTaken};
use gristmill_telemetry::trace::{Batch, Traces};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Why nothing can be taken anywhere.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A variable.
    #[error(transparent)]
    Variable(#[from] Wrong),
    /// The library, or the system.
    #[error("OTLP: {0}")]
    Other(String),
}

/// What is to be taken.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Which process of which service this is, where the variables do not say: the node's name.
    pub instance: String,
    /// Metrics too.
    pub metrics: bool,
}

/// The thread that takes what is there.
#[derive(Debug)]
pub struct Exporter {
    telemetry: Telemetry,
    until: Arc<Mutex<Option<Instant>>>,
    /// Whether the process ends, for whoever takes metrics.
    over: watch::Sender<bool>,
    done: mpsc::Receiver<()>,
}

impl Exporter {
    /// Starts the thread. Spans are taken where `telemetry` traces.
    ///
    /// # Errors
    /// Variables that cannot be, or a thread that the system refuses.
    pub fn start(
        telemetry: &Telemetry,
        environment: &Environment,
        wanted: &Wanted,
    ) -> Result<Self, StartError> {
        let other = |error: &dyn std::fmt::Display| StartError::Other(error.to_string());
        // Not that of one thread: connections live on while the thread waits for spans.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("gristmill-otlp-io")
            .enable_all()
            .build()
            .map_err(|error| other(&error))?;
        let resource = environment.resource(&wanted.instance);
        let (ending, done) = mpsc::channel();
        let until = Arc::new(Mutex::new(None));
        let (over, ends) = watch::channel(false);
        let push = wanted
            .metrics
            .then(|| metrics::push(telemetry.clone(), environment.clone(), resource.clone(), ends))
            .transpose()?
            .map(|push| runtime.spawn(push));
        let exporter = {
            let _within = runtime.enter();
            telemetry.traces().map(|_| span_exporter(environment, &resource)).transpose()?
        };
        let taker = Taker {
            telemetry: telemetry.clone(),
            exporter,
            batch: environment.batch,
            rhythm: environment.rhythm,
            until: until.clone(),
            told: false,
        };
        std::thread::Builder::new()
            .name("gristmill-otlp".into())
            .spawn(move || {
                taker.run(&runtime, push);
                let _ = ending.send(());
                runtime.shutdown_background();
            })
            .map_err(|error| other(&error))?;
        Ok(Self { telemetry: telemetry.clone(), until, over, done })
    }

    /// Takes what is left, and ends; no longer than `within`. Blocks: not to be called on a runtime's thread.
    pub fn finish(self, within: Duration) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + within);
        self.over.send_replace(true);
        if let Some(traces) = self.telemetry.traces() {
            traces.close();
        }
        let _ = self.done.recv_timeout(within);
    }
}

fn span_exporter(environment: &Environment, resource: &Resource) -> Result<SpanExporter, StartError> {
    let builder = SpanExporter::builder();
    let endpoint = environment.endpoint("TRACES", environment.protocol);
    let built = match environment.protocol {
        Protocol::Grpc => {
            let secure = endpoint.starts_with("https://");
            let mut builder = builder.with_tonic().with_endpoint(endpoint);
            if secure {
                builder = builder.with_tls_config(environment.tls());
            }
            builder.build()
        }
        Protocol::Http => builder
            .with_http()
            .with_endpoint(endpoint)
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_http_client(Client::new(environment)?)
            .build(),
    };
    let mut exporter = built.map_err(|error| StartError::Other(error.to_string()))?;
    exporter.set_resource(resource);
    Ok(exporter)
}

struct Taker {
    telemetry: Telemetry,
    exporter: Option<SpanExporter>,
    batch: usize,
    rhythm: Duration,
    until: Arc<Mutex<Option<Instant>>>,
    /// It was told that the collector takes nothing.
    told: bool,
}

/// Behind a full batch it rests so many times as long as that took, at most [`LONGEST_REST`]: the processor is for the jobs, and
/// what then finds the queue full is dropped before it costs anything.
const RESTS: u32 = 3;
const LONGEST_REST: Duration = Duration::from_millis(500);

impl Taker {
    /// Until all is taken: spans, and then what was counted to the end.
    fn run(mut self, runtime: &Runtime, push: Option<JoinHandle<()>>) {
        let telemetry = self.telemetry.clone();
        if let (Some(exporter), Some(traces)) = (self.exporter.take(), telemetry.traces()) {
            self.spans(runtime, &exporter, traces);
        }
        if let Some(push) = push {
            let _ = runtime.block_on(push);
        }
    }

    fn spans(&mut self, runtime: &Runtime, exporter: &SpanExporter, traces: &Traces) {
        loop {
            let Batch { spans, last } = traces.take(self.batch, self.rhythm);
            if last && spans.is_empty() {
                return;
            }
            if spans.is_empty() {
                continue;
            }
            let (began, full) = (Instant::now(), spans.len() >= self.batch);
            self.take(runtime, exporter, traces, spans);
            if full && self.until().is_none() {
                std::thread::sleep((began.elapsed() * RESTS).min(LONGEST_REST));
            }
        }
    }

    fn until(&self) -> Option<Instant> {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(
        &mut self,
        runtime: &Runtime,
        exporter: &SpanExporter,
        traces: &Traces,
        spans: Vec<gristmill_telemetry::trace::span::Span>,
    ) {
        let count = spans.len();
        let batch = spans.into_iter().map(spans::of).collect();
        let until = self.until.clone();
        let taken = runtime.block_on(async {
            let over = async {
                loop {
                    let at = *until.lock().unwrap_or_else(PoisonError::into_inner);
                    match at {
                        Some(at) => return tokio::time::sleep_until(at.into()).await,
                        None => tokio::time::sleep(LOOK).await,
                    }
                }
            };
            tokio::select! {
                taken = exporter.export(batch) => taken.map_err(|error| error.to_string()),
                () = over => Err("the process ends".to_owned()),
            }
        });
        match taken {
            Ok(()) => {
                traces.exported(count);
                if std::mem::take(&mut self.told) {
                    self.telemetry.tell(&TelemetryTaken { what: "spans" });
                }
            }
            Err(error) => {
                traces.dropped(count);
                // Once, and not for every batch.
                if !std::mem::replace(&mut self.told, true) {
                    self.telemetry.tell(&TelemetryNotTaken { what: "spans", error: &error });
                }
            }
        }
    }
}

/// How soon it is seen that the process ends while a batch is on its way.
const LOOK: Duration = Duration::from_millis(50);
