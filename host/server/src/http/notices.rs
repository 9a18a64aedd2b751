//! The stream of notices: what changes over all runs and jobs of a tenant.

use std::convert::Infallible;

use axum::{
    http::HeaderMap,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use flowcell_engine::Permit;
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio::{
    sync::watch,
    time::{Instant, Interval, interval_at},
};
use utoipa::IntoParams;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    broadcast::{
        Frame,
        ring::{Lagged, Listener},
    },
    connection::wait_for_server_end,
    feeds::{Feed, missed, notice::gap},
    intake::QueryParams,
};

/// The maximum time of a cursor after the server's own time, in milliseconds. The clocks of processes differ.
const MAX_AHEAD_MS: u64 = 3_600_000;

/// The place at which a stream goes on.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Since {
    /// The id of the last received notice, unless `Last-Event-ID` has it.
    cursor: Option<String>,
}

/// The notices for one listener. It holds a permit for subscribers.
struct Notices {
    /// Notices that are not sent yet, in reverse order.
    first: Vec<Frame>,
    listener: Listener,
    _feed: std::sync::Arc<Feed>,
    ends: watch::Receiver<bool>,
    request: Request,
    /// Ticks once per heartbeat interval. At each tick, the caller's token has to be checked again.
    token_checks: Interval,
    _permit: Permit,
}

impl Notices {
    /// Returns the next notice. Returns `None` if the server ends, or if the caller's token is no longer valid.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.first.pop() {
                return Some(frame);
            }
            tokio::select! {
                received = self.listener.receive() => return Some(received.unwrap_or_else(|Lagged| gap())),
                () = wait_for_server_end(&mut self.ends) => return None,
                _ = self.token_checks.tick() => if !self.request.is_known() { return None },
            }
        }
    }
}

/// Stream notices of changes over all runs and jobs of the tenant, as server-sent events
///
/// The types are `run:created`, `run:resumed`, `run:parked`, `run:ended`, `run:failed`, `gate:opened`, `gate:closed`,
/// `job:changed`, `ready` and `gap`. A notice has at least `{ type, ts }`, and those of a run `runId`, `flow` and `status`.
/// Each change is told at least once, at most 2 s after it is on stable storage, by every process of a store. Several
/// changes of one run within a second may be told as the last one. A request with `Last-Event-ID`, or with `cursor`, goes
/// on after that notice and may repeat some. `ready` says that the stream has begun, and `gap { lists }` that notices are
/// missing: read those lists again (`runs`, `gates`, `jobs`). A deleted run and a called run have no notices.
#[utoipa::path(get, path = "/v1/stream", tag = "events", operation_id = "stream_notices",
    params(Since, ("Last-Event-ID" = Option<u64>, Header)),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn stream(
    request: Request,
    QueryParams(Since { cursor }): QueryParams<Since>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last = match headers.get("last-event-id") {
        Some(last) => Some(last.to_str().unwrap_or_default().to_owned()),
        None => cursor,
    };
    let app = request.app.clone();
    let latest = request.host.now().saturating_add(MAX_AHEAD_MS);
    let parse = |text: String| {
        let time = text.parse::<u64>().ok().filter(|time| *time <= latest);
        time.ok_or_else(|| {
            ApiError::bad_request("`Last-Event-ID` and `cursor` must be the id of a notice of this stream")
        })
    };
    let from = last.map(parse).transpose()?;
    let full = || ApiError::busy_and_close("too_many_subscribers", "too many streams of events are open");
    let permit = app.subscribers.try_take(request.tenant(), 1).ok_or_else(full)?;
    let feed = app.feeds.get_or_start(&app.broadcasts, &request.host);
    // From here on the ring keeps new notices, so none is lost while the earlier ones are read.
    let listener = feed.listen();
    let reading = request.clone();
    let mut first = reading.blocking(move |request| missed(&request.host, request.runs()?, from)).await?;
    first.reverse();
    let token_checks = interval_at(Instant::now() + app.heartbeat, app.heartbeat);
    let notices =
        Notices { first, listener, _feed: feed, ends: app.ends.subscribe(), request, token_checks, _permit: permit };
    Ok(Sse::new(as_server_sent(notices)).keep_alive(KeepAlive::new().interval(app.heartbeat)).into_response())
}

fn as_server_sent(notices: Notices) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(notices, |mut notices| async {
        let frame = notices.next().await?;
        let event = Event::default().event(&*frame.kind).data(String::from_utf8_lossy(&frame.text));
        let event = match frame.seq {
            Some(id) => event.id(id.to_string()),
            None => event,
        };
        Some((Ok(event), notices))
    })
}
