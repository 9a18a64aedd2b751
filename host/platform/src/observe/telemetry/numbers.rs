//! Metrics as OpenTelemetry instruments: those that the conventions for generative AI define, and Flowcell's own.

use std::time::Duration;

use flowcell_contract::BuiltIn;
use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, MeterProvider},
};
use opentelemetry_otlp::{MetricExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
};

use super::{TelemetryError, collector::Collector};
use crate::observe::observed::{CallTarget, EndedSpan, SpanSubject};

/// Instruments that are exported to a collector every minute, or at the interval that the environment variable
/// `OTEL_METRIC_EXPORT_INTERVAL` sets.
pub(super) struct Numbers {
    provider: SdkMeterProvider,
    runs: Histogram<f64>,
    attempts: Counter<u64>,
    calls: Histogram<f64>,
    turns: Histogram<f64>,
    tokens: Histogram<u64>,
}

impl Numbers {
    pub(super) fn new(collector: &Collector, resource: Resource) -> Result<Numbers, TelemetryError> {
        let exporter = MetricExporter::builder().with_http().with_http_client(collector.clone());
        let exporter = exporter.with_endpoint(collector.endpoint("v1/metrics")).build()?;
        let reader = PeriodicReader::builder(exporter).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).with_resource(resource).build();
        let meter = provider.meter("flowcell");
        let seconds = |name| meter.f64_histogram(name).with_unit("s").build();
        Ok(Numbers {
            runs: seconds("flowcell.run.duration"),
            attempts: meter.u64_counter("flowcell.attempts").with_unit("{attempt}").build(),
            calls: seconds("flowcell.call.duration"),
            turns: seconds("gen_ai.client.operation.duration"),
            tokens: meter.u64_histogram("gen_ai.client.token.usage").with_unit("{token}").build(),
            provider,
        })
    }

    pub(super) fn count(&self, ended: &EndedSpan) {
        let seconds = Duration::from_millis(ended.ended - ended.began).as_secs_f64();
        let outcome = KeyValue::new("flowcell.outcome", ended.outcome);
        match &ended.what {
            SpanSubject::Run { .. } => {
                let tenant = KeyValue::new("flowcell.tenant", ended.tenant.as_str().to_owned());
                self.runs.record(seconds, &[tenant, outcome]);
            }
            SpanSubject::Attempt { node_type, .. } => {
                self.attempts.add(1, &[KeyValue::new("flowcell.node.type", node_type.clone()), outcome]);
            }
            SpanSubject::Call { call, .. } => {
                self.calls
                    .record(seconds, &[KeyValue::new("flowcell.call.interface", call.interface.clone()), outcome]);
                if call.interface == BuiltIn::Model.name() {
                    self.count_turn(call, seconds);
                }
            }
            SpanSubject::Agent { .. } => {}
        }
    }

    fn count_turn(&self, call: &CallTarget, seconds: f64) {
        let text = |name, value: &Option<String>| KeyValue::new(name, value.clone().unwrap_or_default());
        let labels = vec![
            KeyValue::new("gen_ai.operation.name", "chat"),
            text("gen_ai.provider.name", &call.provider),
            text("gen_ai.request.model", &call.model),
        ];
        self.turns.record(seconds, &labels);
        let Some(used) = call.usage else { return };
        for (kind, count) in [("input", used.input), ("output", used.output)] {
            let kind = KeyValue::new("gen_ai.token.type", kind);
            self.tokens.record(count, &[labels.as_slice(), &[kind]].concat());
        }
    }

    /// Exports the remaining values. Blocks until the collector answers or the export fails.
    pub(super) fn stop(&self) {
        // A missing collector was already reported.
        let _ = self.provider.shutdown();
    }
}
