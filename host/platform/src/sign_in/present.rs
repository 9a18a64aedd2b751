//! The issuers in force, and their replacement by those of a file that was read again.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use url::Url;

use super::{
    config::{Rule, SignInFile},
    error::SignInError,
    issuer::{Issuer, shown},
    pending::Pending,
    rules,
    token::Claims,
};
use crate::{
    Host,
    operate::{
        account::{AccountRefusal, Granted, Subject},
        identity::{Identify, Login, Scope, Scopes},
        vault::{VaultError, signing},
    },
};

/// Maximum number of finished sign-ins that a process remembers, so that none is finished twice.
const MAX_USED: usize = 10_000;

/// The sign-ins of a process. Clones share them.
#[derive(Clone)]
pub struct SignIns(Arc<Inner>);

struct Inner {
    host: Host,
    identity: Arc<dyn Identify>,
    present: RwLock<Arc<Opened>>,
    /// The ends of the sign-ins that were finished, by their states.
    used: Mutex<HashMap<String, u64>>,
    /// The file that a reload reads.
    path: PathBuf,
}

/// A file in force.
struct Opened {
    /// The addresses of the console, normalised.
    origins: Vec<String>,
    issuers: Vec<Arc<Issuer>>,
}

/// A sign-in that has begun.
pub struct Begun {
    /// The page of the issuer.
    pub location: String,
    /// The value of the cookie.
    pub cookie: String,
}

/// What the issuer has sent the browser back with.
#[derive(Clone, Debug, Default)]
pub struct Callback {
    /// The state.
    pub state: String,
    /// The code.
    pub code: Option<String>,
    /// The issuer (RFC 9207).
    pub iss: Option<String>,
    /// The code of an error.
    pub error: Option<String>,
}

/// A callback whose state fits the signed cookie of its browser.
pub struct Returned {
    pending: Pending,
    callback: Callback,
}

/// A person who has signed in.
pub struct SignedIn {
    /// The session.
    pub login: Login,
    /// The page to open. Empty: the first one.
    pub next: String,
}

impl SignIns {
    /// Reads the secrets of a file. Connects to no issuer. The error is a sentence.
    pub async fn open(
        host: &Host,
        identity: Arc<dyn Identify>,
        file: &SignInFile,
        path: &Path,
    ) -> Result<SignIns, String> {
        let present = RwLock::new(Arc::new(Opened::new(host, file).await?));
        let (host, path) = (host.clone(), path.to_owned());
        Ok(SignIns(Arc::new(Inner { host, identity, present, used: Mutex::default(), path })))
    }

    /// Reads the file and its secrets again, and returns the number of its issuers. If they cannot be read, the earlier ones
    /// stay in force. The error is a sentence.
    pub async fn reload(&self) -> Result<usize, String> {
        let kept = "the earlier issuers of the sign-in stay in force";
        let path = self.0.path.clone();
        let shown = path.display().to_string();
        let file = tokio::task::spawn_blocking(move || SignInFile::read(&path)).await;
        let file = file.map_err(|error| error.to_string())?.map_err(|error| format!("{error}; {kept}"))?;
        let opened = Opened::new(&self.0.host, &file).await.map_err(|why| format!("{shown}: {why}; {kept}"))?;
        let count = opened.issuers.len();
        *self.0.present.write() = Arc::new(opened);
        Ok(count)
    }

    /// Returns the names of the issuers, and the texts of their buttons.
    pub fn issuers(&self) -> Vec<(String, String)> {
        let present = self.present();
        let row = |issuer: &Arc<Issuer>| (issuer.settings.name.clone(), issuer.settings.title().to_owned());
        present.issuers.iter().map(row).collect()
    }

    fn present(&self) -> Arc<Opened> {
        self.0.present.read().clone()
    }

    /// Begins a sign-in at an issuer for a browser that reaches the console at `origin`. `next` is the page to open
    /// afterwards.
    pub async fn begin(&self, name: &str, origin: &str, next: &str) -> Result<Begun, SignInError> {
        let present = self.present();
        let issuer = present.issuer(name).ok_or(SignInError::UnknownIssuer)?;
        let origin = present.listed_origin(origin)?;
        let metadata = issuer.metadata().await?;
        let settings = issuer.settings.clone();
        let (next, now) = (next.to_owned(), self.0.host.now());
        let begun = self.with_host(move |host| {
            Pending::begin(host.vault(), (&settings.name, &settings.issuer), (&origin, &next), now)
        });
        let (pending, cookie) = begun.await?;
        let mut location = metadata.authorization.clone();
        location
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &issuer.settings.client_id)
            .append_pair("redirect_uri", &pending.callback())
            .append_pair("scope", &issuer.settings.asked_scopes())
            .append_pair("state", &pending.state)
            .append_pair("nonce", &pending.nonce)
            .append_pair("code_challenge", &pending.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(Begun { location: location.into(), cookie })
    }

    /// Opens the cookie of a browser that an issuer has sent back, and compares the state. Asks no issuer.
    pub async fn open_callback(&self, cookie: Option<String>, callback: Callback) -> Result<Returned, SignInError> {
        let missing = "this browser has begun no sign-in in the last 10 minutes, or accepts no cookies";
        let cookie = cookie.ok_or(SignInError::State(missing))?;
        let opened = self.with_host(move |host| Pending::open(host.vault(), &cookie)).await?;
        let pending = opened.ok_or(SignInError::State("the cookie of the sign-in is not one of this server"))?;
        if pending.state != callback.state {
            return Err(SignInError::State("the answer of the issuer belongs to another sign-in"));
        }
        if self.0.host.now() >= pending.ends {
            return Err(SignInError::State("the sign-in took longer than 10 minutes"));
        }
        Ok(Returned { pending, callback })
    }

