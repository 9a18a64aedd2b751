//! Addresses of servers.

use url::{Host, Url};

/// Returns whether a URL names this machine. Requests to it need no TLS, because no other machine can read them.
pub fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Checks that codes and secrets may be sent to a URL: with TLS, or to this machine. The error continues a sentence.
pub(crate) fn check_protected(url: &Url) -> Result<(), String> {
    match url.scheme() == "https" || url.scheme() == "http" && is_this_machine(url) {
        true => Ok(()),
        false => Err("must begin with `https://`; `http://` is for this machine only".to_owned()),
    }
}
