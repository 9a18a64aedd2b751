//! Grants for the requests of imported nodes.

/// The origin of a grant that a person has to replace.
pub(crate) const UNKNOWN: &str = "https://replace.invalid";
/// The advice for such a grant.
pub(crate) const SET_GRANT: &str = "the server is computed; name its origin in `grants.http`";

/// Returns the origin of a URL whose beginning is literal; `None` if a binding computes it.
pub(crate) fn http_grant(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !matches!(scheme, "http" | "https") {
        return None;
    }
    let host = rest.split(['/', '?', '#']).next()?;
    let is_host = |host: &str| {
        !host.is_empty() && host.bytes().all(|letter| letter.is_ascii_alphanumeric() || b".-:".contains(&letter))
    };
    is_host(host).then(|| format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_literal_host_is_granted() {
        let cases = [
            ("https://api.example.com/v1?a=1", Some("https://api.example.com")),
            ("http://localhost:8080", Some("http://localhost:8080")),
            ("https://{{ a }}/b", None),
            ("https://a{{ b }}.example.com/", None),
            ("https://user@example.com/", None),
            ("ftp://example.com", None),
            ("{{ url }}", None),
            ("", None),
        ];
        for (url, expected) in cases {
            assert_eq!(http_grant(url).as_deref(), expected, "{url}");
        }
    }
}
