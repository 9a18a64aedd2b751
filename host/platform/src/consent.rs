//! Consents: the console sends a browser to an authorization server, and the browser comes back with a code for a credential.
//!
//! The consent that has begun is in a signed cookie, as a [sign-in](crate::sign_in) is, so nothing is stored for one that
//! does not end. The key follows from a data key of the tenant: a cookie of another tenant does not open. The cookie has
//! the token of the caller, so that a consent ends in the login in which it began. A document of the tenant has the states of
//! the consents that were finished, so that all processes of a store together finish each of them once.

use flowcell_contract::Tenant;
use flowcell_services::credentials::{Edition, Settings, refusal_text};
use serde::{Deserialize, Serialize};

use crate::{
    host::{Host, outside},
    operate::{
        audit::Outcome,
        documents::{DocumentError, Documents},
        pkce,
        vault::{Hidden, VaultError, signing::SignedText},
    },
    tenants::operation::credential::{Consent, connect},
};

/// The time for a consent in milliseconds: 10 minutes.
pub const CONSENT_LIFETIME_MS: u64 = 10 * 60_000;
/// The path of the page that authorization servers send browsers to.
pub const CALLBACK_PATH: &str = "/console/connect/callback";
/// Maximum length of a cookie.
const MAX_COOKIE_BYTES: usize = 3_072;
/// Maximum length of the address of the console, as the header `Host` of a request has it.
const MAX_ORIGIN_BYTES: usize = 512;
/// The kind and the key of the document with the finished consents.
const USED: (&str, &str) = ("consent-used", "used");
/// Maximum number of consents that a tenant finishes within [`CONSENT_LIFETIME_MS`].
const MAX_USED: usize = 1_000;
/// Maximum number of tries of a write while other processes change the same document.
const MAX_TRIES: usize = 64;
const COOKIE: SignedText = SignedText { prefix: "", purpose: "flowcell consent 1", most: MAX_COOKIE_BYTES };

/// A consent that has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Pending {
    /// The name of the credential.
    credential: String,
    /// The edition of the credential. Its endpoints are those that the person has seen.
    edition: Edition,
    /// The token of the caller, or `local`.
    actor: String,
    state: String,
    verifier: String,
    redirect_uri: String,
    ends: u64,
}

/// A consent that has begun, for the browser.
pub struct ConsentBegun {
    /// The page of the authorization server.
    pub location: String,
    /// The value of the cookie.
    pub cookie: String,
}

/// The parameters that a browser brings back from an authorization server.
#[derive(Clone, Debug, Default)]
pub struct ConsentReturn {
    /// The state.
    pub state: String,
    /// The code.
    pub code: Option<Hidden>,
    /// The code of an error.
    pub error: Option<String>,
    /// The description of the error.
    pub error_description: Option<String>,
}

