//! Routes that read the events of runs, by page or as a live stream.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, StatusCode, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use flowcell_contract::RunId;
use flowcell_engine::Permit;
use flowcell_runtime::paging::{PAGE_BYTES, PageLimits};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    sync::watch,
    time::{Instant, Interval, interval_at},
};
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    broadcast::{Frame, Page, Subscriber, read_page},
    connection::wait_for_server_end,
    event_filter::EventFilter,
    intake::{PathParam, QueryParams, parse_path_id},
    page::check_limit,
};

/// The default number of events in a page.
const DEFAULT_PAGE_EVENTS: usize = 200;
/// The maximum number of events in a page.
pub(crate) const MAX_PAGE_EVENTS: usize = 1_000;

/// The statuses, as the store names them, of runs that have ended. Such a run gets no more events.
const ENDED_STATUSES: [&str; 3] = ["succeeded", "failed", "cancelled"];

/// The range of events that a request asks for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventRange {
    /// The number of the first event.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// List only events of these types: `task:failed,log`.
    #[serde(rename = "type")]
    #[param(pattern = r"^[A-Za-z0-9:_-]{1,64}(,[A-Za-z0-9:_-]{1,64}){0,31}$")]
    kinds: Option<String>,
    /// List only events of the task at this address, such as `each[3].pay`.
    task: Option<String>,
    /// List only events with smaller numbers. Without `from` the page has the last of them.
    #[param(minimum = 0)]
    before: Option<u64>,
    /// Cut members of events that are larger than this many bytes as JSON text.
    #[param(minimum = 0, maximum = 1048576)]
    preview: Option<u64>,
}

/// The events that a stream has.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamRange {
    /// The number of the first event, unless `Last-Event-ID` names the one before it.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// Send only events of these types: `task:failed,log`. `lagged` is sent always.
    #[serde(rename = "type")]
    #[param(pattern = r"^[A-Za-z0-9:_-]{1,64}(,[A-Za-z0-9:_-]{1,64}){0,31}$")]
    kinds: Option<String>,
    /// Send only events of the task at this address, such as `each[3].pay`.
    task: Option<String>,
    /// Cut members of events that are larger than this many bytes as JSON text.
    #[param(minimum = 0, maximum = 1048576)]
    preview: Option<u64>,
}

/// A page of events.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document reads it; pages are written piece by piece")]
pub(crate) struct EventPage {
    /// The events in order: `{ v, seq, ts, tenant, runId, type, … }`. A page has at most 16 MiB, so it may have fewer
    /// than `limit`.
    #[schema(value_type = Vec<Object>)]
    events: Vec<Box<RawValue>>,
    /// The `from` of the next page.
    next: u64,
    /// With `before` and without `from`: the `before` of the page before this one. Absent if no event is before this page.
    #[schema(nullable = false)]
    previous: Option<u64>,
}

/// List the events of a run by page
///
/// With `type`, `task`, `before` or `preview` a page looks at 100,000 events at most, so it may have fewer events than `limit`,
/// or none, while events follow: go on until `next` does not change. With `preview` an event with large members has them in
/// `cut`, by their names: `{ bytes, start }`, the size of the JSON text and its first 1,000 characters.
#[utoipa::path(get, path = "/v1/runs/{id}/events", tag = "events", params(("id" = String, Path,), EventRange),
    responses((status = 200, body = EventPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(which): QueryParams<EventRange>,
) -> Result<Response, ApiError> {
    let run = parse_path_id(&id)?;
    let most = PageLimits { items: check_limit(which.limit, DEFAULT_PAGE_EVENTS, MAX_PAGE_EVENTS)?, bytes: PAGE_BYTES };
    let EventRange { from, kinds, task, before, preview, .. } = which;
    let filter = EventFilter::parse(kinds.as_deref(), task, before, preview)?;
    let mut permit = request.app.broadcasts.take_page_permit(request.tenant(), most).await;
    let (page, previous) = match filter {
        None => {
            let read = request.blocking(move |request| {
                request.row(&run)?;
                read_page(&mut request.host.events(&run)?, from.unwrap_or(0), most)
            });
            (read.await?, None)
        }
        // A filter may read the whole journal for a small page.
        Some(filter) => {
            let read = request.reading(move |request| {
                request.row(&run)?;
                filter.read(&mut request.host.events(&run)?, from, most)
            });
            read.await?
        }
    };
    permit.shrink(page.bytes);
    Ok(page_response(page, previous, permit))
}

/// Returns a response that sends the page as JSON text, piece by piece, and holds its permit until the last piece is
/// sent.
fn page_response(page: Page, previous: Option<u64>, permit: Permit) -> Response {
    let mut pieces = vec![Bytes::from_static(b"{\"events\":[")];
    for (index, frame) in page.frames.into_iter().enumerate() {
        pieces.extend((index > 0).then_some(Bytes::from_static(b",")));
        pieces.push(frame.text);
    }
    let previous = previous.map_or_else(String::new, |previous| format!(",\"previous\":{previous}"));
    pieces.push(format!("],\"next\":{}{previous}}}", page.next).into());
    let length = pieces.iter().map(Bytes::len).sum::<usize>();
    let held = move |piece| {
        let _held = &permit;
        Ok::<Bytes, Infallible>(piece)
    };
    let headers = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, length.to_string())];
    (headers, Body::from_stream(stream::iter(pieces.into_iter().map(held)))).into_response()
}

