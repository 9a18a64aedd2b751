//! The trusted proxies in front of the server. They may state the address of a caller.

use std::{net::IpAddr, sync::Arc};

use axum::http::{HeaderMap, HeaderName, header::FORWARDED};
use flowcell_services::egress::AddressRange;

/// The older header by which proxies name the client.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The maximum number of entries that are read, from the end of a header.
pub(crate) const MAX_HOPS: usize = 32;

/// The proxies that the operator trusts. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxies(Arc<[AddressRange]>);

impl Proxies {
    pub(crate) fn new(trusted: &[AddressRange]) -> Proxies {
        Proxies(trusted.into())
    }

    /// Returns true if this is the address of a trusted proxy.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.covers(address, 0))
    }

    /// Returns the address of the caller of a request that came from `peer`.
    ///
    /// If `peer` is not a trusted proxy, the result is `peer`. Otherwise only the last [`MAX_HOPS`] addresses in
    /// `Forwarded` or `X-Forwarded-For` are read. The caller is the last of these addresses that is not a trusted
    /// proxy, or the first of them if all are trusted. If the two headers disagree, or one of them cannot be parsed,
    /// the result is `peer`, since the caller may have written a header. If both headers are missing, the result is
    /// `peer`, too.
    pub(crate) fn caller(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.trusts(peer) {
            return peer;
        }
        let forwarded = self.last_stranger(&entries(headers, &FORWARDED), forwarded_for);
        let x_forwarded_for = self.last_stranger(&entries(headers, &X_FORWARDED_FOR), parse_address);
        match (forwarded, x_forwarded_for) {
            (NamedCaller::Nobody, NamedCaller::By(caller)) | (NamedCaller::By(caller), NamedCaller::Nobody) => caller,
            (NamedCaller::By(one), NamedCaller::By(other)) if one == other => one,
            _ => peer,
        }
    }

    /// Reads the last [`MAX_HOPS`] entries. Returns the last address among them that is not a trusted proxy, or the
    /// first address among them if all are trusted.
    fn last_stranger(&self, entries: &[&str], read: fn(&str) -> Option<IpAddr>) -> NamedCaller {
        let mut nearest = NamedCaller::Nobody;
        for entry in entries.iter().rev().take(MAX_HOPS) {
            let Some(address) = read(entry) else { return NamedCaller::Unreadable };
            if !self.trusts(address) {
                return NamedCaller::By(address);
            }
            nearest = NamedCaller::By(address);
        }
        nearest
    }
}

/// The caller that a header names: no caller (`Nobody`), an address (`By`), or an entry that cannot be parsed
/// (`Unreadable`).
#[derive(Clone, Copy, Debug, PartialEq)]
enum NamedCaller {
    Nobody,
    By(IpAddr),
    Unreadable,
}

/// Returns the entries of a header, which may occur more than once.
fn entries<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let lines = headers.get_all(name).iter().map(|line| line.to_str().unwrap_or("?"));
    lines.flat_map(|line| line.split(',')).map(str::trim).collect()
}

/// Returns the address of `for` in one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, named) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    let named = named.trim();
    parse_address(named.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(named))
}

/// Parses an address with an optional port. An IPv6 address with a port is in brackets.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None if text.matches(':').count() == 1 => text.split_once(':')?.0,
        None => text,
    };
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn caller(peer: &str, lines: &[(&'static str, &str)]) -> String {
        let proxies = Proxies::new(&["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]);
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        proxies.caller(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_may_state_an_address() {
        let x = "x-forwarded-for";
        type Case<'a> = (&'a str, &'a [(&'static str, &'a str)], &'a str);
        let table: &[Case<'_>] = &[
            ("192.0.2.9", &[(x, "198.51.100.1")], "192.0.2.9"),
            ("192.0.2.9", &[("forwarded", "for=198.51.100.1")], "192.0.2.9"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[(x, "198.51.100.1")], "198.51.100.1"),
            ("::ffff:10.0.0.1", &[(x, "198.51.100.1")], "198.51.100.1"),
            ("::1", &[("forwarded", "proto=https;For=\"[2001:db8::1]:47\"")], "2001:db8::1"),
            // The entries that the caller has written come before the entry that the proxy has added.
            ("10.0.0.1", &[(x, "203.0.113.7, 198.51.100.1")], "198.51.100.1"),
            ("10.0.0.1", &[(x, "203.0.113.7"), (x, "198.51.100.1, 10.2.3.4")], "198.51.100.1"),
            ("10.0.0.1", &[("forwarded", "for=203.0.113.7"), (x, "198.51.100.1")], "10.0.0.1"),
            ("10.0.0.1", &[("forwarded", "for=198.51.100.1"), (x, "198.51.100.1:99")], "198.51.100.1"),
            ("10.0.0.1", &[(x, "198.51.100.1, unknown")], "10.0.0.1"),
            ("10.0.0.1", &[("forwarded", "for=_hidden")], "10.0.0.1"),
            ("10.0.0.1", &[("forwarded", "proto=https")], "10.0.0.1"),
            ("10.0.0.1", &[(x, "10.9.9.9, 10.8.8.8")], "10.9.9.9"),
        ];
        for (peer, lines, expected) in table {
            assert_eq!(caller(peer, lines), *expected, "{peer} {lines:?}");
        }
    }
}
