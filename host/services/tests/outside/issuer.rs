//! Credentials in memory, and an issuer of tokens.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use flowcell_contract::{CredentialGrant, CredentialRequest, Failure, Json, Tenant, code as codes};
use flowcell_services::{
    credentials::{
        CredentialStore, KnownCredential, OpenCredential, RENEWAL_PAUSE_MS, SecretMembers, Settings, TokenState,
    },
    egress::OriginGrants,
    secrets::Secrets,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::outside::{
    kit::Kit,
    server::{Reaction, Seen, Server, answer, ok},
};

pub(super) const CANARY: &str = "kanarienvogel-7-geheim";

/// A stored credential: kind, settings, secrets and origins.
type Stored = (Settings, SecretMembers, OriginGrants);

/// Credentials of the tenant `local` in memory, at a time that the test sets.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) stored: BTreeMap<String, Stored>,
    pub(super) tokens: Mutex<BTreeMap<String, TokenState>>,
    pub(super) now: AtomicU64,
    pub(super) refused: AtomicUsize,
    /// The policy of the tenant allows no requests to token endpoints.
    pub(super) forbids_token_urls: AtomicBool,
    /// The number of looks at the tokens that another process renews.
    pub(super) pauses: AtomicUsize,
}

impl Memory {
    pub(super) fn with(
        mut self,
        name: &str,
        kind: &str,
        settings: Value,
        secrets: &[(&str, &str)],
        origin: &str,
    ) -> Memory {
        let settings = Settings::parse(kind, settings.as_object().unwrap().clone()).unwrap();
        let secrets: SecretMembers =
            secrets.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        settings.check_secrets(&secrets).unwrap();
        let origins = OriginGrants::parse(&Json::from(origin)).unwrap();
        self.stored.insert(name.to_owned(), (settings, secrets, origins));
        self
    }

    /// Lets the time of the next change of a refused token come.
    pub(super) fn pass_pause(&self) {
        self.now.fetch_add(RENEWAL_PAUSE_MS, Ordering::Relaxed);
    }

    pub(super) fn state(&self, name: &str) -> TokenState {
        self.tokens.lock().unwrap().get(name).cloned().unwrap_or_default()
    }
}

impl CredentialStore for Memory {
    fn find(&self, tenant: &Tenant, name: &str) -> Result<Option<KnownCredential>, Failure> {
        let found = self.stored.get(name).filter(|_| *tenant == Tenant::local());
        Ok(found.map(|(settings, _, origins)| KnownCredential {
            settings: settings.clone(),
            origins: origins.clone(),
            version: 1,
            created: 0,
        }))
    }

    fn open(&self, tenant: &Tenant, name: &str) -> Result<Option<OpenCredential>, Failure> {
        let known = self.find(tenant, name)?;
        Ok(known.map(|known| OpenCredential { known, secrets: self.stored[name].1.clone() }))
    }

    fn refused(&self, _tenant: &Tenant, _name: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn check_token_url(&self, _tenant: &Tenant, url: &str) -> Result<(), Failure> {
        match self.forbids_token_urls.load(Ordering::Relaxed) {
            true => Err(Failure::new(codes::DENIED, format!("`tokenUrl`: `{url}` exceeds the limits"))),
            false => Ok(()),
        }
    }

    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn tokens(&self, _tenant: &Tenant, name: &str, _version: u64) -> Result<TokenState, Failure> {
        Ok(self.state(name))
    }

    fn replace_tokens(&self, _: &Tenant, name: &str, _: u64, state: &TokenState) -> Result<bool, Failure> {
        let mut tokens = self.tokens.lock().unwrap();
        let seen = tokens.get(name).map_or(0, |state| state.seen);
        let is_same = seen == state.seen;
        if is_same {
            tokens.insert(name.to_owned(), TokenState { seen: seen + 1, ..state.clone() });
        }
        Ok(is_same)
    }

    fn pause(&self) -> BoxFuture<'static, ()> {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        Box::pin(tokio::task::yield_now())
    }
}

