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
    token::{Claims, Unchecked, unchecked},
};
use crate::{
    Host,
    operate::{
        account::{AccountRefusal, Granted, Subject},
        identity::{Identify, Login, Scope, Scopes},
        settings_file::SettingsFile,
        vault::{VaultError, signing},
    },
};

/// Maximum number of finished sign-ins that a process remembers, so that none is finished twice.
const MAX_USED: usize = 10_000;

/// The longest lifetime of a session of a machine, in milliseconds: 1 hour.
pub const MAX_MACHINE_SESSION_MS: u64 = 3_600_000;

/// The kind of an account.
#[derive(Clone, Copy)]
enum Kind {
    Person,
    Machine { lasts: u64 },
}

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

/// The parameters that the browser brings back from the issuer.
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
        present.issuers.iter().filter(|issuer| issuer.settings.client_id.is_some()).map(row).collect()
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
        let mut location = issuer.people(&metadata)?.0.clone();
        location
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", issuer.settings.client_id.as_deref().unwrap_or_default())
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
        let claims = issuer.check(&token, Some(&pending.nonce), self.0.host.now()).await?;
        let login = self.admit(issuer, &claims, Kind::Person).await?;
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

    /// Makes a session for a machine with this token. Returns `None` if no issuer for machines has the name that the token
    /// has; then it sends no request.
    pub async fn sign_in_machine(&self, token: &str) -> Result<Option<Login>, SignInError> {
        let present = self.present();
        let Some(Unchecked { issuer, audience, ends }) = unchecked(token) else { return Ok(None) };
        let Some(issuer) = present.machine_issuer(&issuer, audience.as_deref()) else { return Ok(None) };
        let now = self.0.host.now();
        let claims = issuer.check(token, None, now).await?;
        let lasts = ends.saturating_sub(now).clamp(1_000, MAX_MACHINE_SESSION_MS);
        self.admit(issuer, &claims, Kind::Machine { lasts }).await.map(Some)
    }

    /// Makes a session for an account with these claims. If no rule fits, its earlier sessions end.
    async fn admit(&self, issuer: &Issuer, claims: &Claims, kind: Kind) -> Result<Login, SignInError> {
        let sub = claims.get("sub").and_then(|sub| sub.as_str()).unwrap_or_default();
        let subject = Subject { issuer: issuer.settings.name.clone(), subject: sub.to_owned() };
        let identity = self.0.identity.clone();
        match rules::choose(&issuer.settings.rules, claims) {
            Ok(rule) => {
                let lasts = match kind {
                    Kind::Person => issuer.settings.session_ms(),
                    Kind::Machine { lasts } => lasts,
                };
                let is_machine = matches!(kind, Kind::Machine { .. });
                let granted = Granted { is_machine, ..granted(rule, subject, lasts) };
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
    Granted { subject, tenant: rule.tenant.clone(), scopes: scopes.names(), lasts, is_machine: false }
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

    /// Returns an issuer for people.
    fn issuer(&self, name: &str) -> Option<&Arc<Issuer>> {
        self.issuers.iter().find(|issuer| issuer.settings.name == name && issuer.settings.client_id.is_some())
    }

    /// Returns the issuer with this identifier for machines. The file may have it several times, with other audiences.
    fn machine_issuer(&self, identifier: &str, audience: Option<&str>) -> Option<&Arc<Issuer>> {
        let of_machines =
            |issuer: &&Arc<Issuer>| issuer.settings.issuer == identifier && issuer.settings.audience.is_some();
        let all = || self.issuers.iter().filter(of_machines);
        all().find(|issuer| issuer.settings.audience.as_deref() == audience).or_else(|| all().next())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{operate::identity::Local, sign_in::PENDING_LIFETIME_MS};

    #[tokio::test]
    async fn a_sign_in_ends_after_ten_minutes_and_counts_for_its_state() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::builder().state_dir(folder.path()).build().unwrap();
        let file = SignInFile::default();
        let sign_ins = SignIns::open(&host, Arc::new(Local), &file, Path::new("none")).await.unwrap();
        let begun = |age: u64| {
            let names = (("a", "https://login.test"), ("https://flows.test", ""));
            Pending::begin(host.vault(), names.0, names.1, host.now() - age).unwrap()
        };
        let open = async |age: u64, state: Option<&str>| {
            let (pending, cookie) = begun(age);
            let state = state.map_or(pending.state, str::to_owned);
            let opened = sign_ins.open_callback(Some(cookie), Callback { state, ..Callback::default() }).await;
            opened.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(open(0, None).await, Ok(()));
        assert_eq!(open(PENDING_LIFETIME_MS - 60_000, None).await, Ok(()));
        assert!(open(PENDING_LIFETIME_MS, None).await.unwrap_err().contains("longer than 10 minutes"));
        assert!(open(0, Some("other")).await.unwrap_err().contains("belongs to another sign-in"));
        let missing = sign_ins.open_callback(None, Callback::default()).await.map(drop).unwrap_err();
        assert_eq!(missing.code(), "sign_in_state");
        // The file has no such issuer any more. A second end of the same sign-in does not come so far.
        let (pending, cookie) = begun(0);
        for expected in ["issuer_not_found", "sign_in_state"] {
            let callback = Callback { state: pending.state.clone(), ..Callback::default() };
            let returned = sign_ins.open_callback(Some(cookie.clone()), callback).await.unwrap();
            assert_eq!(sign_ins.finish(returned).await.map(drop).unwrap_err().code(), expected);
        }
    }
}
