//! The telemetry of a process, from its settings: the handle, and the exporter behind it where something is sent.

use crate::exit::Failure;
use crate::settings::Settings;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::metrics::Role;
use std::time::Duration;

/// Also where time is up, so long what is left may be taken to the collector.
const LEAST: Duration = Duration::from_millis(200);
/// Longest wait of a command that has done its work.
pub(crate) const SHORT: Duration = Duration::from_secs(3);

/// The handle, and what takes spans and metrics away.
pub(crate) struct Told {
    pub(crate) telemetry: Telemetry,
    #[cfg(feature = "otlp")]
    exporter: Option<gristmill_otlp::Exporter>,
}

impl Told {
    /// Of a process that does this.
    #[cfg(feature = "otlp")]
    pub(crate) fn start(settings: &Settings, role: Role) -> Result<Self, Failure> {
        use gristmill_otlp::environment::Environment;
        use gristmill_otlp::{Exporter, Wanted};
        use gristmill_telemetry::trace::Tracing;

        let (config, telemetry) = (settings.telemetry()?, Telemetry::new(role));
        let variables = std::env::vars_os();
        let texts =
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        if config.keep.is_none() && !config.metrics {
            return Ok(Self { telemetry, exporter: None });
        }
        let environment = Environment::read(texts).map_err(|error| Failure::Usage(error.to_string()))?;
        if let Some(share) = config.keep.filter(|_| !environment.is_off()) {
            telemetry.trace(Tracing { share, slow: config.slow, room: environment.room });
        }
        let wanted = Wanted { instance: settings.node_name(), metrics: config.metrics };
        let exporter = Exporter::start(&telemetry, &environment, &wanted)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Self { telemetry, exporter: Some(exporter) })
    }

    /// Of a process that does this; nothing is sent.
    #[cfg(not(feature = "otlp"))]
    pub(crate) fn start(settings: &Settings, role: Role) -> Result<Self, Failure> {
        settings.telemetry()?;
        Ok(Self { telemetry: Telemetry::new(role) })
    }

    /// The process ends: takes what is left, for so long at most. Not to be called on a runtime's thread.
    pub(crate) fn finish(self, within: Duration) {
        #[cfg(feature = "otlp")]
        if let Some(exporter) = self.exporter {
            return exporter.finish(within.max(LEAST));
        }
        let _ = (within, LEAST);
    }
}