/// Returns a kit whose node has these grants of `http`, and these credentials, each declared with these hosts.
pub(super) fn kit(store: Arc<Memory>, http: &[String], granted: &[(&str, &[String])]) -> Kit {
    let mut kit = Kit::local("https://unused.example");
    kit.http = kit.http.with_secrets(Secrets::default().with_credentials(store));
    let grants = granted.iter().map(|(name, hosts)| {
        let request = json!({ "name": name, "kind": "bearer", "hosts": hosts });
        let request: CredentialRequest = serde_json::from_value(request).unwrap();
        let grant = CredentialGrant::new((*name).into(), (*name).into(), Some(&request));
        // Each kind is tested, so none is declared.
        CredentialGrant { kind: None, ..grant }.to_json()
    });
    let grants = vec![
        ("http".to_owned(), Json::array(http.iter().map(|origin| Json::from(origin.as_str())))),
        ("credentials".to_owned(), Json::array(grants.collect::<Vec<_>>())),
    ];
    kit.caller.grants = Arc::new(flowcell_contract::Grants(grants.into_iter().collect()));
    kit
}

pub(super) fn bearer(origin: &str) -> Memory {
    Memory::default().with("shop", "bearer", json!({}), &[("token", CANARY)], origin)
}

/// An API that accepts only the token `token-N` with the current number, and a token endpoint that increases it. Tokens
/// are refreshed by `refresh-N`, once.
pub(super) struct Issuer {
    pub(super) server: Server,
    pub(super) number: Arc<AtomicUsize>,
}

impl Issuer {
    pub(super) async fn start() -> Issuer {
        let number = Arc::new(AtomicUsize::new(0));
        let own = number.clone();
        let server = Server::start(move |seen| issue(seen, &own)).await;
        Issuer { server, number }
    }

    pub(super) fn origin(&self) -> String {
        self.server.url("")
    }

    pub(super) fn store(&self, grant: &str) -> Memory {
        let settings = json!({
            "grant": grant, "tokenUrl": self.server.url("/token"), "clientId": "flow:cell", "scope": "read write",
        });
        let mut secrets = vec![("clientSecret", "client secret+1")];
        if grant == "refresh_token" {
            secrets.push(("refreshToken", "refresh-0"));
        }
        Memory::default().with("drive", "oauth2", settings, &secrets, &self.origin())
    }

    /// Ends the token early.
    pub(super) fn revoke(&self) {
        self.number.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the bodies of the requests for tokens.
    pub(super) fn asked(&self) -> Vec<String> {
        let seen = self.server.seen().into_iter().filter(|seen| seen.line.contains("/token"));
        seen.map(|seen| String::from_utf8(seen.body).unwrap()).collect()
    }
}

fn issue(seen: &Seen, number: &AtomicUsize) -> Reaction {
    let json = |status: &str, body: Value| {
        Reaction::Send(answer(status, &[("content-type", "application/json")], body.to_string().as_bytes()))
    };
    if seen.line.contains("/token") {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        let current = number.load(Ordering::Relaxed);
        if body.contains("grant_type=refresh_token") && !body.contains(&format!("refresh_token=refresh-{current}&")) {
            let told = format!("the token in {body} was used");
            return json("400 Bad Request", json!({ "error": "invalid_grant", "error_description": told }));
        }
        let next = number.fetch_add(1, Ordering::Relaxed) + 1;
        return json(
            "200 OK",
            json!({ "access_token": format!("access-token-{next}"), "refresh_token": format!("refresh-{next}"),
                "token_type": "bearer", "expires_in": 3600 }),
        );
    }
    let wanted = format!("Bearer access-token-{}", number.load(Ordering::Relaxed));
    match seen.header("authorization") == Some(&wanted) {
        true => ok(&format!("echo {wanted}")),
        false => json("401 Unauthorized", json!({ "told": seen.header("authorization") })),
    }
}
