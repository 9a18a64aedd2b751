//! The members that give the address and the API key of a provider in an operator's profile. The profiles of model
//! providers and of image endpoints share them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::{
    egress::{AddressRange, OriginGrants},
    secret::{Key, KeySource},
};

/// Headers about the transfer or the sender of a request. A profile must not set them.
const RESERVED_HEADERS: [&str; 9] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
];

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The way that a request carries the API key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// `authorization: Bearer KEY`.
    #[default]
    Bearer,
    /// `x-api-key: KEY`.
    XApiKey,
    /// The key is the whole value of this header.
    Header(String),
    /// No key is read or sent.
    None,
}

/// The members of a profile that give the provider's address and key, not yet checked.
pub(crate) struct EndpointMembers<'a> {
    pub(crate) base_url: Option<&'a str>,
    pub(crate) auth: &'a Auth,
    pub(crate) key_env: Option<&'a str>,
    pub(crate) key_file: Option<&'a PathBuf>,
    pub(crate) headers: &'a BTreeMap<String, String>,
    pub(crate) allow_private: &'a [String],
}

/// The checked address and key of a provider.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) key: Option<KeySource>,
    pub(crate) origin: OriginGrants,
    pub(crate) private: Vec<AddressRange>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl EndpointMembers<'_> {
    /// Checks the members. A relative file name starts at `folder`. Does not read the key. The error names the wrong
    /// member.
    pub(crate) fn read(&self, folder: &Path) -> Result<Endpoint, String> {
        let key = self.key(folder)?;
        let base = self.base_url.ok_or("`baseUrl` is missing")?;
        let origin = base.parse().map_err(|why| format!("baseUrl: {why}"))?;
        let private = self.allow_private.iter().map(|range| range.parse());
        let private = private.collect::<Result<_, _>>().map_err(|why: String| format!("allowPrivate: {why}"))?;
        Ok(Endpoint { key, origin: OriginGrants::from_iter([origin]), private, headers: self.headers()? })
    }

    fn key(&self, folder: &Path) -> Result<Option<KeySource>, String> {
        match (self.auth, self.key_env, self.key_file) {
            (Auth::None, ..) => Ok(None),
            (_, Some(name), None) => Ok(Some(KeySource::Environment(name.to_owned()))),
            (_, None, Some(file)) => Ok(Some(KeySource::File(folder.join(file)))),
            (_, None, None) => Err("the key is missing: add `keyEnv` or `keyFile`, or `auth: none`".into()),
            (_, Some(_), Some(_)) => Err("use either `keyEnv` or `keyFile`, not both".into()),
        }
    }

    fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let header = |(name, value): (&String, &String)| {
            if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(format!("headers: the host sets `{name}`"));
            }
            let parsed = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
            parsed.ok_or_else(|| format!("headers: `{name}` is not a valid header"))
        };
        if let Auth::Header(name) = self.auth {
            let bad = |_| format!("auth: `{name}` is not the name of a header");
            HeaderName::from_bytes(name.as_bytes()).map_err(bad)?;
        }
        self.headers.iter().map(header).collect()
    }
}

impl Auth {
    /// Adds the header with the key to `headers`. The error says why the key cannot be sent.
    pub(crate) fn add_header(&self, key: &Key, headers: &mut HeaderMap) -> Result<(), &'static str> {
        let (name, prefix) = match self {
            Auth::Bearer => (AUTHORIZATION, "Bearer "),
            Auth::XApiKey => (X_API_KEY, ""),
            Auth::Header(name) => {
                let name = HeaderName::from_bytes(name.as_bytes());
                (name.map_err(|_| "the name of the header for the key is invalid")?, "")
            }
            Auth::None => return Ok(()),
        };
        headers.insert(name, key.header(prefix).ok_or("the key does not fit into a header")?);
        Ok(())
    }
}
