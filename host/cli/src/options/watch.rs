//! The arguments of the log and of the OpenTelemetry collector.

use clap::Args;
use flowcell::HostBuilder;

use crate::log::LogFormat;

/// The log and the collector of a process that drives runs.
#[derive(Args, Default)]
pub(crate) struct WatchArgs {
    /// Send traces and metrics to the collector at this address, over OTLP/HTTP
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp: Option<String>,
    /// Log requests and runs on standard error in this format, besides warnings; `FLOWCELL_LOG` selects more
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

impl WatchArgs {
    /// Returns the log format, if one is set.
    pub(crate) fn log_format(&self) -> Option<LogFormat> {
        self.log_format
    }

    /// Sets the collector of a host, if one is set.
    pub(crate) fn with_collector(&self, builder: HostBuilder) -> HostBuilder {
        match self.otlp.as_deref() {
            None | Some("") => builder,
            Some(url) => builder.otlp(url),
        }
    }
}
