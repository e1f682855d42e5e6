//! Certificates that are trusted and others; HTTP/2 by agreement and by decision.

use crate::fixture::{Kind, SOON, http, kind, ms};
use crate::site::{self, with};
use gristmill_remote::{HttpVersion, Way};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A server that speaks TLS, or HTTP/2 without.
struct Secure {
    address: SocketAddr,
    ca: String,
    /// The version of each request, and how many connections there were.
    heard: Arc<Mutex<(Vec<Version>, usize)>>,
    accepting: JoinHandle<()>,
}

impl Secure {
    async fn start(name: &str, protocols: Option<&[&str]>) -> Self {
        let (ca, certificate, key) = certificates(name);
        let acceptor = protocols.map(|protocols| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config =
                rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let mut config =
                config.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
            config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
            TlsAcceptor::from(Arc::new(config))
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new((Vec::new(), 0)));
        let notes = Arc::clone(&heard);
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                notes.lock().unwrap().1 += 1;
                let (notes, acceptor) = (Arc::clone(&notes), acceptor.clone());
                connections.spawn(async move {
                    match acceptor {
                        None => two(stream, notes).await,
                        Some(acceptor) => {
                            let Ok(stream) = acceptor.accept(stream).await else { return };
                            match stream.get_ref().1.alpn_protocol() {
                                Some(b"h2") => two(stream, notes).await,
                                _ => {
                                    let note =
                                        |_: &site::Heard| notes.lock().unwrap().0.push(Version::HTTP_11);
                                    site::serve(stream, 0, &|_| with(200, "", ""), note).await;
                                }
                            }
                        }
                    }
                });
            }
        });
        Self { address, ca, heard, accepting }
    }

    fn versions(&self) -> Vec<Version> {
        self.heard.lock().unwrap().0.clone()
    }

    fn kind(&self, ca: &str, version: HttpVersion) -> Kind {
        let mut config = http(&format!("https://{}/", self.address));
        (config.ca_pem, config.version) = (Some(ca.into()), version);
        Kind::new(kind(Way::Http(config)))
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn two<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    stream: S,
    heard: Arc<Mutex<(Vec<Version>, usize)>>,
) {
    let answer = move |request: Request<Incoming>| {
        heard.lock().unwrap().0.push(request.version());
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, "{\"price\":1}");
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
        }
    };
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer));
    let _ = connection.await;
}

fn certificates(name: &str) -> (String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    (ca_pem, certificate.der().clone(), key)
}

#[tokio::test]
async fn version_two_is_spoken_where_both_sides_can_and_connections_are_shared() {
    let site = Secure::start("127.0.0.1", Some(&["h2", "http/1.1"])).await;
    let kind = site.kind(&site.ca, HttpVersion::Auto);
    assert_eq!(kind.ask().await, ("done".into(), String::new()));
    let runs = (0..20).map(|_| kind.ask());
    let all = futures(runs).await;
    assert!(all.iter().all(|(outcome, _)| outcome == "done"), "{all:?}");
    assert_eq!(site.versions(), [Version::HTTP_2; 21]);
    assert_eq!(site.heard.lock().unwrap().1, 1, "one connection for all");

    assert_eq!(site.kind(&site.ca, HttpVersion::One).ask().await.0, "done");
    assert_eq!(site.versions().last(), Some(&Version::HTTP_11));
    let old = Secure::start("127.0.0.1", Some(&["http/1.1"])).await;
    assert_eq!(old.kind(&old.ca, HttpVersion::Auto).ask().await.0, "done");
    assert_eq!(old.versions(), [Version::HTTP_11]);
    let (outcome, text) = old.kind(&old.ca, HttpVersion::Two).ask().await;
    assert!(outcome == "transient", "{outcome} {text}");
}

async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut ended = Vec::new();
    std::future::poll_fn(|cx| {
        all.retain_mut(|future| match future.as_mut().poll(cx) {
            std::task::Poll::Ready(value) => {
                ended.push(value);
                false
            }
            std::task::Poll::Pending => true,
        });
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    ended
}

#[tokio::test]
async fn version_two_is_spoken_without_tls_where_that_was_decided() {
    let site = Secure::start("127.0.0.1", None).await;
    let mut config = http(&format!("http://{}/", site.address));
    config.version = HttpVersion::Two;
    assert_eq!(Kind::new(kind(Way::Http(config))).ask().await, ("done".into(), String::new()));
    assert_eq!(site.versions(), [Version::HTTP_2]);
}

#[tokio::test]
async fn nobody_is_told_anything_whose_certificate_is_not_trusted() {
    let site = Secure::start("127.0.0.1", Some(&["http/1.1"])).await;
    let stranger = certificates("127.0.0.1").0;
    let (outcome, text) = site.kind(&stranger, HttpVersion::Auto).ask().await;
    assert!(outcome == "transient" && text.contains("invalid peer certificate"), "{outcome} {text}");
    let mut config = http(&format!("https://{}/", site.address));
    config.ca_pem = None;
    let (outcome, text) = Kind::new(kind(Way::Http(config))).ask().await;
    assert!(
        outcome == "transient" && text.contains("invalid peer certificate"),
        "the system's: {outcome} {text}"
    );
    let other = Secure::start("other.example", Some(&["http/1.1"])).await;
    let (outcome, text) = other.kind(&other.ca, HttpVersion::Auto).ask().await;
    assert!(outcome == "transient" && text.contains("not valid for name"), "{outcome} {text}");
    assert!(site.versions().is_empty() && other.versions().is_empty(), "no request was sent");
}

#[tokio::test]
async fn a_server_without_tls_where_tls_was_said_is_transient_and_in_time() {
    let plain = site::Site::saying(with(200, "", "")).await;
    let mut config = http(&format!("https://{}/", plain.address));
    config.ca_pem = Some(certificates("127.0.0.1").0.into());
    let mut kind_config = kind(Way::Http(config));
    kind_config.limits.hard = ms(1500);
    let began = std::time::Instant::now();
    let (outcome, text) = Kind::new(kind_config).ask().await;
    assert!(["transient", "timeout"].contains(&outcome.as_str()), "{outcome} {text}");
    assert!(began.elapsed() < SOON && plain.heard().is_empty());
}
