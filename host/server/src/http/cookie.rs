//! The cookie with the token of a browser.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// The prefix that makes a browser accept the cookie only over TLS, and only from this very host.
const SECURE_PREFIX: &str = "__Host-";
/// The path of the cookie of a sign-in without TLS: the page that issuers send browsers to. A cookie with [`SECURE_PREFIX`]
/// has no path. The prefix counts for more, because another site of the same domain can plant any other cookie, and sign a
/// person in to an account of its own.
const SIGN_IN_PATH: &str = "/console/sign-in/callback";
/// The path of the cookie of a consent without TLS: the pages that authorization servers send browsers to.
const CONSENT_PATH: &str = "/console/connect";
/// The older header by which a proxy names the protocol of its client. The newer one is `Forwarded`.
pub(crate) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The path of posts to triggers.
const HOOKS: &str = "/v1/hooks/";

/// Returns whether the cookie counts at a path. It counts at all routes below `/v1` except those of posts to triggers;
/// the pages of the console pass it on to these routes.
pub(crate) fn reads_cookies(path: &str) -> bool {
    path.starts_with("/v1/") && !path.starts_with(HOOKS)
}

/// The cookie of a server. Browsers send cookies to all ports of a host, so its name has the port.
#[derive(Debug)]
pub(crate) struct LoginCookie {
    name: String,
}

impl LoginCookie {
    pub(crate) fn new(port: u16) -> LoginCookie {
        LoginCookie { name: format!("flowcell_{port}") }
    }

    /// Returns the token of a request to this path: in its header, or else in the cookie of a browser.
    pub(crate) fn credential<'a>(&self, path: &str, headers: &'a HeaderMap) -> Option<&'a str> {
        if headers.contains_key(header::AUTHORIZATION) { bearer(headers) } else { self.token(path, headers) }
    }

    /// Returns the token in the cookie of a request to this path, if the cookie counts there.
    pub(crate) fn token<'a>(&self, path: &str, headers: &'a HeaderMap) -> Option<&'a str> {
        if reads_cookies(path) { value(headers, SECURE_PREFIX, &self.name) } else { None }
    }

    /// Returns the cookie of the sign-in that a browser has begun.
    pub(crate) fn sign_in<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        value(headers, SECURE_PREFIX, &self.sign_in_name())
    }

    fn sign_in_name(&self) -> String {
        format!("{}_sign_in", self.name)
    }

    /// Returns the header that sets the cookie of a sign-in for this many milliseconds. Browsers send it when the issuer
    /// sends them back, so it is not strict.
    pub(crate) fn set_sign_in(&self, request: &HeaderMap, sign_in: &str, lasts: u64) -> Option<HeaderValue> {
        set_cookie(request, &self.sign_in_name(), sign_in, "Lax", SIGN_IN_PATH, lasts)
    }

    /// Returns the cookie of the consent that a browser has begun for a credential.
    pub(crate) fn consent<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        value(headers, SECURE_PREFIX, &self.consent_name())
    }

    fn consent_name(&self) -> String {
        format!("{}_consent", self.name)
    }

    /// Returns the header that sets the cookie of a consent for this many milliseconds. It is strict: the page that an
    /// authorization server sends a browser to reads no cookie, and leads to another page, which reads it.
    pub(crate) fn set_consent(&self, request: &HeaderMap, consent: &str, lasts: u64) -> Option<HeaderValue> {
        set_cookie(request, &self.consent_name(), consent, "Strict", CONSENT_PATH, lasts)
    }

    /// Returns the header that sets the cookie for this many milliseconds, in answer to a request with these headers.
    pub(crate) fn set(&self, request: &HeaderMap, token: &str, lasts: u64) -> Option<HeaderValue> {
        set_cookie(request, &self.name, token, "Strict", "/", lasts)
    }
}

