//! The secrets that a flow grants to a node, as the flow writes them.

use flowcell_contract::Json;
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;

use crate::{client::is_transfer_header, egress::OriginGrants};

/// Maximum characters of a secret's name.
const MAX_NAME: usize = 64;

/// The granted secrets of a node.
///
/// ```yaml
/// grants:
///   http: ["https://api.example.com"]
///   secrets:
///     - { name: api-token, header: authorization, prefix: "Bearer ", for: "https://api.example.com" }
/// ```
///
/// `header` defaults to `authorization`, and `prefix` to `Bearer `; for another header the prefix is empty by default.
/// Without `for` a secret goes to all origins that the operator permits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretGrants(pub(super) Vec<SecretGrant>);

/// The grant of one secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretGrant {
    pub(crate) name: String,
    pub(crate) header: HeaderName,
    pub(crate) prefix: String,
    pub(super) origins: Option<OriginGrants>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    header: Option<String>,
    prefix: Option<String>,
    #[serde(rename = "for")]
    origins: Option<Json>,
}

impl SecretGrants {
    /// Reads the value of `grants.secrets` of a node. The error is a sentence that names the wrong part.
    pub fn parse(grant: &Json) -> Result<SecretGrants, String> {
        match grant {
            Json::Array(items) => items.iter().map(SecretGrant::parse).collect::<Result<_, _>>().map(SecretGrants),
            other => Ok(SecretGrants(vec![SecretGrant::parse(other)?])),
        }
    }
}

impl SecretGrant {
    /// Reads one grant.
    pub fn parse(item: &Json) -> Result<SecretGrant, String> {
        if item.as_object().is_none() {
            // The message does not repeat the value, which may be the secret itself.
            return Err("write `{ name: api-token, header: authorization, for: \"https://api.example.com\" }`".into());
        }
        let written: Written =
            serde_path_to_error::deserialize(item.to_serde()).map_err(|error| error.inner().to_string())?;
        check_name(&written.name)?;
        let header = written.header.as_deref().unwrap_or("authorization");
        let header = HeaderName::from_bytes(header.as_bytes()).ok().filter(is_free);
        let header = header.ok_or("`header` must be the name of a header that nodes may set")?;
        let usual = if header == hyper::header::AUTHORIZATION { "Bearer " } else { "" };
        let prefix = written.prefix.unwrap_or_else(|| usual.to_owned());
        if HeaderValue::from_str(&prefix).is_err() || !prefix.is_ascii() {
            return Err("`prefix` has a character that is not allowed in a header".into());
        }
        let origins =
            written.origins.as_ref().map(OriginGrants::parse).transpose().map_err(|why| format!("for: {why}"))?;
        Ok(SecretGrant { name: written.name, header, prefix, origins })
    }
}

/// Returns true if a secret may be put into this header. Headers about the transfer of a message are not permitted.
fn is_free(name: &HeaderName) -> bool {
    !is_transfer_header(name)
}

/// Checks the name of a secret: 1 to 64 letters, digits, `-` and `_`.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    match plain && (1..=MAX_NAME).contains(&name.len()) {
        true => Ok(()),
        false => Err("the name of a secret must have 1 to 64 letters, digits, `-` and `_`".into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn parse(text: &str) -> Result<SecretGrants, String> {
        SecretGrants::parse(&Json::parse(text).unwrap())
    }

    #[test]
    fn the_parts_of_a_grant_have_defaults() {
        let usual = &parse(r#"{ "name": "a" }"#).unwrap().0[0];
        assert_eq!((usual.header.as_str(), usual.prefix.as_str(), &usual.origins), ("authorization", "Bearer ", &None));
        let other = &parse(r#"[{ "name": "a", "header": "X-Key", "for": ["https://a.example"] }]"#).unwrap().0[0];
        assert_eq!((other.header.as_str(), other.prefix.as_str()), ("x-key", ""));
        assert!(other.origins.is_some());
    }

    #[test]
    fn errors_of_malformed_grants_do_not_repeat_them() {
        let wrong = [
            r#"["hunter2-hunter2"]"#,
            r#"{ "name": "hunter2 " }"#,
            r#"{ "name": "" }"#,
            r#"{ "name": "a", "header": "host" }"#,
            r#"{ "name": "a", "header": "proxy-authorization" }"#,
            r#"{ "name": "a", "header": "a b" }"#,
            r#"{ "name": "a", "prefix": "ü" }"#,
            r#"{ "name": "a", "prefix": "\r\n" }"#,
            r#"{ "name": "a", "for": "a.example" }"#,
            r#"{ "header": "x" }"#,
        ];
        for text in wrong {
            let error = parse(text).unwrap_err();
            assert!(!error.contains("hunter2"), "{text}: {error}");
        }
    }
}
