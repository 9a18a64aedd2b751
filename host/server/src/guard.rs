//! Protection against requests that a foreign web page makes a browser send. Requests with a foreign `Host` (DNS
//! rebinding) or with an `Origin` other than the server's own get 403. Over TLS the `Origin` must be one with TLS. So
//! do requests to the API that another site has caused, by the header `Sec-Fetch-Site`, and changes with a cookie that
//! no page of this server sends. The routes of health checks accept any `Host`, since they show nothing of the server.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    http::{
        api_error::ApiError,
        connection::MAX_HEAD_BYTES,
        cookie::{is_encrypted, reads_cookies},
    },
    origin::CONSOLE_NAME,
    steps_api,
};

/// The host names that the server accepts.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The port that the server listens on.
    port: u16,
    /// The port that clients leave out: 443 with TLS, 80 without.
    default_port: u16,
    /// Additional host names that the operator has listed, in lowercase and without ports.
    listed: Arc<[String]>,
    /// True if the server listens on a loopback address.
    loopback: bool,
}

impl Names {
    pub(super) fn new(port: u16, has_tls: bool, loopback: bool, listed: &[String]) -> Names {
        let default_port = if has_tls { 443 } else { 80 };
        Names { port, default_port, loopback, listed: listed.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Returns the host names that the operator has listed.
    pub(super) fn listed(&self) -> &[String] {
        &self.listed
    }

    /// Returns true if `host` names this server.
    pub(super) fn is_own(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        // A valid `Host` has no user part.
        if host.contains('@') {
            return false;
        }
        let name = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        let is_own_port = authority.port_u16().unwrap_or(self.default_port) == self.port;
        if self.listed.contains(&name) || name == CONSOLE_NAME && is_own_port {
            return true;
        }
        match name.parse::<IpAddr>() {
            // The owner of a foreign name can let it lead to this server, but a page with an address in its URL comes from
            // this address. Containers and gateways also give a server addresses and ports that it does not know.
            Ok(address) => !self.loopback || address.is_loopback() && is_own_port,
            Err(_) => name == "localhost" && is_own_port,
        }
    }
}

/// Middleware that rejects requests with a foreign `Host` or `Origin`, or with a head that is too large.
pub(super) async fn guard(State(names): State<Names>, request: Request, next: Next) -> Response {
    let chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let is_steps_api = request.uri().path().starts_with(steps_api::PREFIX);
    let mut answer = match check(&names, &request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    if is_steps_api {
        answer = steps_api::enveloped(answer);
    }
    // A chunked request may also have had a `Content-Length`, and a proxy in front may have trusted that length. The
    // connection is closed so that bytes after the body are not read as the next request.
    if chunked {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Returns the approximate size of a request's head in bytes.
fn head_bytes(request: &Request) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let uri = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    uri + headers.sum::<usize>()
}

/// Returns whether a path is that of a health check. Such a check often asks an address that is not one of clients.
fn is_health_check(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

fn check(names: &Names, request: &Request) -> Result<(), ApiError> {
    if head_bytes(request) > MAX_HEAD_BYTES {
        let why = format!("the head of the request is larger than {MAX_HEAD_BYTES} bytes");
        return Err(ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", why));
    }
    let header = |name| request.headers().get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
    let mut hosts = header(header::HOST);
    let target = request.uri().authority().map(Authority::as_str);
    let host = hosts.next().or(target).unwrap_or_default();
    // A request may name its host in its first line, too. A proxy in front may have looked at either.
    if let Some(target) = target.filter(|target| !target.eq_ignore_ascii_case(host)) {
        let why = format!("the request is for `{target}`, and its `Host` is `{host}`; send the same host twice");
        return Err(ApiError::bad_request(why));
    }
    let foreign = |code, why: String| Err(ApiError::new(StatusCode::FORBIDDEN, code, why));
    if hosts.next().is_some() || !names.is_own(host) && !is_health_check(request.uri().path()) {
        return foreign(
            "foreign_host",
            format!("unknown host `{host}`; use the address of the server, or add the name with `--name`"),
        );
    }
    let has_tls = is_encrypted(request.headers());
    let own = |origin: &str| {
        let parts = origin.split_once("://");
        parts.is_some_and(|(scheme, name)| name.eq_ignore_ascii_case(host) && (!has_tls || scheme == "https"))
    };
    match header(header::ORIGIN).find(|origin| !own(origin)) {
        Some(origin) => foreign("foreign_origin", format!("pages of `{origin}` may not access this server")),
        None => check_site(request),
    }
}

/// The header by which a browser says which site has caused a request.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Returns whether a browser opens the answer as a page of its own: not in a frame, and not as a part of a page.
fn is_opened(request: &Request) -> bool {
    let is = |name: &str, value: &str| request.headers().get(name).is_some_and(|given| given == value);
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

/// Refuses the requests that another site has caused. A link from another site may open a page of the console.
fn check_site(request: &Request) -> Result<(), ApiError> {
    let (path, headers, is_change) = (request.uri().path(), request.headers(), !request.method().is_safe());
    let is_page = path == "/console" || path.starts_with("/console/");
    if !is_page && !reads_cookies(path) {
        return Ok(());
    }
    let sites = headers.get_all(SEC_FETCH_SITE).iter().map(|site| site.to_str().unwrap_or_default());
    let sites: Vec<&str> = sites.collect();
    let foreign = |why: &str| Err(ApiError::new(StatusCode::FORBIDDEN, "foreign_site", why));
    if sites.iter().any(|site| !["same-origin", "none"].contains(site))
        && (is_change || !is_page || !is_opened(request))
    {
        return foreign("pages of other sites may not access this server");
    }
    // A browser sends one of the two headers with each change, and a page cannot leave them out.
    let is_own = sites.contains(&"same-origin") || headers.contains_key(header::ORIGIN);
    if is_change && headers.contains_key(header::COOKIE) && !headers.contains_key(header::AUTHORIZATION) && !is_own {
        return foreign(
            "a change with a cookie needs `Sec-Fetch-Site: same-origin` or an `Origin`; send a token instead",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_server_accepts_its_own_and_the_listed_host_names() {
        let names = Names::new(7171, false, true, &["flows.test".into()]);
        for own in ["127.0.0.1:7171", "localhost:7171", "LOCALHOST:7171", "[::1]:7171", "flows.test", "127.0.0.2:7171"]
        {
            assert!(names.is_own(own), "{own}");
        }
        assert!(names.is_own("flowcell.localhost:7171") && !names.is_own("flowcell.localhost:7172"));
        assert!(!names.is_own("other.localhost:7171") && !names.is_own("flowcell.localhost.evil.test:7171"));
        let foreign =
            ["", "evil.test:7171", "127.0.0.1", "127.0.0.1:80", "localhost.evil.test:7171", "10.0.0.1:7171", "a b"];
        for foreign in ["user@127.0.0.1:7171", "@127.0.0.1:7171", "evil.test@localhost:7171", "user@flows.test"] {
            assert!(!names.is_own(foreign), "{foreign}");
        }
        for foreign in foreign {
            assert!(!names.is_own(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_host_without_a_port_has_the_port_of_the_protocol() {
        for (port, has_tls, is_own) in [(443, true, true), (80, true, false), (80, false, true), (443, false, false)] {
            let names = Names::new(port, has_tls, true, &[]);
            for host in ["localhost", "127.0.0.1", "[::1]", "flowcell.localhost"] {
                assert_eq!(names.is_own(host), is_own, "{host} {port} {has_tls}");
                assert!(names.is_own(&format!("{host}:{port}")), "{host} {port} {has_tls}");
            }
        }
    }

    #[test]
    fn over_tls_a_page_without_tls_is_foreign() {
        let names = Names::new(7171, true, true, &[]);
        let allows = |origin: &str, is_encrypted: bool| {
            let request = Request::builder().header(header::HOST, "localhost:7171").header(header::ORIGIN, origin);
            let request = if is_encrypted { request.header("x-forwarded-proto", "https") } else { request };
            check(&names, &request.body(axum::body::Body::empty()).unwrap_or_default()).is_ok()
        };
        let (plain, encrypted) = ("http://localhost:7171", "https://localhost:7171");
        assert_eq!([allows(plain, true), allows(encrypted, true), allows(plain, false)], [false, true, true]);
        assert!(!allows("https://evil.test", true) && !allows("null", true));
    }

    #[test]
    fn a_server_for_other_machines_accepts_addresses_and_the_listed_host_names() {
        for listed in [&[][..], &["flows.test".to_owned()]] {
            let names = Names::new(7171, true, false, listed);
            // A gateway may lead another address or port to the server.
            for own in ["127.0.0.1:7171", "10.0.0.5:7171", "10.0.0.5", "203.0.113.9:8443", "[::1]:7171", "[fd00::1]"] {
                assert!(names.is_own(own), "{own} {listed:?}");
            }
            assert!(names.is_own("localhost:7171") && names.is_own("flowcell.localhost:7171"));
            assert_eq!(names.is_own("flows.test:443"), !listed.is_empty());
            for foreign in [
                "",
                "anything.test",
                "evil.test:7171",
                "localhost:1",
                "flows.test.evil.test",
                "10.0.0.5.evil.test:7171",
                "user@10.0.0.5:7171",
                "0x7f000001:7171",
            ] {
                assert!(!names.is_own(foreign), "{foreign} {listed:?}");
            }
        }
    }

    #[test]
    fn health_checks_have_any_host_and_the_first_line_names_no_other_one() {
        let names = Names::new(7171, false, false, &["flows.test".into()]);
        let check = |uri: &str, host: &str| {
            let request = Request::builder().uri(uri).header(header::HOST, host);
            check(&names, &request.body(axum::body::Body::empty()).unwrap_or_default()).map_err(|error| error.status())
        };
        for path in ["/healthz", "/readyz"] {
            assert_eq!(check(path, "10.0.0.5"), Ok(()), "{path}");
            assert_eq!(check(path, "pod.test"), Ok(()), "{path}");
        }
        for path in ["/healthz/", "/v1/me", "/", "/metrics", "/healthz/../v1/me", "//healthz"] {
            assert_eq!(check(path, "pod.test"), Err(StatusCode::FORBIDDEN), "{path}");
        }
        let whole = |host: &str| check("http://flows.test/v1/me", host);
        assert_eq!([whole("flows.test"), whole("FLOWS.test")], [Ok(()); 2]);
        assert_eq!([whole("10.0.0.5"), whole("flows.test:80")], [Err(StatusCode::BAD_REQUEST); 2]);
        assert_eq!(check("http://evil.test/v1/me", "flows.test"), Err(StatusCode::BAD_REQUEST));
        assert_eq!(check("http://evil.test/healthz", "flows.test"), Err(StatusCode::BAD_REQUEST));
        assert_eq!(check("http://evil.test/v1/me", "evil.test"), Err(StatusCode::FORBIDDEN));
    }
}
