//! OpenTelemetry's variables, as far as the exporter's library does not read them itself (headers, timeouts and
//! compression it does).

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use std::collections::HashMap;
use std::time::Duration;
use tonic::transport::{Certificate, ClientTlsConfig};

/// How a collector is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `grpc`.
    Grpc,
    /// `http/protobuf`, as where nothing is said.
    Http,
}

/// A variable that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: expected {expected}, got {got:?}")]
pub struct Wrong {
    /// Which.
    pub variable: String,
    /// What was expected.
    pub expected: &'static str,
    /// What came.
    pub got: String,
}

/// What the variables say.
#[derive(Debug, Clone)]
pub struct Environment {
    variables: HashMap<String, String>,
    /// For spans.
    pub protocol: Protocol,
    /// For metrics.
    pub metrics_protocol: Protocol,
    /// Spans that wait at most.
    pub room: usize,
    /// Spans that go together at most.
    pub batch: usize,
    /// How long spans wait for others.
    pub rhythm: Duration,
    /// How often metrics are taken.
    pub metrics_every: Duration,
    /// Certificates to trust instead of the system's, PEM.
    pub(crate) ca_pem: Option<Vec<u8>>,
}

const PROTOCOLS: &str = "grpc or http/protobuf";

impl Environment {
    /// Reads them; empty ones say nothing.
    ///
    /// # Errors
    /// A variable that cannot be.
    pub fn read(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, Wrong> {
        let variables: HashMap<String, String> = variables
            .into_iter()
            .filter(|(name, value)| name.starts_with("OTEL_") && !value.is_empty())
            .collect();
        let protocol = |signal: &str| {
            let special = format!("OTEL_EXPORTER_OTLP_{signal}_PROTOCOL");
            let (variable, value) = match variables.get(&special) {
                Some(value) => (special, value.as_str()),
                None => {
                    let general = "OTEL_EXPORTER_OTLP_PROTOCOL".to_owned();
                    let value = variables.get(&general).map_or("http/protobuf", String::as_str);
                    (general, value)
                }
            };
            match value {
                "grpc" => Ok(Protocol::Grpc),
                "http/protobuf" => Ok(Protocol::Http),
                other => Err(Wrong { variable, expected: PROTOCOLS, got: other.to_owned() }),
            }
        };
        let number = |variable: &str, default: u64| match variables.get(variable) {
            None => Ok(default),
            Some(text) => text.parse().ok().filter(|number| *number > 0).ok_or_else(|| Wrong {
                variable: variable.to_owned(),
                expected: "a number of 1 or more",
                got: text.clone(),
            }),
        };
        let ca = "OTEL_EXPORTER_OTLP_CERTIFICATE";
        let ca_pem = variables.get(ca).map(|path| {
            let wrong = |error: std::io::Error| Wrong {
                variable: ca.to_owned(),
                expected: "a file with certificates in PEM form",
                got: format!("{path}: {error}"),
            };
            std::fs::read(path).map_err(wrong)
        });
        let room = usize::try_from(number("OTEL_BSP_MAX_QUEUE_SIZE", 2048)?).unwrap_or(usize::MAX);
        let batch = usize::try_from(number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?).unwrap_or(usize::MAX);
        Ok(Self {
            protocol: protocol("TRACES")?,
            metrics_protocol: protocol("METRICS")?,
            room,
            batch: batch.min(room),
            rhythm: Duration::from_millis(number("OTEL_BSP_SCHEDULE_DELAY", 5000)?),
            metrics_every: Duration::from_millis(number("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?),
            ca_pem: ca_pem.transpose()?,
            variables,
        })
    }

    /// Whether the variables say that nothing is to be traced at all.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || self.get("OTEL_TRACES_EXPORTER") == Some("none")
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Of this signal, before the general one.
    pub(crate) fn of(&self, signal: &str, what: &str) -> Option<&str> {
        self.get(&format!("OTEL_EXPORTER_OTLP_{signal}_{what}"))
            .or_else(|| self.get(&format!("OTEL_EXPORTER_OTLP_{what}")))
    }

    /// Where a signal goes. Its own endpoint is whole; the general one, over HTTP, is where the paths of the signals begin.
    pub(crate) fn endpoint(&self, signal: &str, protocol: Protocol) -> String {
        let own = self.get(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"));
        let general = self.get("OTEL_EXPORTER_OTLP_ENDPOINT");
        match protocol {
            Protocol::Grpc => own.or(general).unwrap_or("http://localhost:4317").to_owned(),
            Protocol::Http => own.map_or_else(
                || {
                    let base = general.unwrap_or("http://localhost:4318").trim_end_matches('/');
                    format!("{base}/v1/{}", signal.to_lowercase())
                },
                str::to_owned,
            ),
        }
    }

    pub(crate) fn tls(&self) -> ClientTlsConfig {
        match &self.ca_pem {
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => ClientTlsConfig::new().with_enabled_roots(),
        }
    }

    /// What the process is, to whoever sees many: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` come first.
    pub(crate) fn resource(&self, instance: &str) -> Resource {
        let given = self.get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let says =
            |key: &str| given.split(',').any(|pair| pair.split('=').next().is_some_and(|k| k.trim() == key));
        let mut builder = Resource::builder();
        if self.get("OTEL_SERVICE_NAME").is_none() && !says("service.name") {
            builder = builder.with_service_name("gristmill");
        }
        for (key, value) in
            [("service.instance.id", instance), ("service.version", env!("CARGO_PKG_VERSION"))]
        {
            if !says(key) {
                builder = builder.with_attribute(KeyValue::new(key, value.to_owned()));
            }
        }
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Environment, Wrong> {
        Environment::read(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn what_nobody_says_is_as_the_specification_has_it() {
        let environment = read(&[("OTEL_EXPORTER_OTLP_PROTOCOL", ""), ("PATH", "/")]).unwrap();
        assert_eq!((environment.protocol, environment.room, environment.batch), (Protocol::Http, 2048, 512));
        assert_eq!(environment.rhythm, Duration::from_secs(5));
        assert!(!environment.is_off());
    }

    #[test]
    fn a_signals_own_variable_comes_first() {
        let environment = read(&[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://b"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
        ])
        .unwrap();
        assert_eq!((environment.protocol, environment.metrics_protocol), (Protocol::Grpc, Protocol::Http));
        let endpoint = |signal, protocol| environment.endpoint(signal, protocol);
        assert_eq!(endpoint("METRICS", Protocol::Http), "http://a/v1/metrics");
        assert_eq!(endpoint("METRICS", Protocol::Grpc), "http://a");
        assert_eq!(endpoint("TRACES", Protocol::Http), "https://b");
        assert_eq!((environment.room, environment.batch), (8, 8));
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        for (name, value, words) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "expected grpc or http/protobuf, got \"http/json\""),
            ("OTEL_BSP_SCHEDULE_DELAY", "soon", "expected a number of 1 or more"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem", "expected a file with certificates"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_service_has_a_name_and_the_variables_come_first() {
        let named = |pairs: &[(&str, &str)]| {
            let resource = read(pairs).unwrap().resource("pod-1");
            let get = |key: &'static str| {
                resource.get(&opentelemetry::Key::new(key)).map(|value| value.to_string())
            };
            (get("service.name"), get("service.instance.id"))
        };
        assert_eq!(named(&[]), (Some("gristmill".into()), Some("pod-1".into())));
        // The library reads the process's own variables for the rest, which a test does not set.
        assert_eq!(named(&[("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=x")]).1, None);
    }

    #[test]
    fn traces_may_be_turned_off() {
        assert!(read(&[("OTEL_SDK_DISABLED", "TRUE")]).unwrap().is_off());
        assert!(read(&[("OTEL_TRACES_EXPORTER", "none")]).unwrap().is_off());
        assert!(!read(&[("OTEL_TRACES_EXPORTER", "otlp")]).unwrap().is_off());
    }
}
