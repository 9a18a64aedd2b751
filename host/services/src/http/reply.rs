//! Converts the answer of a server to the reply of a call of `http`.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use flowcell_contract::{BINARY, BlobRef, Failure, Json, Tenant, Value};
use hyper::{
    StatusCode,
    header::{
        CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
        TRANSFER_ENCODING,
    },
};
use tokio::task::yield_now;

use super::{
    Limits,
    large::{Arrived, Arriving},
    limits::BodyLimit,
};
use crate::{
    client::{Answer, Body, encodings},
    code,
    files::AsyncBlobs,
    redaction::Redaction,
};

/// Members of a reply.
type Members = Vec<(&'static str, Json)>;

/// The longest media type of a stored file, in bytes.
const MAX_MIME: usize = 255;

/// Bytes of a packed body that are unpacked together.
const PACKED_BYTES: usize = 1024;

/// Bytes that are unpacked together at most before other tasks go on.
const YIELD_BYTES: usize = 64 * 1024;

/// Headers about the connection, which a reply omits.
const CONNECTION_HEADERS: [HeaderName; 3] = [CONNECTION, TRANSFER_ENCODING, HeaderName::from_static("keep-alive")];

/// Reads answers of servers. It has the limits, the store for files, and the redaction of secrets.
pub(super) struct AnswerReader<'a> {
    pub(super) limits: &'a Limits,
    pub(super) files: &'a AsyncBlobs,
    pub(super) tenant: &'a Tenant,
    /// False for answers to `HEAD`, which announce a body without sending it.
    pub(super) has_body: bool,
    /// True if the node left the encoding to the host: gzip is decompressed, any other encoding is refused. False if
    /// the node sent `accept-encoding`: the body stays unchanged.
    pub(super) unpack: bool,
    /// The redaction of the secrets in the request. The reply must not contain them.
    pub(super) redaction: &'a Redaction,
}

impl AnswerReader<'_> {
    /// Reads an answer to its end, and returns the reply of the call.
    pub(super) async fn reply(&self, answer: Answer) -> Result<Value, Failure> {
        let Answer { status, mut headers, body } = answer;
        let encodings = encodings(&headers);
        let packed = self.unpack && matches!(encodings.as_str(), "gzip" | "x-gzip");
        let announced = announced(&headers);
        if self.has_body && self.redaction.is_empty() && (encodings.is_empty() || !self.unpack) {
            self.check_length(announced, BodyLimit::Answer(self.limits.file_body))?;
            let (files, tenant, most) = (self.files, self.tenant, self.limits.file_body);
            let arriving = Arriving { files, tenant, in_memory: self.limits.text, most, announced };
            let body = match arriving.read(body).await? {
                Arrived::InMemory(bytes) => self.content(&headers, bytes).await?,
                Arrived::File(writer) => file(writer.finish(mime(&headers)).await?),
            };
            return Ok(self.reply_of(status, &headers, body));
        }
        self.check_length(announced, BodyLimit::Searched(self.limits.answer_body as u64))?;
        let bytes = self.read(body, packed).await?;
        if self.unpack && !packed && !encodings.is_empty() && !bytes.is_empty() {
            return Err(unrequested(&self.redaction.text(&encodings).await, "at most `gzip`"));
        }
        self.redaction.headers(&mut headers).await;
        let bytes = self.redacted(&headers, bytes).await;
        if packed && !bytes.is_empty() {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
        }
        let body = self.content(&headers, bytes).await?;
        Ok(self.reply_of(status, &headers, body))
    }

    /// Returns the members of the reply that opens a stream, and the body, which is not read yet.
    pub(super) async fn open(&self, answer: Answer) -> Result<(Members, Body), Failure> {
        let Answer { status, mut headers, body } = answer;
        let encodings = encodings(&headers);
        if self.unpack && !encodings.is_empty() {
            return Err(unrequested(&self.redaction.text(&encodings).await, "no encoding"));
        }
        self.check_length(announced(&headers), BodyLimit::Stream(self.limits.stream_bytes))?;
        self.redaction.headers(&mut headers).await;
        let status = Json::from(u64::from(status.as_u16()));
        Ok((vec![("status", status), ("headers", self.reply_headers(&headers))], body))
    }

    fn reply_of(&self, status: StatusCode, headers: &HeaderMap, body: Json) -> Value {
        Value::from(Json::object([
            ("status", Json::from(u64::from(status.as_u16()))),
            ("headers", self.reply_headers(headers)),
            ("body", body),
        ]))
    }

    /// Returns the body with secrets redacted. A text that is JSON stays JSON.
    async fn redacted(&self, headers: &HeaderMap, bytes: Vec<u8>) -> Vec<u8> {
        match bytes.len() <= self.limits.text && is_textual(&mime(headers)) {
            true => self.redaction.document(bytes).await,
            false => self.redaction.bytes(bytes).await,
        }
    }

    fn reply_headers(&self, headers: &HeaderMap) -> Json {
        let pairs = headers.iter().filter(|(name, _)| !CONNECTION_HEADERS.contains(name));
        let text = |value: &HeaderValue| Json::from(decode_text(value.as_bytes()));
        Json::array(pairs.map(|(name, value)| Json::array([Json::from(name.as_str()), text(value)])))
    }

    /// Refuses a body whose announced length is too large, before reading it.
    fn check_length(&self, announced: Option<u64>, limit: BodyLimit) -> Result<(), Failure> {
        match self.has_body && announced.is_some_and(|length| length > limit.bytes()) {
            true => Err(limit.exceeded()),
            false => Ok(()),
        }
    }

    async fn read(&self, mut body: Body, packed: bool) -> Result<Vec<u8>, Failure> {
        let mut sink = Sink::new(packed, self.limits.unpacked_body);
        let mut received = 0;
        while let Some(piece) = body.next().await? {
            received += piece.len();
            if received > self.limits.answer_body {
                return Err(BodyLimit::Searched(self.limits.answer_body as u64).exceeded());
            }
            // A kilobyte unpacks to a megabyte at most. Between two of them the other tasks of the thread go on.
            for part in piece.chunks(if packed { PACKED_BYTES } else { piece.len().max(1) }) {
                let before = sink.len();
                sink.write(part)?;
                if packed && sink.len() - before > YIELD_BYTES {
                    yield_now().await;
                }
            }
        }
        if received == 0 { Ok(Vec::new()) } else { sink.finish() }
    }

    async fn content(&self, headers: &HeaderMap, bytes: Vec<u8>) -> Result<Json, Failure> {
        if bytes.is_empty() {
            return Ok(Json::Null);
        }
        let mime = mime(headers);
        let bytes = match bytes.len() <= self.limits.text && is_textual(&mime) {
            true => match String::from_utf8(bytes) {
                Ok(text) if (text.is_ascii() || is_utf8(&mime)) && json_bytes(&text) <= self.limits.escaped_text => {
                    return Ok(Json::object([("text", Json::from(text))]));
                }
                Ok(text) => text.into_bytes(),
                Err(error) => error.into_bytes(),
            },
            false => bytes,
        };
        Ok(file(self.files.put(self.tenant, bytes, mime).await?))
    }
}

