//! `flowcell:host/http` and `flowcell:host/queue`: calls that leave the host, and the events that they cause.

use flowcell_contract::{Arrival, BINARY, BlobRef, BuiltIn, Call, Calls, Failure, Json, Value, code};

use super::{
    Sandbox,
    capability::Answer,
    denial::Denier,
    reply::{Body, Reply},
    services, streams,
};
use crate::{
    bindings::{
        http::{self, Content, Opened, Request, Response, StreamTimes},
        queue::{self, CallResult, Event, Message},
    },
    failure,
};

/// The maximum size of an answer that a guest receives whole, in bytes. A larger answer is a file value.
const MAX_WHOLE_BYTES: u64 = 64 << 10;
/// The maximum length of a stored file's media type, in bytes.
const MAX_MIME_BYTES: usize = 255;

impl http::Host for Sandbox {
    async fn send(&mut self, request: Request) -> Answer<Response> {
        let args = match arguments(&*self.calls, request) {
            Ok(args) => args,
            Err(failure) => return self.refuse(failure),
        };
        let reply = self.call(BuiltIn::Http, "send", args).await?;
        self.update_clock();
        Ok(reply.and_then(|reply| response(&*self.calls, &reply)).map_err(failure::to_guest))
    }

    async fn start_send(&mut self, request: Request) -> Answer<u32> {
        let args = match arguments(&*self.calls, request) {
            Ok(args) => args,
            Err(failure) => return self.refuse(failure),
        };
        self.meter.count_call()?;
        self.forward_output(false).await;
        let call = Call { interface: BuiltIn::Http.name().into(), function: "start-send".into(), args: args.into() };
        let started = self.calls.start(call).await;
        self.open_http_calls.extend(&started);
        Ok(started.map_err(failure::to_guest))
    }

    async fn take_response(&mut self, id: u32) -> Answer<Response> {
        self.meter.count_call()?;
        let reply = self.replies.remove(&id).ok_or_else(|| {
            let message = format!("call {id} has no answer: it did not succeed, or its answer was taken before");
            Failure::new(code::INVALID_INPUT, message)
        });
        Ok(reply.and_then(|reply| response(&*self.calls, &reply)).map_err(failure::to_guest))
    }

    async fn open_stream(&mut self, request: Request, times: StreamTimes) -> Answer<Opened> {
        let args = streams::check_open(&self.streams).and_then(|()| arguments(&*self.calls, request));
        let args = match args {
            Ok(args) => args,
            Err(failure) => return self.refuse(failure),
        };
        let members = args.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone()));
        let args = Json::object(members.chain(streams::time_args(times)));
        let reply = self.call(BuiltIn::Http, "open-stream", args).await?;
        self.update_clock();
        Ok(reply.and_then(|reply| streams::opened(&mut self.streams, &reply)).map_err(failure::to_guest))
    }

    async fn read_stream(&mut self, stream: u32) -> Answer<Option<Vec<u8>>> {
        Ok(streams::next_chunk(self, stream).await?.map_err(failure::to_guest))
    }

    async fn close_stream(&mut self, stream: u32) -> wasmtime::Result<()> {
        streams::close(self, stream).await
    }

    async fn keep(&mut self, bytes: Vec<u8>, mime: String) -> Answer<String> {
        self.meter.count_call()?;
        let mime = mime.trim();
        let shown =
            !mime.is_empty() && mime.len() <= MAX_MIME_BYTES && mime.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let mime = if shown { mime } else { BINARY };
        let kept = self.calls.keep(bytes.into(), mime).map(|blob| Value::from(blob).text().to_owned());
        Ok(kept.map_err(failure::to_guest))
    }
}

