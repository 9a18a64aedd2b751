//! The origins that a flow grants to a node, as the flow writes them.

use std::{borrow::Cow, fmt, str::FromStr};

use flowcell_contract::Json;
use url::{Host, Url};

use super::{
    Destination,
    origin::{Origin, Scheme},
};

/// The origins that a node may reach.
///
/// ```yaml
/// grants:
///   http:
///     - https://api.example.com            # this host, port 443
///     - https://*.example.com              # every name below example.com, but not example.com itself
///     - https://api.example.com:8443/v1    # another port; only /v1 and paths below
///     - http://127.0.0.1:8080              # an address, and no TLS; the operator has to list the address as well
/// ```
///
/// A path covers whole segments: `/v1` covers `/v1`, `/v1/` and `/v1/users`, but not `/v10`. Servers interpret encoded
/// separators differently. Therefore a grant with a path covers no URL whose path has an encoded `/`, `\`, `%` or NUL,
/// a segment such as `..;x`, or two `/` at its beginning.
///
/// The policy of a tenant consists of the same values, read by [`OriginGrants::from_policy`]. Before the guard compares
/// policies, grants and requests, it normalises their hosts, and resolves and decodes their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginGrants(Vec<OriginGrant>);

/// One origin of [`OriginGrants`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginGrant {
    pub(super) scheme: Scheme,
    pub(super) host: HostPattern,
    /// The port; `None` covers every port. Only patterns of policies have `None`.
    pub(super) port: Option<u16>,
    /// The segments with which a path must begin; empty for every path.
    pub(super) prefix: Vec<Segment>,
}

/// The hosts of an [`OriginGrant`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPattern {
    /// Every name and address. Only policies have it.
    Any,
    /// Every name below this one, but not the name itself.
    Below(String),
    /// Exactly this host.
    Is(Host),
}

/// A segment at the beginning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// Every segment. Only policies have it.
    Any,
    /// Exactly this segment, decoded.
    Is(String),
}

/// The target of a URL, and whether grants cover it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The origin of the URL.
    pub origin: Origin,
    /// The origin and path, in the form of a grant.
    pub path: String,
    /// True if a grant covers the origin, for all paths or for some.
    pub covers_origin: bool,
    /// True if a grant covers the URL.
    pub covers_url: bool,
}

impl OriginGrants {
    /// Returns true if there is no grant, so that every request is denied.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the value of `grants.http` of a node: a string, or a list of strings. The error is a sentence that names
    /// the wrong part.
    pub fn parse(grant: &Json) -> Result<OriginGrants, String> {
        match grant {
            Json::String(text) => Ok(OriginGrants(vec![text.parse()?])),
            Json::Array(items) => items.iter().map(parse_item).collect::<Result<_, _>>().map(OriginGrants),
            other => {
                Err(format!("write a list of origins such as `https://api.example.com`, not {}", other.type_name()))
            }
        }
    }

    /// Returns the target of a URL and its coverage by these grants, or `None` if no request can be sent to it.
    pub fn reach(&self, url: &str) -> Option<Reach> {
        let url = super::origin::parse(url).ok()?;
        let origin = Origin::from_url(&url).ok()?;
        let path = format!("{origin}{}", url.path().trim_end_matches('/'));
        Some(Reach {
            covers_origin: !self.grants_for(&origin).is_empty(),
            covers_url: self.covers_url(&origin, &url),
            path,
            origin,
        })
    }

    /// Returns true if one of the grants covers a destination.
    pub(crate) fn covers(&self, to: &Destination) -> bool {
        self.covers_url(&to.origin, &to.url)
    }

    /// Returns the grants that cover an origin, for all paths or for some, in the notation of flows.
    pub(super) fn grants_for(&self, origin: &Origin) -> Vec<String> {
        self.0.iter().filter(|grant| grant.covers_origin(origin)).map(OriginGrant::to_text).collect()
    }

    /// Returns true if one of the grants covers this URL of this origin.
    pub(super) fn covers_url(&self, origin: &Origin, url: &Url) -> bool {
        self.0.iter().any(|grant| grant.covers(origin, url))
    }
}

impl OriginGrants {
    /// Returns the first grant of `narrower` that no grant of `self` contains, in the notation of flows. Returns `None`
    /// if `self` contains all of them.
    pub fn first_not_contained(&self, narrower: &OriginGrants) -> Option<String> {
        let outside = narrower.0.iter().find(|grant| !self.0.iter().any(|own| own.contains(grant)));
        outside.map(OriginGrant::to_text)
    }
}

impl OriginGrants {
    /// Returns true if a URL may exist that both cover.
    pub fn overlaps(&self, other: &OriginGrants) -> bool {
        let meet = |one: &OriginGrant, other: &OriginGrant| one.contains(other) || other.contains(one);
        self.0.iter().any(|one| other.0.iter().any(|other| meet(one, other)))
    }
}

impl FromIterator<OriginGrant> for OriginGrants {
    fn from_iter<I: IntoIterator<Item = OriginGrant>>(grants: I) -> OriginGrants {
        OriginGrants(grants.into_iter().collect())
    }
}

fn parse_item(item: &Json) -> Result<OriginGrant, String> {
    let text = item.as_str().ok_or_else(|| format!("an origin must be a text, not {}", item.type_name()))?;
    text.parse()
}