/// Returns the body of a reply that is a file.
fn file(blob: BlobRef) -> Json {
    Json::object([("file", Value::from(blob).json().clone())])
}

/// Returns the length of the body that the headers announce.
fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the length of a text as JSON, in bytes.
fn json_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | 0x08 | 0x09 | 0x0a | 0x0c | 0x0d => 2,
        0x00..=0x1f => 6,
        _ => 1,
    };
    2 + text.bytes().map(escaped).sum::<usize>()
}

/// Receives a body in pieces, and decompresses it if necessary.
enum Sink {
    Plain(Capped),
    Gzip(Box<MultiGzDecoder<Capped>>),
}

/// Bytes up to a limit. Decompression stops at the limit, even in the middle of a piece.
struct Capped {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for Capped {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.limit - self.bytes.len() {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn new(packed: bool, limit: usize) -> Sink {
        let capped = Capped { bytes: Vec::new(), limit, full: false };
        if packed { Sink::Gzip(Box::new(MultiGzDecoder::new(capped))) } else { Sink::Plain(capped) }
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let written = match self {
            Sink::Plain(capped) => capped.write_all(piece),
            Sink::Gzip(decoder) => decoder.write_all(piece),
        };
        written.map_err(|error| self.refused(&error))
    }

    fn finish(mut self) -> Result<Vec<u8>, Failure> {
        if let Sink::Gzip(decoder) = &mut self {
            let finished = decoder.try_finish();
            finished.map_err(|error| self.refused(&error))?;
        }
        Ok(std::mem::take(&mut self.capped_mut().bytes))
    }

    /// Returns the number of bytes that the body has so far.
    fn len(&self) -> usize {
        match self {
            Sink::Plain(capped) => capped.bytes.len(),
            Sink::Gzip(decoder) => decoder.get_ref().bytes.len(),
        }
    }

    fn capped_mut(&mut self) -> &mut Capped {
        match self {
            Sink::Plain(capped) => capped,
            Sink::Gzip(decoder) => decoder.get_mut(),
        }
    }

    fn refused(&mut self, error: &io::Error) -> Failure {
        let capped = self.capped_mut();
        match capped.full {
            true => BodyLimit::Searched(capped.limit as u64).exceeded(),
            false => Failure::new(code::PROTOCOL, format!("the body of the answer is not gzip: {error}")),
        }
    }
}

/// Returns the failure for a body with unrequested encodings, which the host cannot search for secrets.
fn unrequested(encodings: &str, requested: &str) -> Failure {
    let message = format!(
        "the server encoded the body of its answer with `{encodings}`, but the host requested {requested}; to \
         receive such a body unchanged, send your own `accept-encoding`"
    );
    Failure::new(code::PROTOCOL, message)
}

/// Returns the media type of an answer, or a default if the header is unusable.
fn mime(headers: &HeaderMap) -> String {
    let named = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::trim);
    named.filter(|mime| !mime.is_empty() && mime.len() <= MAX_MIME).unwrap_or(BINARY).to_owned()
}

fn is_textual(mime: &str) -> bool {
    let essence = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let Some((kind, sub)) = essence.split_once('/') else { return false };
    kind == "text"
        || sub.ends_with("+json")
        || sub.ends_with("+xml")
        || matches!(
            (kind, sub),
            (
                "application",
                "json"
                    | "xml"
                    | "javascript"
                    | "ecmascript"
                    | "x-javascript"
                    | "x-www-form-urlencoded"
                    | "x-ndjson"
                    | "jsonl"
                    | "yaml"
            )
        )
}

/// Returns true unless a media type names another character set.
fn is_utf8(mime: &str) -> bool {
    let parameters = mime.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let charset =
        parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset")).map(|(_, value)| value).next();
    charset.is_none_or(|charset| {
        let charset = charset.trim().trim_matches('"');
        ["utf-8", "utf8", "us-ascii"].iter().any(|own| charset.eq_ignore_ascii_case(own))
    })
}

/// Decodes bytes as UTF-8, or else as Latin-1, which accepts all bytes.
fn decode_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}
