//! What an ingest server is told.

use gristmill_job::JobLimits;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::metrics::Role;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where it listens, who may ask, and how much at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestConfig {
    /// Where it listens; a free port where that is 0.
    pub listen: SocketAddr,
    /// A file with a token on each line. Without one everybody may ask, which only a loopback address allows.
    pub tokens_file: Option<PathBuf>,
    /// Largest body of a request, in bytes.
    pub max_body_bytes: usize,
    /// Most jobs in one request.
    pub max_jobs: usize,
    /// How long the body of a request may take to come.
    pub body_timeout: Duration,
    /// How long requests may take to be answered after it was asked to leave.
    pub drain_window: Duration,
    /// What one job may be.
    pub job_limits: JobLimits,
    /// Where is told what happens.
    pub telemetry: Telemetry,
}

impl IngestConfig {
    /// The defaults of `config/default.toml`.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            tokens_file: None,
            max_body_bytes: 8 * 1024 * 1024,
            max_jobs: 1000,
            body_timeout: Duration::from_secs(30),
            drain_window: Duration::from_secs(25),
            job_limits: JobLimits::default(),
            telemetry: Telemetry::new(Role::Ingest),
        }
    }
}
