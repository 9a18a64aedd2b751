//! One request of a browser.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{Method, header, request::Parts},
};
use flowcell_server::api::{Answer, Api, Refusal, is_over_tls};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use url::form_urlencoded;

use crate::parts::list;

/// The characters that a segment of a path escapes.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The path of the API that answers every caller with a valid token. Pages without another request ask it first.
pub(crate) const KNOWN: &str = "/v1/me";

/// Escapes a text as a segment of a path, or as a value of a query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Returns the page to open after the login. Only pages of the console are allowed, and no path that a browser takes for
/// another one.
pub(crate) fn own_page(asked: Option<&str>) -> String {
    let is_dots = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    let own = |place: &&str| {
        let path = place.split(['?', '#']).next().unwrap_or_default();
        (path == "/console" || path.starts_with("/console/"))
            && !path.split('/').any(is_dots)
            && !place.contains(|letter: char| letter == '\\' || letter.is_control() || letter.is_whitespace())
    };
    asked.filter(own).unwrap_or("/console").to_owned()
}

/// Returns whether a caller, as the API shows it to itself, acts for the operators and has no tenant. Only their pages are
/// for it.
pub(crate) fn is_only_operator(me: &Value) -> bool {
    me["operator"] == true && me["tenant"].is_null()
}

/// A request of a browser.
pub(crate) struct Visit {
    api: Api,
    parts: Parts,
}

impl Visit {
    /// Reads from the API.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Refusal> {
        self.api.get(&self.parts, path).await
    }

    /// Sends a change to the API.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Answer, Refusal> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Sends a change to the API, which makes it once for each key.
    pub(crate) async fn post_with_key(&self, path: &str, body: &Value, key: &str) -> Result<Answer, Refusal> {
        self.api.post_once(&self.parts, path, body, key).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, Refusal> {
        self.api.call(&self.parts, method, path, body).await
    }

    /// Returns the scopes of the caller.
    pub(crate) async fn scopes(&self) -> Result<Vec<String>, Refusal> {
        let me = self.get(KNOWN).await?;
        Ok(list(&me, "scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Returns whether the caller has a scope. A page without it has no control that needs it.
    pub(crate) async fn may(&self, scope: &str) -> bool {
        self.scopes().await.is_ok_and(|scopes| scopes.iter().any(|own| own == scope))
    }

    /// Returns the path and the query of the page.
    pub(crate) fn place(&self) -> &str {
        self.parts.uri.path_and_query().map_or("/console", |place| place.as_str())
    }

    /// Returns the last value of a member of the query. An empty one counts as missing.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let pairs = form_urlencoded::parse(self.parts.uri.query().unwrap_or_default().as_bytes());
        pairs.filter(|(key, _)| key == name).last().map(|(_, value)| value.into_owned()).filter(|text| !text.is_empty())
    }

    /// Returns whether the browser has sent a cookie, so that it can log out.
    pub(crate) fn has_cookie(&self) -> bool {
        self.parts.headers.contains_key(header::COOKIE)
    }

    /// Returns whether a link of another site has opened the page. The browser then sends no cookie of a login.
    pub(crate) fn comes_from_elsewhere(&self) -> bool {
        let site = self.parts.headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
        site.is_some_and(|site| ["cross-site", "same-site"].contains(&site))
    }

    /// Returns the address of this server as the browser knows it, for examples.
    pub(crate) fn origin(&self) -> String {
        let host = self.parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let scheme = if is_over_tls(&self.parts) { "https" } else { "http" };
        format!("{scheme}://{}", host.unwrap_or("127.0.0.1:7171"))
    }
}

impl FromRequestParts<Api> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Visit, Infallible> {
        Ok(Visit { api: api.clone(), parts: parts.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_console_follow_a_login() {
        for own in ["/console", "/console/runs?status=failed", "/console?x=1", "/console/runs?a=../b", "/console/a..b"]
        {
            assert_eq!(own_page(Some(own)), own);
        }
        for foreign in [
            "",
            "/",
            "//evil.test",
            "/consolex",
            "https://evil.test/console",
            "/console/\r\nX: y",
            "/console\\",
            "/console/../../evil",
            "/console/%2E%2e/evil",
            "/console/.%2e",
            "/console/.\t./evil",
            "/console/./x",
        ] {
            assert_eq!(own_page(Some(foreign)), "/console", "{foreign}");
        }
        assert_eq!(own_page(None), "/console");
    }
}
