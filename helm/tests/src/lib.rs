//! What the chart's tests stand on: real Helm, and what it rendered as values that can be asked.
//!
//! * [`helm`]: the two releases of Helm, and what they say to values
//! * [`objects`]: a rendered release
//! * [`pods`]: its pod templates and their containers
//! * [`schema`]: what Kubernetes, KEDA and the Prometheus operator take
//! * [`files`]: where the chart lies

pub mod files;
pub mod helm;
pub mod objects;
pub mod pods;
pub mod schema;
