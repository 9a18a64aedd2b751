//! Answers of `flowcell:host/http` that the guest reads in chunks.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{BlobRef, BuiltIn, Calls, Failure, Json, Value, code, part};

use super::{
    Sandbox,
    reply::{Body, Reply, unexpected_reply},
};
use crate::bindings::http::{Opened, StreamTimes};

/// The maximum number of streams that a guest has open at a time.
const MAX_OPEN_STREAMS: usize = 8;
/// The maximum size in bytes of a chunk of a body that the host has as a whole.
const CHUNK_BYTES: usize = 64 << 10;

/// The open streams of an attempt.
#[derive(Default)]
pub(super) struct Streams {
    open: HashMap<u32, Stream>,
    last: u32,
}

/// An answer that the guest reads.
struct Stream {
    source: Source,
    /// The number of bytes that the guest has received.
    offset: u64,
}

/// The origin of the bytes.
#[derive(Clone)]
enum Source {
    /// A stream of the host with this id. The request of a stream with `once` must not be repeated.
    Host { id: Arc<str>, once: bool },
    /// A whole text, such as the reply of a test.
    Text(Arc<str>),
    /// A whole file.
    File(BlobRef),
}

impl Streams {
    fn unknown(number: u32) -> Failure {
        let message = format!("no stream is open under the number {number}: it has ended, was closed, or is unknown");
        Failure::new(code::INVALID_INPUT, message)
    }
}

/// Fails if the guest has as many open streams as it may have.
pub(super) fn check_open(streams: &Streams) -> Result<(), Failure> {
    if streams.open.len() < MAX_OPEN_STREAMS {
        return Ok(());
    }
    let message = format!("the node has {MAX_OPEN_STREAMS} open streams already; close or finish one first");
    Err(Failure::new(code::LIMIT_EXCEEDED, message))
}

/// Takes in the reply of `open-stream`.
pub(super) fn opened(streams: &mut Streams, reply: &Value) -> Result<Opened, Failure> {
    let Reply { status, headers, body } = Reply::read(reply)?;
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let json = reply.json();
    let source = match (json.get("stream"), body) {
        (Some(Json::String(id)), _) => {
            Source::Host { id: id.clone(), once: json.get("once") == Some(&Json::Bool(true)) }
        }
        (Some(_), _) => return Err(unexpected_reply()),
        (None, Body::Empty) => Source::Text("".into()),
        (None, Body::Text(text)) => Source::Text(text.into()),
        (None, Body::File(blob, _)) => Source::File(blob),
    };
    streams.last += 1;
    streams.open.insert(streams.last, Stream { source, offset: 0 });
    Ok(Opened { stream: streams.last, status, headers })
}

/// Returns the next chunk of a stream, and none at its end. Closes the stream at its end and after a failure.
pub(super) async fn next_chunk(
    sandbox: &mut Sandbox,
    number: u32,
) -> wasmtime::Result<Result<Option<Vec<u8>>, Failure>> {
    let Some(Stream { source, offset }) = sandbox.streams.open.get(&number) else {
        sandbox.meter.count_call()?;
        return Ok(Err(Streams::unknown(number)));
    };
    let (source, offset) = (source.clone(), *offset);
    let read = match source {
        Source::Host { id, once } => {
            let reply = sandbox.call(BuiltIn::Http, "read-stream", host_args(id, offset, once)).await?;
            sandbox.update_clock();
            reply.and_then(|reply| chunk(&*sandbox.calls, &reply, offset))
        }
        whole => {
            sandbox.meter.count_call()?;
            part_of(&*sandbox.calls, &whole, offset)
        }
    };
    let read = read.map(|bytes| Some(bytes).filter(|bytes| !bytes.is_empty()));
    match (&read, sandbox.streams.open.get_mut(&number)) {
        (Ok(Some(bytes)), Some(stream)) => stream.offset += bytes.len() as u64,
        _ => _ = sandbox.streams.open.remove(&number),
    }
    Ok(read)
}

/// Closes a stream. Does nothing if it is not open.
pub(super) async fn close(sandbox: &mut Sandbox, number: u32) -> wasmtime::Result<()> {
    let Some(Stream { source: Source::Host { id, once }, offset }) = sandbox.streams.open.remove(&number) else {
        return sandbox.meter.count_call();
    };
    if let Err(failure) = sandbox.call(BuiltIn::Http, "close-stream", host_args(id, offset, once)).await? {
        tracing::debug!("cannot close a stream: {failure}");
    }
    sandbox.update_clock();
    Ok(())
}

/// Returns the bytes of a recorded chunk; none at the end of the stream.
fn chunk(calls: &dyn Calls, reply: &Value, expected: u64) -> Result<Vec<u8>, Failure> {
    let json = reply.json();
    if json.get("offset").and_then(Json::as_u64) != Some(expected) {
        return Err(unexpected_chunk());
    }
    if json.get("end") == Some(&Json::Bool(true)) {
        return Ok(Vec::new());
    }
    let bytes = if let Some(text) = json.get("text").and_then(Json::as_str) {
        text.as_bytes().to_vec()
    } else if let Some(hex) = json.get("hex").and_then(Json::as_str) {
        from_hex(hex).ok_or_else(unexpected_chunk)?
    } else {
        let file = json.get("file").cloned().unwrap_or_default();
        let blob = Value::from(file).blob().ok_or_else(unexpected_chunk)?;
        calls.bytes(&blob)?.to_vec()
    };
    let is_whole = json.get("size").and_then(Json::as_u64) == Some(bytes.len() as u64) && !bytes.is_empty();
    if is_whole { Ok(bytes) } else { Err(unexpected_chunk()) }
}

fn part_of(calls: &dyn Calls, whole: &Source, offset: u64) -> Result<Vec<u8>, Failure> {
    match whole {
        Source::Text(text) => Ok(part(text.as_bytes(), offset, CHUNK_BYTES).to_vec()),
        Source::File(blob) => calls.read_part(blob, offset, CHUNK_BYTES),
        Source::Host { .. } => Err(unexpected_chunk()),
    }
}

/// Returns the members of the arguments that say how long a stream may take.
pub(super) fn time_args(times: StreamTimes) -> impl Iterator<Item = (Arc<str>, Json)> {
    let member = |name: &str, ms: Option<u32>| ms.map(|ms| (name.into(), Json::from(ms)));
    [member("idleMs", times.idle_ms), member("totalMs", times.total_ms)].into_iter().flatten()
}

fn host_args(id: Arc<str>, offset: u64, once: bool) -> Json {
    let members = [("stream", Json::from(id)), ("offset", Json::from(offset))];
    Json::object(members.into_iter().chain(once.then(|| ("once", Json::from(true)))))
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

fn unexpected_chunk() -> Failure {
    Failure::retryable(code::LOST_WORKER, "`http.read-stream` has an unexpected reply")
}

#[cfg(test)]
mod tests {
    use super::from_hex;

    #[test]
    fn chunks_that_are_not_text_are_hexadecimal() {
        assert_eq!(from_hex("00fF7a"), Some(vec![0, 255, 122]));
        for wrong in ["0", "0g", "é0", "+1"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
