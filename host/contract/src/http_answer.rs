//! The answers that flows give to HTTP posts. The node `control.respond` checks an answer before the flow goes on, and
//! the server checks it again before it sends it.

use crate::Json;

/// The type of the nodes that answer the post which started the run.
pub const RESPOND: &str = "control.respond";
/// Maximum size of the body of an answer in bytes.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Maximum number of headers that a flow sets in an answer.
pub const MAX_ANSWER_HEADERS: usize = 32;
/// Maximum size in bytes of the names and values of these headers together.
pub const MAX_ANSWER_HEADER_BYTES: usize = 8 << 10;

const CONTENT_TYPE: &str = "content-type";
/// The statuses whose answers have no body.
const EMPTY: [u16; 3] = [204, 205, 304];
/// The headers that a flow may not set: those of the connection, those that the server sets, and those that count for
/// the other pages of the server's origin.
const REFUSED: [&str; 44] = [
    "accept-ch",
    "activate-storage-access",
    "alt-svc",
    "clear-site-data",
    "connection",
    "content-encoding",
    "content-length",
    "content-security-policy",
    "content-security-policy-report-only",
    "critical-ch",
    "date",
    "document-isolation-policy",
    "document-policy",
    "expect-ct",
    "feature-policy",
    "forwarded",
    "host",
    "keep-alive",
    "nel",
    "observe-browsing-topics",
    "origin-agent-cluster",
    "permissions-policy",
    "public-key-pins",
    "public-key-pins-report-only",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "server",
    "service-worker-allowed",
    "set-cookie",
    "set-cookie2",
    "set-login",
    "speculation-rules",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "use-as-dictionary",
    "via",
    "www-authenticate",
    "x-content-type-options",
    "x-frame-options",
    "x-real-ip",
];
/// The beginnings of further names of such headers. Proxies read `x-accel-redirect`, `x-sendfile` and the like, and send a
/// file or an address of their own network in place of the answer.
const REFUSED_PREFIXES: [&str; 12] = [
    "access-control-",
    "attribution-reporting-",
    "cross-origin-",
    "proxy-",
    "sec-",
    "secure-session-",
    "x-accel-",
    "x-forwarded-",
    "x-lighttpd-",
    "x-litespeed-",
    "x-reproxy-",
    "x-sendfile",
];

/// An answer to a post, which fulfils all rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status, 200 to 599.
    pub status: u16,
    /// The headers by their names in lowercase. With a body, `content-type` is among them.
    pub headers: Vec<(String, String)>,
    /// The body. `None`: the answer has no body.
    pub body: Option<String>,
}

impl HttpAnswer {
    /// Reads the output of a `control.respond`: `{ "status", "headers"?, "body"? }`. Returns why the answer cannot be sent.
    pub fn from_output(output: &Json) -> Result<HttpAnswer, String> {
        let status = output.get("status").and_then(Json::as_u64).ok_or("`status` is not a whole number")?;
        let status = check_status(status)?;
        let mut headers = Vec::new();
        for (name, value) in output.get("headers").and_then(Json::as_object).into_iter().flatten() {
            let value =
                value.as_str().ok_or_else(|| format!("the value of the header `{}` is not a text", shown(name)))?;
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        check_headers(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        let body = output.get("body");
        let (body, media_type) = match body.map(|body| (body, body.as_str())) {
            Some((_, Some(text))) => (Some(text.to_owned()), "text/plain; charset=utf-8"),
            Some((value, None)) => (Some(value.to_text()), "application/json"),
            None => (None, ""),
        };
        check_body(status, body.as_ref().map(String::len))?;
        if body.is_some() && !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
            headers.push((CONTENT_TYPE.to_owned(), media_type.to_owned()));
        }
        Ok(HttpAnswer { status, headers, body })
    }
}

/// Checks the status of an answer.
pub fn check_status(status: u64) -> Result<u16, String> {
    let status = u16::try_from(status).ok().filter(|status| (200..=599).contains(status));
    status.ok_or_else(|| "`status` must be a whole number from 200 to 599".to_owned())
}

/// Checks the headers of an answer.
pub fn check_headers<'h>(headers: impl Iterator<Item = (&'h str, &'h str)>) -> Result<(), String> {
    let (mut names, mut bytes) = (Vec::new(), 0);
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        check_header(&lower, value)?;
        bytes += name.len() + value.len();
        if names.contains(&lower) {
            return Err(format!("the header `{lower}` is there twice; names of headers ignore case"));
        }
        names.push(lower);
        if names.len() > MAX_ANSWER_HEADERS || bytes > MAX_ANSWER_HEADER_BYTES {
            let most = MAX_ANSWER_HEADER_BYTES >> 10;
            return Err(format!("an answer may have {MAX_ANSWER_HEADERS} headers of {most} KiB together"));
        }
    }
    Ok(())
}

fn check_header(name: &str, value: &str) -> Result<(), String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("`{}` is not the name of a header", shown(name)));
    }
    if REFUSED.contains(&name) || REFUSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Err(format!("a flow may not set the header `{}`", shown(name)));
    }
    if !value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(format!("the value of the header `{}` may have printable ASCII characters only", shown(name)));
    }
    let lower = value.to_ascii_lowercase();
    let is_web = |scheme: &str| lower.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty());
    if name == "location" && !is_web("https://") && !is_web("http://") {
        return Err("the header `location` must begin with `https://` or `http://`".to_owned());
    }
    Ok(())
}

