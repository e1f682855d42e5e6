//! Connections: kept and used again, HTTP/1.1 or 2, TLS by rustls with ring. No proxy of the environment, no cookies.

use crate::config::{HttpConfig, HttpVersion, Wrong};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A connection that nobody used for so long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// How often a connection of version 2 is asked whether it lives while requests wait, and how long for an answer.
const ASK_EVERY: Duration = Duration::from_secs(15);
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;

pub(crate) fn new(config: &HttpConfig, url: &Uri) -> Result<Client, Wrong> {
    let mut http = HttpConnector::new();
    http.set_connect_timeout(Some(config.connect_timeout));
    http.set_nodelay(true);
    http.enforce_http(false);
    let tls = HttpsConnectorBuilder::new().with_tls_config(tls(config, url)?).https_or_http();
    let connector = match config.version {
        HttpVersion::Auto => tls.enable_http1().enable_http2().wrap_connector(http),
        HttpVersion::One => tls.enable_http1().wrap_connector(http),
        HttpVersion::Two => tls.enable_http2().wrap_connector(http),
    };
    let client = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http1_max_buf_size(MAX_HEAD_BYTES)
        .http2_max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .http2_keep_alive_interval(ASK_EVERY)
        .http2_keep_alive_timeout(ASK_TIMEOUT)
        .http2_only(config.version == HttpVersion::Two)
        .build(connector);
    Ok(client)
}

fn tls(config: &HttpConfig, url: &Uri) -> Result<ClientConfig, Wrong> {
    let mut roots = RootCertStore::empty();
    let secure = url.scheme_str() == Some("https");
    let wrong = |got: String| ("ca_file", "certificates in PEM form".to_owned(), got);
    match &config.ca_pem {
        Some(_) if !secure => {
            let expected = "to be used with an address that begins with https://".into();
            return Err(("ca_file", expected, url.to_string()));
        }
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("none".into()));
            }
        }
        None if secure => {
            let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                let expected = "certificate authorities of the system, or a file with one".into();
                return Err(("ca_file", expected, "neither".into()));
            }
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| ("http", "TLS that works".to_owned(), error.to_string()))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