impl http::Host for Denier<'_> {
    async fn send(&mut self, _: Request) -> Answer<Response> {
        self.answer(BuiltIn::Http)
    }

    async fn start_send(&mut self, _: Request) -> Answer<u32> {
        self.answer(BuiltIn::Http)
    }

    async fn take_response(&mut self, _: u32) -> Answer<Response> {
        self.answer(BuiltIn::Http)
    }

    async fn open_stream(&mut self, _: Request, _: StreamTimes) -> Answer<Opened> {
        self.answer(BuiltIn::Http)
    }

    async fn read_stream(&mut self, _: u32) -> Answer<Option<Vec<u8>>> {
        self.answer(BuiltIn::Http)
    }

    async fn close_stream(&mut self, _: u32) -> wasmtime::Result<()> {
        self.0.meter.count_call()
    }

    async fn keep(&mut self, _: Vec<u8>, _: String) -> Answer<String> {
        self.answer(BuiltIn::Http)
    }
}

impl queue::Host for Sandbox {
    async fn next_event(&mut self, timeout_ms: Option<u32>) -> wasmtime::Result<Option<Event>> {
        self.meter.count_call()?;
        self.forward_output(false).await;
        let arrival = self.calls.next(timeout_ms).await;
        self.update_clock();
        Ok(arrival.map(|arrival| match arrival {
            Arrival::Ended { id, outcome } => {
                let outcome = match self.open_service_calls.remove(&id) {
                    Some(call_id) => Ok(services::answer(call_id, outcome)),
                    None => outcome.map(|reply| announce(self, id, reply)).map_err(failure::to_guest),
                };
                Event::CallResult(CallResult { id, outcome })
            }
            Arrival::Message { agent_run, id, value } => Event::Message(Message {
                id: id.to_string(),
                agent_run: agent_run.to_string(),
                value: value.text().to_owned(),
            }),
            Arrival::Closing { agent_run } => Event::Closing(agent_run.to_string()),
        }))
    }
}

/// Returns the text with which `next-event` announces a reply to the guest. For an HTTP answer the text has only
/// the status; the guest reads the headers and the body later.
fn announce(sandbox: &mut Sandbox, id: u32, reply: Value) -> String {
    if !sandbox.open_http_calls.remove(&id) {
        return reply.text().to_owned();
    }
    let status = reply.json().get("status").cloned().unwrap_or_default();
    sandbox.replies.insert(id, reply);
    Json::object([("status", status)]).to_text()
}

fn arguments(calls: &dyn Calls, request: Request) -> Result<Json, Failure> {
    let headers = request.headers.into_iter().map(|(name, value)| Json::array([Json::from(name), Json::from(value)]));
    let mut members = vec![
        ("method", Json::from(request.method)),
        ("url", Json::from(request.url)),
        ("headers", Json::array(headers)),
    ];
    match request.body {
        Content::Empty => {}
        Content::Text(text) => members.push(("body", Json::object([("text", Json::from(text))]))),
        Content::Bytes(bytes) => {
            let file = Value::from(calls.keep(bytes.into(), BINARY)?);
            members.push(("body", Json::object([("file", file.json().clone())])));
        }
        Content::File(file) => {
            let value = Value::parse(&file).ok().filter(|value| value.blob().is_some());
            let file = value.ok_or_else(|| {
                let message = "the body must be a file `{ \"kind\": \"file\", \"fileId\": … }`";
                Failure::new(code::INVALID_INPUT, message)
            })?;
            members.push(("body", Json::object([("file", file.json().clone())])));
        }
    }
    members.extend(request.timeout_ms.map(|ms| ("timeoutMs", Json::from(ms))));
    Ok(Json::object(members))
}

fn response(calls: &dyn Calls, reply: &Value) -> Result<Response, Failure> {
    let Reply { status, headers, body } = Reply::read(reply)?;
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let body = match body {
        Body::Empty => Content::Empty,
        Body::Text(text) => Content::Text(text.to_owned()),
        Body::File(blob, file) => content_of(calls, &blob, file)?,
    };
    Ok(Response { status, headers, body })
}

fn content_of(calls: &dyn Calls, blob: &BlobRef, file: &Json) -> Result<Content, Failure> {
    if blob.size > MAX_WHOLE_BYTES {
        return Ok(Content::File(file.to_text()));
    }
    Ok(Content::Bytes(calls.bytes(blob)?.to_vec()))
}