impl OriginGrant {
    fn covers(&self, origin: &Origin, url: &Url) -> bool {
        self.covers_origin(origin) && self.covers_path(url)
    }

    fn covers_origin(&self, origin: &Origin) -> bool {
        self.scheme == origin.scheme && self.covers_port(Some(origin.port)) && self.host.covers(&origin.host)
    }

    fn covers_port(&self, port: Option<u16>) -> bool {
        self.port.is_none() || self.port == port
    }

    /// Returns true if this grant covers everything that another one covers.
    fn contains(&self, other: &OriginGrant) -> bool {
        self.scheme == other.scheme
            && self.covers_port(other.port)
            && self.host.contains(&other.host)
            && other.prefix.len() >= self.prefix.len()
            && self.prefix.iter().zip(&other.prefix).all(|(own, other)| *own == Segment::Any || own == other)
    }

    fn to_text(&self) -> String {
        let scheme = self.scheme.name();
        let port = match (&self.host, self.port) {
            (_, Some(port)) if port == self.scheme.default_port() => String::new(),
            (_, Some(port)) => format!(":{port}"),
            (HostPattern::Any, None) => String::new(),
            (_, None) => ":*".to_owned(),
        };
        let origin = format!("{scheme}://{}{port}", self.host);
        self.prefix.iter().fold(origin, |origin, segment| match segment {
            Segment::Any => format!("{origin}/*"),
            Segment::Is(segment) => format!("{origin}/{segment}"),
        })
    }

    fn covers_path(&self, url: &Url) -> bool {
        if self.prefix.is_empty() {
            return true;
        }
        let Some(segments) = plain_segments(url.path()) else { return false };
        segments.len() >= self.prefix.len()
            && self.prefix.iter().zip(&segments).all(|(own, segment)| own.covers(segment))
    }
}

impl HostPattern {
    fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (HostPattern::Any, _) => true,
            (HostPattern::Below(base), Host::Domain(name)) => is_below(name, base),
            (HostPattern::Below(_), _) => false,
            (HostPattern::Is(own), host) => own == host,
        }
    }

    fn contains(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (HostPattern::Any, _) => true,
            (own, HostPattern::Is(host)) => own.covers(host),
            (HostPattern::Below(own), HostPattern::Below(other)) => own == other || is_below(other, own),
            (_, HostPattern::Below(_) | HostPattern::Any) => false,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Any => formatter.write_str("*"),
            HostPattern::Below(base) => write!(formatter, "*.{base}"),
            HostPattern::Is(host) => write!(formatter, "{host}"),
        }
    }
}

impl Segment {
    fn covers(&self, segment: &str) -> bool {
        match self {
            Segment::Any => true,
            Segment::Is(own) => own == segment,
        }
    }
}

/// Returns true if a name is below a base: `api.example.com` is below `example.com`, but `example.com` is not.
fn is_below(name: &str, base: &str) -> bool {
    let label = name.strip_suffix(base).and_then(|rest| rest.strip_suffix('.'));
    label.is_some_and(|label| !label.is_empty())
}

/// Returns the decoded segments of a path, or `None` if servers could interpret the path differently.
fn plain_segments(path: &str) -> Option<Vec<Cow<'_, str>>> {
    path.strip_prefix('/').unwrap_or(path).split('/').map(plain_segment).collect()
}

pub(super) fn plain_segment(segment: &str) -> Option<Cow<'_, str>> {
    let decoded = percent_decoded(segment)?;
    let tricky = decoded.contains(['/', '\\', '%', '\0']);
    // Some servers remove parameters before they look for dots.
    let name = decoded.split(';').next().unwrap_or_default();
    (!tricky && name != "." && name != "..").then_some(decoded)
}

/// Decodes a segment; `None` if it is not UTF-8 or has an incomplete `%` escape.
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
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it must begin with `https://`"))?;
        let (below, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
        let url = super::origin::parse(&format!("{scheme}://{rest}")).map_err(|why| wrong(&why))?;
        let origin = Origin::from_url(&url).map_err(|why| wrong(&why))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it cannot have a query or a fragment"));
        }
        match &origin.host {
            Host::Domain(name) if name.contains('*') => {
                return Err(wrong("`*` may replace only the first part of a name"));
            }
            Host::Domain(name) if below && !name.contains('.') => {
                return Err(wrong("the name after `*.` must contain a dot"));
            }
            Host::Ipv4(_) | Host::Ipv6(_) if below => return Err(wrong("`*.` must precede a name, not an address")),
            _ => {}
        }
        let prefix = parse_prefix(url.path()).ok_or_else(|| wrong("its path has an encoded separator"))?;
        let Origin { scheme, host, port } = origin;
        let host = match host {
            Host::Domain(base) if below => HostPattern::Below(base),
            host => HostPattern::Is(host),
        };
        Ok(OriginGrant { scheme, host, port: Some(port), prefix })
    }
}

fn parse_prefix(path: &str) -> Option<Vec<Segment>> {
    let path = path.trim_matches('/');
    if path.is_empty() {
        return Some(Vec::new());
    }
    Some(plain_segments(path)?.into_iter().map(|segment| Segment::Is(segment.into_owned())).collect())
}
