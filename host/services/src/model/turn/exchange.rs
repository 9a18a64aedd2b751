//! One attempt over the network: a request and its streamed answer.

use std::time::Duration;

use bytes::Bytes;
use flowcell_contract::{Effect, Json};
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, USER_AGENT},
};

use super::{
    super::{
        attempt_error::{self, AttemptError, Report},
        clock::Wait,
        delta_buffer::Delta,
        dialect::{self, Interrupted},
    },
    State, Turn,
};
use crate::{
    client::{Answer, Body, Message, encodings},
    code,
    redaction::Redaction,
    secret::Key,
    sse::{Caps, EventStream, Unreadable},
};

/// Maximum bytes of a line, an event and a whole stream.
const CAPS: Caps = Caps { line: 4 * 1024 * 1024, event: 8 * 1024 * 1024, stream: 64 * 1024 * 1024 };
/// Maximum bytes of texts, thoughts and tool inputs of a reply.
const MAX_WRITTEN_BYTES: usize = 16 * 1024 * 1024;
/// Maximum bytes of an error body that are read.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// Maximum size in bytes of the data after the end of a reply that the host reads, so that the connection can be
/// reused.
const MAX_REST_BYTES: usize = 16 * 1024;
/// Time limit for reading the data after the end of a reply.
const REST_TIMEOUT: Duration = Duration::from_secs(1);
/// Headers with the provider's id of a request.
const REQUEST_ID_HEADERS: [&str; 2] = ["request-id", "x-request-id"];

impl Turn {
    /// Sends the request and reads the whole stream. On success, `state.assembly` has the complete reply. Returns the
    /// redaction of the API key that the request carried.
    pub(super) async fn exchange(&self, state: &mut State) -> Result<Redaction, AttemptError> {
        let key = match &self.provider.key {
            Some(source) => Some(source.read(&self.environment, code::MODEL_AUTH).await?),
            None => None,
        };
        let redaction = Redaction::new(key.clone(), state.budget.clone());
        state.deltas.set_redaction(redaction.with_budget(state.stream_budget.clone()));
        let to = self.client.egress().admit(&dialect::request_url(&self.provider.profile), &self.provider.origin)?;
        let message = self.message(key.as_ref(), state)?;
        let tenant = &self.outgoing.caller.tenant;
        let sent = self.client.send(tenant, &to, message, &mut state.progress).await;
        let answer = sent.map_err(|failure| attempt_error::from_exchange(failure, false))?;
        state.request_id = match request_id(&answer.headers) {
            Some(id) => Some(attempt_error::readable(&redaction.text(id).await)),
            None => None,
        };
        if answer.status != StatusCode::OK {
            return Err(self.read_refusal(answer, &redaction).await);
        }
        check_head(&answer.headers)?;
        match self.read(answer.body, state).await {
            Ok(()) => Ok(redaction),
            Err(Unread::Failed(failed)) => Err(failed),
            Err(Unread::Interrupted(Interrupted::Reported(error))) => {
                Err(Report::read(&error).attempt_error(None, &redaction).await)
            }
            Err(Unread::Interrupted(Interrupted::Nonsense(why))) => {
                Err(AttemptError::nonsense(redaction.text(&why).await))
            }
        }
    }

