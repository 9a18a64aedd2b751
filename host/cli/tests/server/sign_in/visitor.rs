//! A browser as a plain HTTP client: a jar of cookies, and redirects that a test follows one by one.

use std::net::SocketAddr;

use crate::client::{Answer, ask};

/// A browser. Its cookies belong to a port, because all servers of a test are on one machine.
#[derive(Default)]
pub(super) struct Visitor {
    cookies: Vec<Cookie>,
}

#[derive(Clone)]
struct Cookie {
    port: u16,
    path: String,
    name: String,
    value: String,
    is_strict: bool,
}

impl Visitor {
    /// Opens a URL of this machine as a click on a page of another site does: without strict cookies.
    pub(super) fn open(&mut self, url: &str) -> Answer {
        self.visit(url, true)
    }

    /// Opens a URL of this machine as a page of the same site does.
    pub(super) fn go(&mut self, url: &str) -> Answer {
        self.visit(url, false)
    }

    fn visit(&mut self, url: &str, is_foreign: bool) -> Answer {
        let (address, path) = split(url);
        let cookies = self.cookies_for(address.port(), path, is_foreign);
        let site = if is_foreign { "cross-site" } else { "same-origin" };
        let mut headers =
            vec![("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
        if !cookies.is_empty() {
            headers.push(("Cookie", &cookies));
        }
        let answer = ask(address, "GET", path, &headers, "");
        self.keep(address.port(), path, &answer);
        answer
    }

    /// Opens a URL, and follows its redirects until one leads to `until`. Returns that URL.
    pub(super) fn follow(&mut self, url: &str, until: &str) -> String {
        let mut url = url.to_owned();
        for _ in 0..20 {
            let answer = self.open(&url);
            let to = answer.header("location").unwrap_or_else(|| panic!("{url} leads nowhere: {answer:?}"));
            url = match to.starts_with('/') {
                true => format!("http://{}{to}", split(&url).0),
                false => to.to_owned(),
            };
            if url.starts_with(until) {
                return url;
            }
        }
        panic!("too many redirects: {url}");
    }

    /// Returns the cookies for a path, as a header has them.
    pub(super) fn cookies_for(&self, port: u16, path: &str, is_foreign: bool) -> String {
        let path = path.split('?').next().unwrap();
        let fits = |cookie: &&Cookie| {
            cookie.port == port && path.starts_with(&cookie.path) && !(cookie.is_strict && is_foreign)
        };
        let pairs: Vec<_> =
            self.cookies.iter().filter(fits).map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
        pairs.join("; ")
    }

    fn keep(&mut self, port: u16, path: &str, answer: &Answer) {
        for (_, line) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let mut parts = line.split("; ");
            let (name, value) = parts.next().unwrap().split_once('=').unwrap();
            let parts: Vec<(&str, &str)> = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
            let attribute =
                |name: &str| parts.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
            let own = attribute("path").unwrap_or(path).to_owned();
            let is_strict = attribute("samesite").is_some_and(|site| site.eq_ignore_ascii_case("strict"));
            let is_gone = value.is_empty() || attribute("max-age") == Some("0");
            self.cookies.retain(|cookie| !(cookie.port == port && cookie.name == name && cookie.path == own));
            if !is_gone {
                let (name, value) = (name.to_owned(), value.to_owned());
                self.cookies.push(Cookie { port, path: own, name, value, is_strict });
            }
        }
    }
}

/// Splits a URL of this machine into its address and the rest.
pub(super) fn split(url: &str) -> (SocketAddr, &str) {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, _) = rest.split_once('/').unwrap();
    (host.parse().unwrap(), &rest[host.len()..])
}

/// Returns a member of the query of a URL.
pub(super) fn query(url: &str, name: &str) -> String {
    let url = url::Url::parse(url).unwrap();
    let found = url.query_pairs().find(|(key, _)| key == name);
    found.unwrap_or_else(|| panic!("{url} has no `{name}`")).1.into_owned()
}

/// Returns a URL with another value of a member of its query.
pub(super) fn with_query(url: &str, name: &str, value: &str) -> String {
    let mut url = url::Url::parse(url).unwrap();
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let other = |(key, old): &(String, String)| (key.clone(), if key == name { value.to_owned() } else { old.clone() });
    url.query_pairs_mut().clear().extend_pairs(pairs.iter().map(other));
    url.into()
}
