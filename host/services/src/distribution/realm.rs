//! Token servers that may receive the credentials for a registry.

use std::str::FromStr;

use url::Url;

/// Registries whose token server has another origin: the registry's name in references, and the origin.
const KNOWN: [(&str, &str); 1] = [("docker.io", "https://auth.docker.io")];

/// A token server that may receive the credentials for one registry, beside the registry itself. An operator writes it
/// as `registry.example.com=https://auth.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm {
    /// The registry's name in references.
    registry: String,
    /// Scheme, host and port of the token server.
    origin: String,
}

impl Realm {
    /// Returns the token servers that the host itself knows for a registry, without any setting of the operator.
    pub(super) fn known(registry: &str) -> impl Iterator<Item = Realm> + '_ {
        let known = KNOWN.iter().filter(move |(own, _)| *own == registry);
        known.map(|(registry, origin)| Realm { registry: (*registry).to_owned(), origin: (*origin).to_owned() })
    }

    /// Returns true if this token server is for this registry and has the origin of this URL.
    pub(super) fn admits(&self, registry: &str, url: &Url) -> bool {
        self.registry == registry && url.origin().ascii_serialization() == self.origin
    }
}

impl FromStr for Realm {
    type Err = String;

    fn from_str(text: &str) -> Result<Realm, String> {
        let wrong = || {
            format!("`{text}` is not a registry and an origin, such as `registry.example.com=https://auth.example.com`")
        };
        let (registry, origin) = text.trim().split_once('=').ok_or_else(wrong)?;
        let url = Url::parse(origin).map_err(|_| wrong())?;
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        match bare && matches!(url.scheme(), "https" | "http") && !registry.is_empty() {
            true => Ok(Realm { registry: registry.to_owned(), origin: url.origin().ascii_serialization() }),
            false => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn credentials_go_only_to_the_realm_of_their_registry() {
        let realm: Realm = "registry.example.com=https://auth.example.com".parse().unwrap();
        for (registry, url, expected) in [
            ("registry.example.com", "https://auth.example.com/token?a=b", true),
            ("registry.example.com", "https://auth.example.com:443/", true),
            ("other.example.com", "https://auth.example.com/token", false),
            ("registry.example.com", "http://auth.example.com/token", false),
            ("registry.example.com", "https://auth.example.com:8443/token", false),
            ("registry.example.com", "https://auth.example.com.evil.test/token", false),
            ("registry.example.com", "https://auth.example.com@evil.test/token", false),
        ] {
            assert_eq!(realm.admits(registry, &Url::parse(url).unwrap()), expected, "{registry} {url}");
        }
        for wrong in
            ["", "a", "a=b", "=https://a.test", "a=ftp://a.test", "a=https://a.test/path", "a=https://u@a.test"]
        {
            assert!(wrong.parse::<Realm>().is_err(), "{wrong}");
        }
    }
}
