//! The origin patterns of a policy, which limit the grants in a tenant's flows.

use url::Host;

use super::{
    grant::{HostPattern, OriginGrant, OriginGrants, Segment, plain_segment},
    origin::{self, Origin},
};

/// The host that stands for `*` while the URL parser reads a pattern.
const PLACEHOLDER: &str = "any.invalid";

impl OriginGrants {
    /// Reads one pattern of a policy. A pattern is parsed and resolved like a grant, and may also contain these
    /// wildcards:
    ///
    /// | pattern | covers |
    /// |---|---|
    /// | `*` | every origin, with TLS and without |
    /// | `https://*` | every host and port with TLS |
    /// | `https://*:8443` | every host, at this port |
    /// | `*://api.example.com` | `http://` at port 80 and `https://` at port 443 |
    /// | `https://*.example.com` | every name below `example.com`, at port 443 |
    /// | `https://api.example.com:*` | every port of this host |
    /// | `https://api.example.com/v1/*` | `/v1` and all paths below, the same as without `/*` |
    /// | `https://api.example.com/*/users` | one whole segment of the path |
    ///
    /// A `*` beside other characters of a label or segment is an error, such as `https://api*.example.com`. The error
    /// is a sentence that names the pattern.
    pub fn from_policy(pattern: &str) -> Result<OriginGrants, String> {
        if pattern == "*" {
            return ["https://*", "http://*"].into_iter().map(read).collect();
        }
        match pattern.strip_prefix("*://") {
            Some(rest) => {
                Ok([read(&format!("https://{rest}"))?, read(&format!("http://{rest}"))?].into_iter().collect())
            }
            None => Ok([read(pattern)?].into_iter().collect()),
        }
    }
}

fn read(text: &str) -> Result<OriginGrant, String> {
    let wrong = |why: &str| format!("`{text}` is not a pattern of origins such as `https://*.example.com/v1`: {why}");
    let (scheme, rest) =
        text.split_once("://").ok_or_else(|| wrong("it must begin with `https://`, `http://` or `*://`"))?;
    if rest.contains(['?', '#']) {
        return Err(wrong("it cannot have a query or a fragment"));
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (name, any_port) = authority.strip_suffix(":*").map_or((authority, false), |name| (name, true));
    let (below, name) = name.strip_prefix("*.").map_or((false, name), |name| (true, name));
    let any_host = !below && (name == "*" || name.starts_with("*:"));
    let name = if any_host { name.replacen('*', PLACEHOLDER, 1) } else { name.to_owned() };
    if name.contains('*') {
        return Err(wrong("in a host, `*` must be alone or before the first dot"));
    }
    let url = origin::parse(&format!("{scheme}://{name}{path}")).map_err(|why| wrong(&why))?;
    let Origin { scheme, host, port } = Origin::from_url(&url).map_err(|why| wrong(&why))?;
    let port = (!(any_port || any_host && name == PLACEHOLDER)).then_some(port);
    let host = match host {
        _ if any_host => HostPattern::Any,
        Host::Domain(base) if below && base.contains('.') => HostPattern::Below(base),
        _ if below => return Err(wrong("the name after `*.` must contain a dot")),
        host => HostPattern::Is(host),
    };
    let prefix = segments(url.path()).map_err(wrong)?;
    Ok(OriginGrant { scheme, host, port, prefix })
}

/// Returns the segments of a resolved path, without a `*` at its end. That `*` adds nothing, because a pattern covers
/// everything below its path.
fn segments(path: &str) -> Result<Vec<Segment>, &'static str> {
    let path = path.trim_matches('/');
    if path.is_empty() || path == "*" {
        return Ok(Vec::new());
    }
    let path = path.strip_suffix("/*").unwrap_or(path);
    let segment = |text: &str| match text {
        "*" => Ok(Segment::Any),
        text if text.contains('*') => Err("in a path, `*` must be a whole segment"),
        text => {
            let plain = plain_segment(text).ok_or("its path has an encoded separator")?;
            Ok(Segment::Is(plain.into_owned()))
        }
    };
    path.split('/').map(segment).collect()
}