/// The past and future events of a run for one subscriber. It holds a permit for subscribers.
pub(crate) struct RunEvents {
    pub(crate) subscriber: Subscriber,
    pub(crate) ends: watch::Receiver<bool>,
    request: Request,
    /// Ticks once per heartbeat interval. At each tick, the caller's token has to be checked again.
    token_checks: Interval,
    _permit: Permit,
}

impl RunEvents {
    /// Subscribes to a run, from the event `from` on.
    ///
    /// Returns 429 if too many streams are open, and 404 if the run does not exist. Returns 400 if `from` is after the
    /// run's next event.
    pub(crate) async fn begin(request: Request, run: RunId, from: u64) -> Result<RunEvents, ApiError> {
        let app = request.app.clone();
        let full = || ApiError::busy_and_close("too_many_subscribers", "too many streams of events are open");
        let permit = app.subscribers.try_take(request.tenant(), 1).ok_or_else(full)?;
        let host = request.host.clone();
        let asking = request.clone();
        let (run, (row, coming)) = request
            .blocking(move |request| {
                let row = request.row(&run)?;
                Ok((run, row))
            })
            .await?;
        if from > coming {
            let why = format!("the run has {coming} events so far; `from` must be at most that number, not {from}");
            return Err(ApiError::bad_request(why));
        }
        let heard = from == coming && ENDED_STATUSES.contains(&&*row.status);
        let subscriber = Subscriber::new(host, &app.broadcasts, run, from, coming, heard);
        let token_checks = interval_at(Instant::now() + app.heartbeat, app.heartbeat);
        Ok(RunEvents { subscriber, ends: app.ends.subscribe(), request: asking, token_checks, _permit: permit })
    }

    /// Returns true if the run has ended and the client already has its last event.
    fn is_over(&self) -> bool {
        self.subscriber.is_over()
    }

    /// Returns the next event. Returns `None` if the run has ended, if the server ends, or if the caller's token is no
    /// longer valid.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            tokio::select! {
                frame = self.subscriber.next() => return frame,
                () = wait_for_server_end(&mut self.ends) => return None,
                _ = self.token_checks.tick() => if !self.request.is_known() { return None },
            }
        }
    }
}

/// Stream the past and future events of a run as server-sent events, until the run ends
///
/// `id` is the number of an event (`seq`), and a request with `Last-Event-ID` continues after it. Live deltas have no
/// id. A client that is too slow receives `lagged { from, to }`, and reads the missing events at `events?from=`. After
/// all events of an ended run, the answer is 204, so that browsers do not reconnect. `type`, `task` and `preview` select and
/// cut events as in a page.
#[utoipa::path(get, path = "/v1/runs/{id}/events/stream", tag = "events",
    params(("id" = String, Path,), StreamRange, ("Last-Event-ID" = Option<u64>, Header)),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 204, description = "the run has ended, and no event is left"),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn stream(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(StreamRange { from, kinds, task, preview }): QueryParams<StreamRange>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let run = parse_path_id(&id)?;
    let filter = EventFilter::parse(kinds.as_deref(), task, None, preview)?;
    let from = match headers.get("last-event-id") {
        None => from.unwrap_or(0),
        Some(last) => {
            let last = last.to_str().ok().and_then(|last| last.parse::<u64>().ok());
            last.map(|last| last.saturating_add(1))
                .ok_or_else(|| ApiError::bad_request("`Last-Event-ID` must be the number of an event"))?
        }
    };
    let heartbeat = request.app.heartbeat;
    let watching = RunEvents::begin(request, run, from).await?;
    if watching.is_over() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(Sse::new(as_server_sent(watching, filter)).keep_alive(KeepAlive::new().interval(heartbeat)).into_response())
}

fn as_server_sent(watching: RunEvents, filter: Option<EventFilter>) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((watching, filter), |(mut watching, filter)| async {
        let frame = loop {
            let frame = watching.next().await?;
            match &filter {
                None => break frame,
                Some(filter) => {
                    if let Some(frame) = filter.pass(frame) {
                        break frame;
                    }
                }
            }
        };
        let event = Event::default().data(String::from_utf8_lossy(&frame.text));
        let event = if frame.kind.is_empty() { event } else { event.event(&*frame.kind) };
        let event = match frame.seq {
            Some(seq) => event.id(seq.to_string()),
            None => event,
        };
        Some((Ok(event), (watching, filter)))
    })
}
