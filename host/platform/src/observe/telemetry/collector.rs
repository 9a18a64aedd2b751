//! The collector as an HTTP client for the exporters. Its requests pass the host's egress guard, like all other
//! requests.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use flowcell_contract::{Failure, Json, Tenant};
use flowcell_services::{
    client::{Client, Message, Progress},
    egress::{AddressRange, Egress, OriginGrants},
};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use parking_lot::Mutex;
use tokio::{runtime::Handle, time::Instant};

/// Timeout of one request to the collector.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum time between two warnings.
pub(crate) const MIN_WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum size in bytes of the collector's answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A collector. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Collector(Arc<Shared>);

struct Shared {
    url: String,
    grants: OriginGrants,
    client: Client,
    runtime: OnceLock<Handle>,
    warned: Mutex<Option<Instant>>,
}

impl Collector {
    /// Creates a collector at an address. The operator configured it, so it may be a private address.
    pub(super) fn new(url: &str, egress: &Egress) -> Result<Collector, Failure> {
        let anywhere: Vec<AddressRange> = ["0.0.0.0/0", "::/0"].iter().filter_map(|range| range.parse().ok()).collect();
        let client = Client::new(egress.clone().with_private(&anywhere));
        let unusable = |why: String| Failure::new(flowcell_contract::code::INVALID_INPUT, why);
        let url = url.trim_end_matches('/').to_owned();
        let origin =
            origin(&url).ok_or_else(|| unusable("it must begin with `http://` or `https://` and a host".into()))?;
        let grants = OriginGrants::parse(&Json::from(origin)).map_err(unusable)?;
        client.egress().admit(&url, &grants)?;
        let (runtime, warned) = (OnceLock::new(), Mutex::default());
        Ok(Collector(Arc::new(Shared { url, grants, client, runtime, warned })))
    }

    /// Returns the URL of an OTLP path.
    pub(super) fn endpoint(&self, path: &str) -> String {
        format!("{}/{path}", self.0.url)
    }

    /// Sets the runtime for requests, since exporters call from their own threads.
    pub(super) fn run_on(&self, runtime: Handle) {
        // The first runtime stays.
        let _ = self.0.runtime.set(runtime);
    }

    /// Warns that the collector misses data, at most once per [`MIN_WARNING_INTERVAL`].
    pub(super) fn warn(&self, why: &str) {
        let now = Instant::now();
        let mut warned = self.0.warned.lock();
        if warned.is_none_or(|last| now.duration_since(last) >= MIN_WARNING_INTERVAL) {
            *warned = Some(now);
            let url = &self.0.url;
            tracing::warn!(target: "flowcell::telemetry", "the collector at {url} misses telemetry: {why}");
        }
    }
}

/// Returns the scheme and host of a URL.
fn origin(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    (end > 0 && !rest[..end].contains('@')).then(|| &url[..scheme.len() + 3 + end])
}

impl Shared {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let failed = |failure: Failure| HttpError::from(failure.message);
        let (head, body) = request.into_parts();
        let to = self.client.egress().admit(&head.uri.to_string(), &self.grants).map_err(failed)?;
        let message = Message { method: head.method, headers: head.headers, body, reuse: true, run: None, until: None };
        let sent = self.client.send(&Tenant::local(), &to, message, &mut Progress::Unsent).await;
        let mut answer = sent.map_err(failed)?;
        let mut body = Vec::new();
        while let Some(piece) = answer.body.next().await.map_err(failed)? {
            if body.len() + piece.len() > MAX_ANSWER_BYTES {
                return Err("its answer is too large".into());
            }
            body.extend_from_slice(&piece);
        }
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let (collector, shared) = (self.clone(), self.0.clone());
        let exchange = async move { tokio::time::timeout(REQUEST_TIMEOUT, shared.exchange(request)).await };
        Box::pin(async move {
            let runtime = collector.0.runtime.get().ok_or("nothing is sent yet")?;
            let answer = match runtime.spawn(exchange).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()).into()),
                Err(error) => Err(error.into()),
            };
            match &answer {
                Err(error) => collector.warn(&error.to_string()),
                Ok(answer) if !answer.status().is_success() => {
                    collector.warn(&format!("it answers {}", answer.status()))
                }
                Ok(_) => {}
            }
            answer
        })
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Collector").field(&self.0.url).finish()
    }
}
