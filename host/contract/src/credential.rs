//! Credentials: the declarations of node types, and the grants of flows.
//!
//! A manifest declares the credentials that its requests need ([`CredentialRequest`]). A flow grants a node credentials of
//! its tenant under the declared names:
//!
//! ```yaml
//! grants:
//!   http: ["https://slack.com"]
//!   credentials: [slack]                   # the tenant's credential `slack`
//!   # credentials: { slack: team-slack }   # the tenant's credential `team-slack`
//! ```
//!
//! The checker joins both into a [`CredentialGrant`], which the graph of the flow keeps.

use std::{fmt, sync::Arc};

use flowcell_expr::Json;
use serde::{Deserialize, Serialize};

use crate::shell::shell_word;

/// Maximum number of credentials that a node type declares, and that a flow grants to one node.
pub const MAX_NODE_CREDENTIALS: usize = 16;
/// Maximum number of hosts of a declared credential.
pub const MAX_CREDENTIAL_HOSTS: usize = 32;
/// Maximum number of characters of a declared host, and of the name of a header, parameter or member.
const MAX_DECLARED: usize = 200;
/// Maximum number of characters of the name of a credential.
pub const MAX_CREDENTIAL_NAME: usize = 64;

/// The kind of a credential: how the host proves to a server who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CredentialKind {
    /// A token in the header `authorization`.
    #[serde(rename = "bearer")]
    Bearer,
    /// A user name and a password in the header `authorization`.
    #[serde(rename = "basic")]
    Basic,
    /// A key in a header, in the query of the URL, or in the body.
    #[serde(rename = "apiKey")]
    ApiKey,
    /// A token that the host gets from a token endpoint, and renews.
    #[serde(rename = "oauth2")]
    OAuth2,
    /// A signature over the request by HMAC, in a header.
    #[serde(rename = "hmac")]
    Hmac,
    /// A signature of AWS, version 4.
    #[serde(rename = "sigv4")]
    SigV4,
}

/// The part of a request that has an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyPlace {
    /// A header.
    Header,
    /// A parameter of the query.
    Query,
    /// A member of a JSON object, or a field of a form.
    Body,
}

impl CredentialKind {
    /// All kinds.
    pub const ALL: [CredentialKind; 6] = [
        CredentialKind::Bearer,
        CredentialKind::Basic,
        CredentialKind::ApiKey,
        CredentialKind::OAuth2,
        CredentialKind::Hmac,
        CredentialKind::SigV4,
    ];

    /// Returns the name of the kind in manifests and commands.
    pub const fn name(self) -> &'static str {
        match self {
            CredentialKind::Bearer => "bearer",
            CredentialKind::Basic => "basic",
            CredentialKind::ApiKey => "apiKey",
            CredentialKind::OAuth2 => "oauth2",
            CredentialKind::Hmac => "hmac",
            CredentialKind::SigV4 => "sigv4",
        }
    }
}

impl KeyPlace {
    /// Returns the name of the place in manifests and commands.
    pub const fn name(self) -> &'static str {
        match self {
            KeyPlace::Header => "header",
            KeyPlace::Query => "query",
            KeyPlace::Body => "body",
        }
    }
}

