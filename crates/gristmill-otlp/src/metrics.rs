//! Metrics in the words of OTLP, from the same source as the text that Prometheus reads. Written in protobuf by hand, since the
//! library's own form can be made by its instruments alone.

use crate::StartError;
use crate::client::Client;
use crate::environment::{Environment, Protocol};
use bytes::Bytes;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::others::{TelemetryNotTaken, TelemetryTaken};
use gristmill_telemetry::metrics::family::Shown;
use gristmill_telemetry::metrics::{PREFIX, Reading};
use opentelemetry_http::HttpClient;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource as ProtoResource;
use opentelemetry_sdk::Resource;
use prost::Message;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tonic::metadata::{MetadataKey, MetadataValue};
use tonic::transport::Endpoint;

/// Takes metrics again and again, and once more when the process ends; to be spawned.
pub(crate) fn push(
    telemetry: Telemetry,
    environment: Environment,
    resource: Resource,
    mut ends: watch::Receiver<bool>,
) -> Result<impl Future<Output = ()> + Send, StartError> {
    let within = environment.of("METRICS", "TIMEOUT").and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let within = Duration::from_millis(within);
    let headers = headers(environment.of("METRICS", "HEADERS").unwrap_or_default());
    let client = Client::new(&environment)?;
    let began = SystemTime::now();
    Ok(async move {
        let mut rhythm = tokio::time::interval(environment.metrics_every);
        rhythm.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut told = false;
        loop {
            let last = tokio::select! {
                _ = rhythm.tick() => false,
                // An exporter that is dropped ends too.
                _ = ends.wait_for(|ends| *ends) => true,
            };
            let request = request(telemetry.read().read(), &resource, began, SystemTime::now());
            let send = send(&environment, &client, &headers, request);
            let sent = tokio::time::timeout(within, send)
                .await
                .unwrap_or_else(|_| Err(format!("no answer within {} ms", within.as_millis())));
            match sent {
                Ok(()) if std::mem::take(&mut told) => telemetry.tell(&TelemetryTaken { what: "metrics" }),
                Ok(()) => {}
                Err(_) if told => {}
                Err(error) => {
                    told = true;
                    telemetry.tell(&TelemetryNotTaken { what: "metrics", error: &error });
                }
            }
            if last {
                return;
            }
        }
    })
}

async fn send(
    environment: &Environment,
    client: &Client,
    headers: &[(String, String)],
    request: ExportMetricsServiceRequest,
) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let endpoint = environment.endpoint("METRICS", environment.metrics_protocol);
    match environment.metrics_protocol {
        Protocol::Http => {
            let mut builder =
                http::Request::post(endpoint).header(http::header::CONTENT_TYPE, "application/x-protobuf");
            for (name, value) in headers {
                builder = builder.header(name, value);
            }
            let request = builder.body(Bytes::from(request.encode_to_vec())).map_err(|error| text(&error))?;
            let answer = client.send_bytes(request).await.map_err(|error| text(&error))?;
            answer.status().is_success().then_some(()).ok_or_else(|| format!("status {}", answer.status()))
        }
        Protocol::Grpc => {
            let secure = endpoint.starts_with("https://");
            let mut endpoint = Endpoint::from_shared(endpoint).map_err(|error| text(&error))?;
            if secure {
                endpoint = endpoint.tls_config(environment.tls()).map_err(|error| text(&error))?;
            }
            let channel = endpoint.connect().await.map_err(|error| text(&error))?;
            let mut call = tonic::Request::new(request);
            for (name, value) in headers {
                let name = MetadataKey::from_bytes(name.as_bytes()).map_err(|error| text(&error))?;
                let value = MetadataValue::try_from(value.as_str()).map_err(|error| text(&error))?;
                call.metadata_mut().insert(name, value);
            }
            MetricsServiceClient::new(channel).export(call).await.map(drop).map_err(|error| text(&error))
        }
    }
}

/// `name=value,name=value`.
fn headers(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_lowercase(), value.trim().to_owned()))
    };
    text.split(',').filter_map(pair).collect()
}