/// The reason for which a consent does not connect its credential. It repeats no code and no secret.
#[derive(Debug, thiserror::Error)]
pub enum ConsentError {
    /// The cookie is missing, of another tenant, login or consent, too old, or used.
    #[error("{0}; nothing was connected: open the page of the credential, and connect it again")]
    State(&'static str),
    /// The credential does not exist, cannot be connected, or the authorization server has refused.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<DocumentError> for ConsentError {
    fn from(error: DocumentError) -> ConsentError {
        ConsentError::Vault(error.into())
    }
}

/// The consents that were finished and whose time is not over.
#[derive(Default, Serialize, Deserialize)]
struct UsedConsents(Vec<UsedConsent>);

#[derive(Serialize, Deserialize)]
struct UsedConsent {
    state: String,
    ends: u64,
}

/// Begins a consent for a credential of the host's tenant, for a browser that reaches the console at `origin`.
pub fn begin(host: &Host, actor: &str, name: &str, origin: &str) -> Result<ConsentBegun, ConsentError> {
    let known = host.vault().known_credential(host.tenant(), name)?;
    let known = known.ok_or_else(|| VaultError::UnknownCredential(name.to_owned()))?;
    let (refused, edition) = (VaultError::NotConnected, known.edition());
    let Settings::OAuth2(settings) = known.settings else {
        return Err(refused(format!("`{name}` is of the kind `{}`, and not `oauth2`", known.settings.kind())).into());
    };
    if origin.len() > MAX_ORIGIN_BYTES {
        return Err(refused(format!("the address of the console has more than {MAX_ORIGIN_BYTES} bytes")).into());
    }
    host.vault().token_url_allowed(host.tenant(), &settings.token_url)?.map_err(refused)?;
    let (_, client) = outside::credential_store(host);
    settings.check_endpoints(&client).map_err(refused)?;
    let (state, verifier) = (pkce::random(), pkce::random());
    let redirect_uri = format!("{origin}{CALLBACK_PATH}");
    let location = settings.authorize_at(&redirect_uri, &state, &pkce::challenge_of(&verifier));
    let location = location.map_err(refused)?;
    let pending = Pending {
        credential: name.to_owned(),
        edition,
        actor: actor.to_owned(),
        state,
        verifier,
        redirect_uri,
        ends: host.now().saturating_add(CONSENT_LIFETIME_MS),
    };
    let cookie = COOKIE.sign(host.vault(), host.tenant(), &pending)?;
    Ok(ConsentBegun { location, cookie })
}

/// Finishes a consent of the host's tenant: exchanges the code for tokens, and stores them. Returns the name of the
/// credential. A consent is finished once, whether it succeeds or not.
pub fn finish(host: &Host, actor: &str, cookie: Option<&str>, returned: ConsentReturn) -> Result<String, ConsentError> {
    let Pending { credential, edition, verifier, redirect_uri, .. } = take(host, actor, cookie, &returned.state)?;
    if let Some(error) = returned.error {
        host.vault().note_connected(host.tenant(), actor, &credential, Outcome::Refused)?;
        let why = refusal_text(&error, returned.error_description.as_deref());
        return Err(VaultError::NotConnected(format!("the authorization server refused `{credential}`: {why}")).into());
    }
    let code = returned.code.filter(|code| !code.text().is_empty());
    let code = code.ok_or(ConsentError::State("the authorization server sent no code"))?;
    let consent = Consent { code, verifier: Hidden::from(verifier), redirect_uri, edition: Some(edition) };
    connect(host, actor, &credential, &consent)?;
    Ok(credential)
}

/// Opens the cookie of a browser that has come back, and uses its consent up.
fn take(host: &Host, actor: &str, cookie: Option<&str>, state: &str) -> Result<Pending, ConsentError> {
    let missing = "this browser has begun no consent in the last 10 minutes, or accepts no cookies";
    let cookie = cookie.ok_or(ConsentError::State(missing))?;
    let pending = open(host, host.tenant(), cookie)?;
    let pending = pending.ok_or(ConsentError::State("the consent was begun for another tenant or server"))?;
    let now = host.now();
    let wrong = match () {
        () if pending.state != state => "the answer of the authorization server belongs to another consent",
        () if pending.actor != actor => "the consent was begun in another login",
        () if now >= pending.ends => "the consent took longer than 10 minutes",
        () => return use_up(host, &pending, now).map(|()| pending),
    };
    Err(ConsentError::State(wrong))
}

/// Remembers that a consent is finished. Fails if it was finished before. Writes to the store.
fn use_up(host: &Host, pending: &Pending, now: u64) -> Result<(), ConsentError> {
    let (kind, key) = USED;
    let documents = Documents { store: host.documents(), tenant: host.tenant() };
    for _ in 0..MAX_TRIES {
        let (UsedConsents(mut used), seen) = documents.get(kind, key)?.unwrap_or_default();
        used.retain(|one| now < one.ends);
        if used.iter().any(|one| one.state == pending.state) {
            return Err(ConsentError::State("this consent was finished before"));
        }
        if used.len() >= MAX_USED {
            return Err(ConsentError::State("the tenant has finished 1,000 consents in the last 10 minutes; wait"));
        }
        used.push(UsedConsent { state: pending.state.clone(), ends: pending.ends });
        if documents.put(kind, key, Some(&UsedConsents(used)), seen)? {
            return Ok(());
        }
    }
    Err(DocumentError::Changed(kind.to_owned()).into())
}

/// Opens a cookie. `None`: the tenant has not signed it. Reads the store.
fn open(host: &Host, tenant: &Tenant, cookie: &str) -> Result<Option<Pending>, VaultError> {
    COOKIE.parse::<Pending>(cookie).map_or(Ok(None), |unchecked| unchecked.check(host.vault(), tenant))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;
    use crate::operate::policy::{OPERATORS, POLICY, Policy};
    use crate::tenants::operation::credential::{CredentialToSet, set};

    /// Returns a host with the credential `crm` of the tenants `a` and `b`, whose token endpoint no test reaches.
    fn host() -> Host {
        let host = Host::builder().build().unwrap();
        for tenant in ["a", "b"] {
            let to = json!({
                "kind": "oauth2", "secrets": { "clientSecret": "client-secret" }, "for": ["https://api.example.com"],
                "settings": { "grant": "authorization_code", "tokenUrl": "https://127.0.0.1:1/token",
                    "authorizeUrl": "https://login.example.com/authorize", "clientId": "flows" },
            });
            let to: CredentialToSet = serde_json::from_value(to).unwrap();
            set(&host.for_tenant(tenant.into()), "test", "crm", &to).unwrap();
        }
        host
    }

    fn pending(host: &Host, age: u64) -> Pending {
        Pending {
            credential: "crm".into(),
            edition: Edition { created: 7, version: 1 },
            actor: "t1".into(),
            state: "s".repeat(43),
            verifier: "v".repeat(43),
            redirect_uri: "https://flows.example.com/console/connect/callback".into(),
            ends: (host.now() + CONSENT_LIFETIME_MS).saturating_sub(age),
        }
    }

    fn told(result: Result<Pending, ConsentError>) -> Result<(), String> {
        result.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_consent_ends_once_in_its_own_login_tenant_and_time() {
        let host = host();
        let (a, b) = (host.for_tenant("a".into()), host.for_tenant("b".into()));
        let sign = |age: u64| COOKIE.sign(a.vault(), a.tenant(), &pending(&a, age)).unwrap();
        let state = "s".repeat(43);
        let take =
            |host: &Host, actor: &str, cookie: Option<&str>, state: &str| told(super::take(host, actor, cookie, state));
        let cookie = sign(0);
        let (_, tag) = cookie.split_once('.').unwrap();
        let forged =
            COOKIE.sign(b.vault(), b.tenant(), &Pending { credential: "other".into(), ..pending(&a, 0) }).unwrap();
        let swapped = format!("{}.{tag}", forged.split_once('.').unwrap().0);
        let table = [
            (&a, "t1", None, "in the last 10 minutes"),
            (&b, "t1", Some(cookie.clone()), "for another tenant"),
            (&a, "t1", Some(forged), "for another tenant"),
            (&a, "t1", Some(swapped), "for another tenant"),
            (&a, "t1", Some("x".repeat(9_000)), "for another tenant"),
            (&a, "t2", Some(cookie.clone()), "in another login"),
            (&a, "t1", Some(sign(CONSENT_LIFETIME_MS)), "longer than 10 minutes"),
        ];
        for (host, actor, cookie, why) in table {
            let refused = take(host, actor, cookie.as_deref(), &state).unwrap_err();
            assert!(refused.contains(why) && refused.contains("nothing was connected"), "{why}: {refused}");
        }
        assert!(take(&a, "t1", Some(&cookie), "other").unwrap_err().contains("another consent"));
        // None of these has used the consent up.
        assert_eq!(take(&a, "t1", Some(&cookie), &state), Ok(()));
        assert!(take(&a, "t1", Some(&cookie), &state).unwrap_err().contains("finished before"));
        // Those whose time is over are forgotten.
        let used = || {
            let (kind, key) = USED;
            let documents = Documents { store: a.documents(), tenant: a.tenant() };
            documents.get::<UsedConsents>(kind, key).unwrap().unwrap().0.0.len()
        };
        let other = Pending { state: "t".repeat(43), ..pending(&a, 0) };
        assert_eq!(used(), 1);
        use_up(&a, &other, other.ends).unwrap();
        assert_eq!(used(), 1);
    }

    #[test]
    fn a_consent_begins_for_an_address_with_tls_only() {
        let host = host().for_tenant("a".into());
        let begin = |name: &str, origin: &str| super::begin(&host, "t1", name, origin).map_err(|why| why.to_string());
        // The token endpoint has a private address that the operator has not listed.
        let refused = begin("crm", "https://flows.example.com").map(|_| ()).unwrap_err();
        assert!(refused.contains("does not send the code to `tokenUrl`"), "{refused}");
        assert!(begin("none", "https://flows.example.com").is_err_and(|why| why.contains("does not exist")));
        for (token, authorize, why) in [
            ("http://login.example.com/token", "https://login.example.com/a", "neither `https` nor a private"),
            ("https://login.example.com/token", "http://login.example.com/a", "`authorizeUrl`: "),
        ] {
            let settings = json!({ "grant": "authorization_code", "tokenUrl": token, "authorizeUrl": authorize,
                "clientId": "flows", "clientAuth": "none" });
            let to = json!({ "kind": "oauth2", "settings": settings, "for": ["https://api.example.com"] });
            set(&host, "test", "crm", &serde_json::from_value(to).unwrap()).unwrap();
            let refused = begin("crm", "https://flows.example.com").map(|_| ()).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        // The operator has limited the tenant since the credential was set.
        let (none, operators) = (Policy { grants: Some([].into()), ..Policy::default() }, Tenant::from(OPERATORS));
        Documents { store: host.documents(), tenant: &operators }.put(POLICY, "a", Some(&none), 0).unwrap();
        let refused = begin("crm", "https://flows.example.com").map(|_| ()).unwrap_err();
        assert!(refused.contains("`tokenUrl`: the operator allows this tenant no requests"), "{refused}");
        let to = json!({ "kind": "bearer", "secrets": { "token": "hunter2-hunter2" }, "for": ["https://a.example"] });
        set(&host, "test", "shop", &serde_json::from_value(to).unwrap()).unwrap();
        assert!(begin("shop", "https://flows.example.com").is_err_and(|why| why.contains("and not `oauth2`")));
    }

    #[test]
    fn the_longest_cookie_opens() {
        let host = host().for_tenant("a".into());
        let origin = format!("https://{}", "o".repeat(MAX_ORIGIN_BYTES - 8));
        let longest = Pending {
            credential: "n".repeat(64),
            edition: Edition { created: u64::MAX, version: u64::MAX },
            actor: "i".repeat(200),
            redirect_uri: format!("{origin}{CALLBACK_PATH}"),
            ends: u64::MAX,
            ..pending(&host, 0)
        };
        let cookie = COOKIE.sign(host.vault(), host.tenant(), &longest).unwrap();
        assert_eq!(open(&host, host.tenant(), &cookie).unwrap(), Some(longest));
    }
}
