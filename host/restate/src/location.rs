//! The URL of a store on a Restate cluster: `restate://INGRESS[,ADMIN]?tables=DATABASE`.

use std::net::SocketAddr;

use percent_encoding::percent_decode_str;
use url::Url;

/// The usual port of the ingress.
const INGRESS_PORT: u16 = 8_080;
/// The usual port of the admin interface.
const ADMIN_PORT: u16 = 9_070;
/// The usual port at which the cluster invokes a process.
const LISTEN_PORT: u16 = 9_080;
/// The maximum number of addresses of the ingress, and of the admin interface.
const MAX_ADDRESSES: usize = 8;

/// A Restate cluster, and how this process uses it.
#[derive(Clone, PartialEq, Eq)]
pub struct Location {
    /// The addresses of the ingress, `HOST:PORT`, one or several. The next one is used when one does not answer.
    pub ingress: Vec<String>,
    /// The addresses of the admin interface, `HOST:PORT`. Without one, the operator registers the deployment.
    pub admin: Vec<String>,
    /// The URL of the PostgreSQL database with the lists of runs, and with everything that belongs to no run. It may
    /// have a password.
    pub tables: String,
    /// The address at which the cluster invokes this process.
    pub listen: SocketAddr,
    /// The URL by which the cluster reaches that address. `None`: `http://` and the address.
    pub url: Option<String>,
    /// The public keys with which the cluster signs its requests. Without a key, only loopback is allowed.
    pub keys: Vec<String>,
}

/// An error in the URL of a store on a Restate cluster. The messages do not repeat the URL, which may have a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// A host is wrong.
    #[error(
        "the URL of a Restate cluster is `restate://INGRESS[,ADMIN]?tables=DATABASE`, with `HOST` or `HOST:PORT` twice"
    )]
    Hosts,
    /// The URL names no database.
    #[error(
        "the URL of the Restate cluster names no database for the lists of runs, flows, tenants and secrets; add \
         `?tables=postgres://USER:PASSWORD@HOST/DATABASE`"
    )]
    NoTables,
    /// A parameter is unknown.
    #[error(
        "the URL of a Restate cluster has no parameter `{0}`; use `tables`, `ingress`, `admin`, `listen`, `url` and `key`"
    )]
    Unknown(String),
    /// The value of a parameter is wrong.
    #[error("the parameter `{0}` in the URL of the Restate cluster is wrong; it is {1}")]
    Value(&'static str, &'static str),
}

impl Location {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Location, LocationError> {
        let rest = text.strip_prefix("restate://").ok_or(LocationError::Hosts)?;
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (ingress, admin) = match hosts.split_once(',') {
            Some((ingress, admin)) => (ingress, Some(admin)),
            None => (hosts, None),
        };
        let ingress = address(ingress, INGRESS_PORT).ok_or(LocationError::Hosts)?;
        let admin = admin.map(|admin| address(admin, ADMIN_PORT).ok_or(LocationError::Hosts)).transpose()?;
        let admin = admin.into_iter().collect();
        let mut location = Location {
            ingress: vec![ingress],
            admin,
            tables: String::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], LISTEN_PORT)),
            url: None,
            keys: Vec::new(),
        };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            // A `+` is a plus: passwords may have one.
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            location.set(name, value)?;
        }
        if location.tables.is_empty() {
            return Err(LocationError::NoTables);
        }
        Ok(location)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), LocationError> {
        let wrong = |name, is| Err(LocationError::Value(name, is));
        match name {
            "tables" if ["postgres://", "postgresql://"].iter().any(|scheme| value.starts_with(scheme)) => {
                self.tables = value;
            }
            "tables" => return wrong("tables", "the URL of a PostgreSQL database, `postgres://…`"),
            "ingress" => match address(&value, INGRESS_PORT).filter(|_| self.ingress.len() < MAX_ADDRESSES) {
                Some(address) => self.ingress.push(address),
                None => return wrong("ingress", "`HOST` or `HOST:PORT`, at most 7 times"),
            },
            "admin" => match address(&value, ADMIN_PORT).filter(|_| self.admin.len() < MAX_ADDRESSES) {
                Some(address) => self.admin.push(address),
                None => return wrong("admin", "`HOST` or `HOST:PORT`, at most 7 times"),
            },
            "listen" => match value.parse::<SocketAddr>() {
                Ok(address) if address.port() > 0 => self.listen = address,
                _ => return wrong("listen", "an address with a port, such as 127.0.0.1:9080"),
            },
            "url" => match Url::parse(&value).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
                true => self.url = Some(value),
                false => return wrong("url", "the `http://…` by which the cluster reaches this process"),
            },
            "key" if value.starts_with("publickeyv1_") => self.keys.push(value),
            "key" => return wrong("key", "the public key of the cluster, `publickeyv1_…`"),
            _ => return Err(LocationError::Unknown(name.to_owned())),
        }
        Ok(())
    }
}