impl fmt::Display for CredentialKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A credential that a node type declares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialRequest {
    /// The name under which a flow grants it.
    pub name: Arc<str>,
    /// The kind that it must have.
    pub kind: CredentialKind,
    /// The place of an API key. Only for [`CredentialKind::ApiKey`].
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub place: Option<KeyPlace>,
    /// The name of the header, parameter or member with an API key. Only for [`CredentialKind::ApiKey`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The servers to which the host sends it: origins as in a grant of `http`, or names of hosts, which mean `https`.
    /// Empty: those to which the tenant's credential may be sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The reason, for the person who decides on the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if the node also works without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// A credential that a flow grants to a node, with the demands of the node type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialGrant {
    /// The name that the node type declares. Without a declaration, the name that the flow gives.
    pub name: Arc<str>,
    /// The name of the tenant's credential.
    pub credential: Arc<str>,
    /// The declared kind. `None`: the node type declares nothing about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<CredentialKind>,
    /// See [`CredentialRequest::place`].
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub place: Option<KeyPlace>,
    /// See [`CredentialRequest::key`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// See [`CredentialRequest::hosts`]. All have a scheme.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl CredentialRequest {
    /// Checks a declaration. The error is a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        let name = &self.name;
        check_credential_name(name)?;
        let is_key = self.kind == CredentialKind::ApiKey;
        if is_key && self.place.is_none() {
            return Err(format!("credential `{name}`: add `in: header`, `in: query` or `in: body`"));
        }
        if !is_key && (self.place.is_some() || self.key.is_some()) {
            return Err(format!("credential `{name}`: only a credential of the kind `apiKey` has `in` and `key`"));
        }
        if self.hosts.len() > MAX_CREDENTIAL_HOSTS {
            return Err(format!("credential `{name}` has more than {MAX_CREDENTIAL_HOSTS} hosts"));
        }
        if !self.hosts.iter().all(|host| is_host(host)) {
            return Err(format!(
                "credential `{name}`: a host is a name such as `api.example.com`, or an origin such as \
                 `https://api.example.com`"
            ));
        }
        match (self.place, &self.key) {
            (Some(place), Some(key)) if !is_key_name(place, key) => Err(format!(
                "credential `{name}`: `key` is the name of a header, a parameter or a member, such as `x-api-key`"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the credential in one line: `slack (oauth2) for https://slack.com`.
    pub fn summary(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(|host| with_scheme(host)).collect();
        let hosts = if hosts.is_empty() { String::new() } else { format!(" for {}", hosts.join(", ")) };
        let place = self.place.map(|place| format!(" in {}", place.name())).unwrap_or_default();
        format!("{} ({}{place}){hosts}", self.name, self.kind)
    }

    /// Returns the command that creates a fitting credential with this name.
    fn command(&self, credential: &str) -> String {
        let host = self.hosts.first().map_or_else(|| "ORIGIN".to_owned(), |host| with_scheme(host));
        let mut command = format!("flowcell credential set {} --kind {}", shell_word(credential), self.kind);
        if let Some(place) = self.place {
            command.push_str(&format!(" --set in={}", place.name()));
        }
        if let Some(key) = &self.key {
            command.push_str(&format!(" --set {}", shell_word(&format!("key={key}"))));
        }
        command + &format!(" --for {}", shell_word(&host))
    }
}

impl CredentialGrant {
    /// Creates the grant of a tenant's credential under a name that the node type declares as `request`.
    pub fn new(name: Arc<str>, credential: Arc<str>, request: Option<&CredentialRequest>) -> CredentialGrant {
        let hosts = request.map(|request| request.hosts.iter().map(|host| with_scheme(host)).collect());
        CredentialGrant {
            name,
            credential,
            kind: request.map(|request| request.kind),
            place: request.and_then(|request| request.place),
            key: request.and_then(|request| request.key.clone()),
            hosts: hosts.unwrap_or_default(),
        }
    }

    /// Reads a grant of a graph.
    pub fn parse(item: &Json) -> Result<CredentialGrant, String> {
        serde_json::from_value(item.to_serde()).map_err(|error| error.to_string())
    }

    /// Reads all grants of a node of a graph.
    pub fn parse_all(grant: &Json) -> Result<Vec<CredentialGrant>, String> {
        grant.as_array().unwrap_or_default().iter().map(CredentialGrant::parse).collect()
    }

    /// Returns the grant as the graph keeps it.
    pub fn to_json(&self) -> Json {
        let text = |text: &str| Json::from(text);
        let mut members = vec![("name", text(&self.name)), ("credential", text(&self.credential))];
        members.extend(self.kind.map(|kind| ("kind", text(kind.name()))));
        members.extend(self.place.map(|place| ("in", text(place.name()))));
        members.extend(self.key.as_deref().map(|key| ("key", text(key))));
        if !self.hosts.is_empty() {
            members.push(("hosts", Json::array(self.hosts.iter().map(|host| text(host)))));
        }
        Json::object(members)
    }

    /// Returns the command that creates a fitting credential.
    pub fn command(&self) -> String {
        let kind = self.kind.unwrap_or(CredentialKind::Bearer);
        let (name, place, key, hosts) = (self.name.clone(), self.place, self.key.clone(), self.hosts.clone());
        CredentialRequest { name, kind, place, key, hosts, reason: None, optional: false }.command(&self.credential)
    }
}

impl fmt::Display for CredentialGrant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name == self.credential {
            true => formatter.write_str(&self.name),
            false => write!(formatter, "{} = {}", self.name, self.credential),
        }
    }
}

/// The name that a node type declares, and the tenant's credential that a flow grants for it.
pub type WrittenCredential = (Arc<str>, Arc<str>);

/// Reads `grants.credentials` of a node as a flow writes it: pairs of the declared name and the tenant's credential. The
/// error is a sentence without the value, which may be a secret.
pub fn written_credentials(grant: &Json) -> Result<Vec<WrittenCredential>, String> {
    let wrong = || "write a list of names such as `[slack]`, or `{ slack: team-slack }`".to_owned();
    let text = |json: &Json| json.as_str().map(Arc::<str>::from).ok_or_else(wrong);
    let same = |json: &Json| text(json).map(|name| (name.clone(), name));
    let pairs: Vec<WrittenCredential> = match grant {
        Json::String(_) => vec![same(grant)?],
        Json::Array(items) => items.iter().map(same).collect::<Result<_, _>>()?,
        Json::Object(members) => {
            members.iter().map(|(name, value)| Ok((name.clone(), text(value)?))).collect::<Result<_, String>>()?
        }
        _ => return Err(wrong()),
    };
    if pairs.len() > MAX_NODE_CREDENTIALS {
        return Err(format!("a node has at most {MAX_NODE_CREDENTIALS} credentials"));
    }
    for (at, (name, credential)) in pairs.iter().enumerate() {
        check_credential_name(name)?;
        check_credential_name(credential)?;
        if pairs[..at].iter().any(|(earlier, _)| earlier == name) {
            return Err(format!("`{name}` is granted twice"));
        }
    }
    Ok(pairs)
}

/// Checks the name of a credential: 1 to 64 letters, digits, `-` and `_`. The error does not repeat it.
pub fn check_credential_name(name: &str) -> Result<(), String> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    match plain && (1..=MAX_CREDENTIAL_NAME).contains(&name.len()) {
        true => Ok(()),
        false => Err(format!("the name of a credential has 1 to {MAX_CREDENTIAL_NAME} letters, digits, `-` and `_`")),
    }
}

