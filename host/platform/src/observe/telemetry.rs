//! Traces and metrics for a collector: OTLP over HTTP, in protobuf.
//!
//! | module | contents |
//! |---|---|
//! | span | ended spans in the form of OpenTelemetry |
//! | numbers | ended spans as metrics of OpenTelemetry |
//! | collector | the HTTP client of the exporters |
//!
//! Spans wait in a bounded queue, and are dropped if it is full. So a slow or missing collector delays no run. A
//! warning about lost telemetry is logged at most once a minute.

mod collector;
mod numbers;
mod span;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use flowcell_contract::{Failure, RunId, Tenant};
use flowcell_services::egress::Egress;
use opentelemetry::{
    KeyValue,
    trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState},
};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{SpanData, SpanExporter as _},
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
};

use self::{collector::Collector, numbers::Numbers};
use crate::observe::observed::{EndedSpan, Observer, SpanSubject};

/// Maximum number of spans in the queue. Further spans are dropped.
pub(crate) const MAX_QUEUED_SPANS: usize = 4_096;
/// Maximum number of spans per request.
pub(crate) const MAX_REQUEST_SPANS: usize = 512;
/// Time for which spans are gathered before they are sent.
const GATHER_TIME: Duration = Duration::from_millis(500);
/// Maximum time that an ending process waits for the collector.
pub(crate) const MAX_STOP_TIME: Duration = Duration::from_secs(5);
/// Maximum number of unfinished runs with a link to a caller's trace. Beyond it, the link of an arbitrary run is
/// dropped.
const MAX_LINKS: usize = 10_000;

/// Sends telemetry to a collector. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Telemetry(Arc<Shared>);

struct Shared {
    collector: Collector,
    queue: mpsc::Sender<SpanData>,
    /// The receiving end of the queue of spans. `None` once sending has started.
    waiting: Mutex<Option<mpsc::Receiver<SpanData>>>,
    numbers: OnceLock<Numbers>,
    links: Mutex<HashMap<(Tenant, RunId), SpanContext>>,
    ends: Notify,
    sending: Mutex<Option<JoinHandle<()>>>,
}

/// An error of the telemetry's setup.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TelemetryError {
    /// The address of the collector is invalid.
    #[error("`{0}` is not the address of a collector: {1}")]
    Address(String, String),
    /// The environment asks for unsupported settings.
    #[error("cannot apply the settings in `OTEL_EXPORTER_OTLP_…`")]
    Exporter(#[from] ExporterBuildError),
}

impl Telemetry {
    /// Creates telemetry for the collector at this address, such as `http://127.0.0.1:4318`. It sends nothing before
    /// it is started.
    pub(crate) fn new(url: &str, egress: &Egress) -> Result<Telemetry, TelemetryError> {
        let wrong = |failure: Failure| TelemetryError::Address(url.to_owned(), failure.message);
        let collector = Collector::new(url, egress).map_err(wrong)?;
        let (queue, waiting) = mpsc::channel(MAX_QUEUED_SPANS);
        Ok(Telemetry(Arc::new(Shared {
            collector,
            queue,
            waiting: Mutex::new(Some(waiting)),
            numbers: OnceLock::new(),
            links: Mutex::default(),
            ends: Notify::new(),
            sending: Mutex::default(),
        })))
    }

    /// Starts to send on the caller's runtime. A second call does nothing.
    pub(crate) fn start(&self) -> Result<(), TelemetryError> {
        let waiting = self.0.waiting.lock().take();
        let Some(waiting) = waiting else { return Ok(()) };
        let collector = &self.0.collector;
        collector.run_on(tokio::runtime::Handle::current());
        let exporter = SpanExporter::builder().with_http().with_http_client(collector.clone());
        let mut exporter = exporter.with_endpoint(collector.endpoint("v1/traces")).build()?;
        exporter.set_resource(&resource());
        // Counts from before this moment are not sent.
        let _ = self.0.numbers.set(Numbers::new(collector, resource())?);
        let sending = tokio::spawn(send_batches(self.0.clone(), waiting, exporter));
        *self.0.sending.lock() = Some(sending);
        Ok(())
    }

