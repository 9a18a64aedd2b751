//! Messages that arrive as a stream of events.
//!
//! A stream that answers a request yields an answer even if it breaks a limit, contains invalid data, or ends too
//! early. An error then takes the place of the answer, and [`ConnectionState`] stores the reason. There is one
//! exception: if a stream ends too early after an event with an id, it yields no answer, because the library `rmcp` can
//! resume the stream.

use std::{collections::VecDeque, sync::Arc};

use flowcell_contract::Failure;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};
use sse_stream::Sse;

use super::{MAX_ANSWER, MAX_LINE, failures::from_exchange, read_message, watch::ConnectionState};
use crate::{
    client::Body,
    code,
    sse::{Caps, Event, EventStream, Unreadable},
};

const CAPS: Caps = Caps { line: MAX_LINE, event: MAX_ANSWER, stream: MAX_ANSWER };

/// The state of reading one stream.
struct StreamReader {
    body: Body,
    events: EventStream,
    waiting: VecDeque<Sse>,
    /// The id of the request whose answer this stream has not yet given, if any.
    awaited: Option<RequestId>,
    /// True if an event had an id, so that the library can resume the stream.
    is_resumable: bool,
    ended: bool,
    state: Arc<ConnectionState>,
}

/// Reads the events of a body. `awaited` is the id of the request that the body answers, if any.
pub(super) fn read_stream(
    body: Body,
    awaited: Option<RequestId>,
    state: Arc<ConnectionState>,
) -> BoxStream<'static, Result<Sse, sse_stream::Error>> {
    let events = EventStream::new(CAPS);
    let reading =
        StreamReader { body, events, waiting: VecDeque::new(), awaited, is_resumable: false, ended: false, state };
    stream::unfold(reading, |mut reading| async move { reading.next().await.map(|event| (Ok(event), reading)) }).boxed()
}

/// Returns true if a message is the answer to this request.
pub(super) fn answers(message: &ServerJsonRpcMessage, id: &RequestId) -> bool {
    match message {
        ServerJsonRpcMessage::Response(response) => response.id == *id,
        ServerJsonRpcMessage::Error(error) => error.id.as_ref().is_none_or(|own| own == id),
        _ => false,
    }
}

impl StreamReader {
    async fn next(&mut self) -> Option<Sse> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            match self.body.next().await {
                Ok(Some(piece)) => {
                    let mut found = Vec::new();
                    let fed = self.events.feed(&piece, |event| found.push(event));
                    found.into_iter().for_each(|event| self.take(event));
                    fed.unwrap_or_else(|why| self.fail(unreadable(why)));
                }
                Ok(None) => self.end(Failure::retryable(code::MCP_BROKEN, "the stream ended before the answer")),
                Err(failure) => self.end(from_exchange(failure)),
            }
        }
    }

    fn take(&mut self, event: Event) {
        if self.ended {
            return;
        }
        let Event { name, data, id, retry } = event;
        self.is_resumable |= id.as_ref().is_some_and(|id| !id.is_empty());
        let is_message = matches!(name.as_str(), "" | "message") && !data.trim().is_empty();
        if is_message {
            match read_message(data.as_bytes(), "an event of the stream is not a message") {
                Ok(message) => {
                    if let Err(failure) = self.state.handle_incoming(&message) {
                        return self.fail(failure);
                    }
                    if self.awaited.as_ref().is_some_and(|id| answers(&message, id)) {
                        self.awaited = None;
                    }
                }
                Err(failure) => return self.fail(failure),
            }
        }
        let event = Some(name).filter(|name| !name.is_empty());
        self.waiting.push_back(Sse { event, data: is_message.then_some(data), id, retry });
    }

    /// Handles the end of the body. If the stream can be resumed, the library requests the remaining events. Otherwise
    /// an error takes the place of an answer that is still missing.
    fn end(&mut self, failure: Failure) {
        match self.is_resumable {
            true => self.ended = true,
            false => self.fail(failure),
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.ended = true;
        let Some(id) = self.awaited.take() else { return };
        let error = ErrorData::internal_error("the connection of the stream broke", None);
        self.state.store_failure(id.clone(), failure);
        let answer = serde_json::to_string(&ServerJsonRpcMessage::error(error, Some(id))).ok();
        self.waiting.push_back(Sse { data: answer, ..Sse::default() });
    }
}

fn unreadable(why: Unreadable) -> Failure {
    match why {
        Unreadable::Line => {
            Failure::new(code::MCP_TOO_LARGE, format!("a line of the stream is longer than {} bytes", CAPS.line))
        }
        Unreadable::Event | Unreadable::Stream => {
            Failure::new(code::MCP_TOO_LARGE, format!("the answer is larger than {} bytes", CAPS.stream))
        }
        Unreadable::Encoding => Failure::new(code::MCP_PROTOCOL, "the stream is not UTF-8"),
    }
}