/// Checks the size of a body in bytes; `None`: the answer has no body.
pub fn check_body(status: u16, bytes: Option<usize>) -> Result<(), String> {
    match bytes {
        Some(_) if EMPTY.contains(&status) => {
            Err(format!("an answer with the status {status} has no body; remove `body`"))
        }
        Some(bytes) if bytes > MAX_ANSWER_BYTES => {
            Err(format!("the body has {bytes} bytes; an answer may have {} MiB", MAX_ANSWER_BYTES >> 20))
        }
        _ => Ok(()),
    }
}

/// Cuts a name for a message, and escapes it.
fn shown(name: &str) -> String {
    name.chars().take(64).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    fn read(output: serde_json::Value) -> Result<HttpAnswer, String> {
        HttpAnswer::from_output(&Json::from(output))
    }

    #[test]
    fn the_body_has_the_type_that_the_flow_chooses_or_its_own() {
        let type_of = |output| {
            let answer = read(output).unwrap();
            let found = answer.headers.iter().find(|(name, _)| name == CONTENT_TYPE).map(|(_, value)| value.clone());
            (found.unwrap_or_default(), answer.body.unwrap_or_default())
        };
        for (output, expected) in [
            (json!({ "status": 200 }), ("", "")),
            (json!({ "status": 200, "body": { "a": 1 } }), ("application/json", r#"{"a":1}"#)),
            (json!({ "status": 200, "body": null }), ("application/json", "null")),
            (json!({ "status": 200, "body": "<b>" }), ("text/plain; charset=utf-8", "<b>")),
            (json!({ "status": 200, "body": "<b>", "headers": { "Content-Type": "text/html" } }), ("text/html", "<b>")),
            (
                json!({ "status": 400, "body": [], "headers": { "content-type": "application/x+json" } }),
                ("application/x+json", "[]"),
            ),
        ] {
            assert_eq!(type_of(output.clone()), (expected.0.to_owned(), expected.1.to_owned()), "{output}");
        }
    }

    #[test]
    fn headers_that_are_not_safe_are_refused() {
        let with = |name: &str, value: &str| read(json!({ "status": 200, "headers": { name: value } }));
        for name in REFUSED.iter().copied().chain([
            "Set-Cookie",
            "CONTENT-LENGTH",
            "Access-Control-Allow-Origin",
            "Proxy-Authenticate",
            "X-Accel-Redirect",
            "X-Sendfile",
            "X-LIGHTTPD-send-file",
            "X-LiteSpeed-Location",
            "X-Reproxy-URL",
            "Speculation-Rules",
            "Activate-Storage-Access",
            "Public-Key-Pins",
            "Via",
            "Host",
            "X-Forwarded-Host",
            "Secure-Session-Registration",
            "",
            "a b",
            "a:b",
            "a\r\nset-cookie",
            "ä",
        ]) {
            assert!(with(name, "1").is_err(), "{name:?}");
        }
        for value in ["a\r\nset-cookie: b=1", "a\nb", "a\0", "\u{7f}", "ä", "\t"] {
            assert!(with("x-note", value).is_err(), "{value:?}");
        }
        for place in
            ["javascript:alert(1)", "data:text/html,x", "//evil.test", "/console", "", "https://", "ftp://a.test"]
        {
            assert!(with("location", place).is_err(), "{place}");
        }
        for (name, value) in
            [("Location", "HTTPS://a.test/b"), ("x-note", ""), ("cache-control", "no-store"), ("etag", "\"1\"")]
        {
            assert!(with(name, value).is_ok(), "{name}");
        }
        assert!(read(json!({ "status": 200, "headers": { "X-A": "1", "x-a": "2" } })).is_err());
        assert!(read(json!({ "status": 200, "headers": { "x-a": 1 } })).is_err());
    }

    #[test]
    fn the_status_the_number_of_headers_and_the_body_are_bounded() {
        for status in [json!(100), json!(199), json!(600), json!(65_736), json!("200"), json!(200.5), json!(null)] {
            assert!(read(json!({ "status": status })).is_err(), "{status}");
        }
        for status in [204, 205, 304] {
            assert!(read(json!({ "status": status })).is_ok(), "{status}");
            assert!(read(json!({ "status": status, "body": "" })).is_err(), "{status}");
        }
        let headers =
            |count: usize| -> serde_json::Map<_, _> { (0..count).map(|n| (format!("x-{n}"), json!("v"))).collect() };
        assert!(read(json!({ "status": 200, "headers": headers(MAX_ANSWER_HEADERS) })).is_ok());
        assert!(read(json!({ "status": 200, "headers": headers(MAX_ANSWER_HEADERS + 1) })).is_err());
        let value = |bytes: usize| read(json!({ "status": 200, "headers": { "x": "v".repeat(bytes) } }));
        assert!(value(MAX_ANSWER_HEADER_BYTES - 1).is_ok() && value(MAX_ANSWER_HEADER_BYTES).is_err());
        let body = |bytes: usize| read(json!({ "status": 200, "body": "b".repeat(bytes) }));
        assert!(body(MAX_ANSWER_BYTES).is_ok() && body(MAX_ANSWER_BYTES + 1).is_err());
    }
}