    /// Sends the remaining data and ends. It waits at most [`MAX_STOP_TIME`] for the collector.
    pub(crate) async fn stop(&self) {
        let sending = self.0.sending.lock().take();
        let Some(sending) = sending else { return };
        self.0.ends.notify_one();
        let shared = self.0.clone();
        let numbers = tokio::task::spawn_blocking(move || shared.numbers.get().map(Numbers::stop));
        // If the collector does not answer in time, the remaining data is lost.
        let _ = tokio::time::timeout(MAX_STOP_TIME, async { tokio::join!(sending, numbers) }).await;
    }

    /// Links a run to the caller's trace, named by a `traceparent` of W3C Trace Context.
    pub(crate) fn link(&self, tenant: &Tenant, run: &RunId, traceparent: &str) {
        let Some(context) = parse_traceparent(traceparent) else { return };
        let mut links = self.0.links.lock();
        if links.len() >= MAX_LINKS
            && let Some(any) = links.keys().next().cloned()
        {
            // This run may have ended in another process long ago.
            links.remove(&any);
        }
        links.insert((tenant.clone(), run.clone()), context);
    }
}

impl Observer for Telemetry {
    fn ended(&self, root: &RunId, ended: &EndedSpan) {
        if let Some(numbers) = self.0.numbers.get() {
            numbers.count(ended);
        }
        let link = match ended.what {
            SpanSubject::Run { .. } => {
                let mut links = self.0.links.lock();
                links.remove(&(ended.tenant.clone(), ended.run.clone()))
            }
            _ => None,
        };
        if self.0.queue.try_send(span::to_open_telemetry(root, ended, link)).is_err() {
            self.0.collector.warn("it accepts spans too slowly, so some are dropped");
        }
    }
}

/// Sends the queued spans in batches, until [`Telemetry::stop`] ends it.
async fn send_batches(shared: Arc<Shared>, mut waiting: mpsc::Receiver<SpanData>, exporter: SpanExporter) {
    let mut ends = false;
    while !ends {
        let mut batch = Vec::new();
        tokio::select! {
            _ = waiting.recv_many(&mut batch, MAX_REQUEST_SPANS) => {}
            () = shared.ends.notified() => ends = true,
        }
        if !ends {
            tokio::select! {
                () = tokio::time::sleep(GATHER_TIME) => {}
                () = shared.ends.notified() => ends = true,
            }
        }
        loop {
            while batch.len() < MAX_REQUEST_SPANS
                && let Ok(span) = waiting.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                break;
            }
            if let Err(error) = exporter.export(std::mem::take(&mut batch)).await {
                shared.collector.warn(&error.to_string());
            }
        }
    }
}

fn resource() -> Resource {
    let builder = Resource::builder();
    // `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` are the operator's settings.
    let builder = match std::env::var_os("OTEL_SERVICE_NAME") {
        Some(_) => builder,
        None => builder.with_service_name("flowcell"),
    };
    builder.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build()
}

/// Parses a `traceparent`: `00-<trace>-<span>-<flags>`.
fn parse_traceparent(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hexadecimal = |text: &str, len| {
        text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let fits = hexadecimal(version, 2) && hexadecimal(trace, 32) && hexadecimal(span, 16) && hexadecimal(flags, 2);
    // Later versions may have more parts.
    if !fits || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::NONE)).filter(SpanContext::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_traceparent_is_parsed() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let read = parse_traceparent(good).unwrap();
        assert_eq!(read.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(read.is_remote() && read.is_sampled());
        for wrong in [
            "",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ] {
            assert!(parse_traceparent(wrong).is_none(), "{wrong}");
        }
    }
}
