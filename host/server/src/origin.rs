//! The names by which clients reach a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue, header, uri::Authority};

use crate::tls::TlsPair;

/// The host name of the console on its own machine. Browsers find it without DNS, and it is another site than
/// `localhost`, so cookies of other local programs and of this server stay apart.
pub(crate) const CONSOLE_NAME: &str = "flowcell.localhost";

/// The header `Strict-Transport-Security` of a server with TLS: for a year, browsers use TLS alone for its name.
pub(crate) const STRICT_TRANSPORT: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Returns whether the header `Host` names the machine of the client, or an address. A browser applies
/// `Strict-Transport-Security` to all ports of a name, and other programs on this machine may have no TLS.
pub(crate) fn is_local_name(request: &HeaderMap) -> bool {
    let host = request.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(authority) = host.and_then(|host| host.parse::<Authority>().ok()) else { return true };
    let name = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok()
}

/// Returns the URL of the address that a server listens on.
pub(crate) fn listening(address: SocketAddr, has_tls: bool) -> String {
    format!("{}://{address}", scheme(has_tls))
}

/// Returns the origin of the console as browsers on this machine reach it: with a name that the server accepts, and with
/// TLS with one that the certificate has. Names that the operator has listed come first if the certificate has them. If no
/// name fits, the browser says so. `listed` has the names that the operator has listed, and `is_own` tells whether the
/// server accepts a name with its port.
pub(crate) fn console(
    address: SocketAddr,
    listed: &[String],
    is_own: impl Fn(&str) -> bool,
    pair: Option<&TlsPair>,
) -> String {
    let is_here = address.ip().is_loopback() || address.ip().is_unspecified();
    let own = if is_here { CONSOLE_NAME.to_owned() } else { address.ip().to_string() };
    let here = ["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
    let here = if is_here { &here[..] } else { &[] };
    let host = |name: &str| match name.contains(':') {
        true => format!("[{name}]:{}", address.port()),
        false => format!("{name}:{}", address.port()),
    };
    let is_accepted = |name: &&String| is_own(&host(name));
    let fits = |name: &&String| is_accepted(name) && pair.is_none_or(|pair| pair.is_for(name));
    let chosen = match pair {
        Some(_) => listed.iter().chain([&own]).chain(here).find(fits),
        None if is_here => [&own].into_iter().chain(listed).find(fits),
        None => listed.iter().chain([&own]).find(fits),
    };
    format!("{}://{}", scheme(pair.is_some()), host(chosen.unwrap_or(&own)))
}

fn scheme(has_tls: bool) -> &'static str {
    if has_tls { "https" } else { "http" }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{guard::Names, tls::testing::pair_for};

    /// Returns the origin for a server at this address, with these listed names. Its server accepts the origin.
    fn origin(address: &str, listed: &[&str], pair: Option<&TlsPair>) -> String {
        let address: SocketAddr = address.parse().unwrap();
        let listed: Vec<_> = listed.iter().map(|name| (*name).to_owned()).collect();
        let names = Names::new(address.port(), pair.is_some(), address.ip().is_loopback(), &listed);
        let origin = console(address, names.listed(), |name| names.is_own(name), pair);
        let host = origin.split_once("://").unwrap().1;
        assert!(names.is_own(host), "the server refuses {origin}");
        origin
    }

    #[test]
    fn the_console_without_tls_has_a_name_that_browsers_find() {
        let table = [
            ("127.0.0.1:7171", &["flows.test"][..], "http://flowcell.localhost:7171"),
            ("0.0.0.0:80", &["flows.test"], "http://flowcell.localhost:80"),
            ("10.0.0.5:7171", &[], "http://10.0.0.5:7171"),
            ("10.0.0.5:7171", &["flows.test"], "http://flows.test:7171"),
            ("[fd00::1]:7171", &[], "http://[fd00::1]:7171"),
        ];
        for (address, listed, expected) in table {
            assert_eq!(origin(address, listed, None), expected);
        }
    }

    #[test]
    fn the_console_with_tls_has_a_name_of_the_certificate() {
        let listed = ["other.test", "flows.test"];
        type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a str, &'a str);
        let table: &[Case<'_>] = &[
            (&["flows.test"], &listed, "0.0.0.0:443", "https://flows.test:443"),
            (&["flows.test", "localhost"], &listed, "127.0.0.1:1", "https://flows.test:1"),
            (&["localhost"], &listed, "127.0.0.1:1", "https://localhost:1"),
            (&["127.0.0.1"], &[], "0.0.0.0:1", "https://127.0.0.1:1"),
            (&["fd00::1"], &[], "[fd00::1]:1", "https://[fd00::1]:1"),
            // No name fits, and the browser says so.
            (&["strange.test"], &listed, "127.0.0.1:1", "https://flowcell.localhost:1"),
            (&["strange.test"], &listed, "0.0.0.0:1", "https://flowcell.localhost:1"),
            (&["127.0.0.1"], &listed, "0.0.0.0:1", "https://127.0.0.1:1"),
        ];
        for (names, listed, address, expected) in table {
            assert_eq!(origin(address, listed, Some(&pair_for(names))), *expected, "{names:?}");
        }
    }

    #[test]
    fn names_of_this_machine_and_addresses_are_not_pinned_to_tls() {
        let table = [
            ("flows.test", false),
            ("flows.test:7171", false),
            ("notlocalhost", false),
            ("LOCALHOST:7171", true),
            ("flowcell.localhost:7171", true),
            ("127.0.0.1:7171", true),
            ("[::1]:7171", true),
            ("", true),
            ("a b", true),
        ];
        for (host, expected) in table {
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
            assert_eq!(is_local_name(&headers), expected, "{host}");
        }
        assert!(is_local_name(&HeaderMap::new()));
    }
}
