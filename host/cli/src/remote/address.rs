//! The address of a server.

use std::{fmt, str::FromStr};

use flowcell::address::is_this_machine;
use url::Url;

/// The scheme, the name and the port of a server. Two servers on other ports of a machine have other addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerAddress(Url);

impl FromStr for ServerAddress {
    type Err = String;

    /// Parses an address such as `https://flows.example.com`. The error does not repeat it, since it may have a password.
    fn from_str(text: &str) -> Result<ServerAddress, String> {
        let url = Url::parse(text).map_err(|error| format!("it is not a URL: {error}; write https://NAME"))?;
        if !matches!(url.scheme(), "https" | "http") || url.host().is_none() {
            return Err("it must begin with https:// or http://".to_owned());
        }
        let is_bare = url.username().is_empty() && url.password().is_none() && url.path() == "/";
        match is_bare && url.query().is_none() && url.fragment().is_none() {
            true => Ok(ServerAddress(url)),
            false => Err("write the scheme, the name and the port alone, such as https://flows.example.com".to_owned()),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.origin().ascii_serialization())
    }
}

impl ServerAddress {
    /// Returns the URL of a path with its query. A path cannot lead to another server.
    pub(crate) fn url(&self, path: &str) -> Result<Url, String> {
        let parsed = if path.starts_with('/') { Url::parse(&format!("{self}{path}")).ok() } else { None };
        let own = parsed.filter(|url| url.origin() == self.0.origin());
        own.ok_or_else(|| "a path begins with `/`, such as `/v1/runs`; `--server` names the server".to_owned())
    }

    /// Returns whether others in the network can read the requests: the server is another machine, and has no TLS.
    pub(crate) fn is_exposed(&self) -> bool {
        self.0.scheme() == "http" && !is_this_machine(&self.0)
    }

    /// Returns the name of the file with the login. No other address has it: `+` is in no name of a host.
    pub(super) fn file_name(&self) -> String {
        let host: String = self.0.host_str().unwrap_or_default().replace(['[', ']'], "").replace(':', "_");
        format!("{}+{host}+{}.json", self.0.scheme(), self.0.port_or_known_default().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_name_and_a_port() {
        for (text, shown, exposed) in [
            ("https://Flows.example.com/", "https://flows.example.com", false),
            ("https://flows.example.com:443", "https://flows.example.com", false),
            ("http://127.0.0.1:7171", "http://127.0.0.1:7171", false),
            ("http://localhost", "http://localhost", false),
            ("http://[::1]:7171", "http://[::1]:7171", false),
            ("http://10.0.0.5:7171", "http://10.0.0.5:7171", true),
            ("http://localhost.evil.test", "http://localhost.evil.test", true),
        ] {
            let address: ServerAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_exposed()), (shown, exposed));
        }
        for odd in [
            "",
            "flows.example.com",
            "ftp://flows.example.com",
            "https://a:secret@flows.example.com",
            "https://flows.example.com/console",
            "https://flows.example.com/?a",
            "https://flows.example.com/#a",
            "file:///etc/passwd",
        ] {
            let why = odd.parse::<ServerAddress>().unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_path_leads_to_no_other_server() {
        let address: ServerAddress = "https://flows.example.com:8443".parse().unwrap();
        assert_eq!(address.url("/v1/runs?limit=1").unwrap().as_str(), "https://flows.example.com:8443/v1/runs?limit=1");
        for path in ["//evil.test/v1", "/\\evil.test", "/../..//evil.test"] {
            let url = address.url(path).unwrap();
            assert_eq!((url.host_str(), url.port()), (Some("flows.example.com"), Some(8443)), "{path}");
        }
        for path in ["", "v1/runs", "@evil.test/", ".evil.test/", "0/v1", "https://evil.test/", "\\\\evil.test"] {
            assert!(address.url(path).is_err(), "{path}");
        }
    }

    #[test]
    fn each_address_has_its_own_file() {
        let names = [
            "http://h",
            "https://h",
            "http://h:8080",
            "https://h:8443",
            "https://h_8443",
            "http://[::1]",
            "http://[1::]",
        ];
        let names: Vec<String> = names.iter().map(|text| text.parse::<ServerAddress>().unwrap().file_name()).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        assert!(names.iter().all(|name| !name.contains('/')), "{names:?}");
    }
}
