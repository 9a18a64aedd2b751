//! The bodies of large files, which pass the server in pieces: an upload with more than 32 MiB or of unknown size, the
//! content of such a file, and parts of files.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use flowcell_contract::PIECE_BYTES;
use flowcell_platform::files::{FileRow, MAX_FILE, NewFile};
use futures_util::{StreamExt, stream};

use super::{
    api_error::ApiError,
    app::Request,
    intake::BodyTimeout,
    permit::{Guarded, unread_responses},
};

/// Size in bytes of the pieces of one body that are in memory at a time.
const BODY_BYTES: u64 = 2 * PIECE_BYTES as u64;

/// A body that is not read yet.
pub(crate) struct LargeBody {
    body: Body,
    patience: Duration,
}

impl LargeBody {
    /// Takes the body of a request. Returns 413 if its announced length is too large.
    pub(crate) fn of_request(request: axum::extract::Request) -> Result<LargeBody, ApiError> {
        use hyper::body::Body as _;
        let patience = BodyTimeout::of_request(&request);
        match request.body().size_hint().lower() > MAX_FILE {
            true => Err(too_large()),
            false => Ok(LargeBody { body: request.into_body(), patience }),
        }
    }

    /// Stores the body as a file of the tenant. Each piece must arrive in the time that a whole body has otherwise.
    pub(crate) async fn store(self, request: Request, new: NewFile) -> Result<FileRow, ApiError> {
        let LargeBody { body, patience } = self;
        if let Some(permit) = request.place.upgrade() {
            let taken = tokio::time::timeout(patience, permit.take_body(BODY_BYTES)).await;
            taken.map_err(|_| unread_responses())?;
        }
        let mut upload = request.clone().blocking(|request| Ok(request.host.files().begin()?)).await?;
        let mut arriving = body.into_data_stream();
        let mut piece = Vec::new();
        loop {
            let is_last = tokio::time::timeout(patience, fill(&mut arriving, &mut piece)).await;
            let is_last = is_last.map_err(|_| late(patience))??;
            if upload.size() + piece.len() as u64 > MAX_FILE {
                return Err(too_large());
            }
            let bytes = std::mem::take(&mut piece);
            upload = request
                .clone()
                .blocking(move |_| {
                    upload.write(&bytes)?;
                    Ok(upload)
                })
                .await?;
            if is_last {
                break;
            }
        }
        request.blocking(move |request| Ok(request.host.files().put_upload(new, upload)?)).await
    }
}

/// Reads until there is a piece. Returns true at the end of the body.
async fn fill(
    arriving: &mut (impl futures_util::Stream<Item = Result<Bytes, axum::Error>> + Unpin),
    piece: &mut Vec<u8>,
) -> Result<bool, ApiError> {
    while piece.len() < PIECE_BYTES {
        match arriving.next().await {
            Some(Ok(bytes)) => piece.extend_from_slice(&bytes),
            Some(Err(_)) => return Err(ApiError::bad_request("the body is incomplete")),
            None => return Ok(true),
        }
    }
    Ok(false)
}

fn too_large() -> ApiError {
    let why = format!("a file may have at most {MAX_FILE} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)
}

fn late(patience: Duration) -> ApiError {
    let why = format!("the next {PIECE_BYTES} bytes of the body did not arrive within {} s", patience.as_secs_f32());
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", why)
}

/// A part of a file: from the first byte to the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    begin: u64,
    end: u64,
}

/// Returns the part that the header `range` asks for. `None`: the whole file, because there is no such header, or one
/// with several parts or another unit, which a server may ignore. Returns 416 for a part after the end.
pub(crate) fn asked_part(headers: &HeaderMap, size: u64) -> Result<Option<Part>, ApiError> {
    let beyond = || {
        let why = format!("the file has {size} bytes, and `range` asks for bytes after its end");
        ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", why)
    };
    let text = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let Some((first, last)) = text.and_then(|text| text.trim().strip_prefix("bytes=")?.split_once('-')) else {
        return Ok(None);
    };
    let part = match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => Part { begin: first, end: last.saturating_add(1).min(size) },
        (Ok(first), Err(_)) if last.trim().is_empty() => Part { begin: first, end: size },
        (Err(_), Ok(count)) if first.trim().is_empty() => Part { begin: size - count.min(size), end: size },
        _ => return Ok(None),
    };
    if part.begin < part.end { Ok(Some(part)) } else { Err(beyond()) }
}

/// Returns a response with a file, or a part of it, that is read while it is sent. It holds a permit for its pieces.
pub(crate) fn respond(
    request: Request,
    row: FileRow,
    part: Option<Part>,
    headers: [(header::HeaderName, HeaderValue); 3],
) -> Result<Response, ApiError> {
    let permit = request.app.responses.try_take(request.tenant(), BODY_BYTES).ok_or_else(unread_responses)?;
    let size = row.size;
    let Part { begin, end } = part.unwrap_or(Part { begin: 0, end: size });
    let pieces = stream::try_unfold((request, row, begin), move |(request, row, at)| async move {
        if at >= end {
            return Ok(None);
        }
        // A read that ends with a piece of the store reads no more than it returns.
        let until = (at / PIECE_BYTES as u64 + 1).saturating_mul(PIECE_BYTES as u64).min(end);
        let (asked, length) = (row.clone(), (until - at) as usize);
        let read = request
            .clone()
            .blocking(move |request| Ok(request.host.files().read(&asked, at, length)?))
            .await
            .map_err(|_| std::io::Error::other("the file cannot be read"))?;
        if read.is_empty() {
            return Err(std::io::Error::other("the file ends too early"));
        }
        let next = at + read.len() as u64;
        Ok(Some((Bytes::from(read), (request, row, next))))
    });
    let body = Body::new(Guarded::new(Body::from_stream(pieces), permit));
    let mut response = (headers, body).into_response();
    let answered = response.headers_mut();
    answered.insert(header::CONTENT_LENGTH, HeaderValue::from(end - begin));
    answered.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if part.is_some() {
        let range = HeaderValue::from_str(&format!("bytes {begin}-{}/{size}", end - 1)).map_err(ApiError::internal)?;
        answered.insert(header::CONTENT_RANGE, range);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_asked_part_is_within_the_file() {
        let asked = |range: &str| {
            let headers = [(header::RANGE, HeaderValue::from_str(range).unwrap())].into_iter().collect();
            asked_part(&headers, 10).map_err(|_| ()).map(|part| part.map(|part| (part.begin, part.end)))
        };
        for (range, part) in [
            ("bytes=0-0", Ok(Some((0, 1)))),
            ("bytes=2-4", Ok(Some((2, 5)))),
            ("bytes=2-", Ok(Some((2, 10)))),
            ("bytes=-3", Ok(Some((7, 10)))),
            ("bytes=-30", Ok(Some((0, 10)))),
            ("bytes=9-18446744073709551615", Ok(Some((9, 10)))),
            ("bytes=10-", Err(())),
            ("bytes=10-11", Err(())),
            ("bytes=-0", Err(())),
            ("bytes=4-2", Ok(None)),
            ("bytes=0-1,3-4", Ok(None)),
            ("lines=0-1", Ok(None)),
            ("bytes=a-b", Ok(None)),
        ] {
            assert_eq!(asked(range), part, "{range}");
        }
        assert_eq!(asked_part(&HeaderMap::new(), 10).map_err(|_| ()), Ok(None));
    }
}