fn request(
    readings: Vec<Reading>,
    resource: &Resource,
    began: SystemTime,
    now: SystemTime,
) -> ExportMetricsServiceRequest {
    let (began, now) = (nanos(began), nanos(now));
    let metrics = readings.into_iter().map(|reading| metric(reading, began, now)).collect();
    let scope = InstrumentationScope {
        name: "gristmill".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    };
    let attributes = resource.iter().map(|(key, value)| pair(key.as_str(), &value.to_string())).collect();
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(ProtoResource { attributes, ..ProtoResource::default() }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, schema_url: String::new() }],
            schema_url: String::new(),
        }],
    }
}

fn metric(Reading { about, series }: Reading, began: u64, now: u64) -> Metric {
    let (mut numbers, mut histograms) = (Vec::new(), Vec::new());
    for (values, shown) in series {
        let attributes: Vec<KeyValue> =
            about.labels.iter().zip(&values).map(|(label, value)| pair(label, value)).collect();
        let number = |value| NumberDataPoint {
            attributes: attributes.clone(),
            start_time_unix_nano: began,
            time_unix_nano: now,
            value: Some(value),
            ..NumberDataPoint::default()
        };
        match shown {
            Shown::Count(count) => {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                numbers.push(number(number_data_point::Value::AsInt(count)));
            }
            Shown::Value(value) => numbers.push(number(number_data_point::Value::AsDouble(value))),
            Shown::Held(held) => histograms.push(HistogramDataPoint {
                attributes: attributes.clone(),
                start_time_unix_nano: began,
                time_unix_nano: now,
                count: held.counts.iter().sum(),
                sum: Some(held.sum_us as f64 / 1e6),
                bucket_counts: held.counts,
                explicit_bounds: held.bounds_us.iter().map(|us| *us as f64 / 1e6).collect(),
                ..HistogramDataPoint::default()
            }),
        }
    }
    let cumulative = AggregationTemporality::Cumulative as i32;
    let data = match about.sort {
        gristmill_telemetry::metrics::Sort::Counter => {
            Data::Sum(Sum { data_points: numbers, aggregation_temporality: cumulative, is_monotonic: true })
        }
        gristmill_telemetry::metrics::Sort::Gauge => Data::Gauge(Gauge { data_points: numbers }),
        gristmill_telemetry::metrics::Sort::Histogram => {
            Data::Histogram(Histogram { data_points: histograms, aggregation_temporality: cumulative })
        }
    };
    Metric {
        name: format!("{PREFIX}{}", about.name),
        description: about.help.into(),
        unit: if about.name.ends_with("_seconds") { "s".into() } else { String::new() },
        data: Some(data),
        ..Metric::default()
    }
}

fn pair(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

fn nanos(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_telemetry::metrics::Role;

    #[test]
    fn headers_are_pairs_with_commas() {
        assert_eq!(headers("a=b, X-Y = c=d,,bad"), [("a".into(), "b".into()), ("x-y".into(), "c=d".into())]);
    }

    #[test]
    fn metrics_are_the_same_as_in_the_text() {
        let telemetry = Telemetry::new(Role::Node);
        let metrics = telemetry.metrics();
        metrics.recoveries_total.with(&["q"]).add(3);
        metrics.handover_duration_seconds.one().observe(Duration::from_millis(30));
        let request =
            request(telemetry.read().read(), &Resource::builder_empty().build(), UNIX_EPOCH, UNIX_EPOCH);
        let all = &request.resource_metrics[0].scope_metrics[0].metrics;
        let of = |name: &str| all.iter().find(|metric| metric.name == name).unwrap();
        let Some(Data::Sum(sum)) = &of("gristmill_recoveries_total").data else { panic!("no sum") };
        assert_eq!(sum.data_points[0].value, Some(number_data_point::Value::AsInt(3)));
        assert!(sum.is_monotonic && sum.data_points[0].attributes[0].key == "queue");
        let handovers = of("gristmill_handover_duration_seconds");
        let Some(Data::Histogram(histogram)) = &handovers.data else { panic!("no histogram") };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.bucket_counts[3], handovers.unit.as_str()), (1, 1, "s"));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(all.len(), telemetry.read().read().len());
    }
}