/// Returns the header that sets a cookie for this many milliseconds. Over TLS its name has [`SECURE_PREFIX`], and its path
/// is `/`.
fn set_cookie(
    request: &HeaderMap,
    name: &str,
    content: &str,
    same_site: &str,
    path: &str,
    lasts: u64,
) -> Option<HeaderValue> {
    let (prefix, path, secure) = if is_encrypted(request) { (SECURE_PREFIX, "/", "; Secure") } else { ("", path, "") };
    let rest = format!("HttpOnly; SameSite={same_site}; Path={path}; Max-Age={}{secure}", lasts / 1_000);
    HeaderValue::from_str(&format!("{prefix}{name}={content}; {rest}")).ok()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the value of a cookie. Over TLS its name needs the prefix: a page without TLS under the same name can set no
/// cookie with it.
fn value<'a>(headers: &'a HeaderMap, prefix: &str, own: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let is_own = |name: &str| match name.strip_prefix(prefix) {
        Some(name) => name == own,
        None => name == own && !is_encrypted(headers),
    };
    pairs.find(|(name, _)| is_own(name)).map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// Returns whether the request came over TLS: to this server, which notes it with [`note_tls`], or to a proxy that says
/// so. A client that says so falsely gets a cookie that its browser does not keep.
pub(crate) fn is_encrypted(request: &HeaderMap) -> bool {
    forwarded_text(request, &X_FORWARDED_PROTO).eq_ignore_ascii_case("https")
        || forwarded_text(request, &header::FORWARDED).contains("proto=https")
}

/// Marks a request that came over TLS to this server, or to a trusted proxy. Unlike [`is_encrypted`], it believes no other
/// client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverTls;

/// Returns the address by which a browser has reached the server, for a redirect back to it.
pub(crate) fn origin_of(request: &HeaderMap, over_tls: Option<OverTls>) -> String {
    let host = request.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    format!("{}://{host}", if over_tls.is_some() { "https" } else { "http" })
}

/// Returns whether a request whose protocol was noted came over TLS. Only this server (`has_tls`) and a trusted proxy
/// (`is_proxy`) may say so.
pub(crate) fn came_over_tls(request: &HeaderMap, has_tls: bool, is_proxy: bool) -> Option<OverTls> {
    ((has_tls || is_proxy) && is_encrypted(request)).then_some(OverTls)
}

/// Notes in the headers of a request that it came to this server over TLS. A trusted proxy (`is_proxy`) may name the
/// protocol of its client instead.
pub(crate) fn note_tls(request: &mut HeaderMap, is_proxy: bool) {
    let is_named =
        request.contains_key(X_FORWARDED_PROTO) || forwarded_text(request, &header::FORWARDED).contains("proto=");
    if !(is_proxy && is_named) {
        request.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
    }
}

/// Returns the value of a header of proxies, in lowercase.
fn forwarded_text(request: &HeaderMap, name: &HeaderName) -> String {
    request.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_cookie_counts_only_under_its_name_and_at_the_api() {
        let cookie = LoginCookie::new(7171);
        let read = |path: &str, line: &str| {
            let headers = HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(line).unwrap())]);
            cookie.token(path, &headers).map(str::to_owned)
        };
        for line in ["flowcell_7171=t", "a=b; flowcell_7171=t", "__Host-flowcell_7171=t;a=b"] {
            assert_eq!(read("/v1/runs", line).as_deref(), Some("t"), "{line}");
        }
        for line in ["flowcell_7172=t", "xflowcell_7171=t", "flowcell_7171=", "flowcell_7171", "a=flowcell_7171=t"] {
            assert_eq!(read("/v1/runs", line), None, "{line}");
        }
        let mut headers = HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static("flowcell_7171=planted"))]);
        note_tls(&mut headers, false);
        assert_eq!(cookie.token("/v1/runs", &headers), None, "over TLS the name needs its prefix");
        headers.append(header::COOKIE, HeaderValue::from_static("__Host-flowcell_7171=own"));
        assert_eq!(cookie.token("/v1/runs", &headers), Some("own"));
        for path in ["/mcp", "/metrics", "/v1/hooks/a/f/t", "/api/flows", "/healthz", "/v1", "/v10/runs"] {
            assert_eq!(read(path, "flowcell_7171=t"), None, "{path}");
        }
    }

    #[test]
    fn no_other_site_plants_the_cookie_of_a_sign_in_over_tls() {
        let cookie = LoginCookie::new(443);
        let mut headers = HeaderMap::new();
        let set = |headers: &HeaderMap| cookie.set_sign_in(headers, "t", 600_000).unwrap().to_str().unwrap().to_owned();
        let plain = "flowcell_443_sign_in=t; HttpOnly; SameSite=Lax; Path=/console/sign-in/callback; Max-Age=600";
        assert_eq!(set(&headers), plain);
        headers.insert(header::COOKIE, HeaderValue::from_static("flowcell_443=t; flowcell_443_sign_in=s"));
        assert_eq!((cookie.sign_in(&headers), cookie.token("/v1/runs", &headers)), (Some("s"), Some("t")));
        note_tls(&mut headers, false);
        let secure = "__Host-flowcell_443_sign_in=t; HttpOnly; SameSite=Lax; Path=/; Max-Age=600; Secure";
        assert_eq!(set(&headers), secure);
        for (line, expected) in [
            ("flowcell_443_sign_in=t", None),
            ("__Secure-flowcell_443_sign_in=t", None),
            ("__Secure-flowcell_443_sign_in=planted; __Host-flowcell_443_sign_in=t", Some("t")),
        ] {
            headers.insert(header::COOKIE, HeaderValue::from_static(line));
            assert_eq!(cookie.sign_in(&headers), expected, "{line}");
            assert_eq!(cookie.token("/v1/runs", &headers), None, "{line}");
        }
    }

    #[test]
    fn the_cookie_of_a_consent_is_strict_and_another_one() {
        let cookie = LoginCookie::new(443);
        let mut headers = HeaderMap::new();
        let set = |headers: &HeaderMap| cookie.set_consent(headers, "t", 600_000).unwrap().to_str().unwrap().to_owned();
        let plain = "flowcell_443_consent=t; HttpOnly; SameSite=Strict; Path=/console/connect; Max-Age=600";
        assert_eq!(set(&headers), plain);
        let both = "flowcell_443_sign_in=s; flowcell_443_consent=c; flowcell_443=t";
        headers.insert(header::COOKIE, HeaderValue::from_static(both));
        assert_eq!((cookie.consent(&headers), cookie.sign_in(&headers)), (Some("c"), Some("s")));
        note_tls(&mut headers, false);
        assert_eq!(cookie.consent(&headers), None, "over TLS the name needs its prefix");
        let secure = "__Host-flowcell_443_consent=t; HttpOnly; SameSite=Strict; Path=/; Max-Age=600; Secure";
        assert_eq!(set(&headers), secure);
    }

    #[test]
    fn the_cookie_needs_tls_behind_a_proxy_with_tls() {
        let cookie = LoginCookie::new(7171);
        let set = |name: &'static str, value: &'static str| {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))]);
            cookie.set(&headers, "t", 43_200_000).unwrap().to_str().unwrap().to_owned()
        };
        let plain = "flowcell_7171=t; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200";
        assert_eq!(set("x-forwarded-proto", "http"), plain);
        for (name, value) in [("x-forwarded-proto", "https"), ("forwarded", "for=10.0.0.1;proto=https")] {
            assert_eq!(set(name, value), format!("__Host-{plain}; Secure"));
        }
    }

    #[test]
    fn only_this_server_and_trusted_proxies_say_that_a_browser_came_over_tls() {
        let host = (header::HOST, HeaderValue::from_static("flows.test"));
        let encrypted = (X_FORWARDED_PROTO, HeaderValue::from_static("https"));
        for (header, has_tls, is_proxy, expected) in [
            (Some(encrypted.clone()), false, false, "http://flows.test"),
            (Some(encrypted), false, true, "https://flows.test"),
            (Some((header::FORWARDED, HeaderValue::from_static("proto=https"))), false, false, "http://flows.test"),
            (None, false, true, "http://flows.test"),
            (None, true, false, "https://flows.test"),
            (Some((X_FORWARDED_PROTO, HeaderValue::from_static("http"))), true, true, "http://flows.test"),
        ] {
            let mut headers: HeaderMap = header.into_iter().chain([host.clone()]).collect();
            if has_tls {
                note_tls(&mut headers, is_proxy);
            }
            let over_tls = came_over_tls(&headers, has_tls, is_proxy);
            assert_eq!(origin_of(&headers, over_tls), expected, "{headers:?} {has_tls} {is_proxy}");
        }
    }

    #[test]
    fn a_request_over_tls_is_encrypted_unless_a_trusted_proxy_names_another_protocol() {
        let table = [
            (false, None, true),
            (false, Some(("x-forwarded-proto", "http")), true),
            (true, None, true),
            (true, Some(("x-forwarded-proto", "https")), true),
            (true, Some(("x-forwarded-proto", "http")), false),
            (true, Some(("forwarded", "for=10.0.0.1;proto=http")), false),
            (true, Some(("forwarded", "for=10.0.0.1")), true),
        ];
        for (is_proxy, header, expected) in table {
            let headers = header.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            let mut headers = HeaderMap::from_iter(headers);
            note_tls(&mut headers, is_proxy);
            assert_eq!(is_encrypted(&headers), expected, "{is_proxy} {header:?}");
        }
    }
}
