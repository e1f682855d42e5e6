//! The listener: a thread with a small runtime of its own.

use super::{Health, Said};
use crate::exit::Failure;
use gristmill_telemetry::events::others::HealthListens;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Connections at a time; more wait to be accepted.
const MOST_CONNECTIONS: usize = 64;
/// How long the head of a request may take, and a connection may lie idle.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection lives.
const CONNECTION_LIFE: Duration = Duration::from_secs(60);
/// Largest head of a request; the least that the library takes.
const HEAD_BYTES: usize = 8192;
/// Rest after a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Listens from now on. What cannot be listened at is refused here and now.
pub(super) fn start(health: Health) -> Result<(), Failure> {
    let address = health.config.listen;
    let refused = |error| Failure::Failed(format!("cannot listen at {address} (health.listen): {error}"));
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true)?;
    health.telemetry.tell(&HealthListens { listen: &listener.local_addr()? });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _within = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    std::thread::Builder::new()
        .name("gristmill-health".into())
        .spawn(move || runtime.block_on(serve(listener, Arc::new(health))))?;
    Ok(())
}

async fn serve(listener: tokio::net::TcpListener, health: Arc<Health>) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // Never closed, so there always is a place in the end.
        let place = places.clone().acquire_owned().await.ok();
        match listener.accept().await {
            Ok((stream, _)) => {
                let health = health.clone();
                tokio::spawn(async move {
                    let _place = place;
                    let _ = tokio::time::timeout(CONNECTION_LIFE, connection(stream, health)).await;
                });
            }
            // Mostly, the system has no more files to give.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

async fn connection(stream: TcpStream, health: Arc<Health>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let health = health.clone();
        async move { Ok::<_, Infallible>(respond(&health, &request)) }
    });
    // Whoever asks badly hears nothing, and is nobody's business.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn respond(health: &Health, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = response(Said::words(405, "ask with GET"));
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    response(health.answer(request.uri().path()))
}

fn response(said: Said) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(said.body)));
    *response.status_mut() = StatusCode::from_u16(said.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(said.content_type));
    response
}
