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

/// Returns the origin of the console as browsers reach it. A server that listens on an address of the network is
/// reached by this address. With TLS the name is the first one that the certificate has: of the names that the operator
/// has listed, and then of those of this machine.
pub(crate) fn console(address: SocketAddr, listed: &[String], pair: Option<&TlsPair>) -> String {
    let is_here = address.ip().is_loopback() || address.ip().is_unspecified();
    let own = if is_here { CONSOLE_NAME.to_owned() } else { address.ip().to_string() };
    let local = [own.clone(), "localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
    let known = if is_here { &local[..] } else { &local[..1] };
    let chosen = pair.and_then(|pair| listed.iter().chain(known).find(|name| pair.is_for(name)));
    let name = chosen.unwrap_or(&own);
    let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
    format!("{}://{name}:{}", scheme(pair.is_some()), address.port())
}

fn scheme(has_tls: bool) -> &'static str {
    if has_tls { "https" } else { "http" }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::tls::testing::pair_for;

    #[test]
    fn the_console_without_tls_has_a_name_that_browsers_find() {
        let table = [
            ("127.0.0.1:7171", "http://flowcell.localhost:7171"),
            ("0.0.0.0:80", "http://flowcell.localhost:80"),
            ("10.0.0.5:7171", "http://10.0.0.5:7171"),
            ("[fd00::1]:7171", "http://[fd00::1]:7171"),
        ];
        for (address, expected) in table {
            assert_eq!(console(address.parse().unwrap(), &["flows.test".into()], None), expected);
        }
    }

    #[test]
    fn the_console_with_tls_has_a_name_of_the_certificate() {
        let listed = ["other.test".to_owned(), "flows.test".to_owned()];
        type Case<'a> = (&'a [&'a str], &'a str, &'a str);
        let table: &[Case<'_>] = &[
            (&["flows.test"], "0.0.0.0:443", "https://flows.test:443"),
            (&["flows.test", "localhost"], "127.0.0.1:1", "https://flows.test:1"),
            (&["localhost"], "127.0.0.1:1", "https://localhost:1"),
            (&["127.0.0.1"], "0.0.0.0:1", "https://127.0.0.1:1"),
            (&["localhost"], "10.0.0.5:1", "https://10.0.0.5:1"),
            (&["fd00::1"], "[fd00::1]:1", "https://[fd00::1]:1"),
            // No name fits, and the browser says so.
            (&["strange.test"], "127.0.0.1:1", "https://flowcell.localhost:1"),
        ];
        for (names, address, expected) in table {
            assert_eq!(console(address.parse().unwrap(), &listed, Some(&pair_for(names))), *expected, "{names:?}");
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