    /// Finishes a sign-in: exchanges the code, checks the ID token, applies the rules, and makes a session.
    pub async fn finish(&self, returned: Returned) -> Result<SignedIn, SignInError> {
        let Returned { pending, callback } = returned;
        if !self.use_state(&pending) {
            return Err(SignInError::State("the sign-in was finished before"));
        }
        let present = self.present();
        let issuer = present.issuer(&pending.name).filter(|issuer| issuer.settings.issuer == pending.issuer);
        let issuer = issuer.ok_or(SignInError::UnknownIssuer)?;
        let code = self.checked_code(issuer, callback).await?;
        let token = issuer.exchange(&code, &pending.callback(), &pending.verifier).await?;
        let claims = issuer.check(&token, &pending.nonce, self.0.host.now()).await?;
        let login = self.admit(issuer, &claims).await?;
        Ok(SignedIn { login, next: pending.next })
    }

    /// Returns the code of a callback of this issuer.
    async fn checked_code(&self, issuer: &Issuer, callback: Callback) -> Result<String, SignInError> {
        let is_named = match &callback.iss {
            Some(named) => *named == issuer.settings.issuer,
            None => !issuer.metadata().await?.names_issuer,
        };
        if !is_named {
            return Err(SignInError::State("the answer does not come from the issuer of this sign-in"));
        }
        match (callback.error, callback.code) {
            (Some(error), _) => Err(issuer.refused(format!("the issuer refuses it{}", shown(&error)))),
            (None, Some(code)) => Ok(code),
            (None, None) => Err(SignInError::State("the issuer sent no code")),
        }
    }

    /// Returns false if a sign-in was finished before.
    fn use_state(&self, pending: &Pending) -> bool {
        let (mut used, now) = (self.0.used.lock(), self.0.host.now());
        if used.len() >= MAX_USED {
            used.retain(|_, ends| now < *ends);
        }
        if used.len() >= MAX_USED {
            // The issuer still accepts each code once only.
            used.clear();
        }
        used.insert(pending.state.clone(), pending.ends).is_none()
    }

    /// Makes a session for a person with these claims. If no rule fits, earlier sessions of the account end.
    async fn admit(&self, issuer: &Issuer, claims: &Claims) -> Result<Login, SignInError> {
        let sub = claims.get("sub").and_then(|sub| sub.as_str()).unwrap_or_default();
        let subject = Subject { issuer: issuer.settings.name.clone(), subject: sub.to_owned() };
        let identity = self.0.identity.clone();
        match rules::choose(&issuer.settings.rules, claims) {
            Ok(rule) => {
                let granted = granted(rule, subject, issuer.settings.session_ms());
                let signed_in = tokio::task::spawn_blocking(move || identity.sign_in(&granted)).await;
                Ok(signed_in.map_err(|_| AccountRefusal::Unavailable)??)
            }
            Err(why) => {
                let ended = tokio::task::spawn_blocking(move || identity.end_sessions(&subject)).await;
                ended.map_err(|_| AccountRefusal::Unavailable)??;
                Err(issuer.refused(why))
            }
        }
    }

    /// Runs work on a thread that it may block.
    async fn with_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<T, SignInError> {
        let host = self.0.host.clone();
        match tokio::task::spawn_blocking(move || work(&host)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                tracing::error!("cannot read the key of sign-ins: {error}");
                Err(SignInError::Store)
            }
            Err(_) => Err(SignInError::Store),
        }
    }
}

fn granted(rule: &Rule, subject: Subject, lasts: u64) -> Granted {
    let scopes: Scopes = rule.scopes.iter().filter_map(|name| Scope::named(name)).collect();
    Granted { subject, tenant: rule.tenant.clone(), scopes: scopes.names(), lasts }
}

impl Opened {
    async fn new(host: &Host, file: &SignInFile) -> Result<Opened, String> {
        if !file.issuers.is_empty() {
            signing::check(host.vault()).map_err(|error| format!("cannot sign the cookies of sign-ins: {error}"))?;
        }
        let mut issuers = Vec::new();
        for settings in &file.issuers {
            let opened = Issuer::open(host, settings).await;
            issuers.push(Arc::new(opened.map_err(|why| format!("`issuers` (`{}`): {why}", settings.name))?));
        }
        let origins = file.origins.iter().filter_map(|origin| normal(origin)).collect();
        Ok(Opened { origins, issuers })
    }

    fn issuer(&self, name: &str) -> Option<&Arc<Issuer>> {
        self.issuers.iter().find(|issuer| issuer.settings.name == name)
    }

    /// Returns the address of the console by which a browser has reached it, if the operator has listed it.
    fn listed_origin(&self, origin: &str) -> Result<String, SignInError> {
        let found = normal(origin).filter(|origin| self.origins.contains(origin));
        found.ok_or_else(|| {
            let shown: String = origin.escape_debug().take(200).collect();
            let listed: Vec<_> = self.origins.iter().map(|origin| format!("{origin}/console")).collect();
            SignInError::Origin(shown, listed.join(" or "))
        })
    }
}

/// Returns the scheme, the name and the port of an address, without a default port.
fn normal(origin: &str) -> Option<String> {
    Some(Url::parse(origin).ok()?.origin().ascii_serialization())
}
