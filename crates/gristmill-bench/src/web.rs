//! Jobs that are HTTP requests: the site that answers them, the bare client, and the kind that is served by the site.

use crate::child::say;
use crate::cost;
use crate::failure::{Failure, Outcome, ensure};
use crate::jobs::{KIND, Workload, now_nanos};
use crate::rate::Samples;
use bytes::Bytes;
use gristmill_handler::Registry;
use gristmill_job::JobId;
use gristmill_remote::http::status::StatusTable;
use gristmill_remote::{HttpConfig, HttpVersion, KindConfig, Limits, Remote, Way};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// How long a run may take.
const HARD_LIMIT: Duration = Duration::from_secs(30);

/// What the site has heard.
#[derive(Default)]
struct Heard {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// A process that answers every request with 204, until it is told to leave. It says where it is, and at its end what it
/// has heard.
pub(crate) fn site() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut leave = signal(SignalKind::terminate())?;
        let heard = Arc::new(Heard::default());
        println!("http://{}/jobs", listener.local_addr()?);
        loop {
            let (stream, _) = tokio::select! {
                accepted = listener.accept() => accepted?,
                _ = leave.recv() => break,
            };
            stream.set_nodelay(true)?;
            let heard = Arc::clone(&heard);
            let service = service_fn(move |request| answer(request, Arc::clone(&heard)));
            // An error is the other side's end, which shows there.
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        let cpu = cost::cpu("self")?.as_millis() as f64;
        say(&[("requests", count(&heard.requests)), ("bytes", count(&heard.bytes)), ("cpu_ms", cpu)]);
        Ok(())
    })
}

async fn answer(
    request: Request<Incoming>,
    heard: Arc<Heard>,
) -> Result<Response<Empty<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    heard.requests.fetch_add(1, Ordering::Relaxed);
    heard.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    let mut response = Response::new(Empty::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// The bare loop: as many requests under way as the node has.
pub(crate) async fn bare(url: &str, workload: &Workload, jobs: usize, slots: usize) -> Outcome<Samples> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let samples = Arc::new(Mutex::new(Samples::start()));
    let mut lanes = JoinSet::new();
    for lane in 0..slots {
        let (client, samples, url) = (client.clone(), Arc::clone(&samples), url.to_owned());
        let workload = workload.clone();
        lanes.spawn(async move {
            for n in (lane..jobs).step_by(slots) {
                let answer = client.request(request(&url, &workload, n)?).await?;
                let status = answer.status();
                answer.into_body().collect().await?;
                ensure(status == StatusCode::NO_CONTENT, || format!("request {n} was answered {status}"))?;
                samples.lock().unwrap_or_else(PoisonError::into_inner).more(1);
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane.map_err(|error| Failure::Broken(error.to_string()))??;
    }
    let samples = Arc::into_inner(samples).ok_or_else(|| Failure::Broken("a lane still runs".into()))?;
    Ok(samples.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The same body and headers as a node sends.
fn request(url: &str, workload: &Workload, n: usize) -> Outcome<Request<Full<Bytes>>> {
    let (key, version) = workload.key_and_version(n);
    let id = JobId::generate().to_string();
    let deadline = now_nanos() / 1_000_000 + HARD_LIMIT.as_millis() as u64;
    let request = Request::post(url)
        .header("content-type", "application/vnd.msgpack")
        .header("accept", "application/json")
        .header("user-agent", "gristmill/bench")
        .header("idempotency-key", format!("{KIND}:{id}"))
        .header("gristmill-id", id)
        .header("gristmill-key", key)
        .header("gristmill-kind", KIND)
        .header("gristmill-queue", KIND)
        .header("gristmill-version", version)
        .header("gristmill-attempt", 1)
        .header("gristmill-recovered", "false")
        .header("gristmill-deadline-ms", deadline);
    Ok(request.body(Full::new(workload.payload.clone()))?)
}

/// The kind that is served by the site at `url`.
pub(crate) fn handled(registry: Registry, url: &str) -> Outcome<Registry> {
    let http = HttpConfig {
        url: url.to_owned(),
        version: HttpVersion::Auto,
        connect_timeout: Duration::from_secs(5),
        ca_pem: None,
        token: None,
        secrets: Vec::new(),
        status: StatusTable::default(),
    };
    let kind = KindConfig {
        kind: KIND.to_owned(),
        way: Way::Http(http),
        limits: Limits { soft: None, hard: HARD_LIMIT },
        concurrency: None,
        max_answer_bytes: 64 * 1024,
        as_json: false,
        review: false,
    };
    Ok(Remote::new(vec![kind])?.add_to(registry))
}
