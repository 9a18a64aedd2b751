//! The compression of answers with gzip, for clients that ask for it. Streams of events are sent as they are. A page that is
//! sent in pieces reaches the client piece by piece.

use std::{
    io::Write,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes, HttpBody, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};
use hyper::body::Frame;

use crate::http::permit::MAX_UNCOUNTED_BYTES;

/// Minimum number of bytes of an answer that is compressed.
pub(crate) const MIN_COMPRESSED_BYTES: u64 = 1_024;
/// The media type of pages. Some have no known size, because the server still makes their ends.
const PAGE: &str = "text/html";
/// The media types that are compressed.
const TYPES: [&str; 5] = ["application/json", PAGE, "text/css", "text/javascript", "image/svg+xml"];

/// Middleware that compresses answers of a known size, and pages.
///
/// The length of a compressed answer tells something about its content. No answer has a secret of one tenant beside a text
/// that another one has chosen, and a new token is random and sent once.
pub(crate) async fn compress(request: Request, next: Next) -> Response {
    let accepts = accepts_gzip(request.headers());
    let response = next.run(request).await;
    if !accepts || !is_worth_it(&response) {
        return response;
    }
    let is_small = response.body().size_hint().exact().is_some_and(|bytes| bytes <= MAX_UNCOUNTED_BYTES);
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let body = Body::new(Compressed::new(body));
    if !is_small {
        return Response::from_parts(parts, body);
    }
    // A small answer has its length in the header.
    match to_bytes(body, usize::MAX).await {
        Ok(packed) => Response::from_parts(parts, Body::from(packed)),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Returns whether a client accepts gzip, and has not given it the quality 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|each| {
        let mut parts = each.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_gzip && quality.is_none_or(|quality| quality.parse::<f32>().is_ok_and(|quality| quality > 0.0))
    })
}

fn is_worth_it(response: &Response) -> bool {
    let text = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let kind = text(header::CONTENT_TYPE).and_then(|kind| kind.split(';').next()).unwrap_or_default();
    let size = response.body().size_hint().exact();
    size.map_or(kind == PAGE, |bytes| bytes >= MIN_COMPRESSED_BYTES)
        && TYPES.contains(&kind)
        && text(header::CONTENT_ENCODING).is_none()
}

/// A body that compresses another one piece by piece. It keeps the other body, which may hold permits, until its end.
struct Compressed {
    plain: Body,
    /// True if each piece has to reach the client at once.
    is_in_pieces: bool,
    /// `None` after the last piece.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Compressed {
    fn new(plain: Body) -> Compressed {
        let is_in_pieces = plain.size_hint().exact().is_none();
        Compressed { plain, is_in_pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl HttpBody for Compressed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            let Some(encoder) = &mut self.encoder else { return Poll::Ready(None) };
            if !encoder.get_ref().is_empty() {
                let packed = std::mem::take(encoder.get_mut());
                return Poll::Ready(Some(Ok(Frame::data(packed.into()))));
            }
            let piece = match ready!(Pin::new(&mut self.plain).poll_frame(context)) {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let last = self.encoder.take().map(GzEncoder::finish);
                    return Poll::Ready(
                        last.map(|last| last.map(|last| Frame::data(last.into())).map_err(axum::Error::new)),
                    );
                }
            };
            let is_in_pieces = self.is_in_pieces;
            let written = self.encoder.as_mut().map_or(Ok(()), |encoder| {
                encoder.write_all(&piece)?;
                if is_in_pieces { encoder.flush() } else { Ok(()) }
            });
            if let Err(error) = written {
                return Poll::Ready(Some(Err(axum::Error::new(error))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::io::Read;

    use axum::{Router, middleware, routing::get};
    use flate2::read::GzDecoder;
    use futures_util::{FutureExt, StreamExt, stream::once};
    use tokio::sync::oneshot;
    use tower::ServiceExt;

    use super::*;

    #[test]
    fn gzip_is_accepted_unless_its_quality_is_zero() {
        for (line, expected) in [
            ("gzip", true),
            ("br, GZIP ;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("gzip;q=x", false),
            ("br", false),
            ("x-gzip, gzippy", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(line))]);
            assert_eq!(accepts_gzip(&headers), expected, "{line:?}");
        }
    }

    #[tokio::test]
    async fn the_beginning_of_a_page_arrives_before_its_end_is_made() {
        let (finish, end) = oneshot::channel::<&str>();
        let pieces = once(async { "<h1>A</h1>" }).chain(once(end.map(Result::unwrap))).map(Ok::<_, axum::Error>);
        let mut packed = Body::new(Compressed::new(Body::from_stream(pieces))).into_data_stream();
        let mut plain = flate2::write::GzDecoder::new(Vec::new());
        plain.write_all(&packed.next().await.unwrap().unwrap()).unwrap();
        plain.flush().unwrap();
        assert_eq!(plain.get_ref(), b"<h1>A</h1>");
        finish.send("<p>the end</p>").unwrap();
        while let Some(piece) = packed.next().await {
            plain.write_all(&piece.unwrap()).unwrap();
        }
        assert_eq!(plain.finish().unwrap(), b"<h1>A</h1><p>the end</p>");
    }

    #[tokio::test]
    async fn answers_of_any_size_are_read_as_they_were() {
        let of = |bytes: usize| (0..bytes).map(|index| b"0123456789 {}"[index * index % 13]).collect::<Vec<u8>>();
        for (bytes, kind, is_packed) in [
            (0, "application/json", false),
            (1_023, "application/json", false),
            (1_024, "application/json", true),
            (64 << 10, "text/html; charset=utf-8", true),
            (3 << 20, "application/json", true),
            (5_000, "text/event-stream", false),
            (5_000, "application/octet-stream", false),
        ] {
            let answer = move || async move { ([(header::CONTENT_TYPE, kind)], of(bytes)) };
            let router = Router::new().route("/", get(answer)).layer(middleware::from_fn(compress));
            let ask =
                |accepted| Request::builder().uri("/").header("accept-encoding", accepted).body(Body::empty()).unwrap();
            let plain = router.clone().oneshot(ask("br")).await.unwrap();
            assert_eq!(plain.headers().get(header::CONTENT_ENCODING), None);
            assert_eq!(to_bytes(plain.into_body(), usize::MAX).await.unwrap(), of(bytes));
            let packed = router.oneshot(ask("gzip")).await.unwrap();
            assert_eq!(packed.headers().contains_key(header::CONTENT_ENCODING), is_packed, "{bytes} {kind}");
            if is_packed {
                let has_length = packed.body().size_hint().exact().is_some();
                assert_eq!(has_length, bytes as u64 <= MAX_UNCOUNTED_BYTES, "{bytes}");
                let packed = to_bytes(packed.into_body(), usize::MAX).await.unwrap();
                let mut unpacked = Vec::new();
                GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
                assert!(unpacked == of(bytes) && packed.len() < bytes / 2, "{bytes} {kind} {}", packed.len());
            }
        }
    }
}