/// Returns `HOST:PORT` of a host with or without a port.
fn address(text: &str, port: u16) -> Option<String> {
    let url = Url::parse(&format!("http://{text}")).ok().filter(|_| !text.contains(','))?;
    let is_plain = url.path() == "/" && url.query().is_none() && url.username().is_empty() && url.password().is_none();
    // `http` has a default port that the URL does not tell.
    let named = text.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    is_plain.then(|| format!("{}:{}", url.host_str().unwrap_or_default(), url.port().or(named).unwrap_or(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "?tables=postgres://u:p%2bw@h/d";

    #[test]
    fn a_location_has_usual_ports() {
        let parsed = |text: &str| {
            Location::parse(&format!("{text}{TABLES}"))
                .ok()
                .map(|found| (found.ingress.join(" "), found.admin.join(" ")))
        };
        assert_eq!(parsed("restate://a"), Some(("a:8080".into(), "".into())));
        assert_eq!(parsed("restate://a:1,b"), Some(("a:1".into(), "b:9070".into())));
        assert_eq!(parsed("restate://[::1]:80,[::1]:2"), Some(("[::1]:80".into(), "[::1]:2".into())));
        for wrong in ["restate://", "restate://a/b", "http://a", "restate://u@a", "restate://a,", "restate://a,b,c"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_location_has_parameters() {
        let text =
            format!("restate://a,b{TABLES}&ingress=c:1&admin=c&listen=10.0.0.1:80&url=http://lb:9&key=publickeyv1_x");
        let Ok(location) = Location::parse(&text) else { panic!("{text}") };
        assert_eq!(location.ingress, ["a:8080", "c:1"]);
        assert_eq!(location.admin, ["b:9070", "c:9070"]);
        assert_eq!(location.tables, "postgres://u:p+w@h/d");
        assert_eq!((location.listen, location.url.as_deref()), ("10.0.0.1:80".parse().unwrap(), Some("http://lb:9")));
        assert_eq!(location.keys, ["publickeyv1_x"]);
    }

    #[test]
    fn a_wrong_parameter_is_named_and_a_password_is_not() {
        for (query, named) in [
            ("", "?tables="),
            ("?tables=mysql://u:hunter2@h/d", "`tables`"),
            ("?tables=postgres://u:hunter2@h/d&listen=9080", "`listen`"),
            ("?tables=postgres://u:hunter2@h/d&url=lb", "`url`"),
            ("?tables=postgres://u:hunter2@h/d&key=hunter2", "`key`"),
            ("?tables=postgres://u:hunter2@h/d&ingress=a/b", "`ingress`"),
            ("?tables=postgres://u:hunter2@h/d&admin=u@a", "`admin`"),
            ("?tables=postgres://u:hunter2@h/d&table=x", "`table`"),
        ] {
            let told = Location::parse(&format!("restate://a{query}")).err().map(|error| error.to_string());
            let told = told.unwrap_or_default();
            assert!(told.contains(named) && !told.contains("hunter2"), "{query}: {told}");
        }
    }
}