/// Returns whether a text is the name of a host, or an origin with or without a path.
fn is_host(text: &str) -> bool {
    let host = text.split_once("://").map_or(text, |(scheme, rest)| if is_scheme(scheme) { rest } else { "" });
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~*%:/[]".contains(&byte);
    (1..=MAX_DECLARED).contains(&host.len()) && host.bytes().all(plain)
}

fn is_scheme(text: &str) -> bool {
    text.eq_ignore_ascii_case("https") || text.eq_ignore_ascii_case("http")
}

/// Returns whether a text can be the name of a header, a parameter or a member.
fn is_key_name(place: KeyPlace, key: &str) -> bool {
    let of_header = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let of_other = |letter: char| letter.is_alphanumeric() || "-_.$:[]".contains(letter);
    let plain = if place == KeyPlace::Header { key.chars().all(of_header) } else { key.chars().all(of_other) };
    plain && (1..=MAX_DECLARED).contains(&key.chars().count())
}

/// Returns a host of a manifest as an origin.
fn with_scheme(host: &str) -> String {
    if host.contains("://") { host.to_owned() } else { format!("https://{host}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_flow_grants_credentials_by_list_or_by_map() {
        let written = |text: &str| written_credentials(&Json::parse(text).unwrap());
        let pair = |name: &str, credential: &str| (Arc::<str>::from(name), Arc::<str>::from(credential));
        assert_eq!(written(r#""a""#).unwrap(), [pair("a", "a")]);
        assert_eq!(written(r#"["a", "b"]"#).unwrap(), [pair("a", "a"), pair("b", "b")]);
        assert_eq!(written(r#"{ "a": "mine" }"#).unwrap(), [pair("a", "mine")]);
        for wrong in
            ["1", r#"[{ "name": "hunter2" }]"#, r#"{ "a": 1 }"#, r#"["hunter2 x"]"#, r#"["a", "a"]"#, r#"{"a":"../b"}"#]
        {
            assert!(!written(wrong).unwrap_err().contains("hunter2"), "{wrong}");
        }
        let many = Json::array((0..=MAX_NODE_CREDENTIALS).map(|n| Json::from(format!("c{n}"))));
        assert!(written_credentials(&many).is_err());
    }

    #[test]
    fn a_grant_of_a_graph_is_read_as_it_was_written() {
        let request = CredentialRequest {
            name: "shop".into(),
            kind: CredentialKind::ApiKey,
            place: Some(KeyPlace::Header),
            key: Some("x-key".into()),
            hosts: vec!["api.example.com".into(), "http://127.0.0.1:1".into()],
            reason: None,
            optional: false,
        };
        request.check().unwrap();
        let grant = CredentialGrant::new("shop".into(), "mine".into(), Some(&request));
        assert_eq!(CredentialGrant::parse(&grant.to_json()).unwrap(), grant);
        assert_eq!(grant.hosts, ["https://api.example.com", "http://127.0.0.1:1"]);
        assert_eq!(
            grant.command(),
            "flowcell credential set mine --kind apiKey --set in=header --set key=x-key --for https://api.example.com"
        );
        for host in ["$(touch${IFS}/tmp/p)", "a;b", "https://a'b", "ftp://a", "a b", "", "https://", "a\u{202e}"] {
            assert!(CredentialRequest { hosts: vec![host.into()], ..request.clone() }.check().is_err(), "{host}");
        }
        for host in ["*.example.com", "http://[::1]:8080", "https://example.com/api/*", "localhost:1"] {
            CredentialRequest { hosts: vec![host.into()], ..request.clone() }.check().unwrap();
        }
        for key in ["x; touch /tmp/p #", "", "a'b", "a\nb", "$(x)"] {
            assert!(CredentialRequest { key: Some(key.into()), ..request.clone() }.check().is_err(), "{key}");
        }
        // A graph of an older version may have such a grant.
        let hostile = CredentialGrant { key: Some("x; y #".into()), hosts: vec!["https://$(z)".into()], ..grant };
        assert!(hostile.command().ends_with(" --set 'key=x; y #' --for 'https://$(z)'"), "{}", hostile.command());
        let plain = CredentialGrant::new("a".into(), "a".into(), None);
        assert_eq!(plain.to_json().to_text(), r#"{"name":"a","credential":"a"}"#);
    }
}
