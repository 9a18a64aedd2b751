//! What a flow lets a node reach, as it is written in the flow.

use std::{borrow::Cow, str::FromStr};

use flowcell_contract::Json;
use url::{Host, Url};

use super::{Destination, origin::Origin};

/// The origins that a node may reach.
///
/// ```yaml
/// grants:
///   http:
///     - https://api.example.com            # this host, port 443
///     - https://*.example.com              # every name below example.com, but not example.com itself
///     - https://api.example.com:8443/v1    # another port; only /v1 and what is below
///     - http://127.0.0.1:8080              # an address, and no TLS; the operator has to list the address as well
/// ```
///
/// A path covers whole segments: `/v1` covers `/v1`, `/v1/` and `/v1/users`, but not `/v10`. As what a server makes of
/// encoded separators is its own affair, a grant with a path covers no URL whose path has an encoded `/`, `\`, `%` or
/// NUL, or a segment such as `..;x`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginGrants(Vec<OriginGrant>);

/// One origin of [`OriginGrants`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginGrant {
    origin: Origin,
    /// Names below the origin's host, instead of the host.
    below: bool,
    /// Decoded segments that a path has to begin with.
    prefix: Vec<String>,
}

impl OriginGrants {
    /// Whether nothing may be sent anywhere.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads what stands under `grants.http` of a node: a text, or a list of texts. The error is a sentence that names
    /// what is wrong.
    pub fn parse(grant: &Json) -> Result<OriginGrants, String> {
        match grant {
            Json::String(text) => Ok(OriginGrants(vec![text.parse()?])),
            Json::Array(items) => items.iter().map(one).collect::<Result<_, _>>().map(OriginGrants),
            other => Err(format!(
                "a list of origins such as `https://api.example.com` is expected, not {}",
                other.type_name()
            )),
        }
    }

    /// Whether one of them covers a destination.
    pub(crate) fn covers(&self, to: &Destination) -> bool {
        self.cover(&to.origin, &to.url)
    }

    /// What is granted of an origin, if only some of its paths are.
    pub(super) fn parts_of(&self, origin: &Origin) -> Vec<String> {
        self.0.iter().filter(|grant| grant.covers_origin(origin)).map(OriginGrant::written).collect()
    }

    /// Whether one of them covers this URL, which is of this origin.
    pub(super) fn cover(&self, origin: &Origin, url: &Url) -> bool {
        self.0.iter().any(|grant| grant.covers(origin, url))
    }
}

impl OriginGrants {
    /// The first of some grants that none of these takes in, as it would be written.
    pub(crate) fn outside(&self, narrower: &OriginGrants) -> Option<String> {
        let outside = narrower.0.iter().find(|grant| !self.0.iter().any(|own| own.takes_in(grant)));
        outside.map(OriginGrant::written)
    }
}

impl FromIterator<OriginGrant> for OriginGrants {
    fn from_iter<I: IntoIterator<Item = OriginGrant>>(grants: I) -> OriginGrants {
        OriginGrants(grants.into_iter().collect())
    }
}

fn one(item: &Json) -> Result<OriginGrant, String> {
    let text = item.as_str().ok_or_else(|| format!("an origin is a text, not {}", item.type_name()))?;
    text.parse()
}

impl OriginGrant {
    fn covers(&self, origin: &Origin, url: &Url) -> bool {
        self.covers_origin(origin) && self.covers_path(url)
    }

    fn covers_origin(&self, origin: &Origin) -> bool {
        self.origin.scheme == origin.scheme && self.origin.port == origin.port && self.covers_host(&origin.host)
    }

    /// Whether everything that another one covers is covered by this.
    fn takes_in(&self, other: &OriginGrant) -> bool {
        let host = match (self.below, other.below) {
            (_, false) => self.covers_host(&other.origin.host),
            (true, true) => self.origin.host == other.origin.host || self.covers_host(&other.origin.host),
            (false, true) => false,
        };
        let (own, origin) = (&self.origin, &other.origin);
        host && own.scheme == origin.scheme && own.port == origin.port && other.prefix.starts_with(&self.prefix)
    }

    fn written(&self) -> String {
        let origin = self.origin.to_string();
        let origin = if self.below { origin.replacen("://", "://*.", 1) } else { origin };
        self.prefix.iter().fold(origin, |origin, segment| format!("{origin}/{segment}"))
    }

    fn covers_host(&self, host: &Host) -> bool {
        match (&self.origin.host, host) {
            (Host::Domain(base), Host::Domain(name)) if self.below => name
                .strip_suffix(base.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            (own, host) => own == host,
        }
    }

    fn covers_path(&self, url: &Url) -> bool {
        if self.prefix.is_empty() {
            return true;
        }
        let Some(segments) = plain_segments(url.path()) else { return false };
        segments.len() >= self.prefix.len() && self.prefix.iter().zip(&segments).all(|(own, segment)| own == segment)
    }
}

/// The decoded segments of a path that every server reads alike; none if it has anything else.
fn plain_segments(path: &str) -> Option<Vec<Cow<'_, str>>> {
    path.trim_start_matches('/').split('/').map(plain_segment).collect()
}

fn plain_segment(segment: &str) -> Option<Cow<'_, str>> {
    let decoded = percent_decoded(segment)?;
    let tricky = decoded.contains(['/', '\\', '%', '\0']);
    // Some servers cut parameters off before they look for dots.
    let name = decoded.split(';').next().unwrap_or_default();
    (!tricky && name != "." && name != "..").then_some(decoded)
}

/// None if it is not UTF-8, or a `%` stands alone.
fn percent_decoded(segment: &str) -> Option<Cow<'_, str>> {
    if !segment.contains('%') {
        return Some(Cow::Borrowed(segment));
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = tail;
            continue;
        }
        let digits = tail.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

impl FromStr for OriginGrant {
    type Err = String;

    fn from_str(text: &str) -> Result<OriginGrant, String> {
        let wrong = |why: &str| format!("`{text}` is not an origin such as `https://api.example.com`: {why}");
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it begins with `https://`"))?;
        let (below, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
        let url = super::origin::parse(&format!("{scheme}://{rest}")).map_err(|why| wrong(&why))?;
        let origin = Origin::of(&url).map_err(|why| wrong(&why))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it has no query and no fragment"));
        }
        match &origin.host {
            Host::Domain(name) if name.contains('*') => {
                return Err(wrong("`*` stands only for the first part of a name"));
            }
            Host::Domain(name) if below && !name.contains('.') => {
                return Err(wrong("`*.` needs a name with a dot in it"));
            }
            Host::Ipv4(_) | Host::Ipv6(_) if below => return Err(wrong("`*.` stands before a name, not an address")),
            _ => {}
        }
        let prefix = prefix(url.path()).ok_or_else(|| wrong("its path has an encoded separator"))?;
        Ok(OriginGrant { origin, below, prefix })
    }
}

fn prefix(path: &str) -> Option<Vec<String>> {
    let path = path.trim_matches('/');
    if path.is_empty() {
        return Some(Vec::new());
    }
    Some(plain_segments(path)?.into_iter().map(Cow::into_owned).collect())
}