    fn message(&self, key: Option<&Key>, state: &State) -> Result<Message, AttemptError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        // A compressed answer could be a decompression bomb, and text streams are small.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("flowcell/", env!("CARGO_PKG_VERSION"))));
        headers.extend(self.provider.headers.iter().cloned());
        dialect::add_headers(&self.provider.profile, key, &mut headers)?;
        let reuse = self.outgoing.effect != Effect::Once;
        let run = Some(self.outgoing.caller.run_id.clone());
        Ok(Message { method: Method::POST, headers, body: state.body.clone(), reuse, run, until: None })
    }

    /// Converts an answer with another status than 200 to the error of the attempt, with the key redacted.
    async fn read_refusal(&self, answer: Answer, redaction: &Redaction) -> AttemptError {
        let Answer { status, headers, body } = answer;
        let text = self.error_body(body).await;
        let report = Json::parse(&String::from_utf8_lossy(&text)).map(|json| Report::read(&json)).unwrap_or_default();
        let mut failed = report.attempt_error(Some(status), redaction).await;
        failed.wait = attempt_error::asked_wait(&headers, self.provider.profile.dialect, self.clock.now());
        let hopeless = [code::MODEL_QUOTA, code::MODEL_AUTH].contains(&failed.failure.code.as_str());
        if let Some(again) = attempt_error::should_retry(&headers).filter(|_| !hopeless) {
            failed.failure.retryable = again;
        }
        failed
    }

    /// Reads the body of an answer with an error, up to [`MAX_ERROR_BYTES`] bytes. Stops early if the body breaks off
    /// or takes longer than the idle limit.
    async fn error_body(&self, mut body: Body) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut idle = self.clock.sleep(Wait::Idle, self.provider.profile.idle());
        while bytes.len() < MAX_ERROR_BYTES {
            tokio::select! {
                biased;
                piece = body.next() => match piece {
                    Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                    _ => break,
                },
                () = &mut idle => break,
            }
        }
        bytes
    }

    async fn read(&self, mut body: Body, state: &mut State) -> Result<(), Unread> {
        let mut events = EventStream::new(CAPS);
        loop {
            let Some(piece) = self.next_piece(&mut body, state).await? else { break };
            let mut found = Vec::new();
            events.feed(&piece, |event| found.push(event)).map_err(unreadable)?;
            for event in found {
                if state.assembly.is_complete() {
                    continue;
                }
                let mut told = Vec::new();
                let taken = state.assembly.take(&event, &mut |delta: Delta| told.push(delta));
                for delta in told {
                    state.deltas.add(delta).await;
                }
                taken.map_err(Unread::Interrupted)?;
            }
            if state.assembly.used().written > MAX_WRITTEN_BYTES {
                return Err(
                    AttemptError::nonsense(format!("the reply is larger than {MAX_WRITTEN_BYTES} bytes")).into()
                );
            }
            if state.assembly.is_complete() {
                tokio::spawn(read_rest(body));
                break;
            }
        }
        if !state.assembly.may_end() {
            return Err(AttemptError::new(
                code::MODEL_STREAM_TRUNCATED,
                "the stream ended before the end of the reply",
            )
            .into());
        }
        if !state.assembly.is_complete() {
            tracing::debug!(provider = %self.provider.name, "a stream ended without its last event");
        }
        Ok(())
    }

    /// Returns the next piece of a stream, and reports waiting text in the meantime. Fails with `model_timeout` after
    /// the idle limit.
    async fn next_piece(&self, body: &mut Body, state: &mut State) -> Result<Option<Bytes>, Unread> {
        let within = self.provider.profile.idle();
        let mut idle = self.clock.sleep(Wait::Idle, within);
        loop {
            tokio::select! {
                biased;
                // This branch comes first, so that a stream without pauses is reported too.
                () = state.deltas.flush_when_due() => {}
                piece = body.next() => {
                    return piece.map_err(|failure| attempt_error::from_exchange(failure, true).into());
                }
                () = &mut idle => {
                    let message = format!("the provider sent nothing for {} ms", within.as_millis());
                    return Err(AttemptError::new(code::MODEL_TIMEOUT, message).into());
                }
            }
        }
    }
}

/// The reason that a stream was not read to its end.
enum Unread {
    Failed(AttemptError),
    Interrupted(Interrupted),
}

impl From<AttemptError> for Unread {
    fn from(failed: AttemptError) -> Unread {
        Unread::Failed(failed)
    }
}

fn unreadable(why: Unreadable) -> Unread {
    let message = match why {
        Unreadable::Line => format!("a line of the stream is longer than {} bytes", CAPS.line),
        Unreadable::Event => format!("an event of the stream is longer than {} bytes", CAPS.event),
        Unreadable::Stream => format!("the stream is longer than {} bytes", CAPS.stream),
        Unreadable::Encoding => "the stream is not UTF-8".into(),
    };
    AttemptError::nonsense(message).into()
}

/// Refuses an answer that is not a stream of events, before reading its body.
fn check_head(headers: &HeaderMap) -> Result<(), AttemptError> {
    let value = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let kind = value(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "text/event-stream" {
        return Err(AttemptError::nonsense(
            "the answer is not a stream of events; check that this is the address of the provider",
        ));
    }
    match encodings(headers).is_empty() {
        true => Ok(()),
        false => Err(AttemptError::nonsense("the stream is compressed, which the host did not request")),
    }
}

fn request_id(headers: &HeaderMap) -> Option<&str> {
    REQUEST_ID_HEADERS.iter().find_map(|name| headers.get(*name)?.to_str().ok())
}

/// Reads the data after the end of a reply, up to [`MAX_REST_BYTES`] bytes and for at most [`REST_TIMEOUT`].
async fn read_rest(mut body: Body) {
    let rest = async {
        let mut bytes = 0;
        while let Ok(Some(piece)) = body.next().await {
            bytes += piece.len();
            if bytes > MAX_REST_BYTES {
                break;
            }
        }
    };
    // The result does not matter: the reply is complete already.
    drop(tokio::time::timeout(REST_TIMEOUT, rest).await);
}
