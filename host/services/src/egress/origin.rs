//! Parses URLs, refuses ambiguous ones, and determines their origins.

use std::fmt;

use url::{Host, Url};

/// The URL schemes of outgoing requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Requests without TLS; only where a grant says `http://`.
    Http,
    /// Requests with TLS.
    Https,
}

impl Scheme {
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    pub(super) fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// Scheme, host and port of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The scheme, with TLS or without.
    pub scheme: Scheme,
    /// A name in lower case and in ASCII, or an address.
    pub host: Host,
    /// The port, which may be the scheme's default.
    pub port: u16,
}

impl Origin {
    /// Returns the origin of a URL, or the reason that it has none.
    pub(super) fn from_url(url: &Url) -> Result<Origin, String> {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => return Err(format!("`{other}` is neither `https` nor `http`")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it must not name a user".into());
        }
        let host = url.host().ok_or("it has no host")?.to_owned();
        if matches!(&host, Host::Domain(name) if name.ends_with('.')) {
            return Err("its host ends with a dot".into());
        }
        Ok(Origin { scheme, host, port: url.port().unwrap_or(scheme.default_port()) })
    }

    /// Returns the value of the `Host` header: the host, and the port unless it is the scheme's default.
    pub fn authority(&self) -> String {
        match self.port == self.scheme.default_port() {
            true => self.host.to_string(),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}", self.scheme.name(), self.authority())
    }
}

/// Parses a URL as browsers do, but refuses input that they repair, because other parsers repair it differently: spaces
/// and control characters, backslashes, `https:host`, `https:///host`.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    if text.contains(|letter: char| letter.is_control() || letter.is_whitespace() || letter == '\\') {
        return Err("it has a space, a control character or a backslash".into());
    }
    let (_, rest) = text.split_once("://").ok_or("`://` is missing after its scheme")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err("it has no host".into());
    }
    Url::parse(text).map_err(|error| error.to_string())
}
