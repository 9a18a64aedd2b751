//! The URL of a Restate cluster: `restate://INGRESS[,ADMIN]`.

use url::Url;

/// The usual port of the ingress.
const INGRESS_PORT: u16 = 8_080;
/// The usual port of the admin interface.
const ADMIN_PORT: u16 = 9_070;

/// The addresses of a Restate cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The address of the ingress, `HOST:PORT`.
    pub ingress: String,
    /// The address of the admin interface, `HOST:PORT`. `None`: the operator registers the deployment.
    pub admin: Option<String>,
}

/// An error in the URL of a Restate cluster.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not the URL of a Restate cluster; use `restate://INGRESS[,ADMIN]`, each `HOST` or `HOST:PORT`")]
pub struct LocationError(String);

impl Location {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Location, LocationError> {
        let error = || LocationError(text.to_owned());
        let hosts = text.strip_prefix("restate://").ok_or_else(error)?;
        let (ingress, admin) = match hosts.split_once(',') {
            Some((ingress, admin)) => (ingress, Some(admin)),
            None => (hosts, None),
        };
        let ingress = address(ingress, INGRESS_PORT).ok_or_else(error)?;
        let admin = admin.map(|admin| address(admin, ADMIN_PORT).ok_or_else(error)).transpose()?;
        Ok(Location { ingress, admin })
    }
}

/// Returns `HOST:PORT` of a host with or without a port.
fn address(text: &str, port: u16) -> Option<String> {
    let url = Url::parse(&format!("http://{text}")).ok()?;
    let is_plain = url.path() == "/" && url.query().is_none() && url.username().is_empty() && url.password().is_none();
    // `http` has a default port that the URL does not tell.
    let named = text.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    is_plain.then(|| format!("{}:{}", url.host_str().unwrap_or_default(), url.port().or(named).unwrap_or(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_has_usual_ports() {
        let parsed = |text: &str| Location::parse(text).ok().map(|found| (found.ingress, found.admin));
        assert_eq!(parsed("restate://a"), Some(("a:8080".into(), None)));
        assert_eq!(parsed("restate://a:1,b"), Some(("a:1".into(), Some("b:9070".into()))));
        assert_eq!(parsed("restate://[::1]:80,[::1]:2"), Some(("[::1]:80".into(), Some("[::1]:2".into()))));
        for wrong in ["restate://", "restate://a/b", "http://a", "restate://u@a", "restate://a,"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
