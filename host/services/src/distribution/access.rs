//! Authentication at a registry: by a name and a password, or by a token that a token server issues for them.

use base64::{Engine, engine::general_purpose::STANDARD};
use flowcell_contract::{Failure, shell::shell_word};
use http_auth::ChallengeRef;
use hyper::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE},
};
use serde::Deserialize;
use url::Url;

use super::{
    credentials::Credentials,
    realm::Realm,
    wire::{Ask, Wire, refusal, without_secrets},
};
use crate::code;

/// Maximum bytes of a token server's answer.
const MAX_TOKEN_ANSWER_BYTES: usize = 64 * 1024;

/// The answer of a token server. The token is in `token` or in `access_token`.
#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default, alias = "access_token")]
    token: String,
}

/// A registry and the credentials for it.
pub(super) struct Access<'a> {
    pub(super) wire: &'a Wire,
    /// The registry's name in references.
    pub(super) registry: &'a str,
    pub(super) credentials: Option<&'a Credentials>,
    /// Token servers that may see the credentials, beside the registry.
    pub(super) realms: &'a [Realm],
}

/// Returns the header `authorization` for a registry that has answered 401 with these `challenges`. `scope` is the
/// repository with the rights that the host wants, in the notation of registries. Returns `None` if the host can answer
/// none of the challenges: it answers `basic` only if it has credentials, and `bearer` in any case.
pub(super) async fn authorization(
    access: &Access<'_>,
    challenges: &HeaderMap,
    scope: &str,
) -> Result<Option<HeaderValue>, Failure> {
    for header in challenges.get_all(WWW_AUTHENTICATE).iter().filter_map(|header| header.to_str().ok()) {
        for challenge in http_auth::parse_challenges(header).unwrap_or_default() {
            match (challenge.scheme.to_ascii_lowercase().as_str(), access.credentials) {
                ("basic", Some(credentials)) => return basic(credentials).map(Some),
                ("bearer", _) => return bearer(access, &challenge, scope).await.map(Some),
                _ => {}
            }
        }
    }
    Ok(None)
}

fn basic(credentials: &Credentials) -> Result<HeaderValue, Failure> {
    let Credentials { user, password } = credentials;
    sensitive_header(&format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.as_str()))))
}

async fn bearer(access: &Access<'_>, challenge: &ChallengeRef<'_>, scope: &str) -> Result<HeaderValue, Failure> {
    let param = |name: &str| {
        let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_unescaped())
    };
    let realm = param("realm").unwrap_or_default();
    let mut url =
        Url::parse(&realm).map_err(|why| refusal(&realm, &format!("is not the URL of a token server: {why}")))?;
    url.query_pairs_mut().append_pair("scope", scope);
    if let Some(service) = param("service") {
        url.query_pairs_mut().append_pair("service", &service);
    }
    let mut ask = Ask::get(url.as_str(), MAX_TOKEN_ANSWER_BYTES);
    if let Some(credentials) = access.credentials {
        access.check_realm(&url)?;
        ask.headers.insert(AUTHORIZATION, basic(credentials)?);
    }
    let reply = access.wire.ask(ask).await?;
    if reply.status != StatusCode::OK {
        let why = format!(
            "{} refuses a token for {scope} with the status {}",
            without_secrets(&realm),
            reply.status.as_u16()
        );
        return Err(Failure::new(code::REGISTRY_DENIED, why));
    }
    let given: TokenAnswer =
        serde_json::from_slice(&reply.body).map_err(|why| refusal(&realm, &format!("sends no valid token: {why}")))?;
    sensitive_header(&format!("Bearer {}", given.token))
}

impl Access<'_> {
    /// Checks that the host may send the credentials to a token server. The server must have the origin of the
    /// registry, or be one of the [`Realm`]s of this registry: those that the host knows, and those in `realms`.
    /// Otherwise fails with `registry_denied`.
    fn check_realm(&self, url: &Url) -> Result<(), Failure> {
        let registry = self.registry;
        let mut known = Realm::known(registry).chain(self.realms.iter().cloned());
        if self.wire.is_home(url.as_str()) || known.any(|realm| realm.admits(registry, url)) {
            return Ok(());
        }
        let origin = url.origin().ascii_serialization();
        let why = format!(
            "{registry} asks to send the credentials to {origin}, which is another server, so the host did not send \
             them; to allow it, pass `--registry-realm {}`",
            shell_word(&format!("{registry}={origin}"))
        );
        Err(Failure::new(code::REGISTRY_DENIED, why))
    }
}

fn sensitive_header(text: &str) -> Result<HeaderValue, Failure> {
    let unfit = |_| Failure::new(code::REGISTRY_DENIED, "the credentials do not fit into a header");
    let mut value = HeaderValue::from_str(text).map_err(unfit)?;
    value.set_sensitive(true);
    Ok(value)
}
