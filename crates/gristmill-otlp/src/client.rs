//! The HTTP client of the exporter: hyper and rustls with ring, as everywhere here.

use crate::StartError;
use crate::environment::Environment;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::time::Duration;

/// An answer says little, and what it says is read to its end or not at all.
const ANSWER_BYTES: usize = 64 * 1024;
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// To be made and used on a runtime.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    hyper: Hyper<HttpsConnector<HttpConnector>, Full<Bytes>>,
    within: Duration,
}

impl Client {
    pub(crate) fn new(environment: &Environment) -> Result<Self, StartError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_WITHIN));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(environment)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let ms = environment.of("TRACES", "TIMEOUT").and_then(|text| text.parse().ok()).unwrap_or(10_000);
        let hyper = Hyper::builder(TokioExecutor::new()).build(connector);
        Ok(Self { hyper, within: Duration::from_millis(ms) })
    }
}

fn tls(environment: &Environment) -> Result<ClientConfig, StartError> {
    let wrong = |error: &dyn std::fmt::Display| StartError::Other(format!("certificates: {error}"));
    let mut roots = RootCertStore::empty();
    match &environment.ca_pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
        // None at all is met only by whoever speaks TLS.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let provider = rustls::crypto::ring::default_provider().into();
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong(&error))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let asked = async {
            let response = self.hyper.request(Request::from_parts(head, Full::new(body))).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        };
        tokio::time::timeout(self.within, asked).await?
    }
}
