//! Credentials of tenants, and their tokens.
//!
//! A credential has settings, which are stored as they are, and secrets, which are encrypted like [secrets](super). The
//! encryption includes the settings and the origins, so that a row with other ones does not decrypt. The tokens of a
//! credential are another document: each renewal replaces it unless another process did.

use std::{collections::BTreeMap, time::Duration};

use flowcell_contract::{Failure, Tenant, check_credential_name, code};
use flowcell_services::{
    credentials::{
        CredentialStore, KnownCredential, Lifetime, OAuth2Settings, OpenCredential, RefreshFailure, SecretMembers,
        Settings, Token, TokenState,
    },
    egress::OriginGrants,
};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::{MAX_CREDENTIALS, MAX_WRITE_TRIES, Vault, VaultError, parse_origins, row::SealedRow, seal::Sealed};
use crate::operate::{audit::Outcome, policy::Policy};

#[cfg(test)]
mod tests;

/// The time between two looks at the tokens that another process renews.
const PAUSE: Duration = Duration::from_millis(100);

const CREDENTIAL: &str = "credential";
const TOKEN: &str = "credential.token";

/// A stored credential.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredCredential {
    /// The settings as JSON text.
    settings: String,
    origins: Vec<String>,
    version: u64,
    created: u64,
    updated: u64,
    /// The number of the data key that encrypts the secrets.
    key: String,
    sealed: Sealed,
}

/// The stored tokens of a credential.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StoredTokens {
    /// The version of the credential to which they belong.
    version: u64,
    /// The time at which the host got the token. Earlier versions did not write it.
    issued: Option<u64>,
    renew_at: Option<u64>,
    /// The time in which the host can renew the token without a person.
    lifetime: Option<StoredLifetime>,
    claimed_until: Option<u64>,
    failure: Option<StoredFailure>,
    /// The number of the data key that encrypts the tokens.
    key: String,
    /// The tokens as JSON, or an empty text.
    sealed: Sealed,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct StoredLifetime {
    since: u64,
    ends: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredFailure {
    at: u64,
    /// The time of the first failure. Earlier versions did not write it.
    #[serde(default)]
    since: Option<u64>,
    message: String,
    details: Option<serde_json::Value>,
    retryable: bool,
}

/// A credential without its secrets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CredentialRow {
    /// The credential's name.
    pub name: String,
    /// Its kind and its settings.
    #[serde(flatten)]
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// The servers that it may be sent to.
    #[serde(rename = "for")]
    pub origins: Vec<String>,
    /// The number of times that it was set.
    pub version: u64,
    /// The time when it was first set, in milliseconds since 1970.
    pub created: u64,
    /// The time when it was last set, in milliseconds since 1970.
    pub updated: u64,
    /// The state of its tokens, for the kind `oauth2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenRow>,
}

/// The state of the tokens of a credential, without them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRow {
    /// True if there is an access token.
    pub exists: bool,
    /// The time in milliseconds since 1970 at which the host renews it. `None`: when a server refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_at: Option<u64>,
    /// The time in milliseconds since 1970 at which the host can no longer renew it, if the server has named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// The reason why the last renewal failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The time in milliseconds since 1970 since when renewals fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_since: Option<u64>,
}

/// The state of the tokens of a credential, for messages to people.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenHealth {
    /// The credential's name.
    pub(crate) name: String,
    /// The time in which the host can renew the token without a person.
    pub(crate) lifetime: Option<Lifetime>,
    /// The last renewal, if it failed.
    pub(crate) failure: Option<RefreshFailure>,
}

/// A credential to set.
pub struct NewCredential<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its settings.
    pub settings: &'a Settings,
    /// Its secrets.
    pub secrets: &'a SecretMembers,
    /// The servers that may receive it.
    pub origins: &'a [String],
}

impl From<StoredLifetime> for Lifetime {
    fn from(StoredLifetime { since, ends }: StoredLifetime) -> Lifetime {
        Lifetime { since, ends }
    }
}

impl From<StoredFailure> for RefreshFailure {
    fn from(StoredFailure { at, since, message, details, retryable }: StoredFailure) -> RefreshFailure {
        RefreshFailure { at, since: since.unwrap_or(at), message, details: details.map(Into::into), retryable }
    }
}

impl From<RefreshFailure> for StoredFailure {
    fn from(RefreshFailure { at, since, message, details, retryable }: RefreshFailure) -> StoredFailure {
        let details = details.map(|details| details.to_serde());
        StoredFailure { at, since: Some(since), message, details, retryable }
    }
}

impl SealedRow for StoredCredential {
    const KIND: &'static str = CREDENTIAL;

    fn data_key(&self) -> &str {
        &self.key
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    fn sealed_mut(&mut self) -> (&mut String, &mut Sealed) {
        (&mut self.key, &mut self.sealed)
    }

    fn place<'a>(&'a self, tenant: &'a Tenant, name: &'a str, version: &'a str) -> Vec<&'a str> {
        let mut place = vec![CREDENTIAL, tenant.as_str(), name, version, &*self.key, &*self.settings];
        place.extend(self.origins.iter().map(String::as_str));
        place
    }

    fn damaged(name: &str) -> VaultError {
        VaultError::DamagedCredential(name.to_owned())
    }
}

impl SealedRow for StoredTokens {
    const KIND: &'static str = TOKEN;

    fn data_key(&self) -> &str {
        &self.key
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    fn sealed_mut(&mut self) -> (&mut String, &mut Sealed) {
        (&mut self.key, &mut self.sealed)
    }

    fn place<'a>(&'a self, tenant: &'a Tenant, name: &'a str, version: &'a str) -> Vec<&'a str> {
        vec![TOKEN, tenant.as_str(), name, version, &*self.key]
    }

    fn damaged(name: &str) -> VaultError {
        VaultError::DamagedCredential(name.to_owned())
    }
}

impl StoredCredential {
    fn row(self, name: String) -> CredentialRow {
        let StoredCredential { settings, origins, version, created, updated, .. } = self;
        let settings = serde_json::from_str(&settings).unwrap_or_default();
        CredentialRow { name, settings, origins, version, created, updated, token: None }
    }

    /// Returns the row with the state of these tokens, if they belong to this version.
    fn row_with(self, tokens: Option<StoredTokens>, name: String) -> CredentialRow {
        let is_oauth2 = matches!(Settings::from_text(&self.settings), Some(Settings::OAuth2(_)));
        let found = tokens.filter(|found| found.version == self.version).unwrap_or_default();
        let failed_since = found.failure.as_ref().map(|failure| failure.since.unwrap_or(failure.at));
        let token = TokenRow {
            exists: !found.key.is_empty(),
            renew_at: found.renew_at,
            expires: found.lifetime.map(|lifetime| lifetime.ends),
            failure: found.failure.map(|failure| failure.message),
            failed_since,
        };
        CredentialRow { token: is_oauth2.then_some(token), ..self.row(name) }
    }

    fn known(&self, name: &str) -> Result<KnownCredential, VaultError> {
        let settings = Settings::from_text(&self.settings);
        let settings = settings.ok_or_else(|| VaultError::DamagedCredential(name.to_owned()))?;
        Ok(KnownCredential { settings, origins: origins(&self.origins)?, version: self.version, created: self.created })
    }
}

fn origins(origins: &[String]) -> Result<OriginGrants, VaultError> {
    if origins.is_empty() {
        return Err(VaultError::Origins("a credential is for one server or more".into()));
    }
    if origins.iter().any(|origin| origin == flowcell_services::secrets::WEBHOOK) {
        return Err(VaultError::Origins("a credential is for servers, and signs no posts to triggers".into()));
    }
    parse_origins(origins)
}

impl Vault {
    /// Sets a credential. Its tokens are removed. The audit log records the actor.
    pub fn set_credential(
        &self,
        tenant: &Tenant,
        actor: &str,
        new: &NewCredential<'_>,
    ) -> Result<CredentialRow, VaultError> {
        let NewCredential { name, settings, secrets, origins: servers } = *new;
        check_credential_name(name).map_err(VaultError::Credential)?;
        settings.check_secrets(secrets).map_err(VaultError::Credential)?;
        origins(servers)?;
        if let Settings::OAuth2(OAuth2Settings { token_url, .. }) = settings {
            self.token_url_allowed(tenant, token_url)?.map_err(VaultError::Credential)?;
        }
        for _ in 0..MAX_WRITE_TRIES {
            let found = self.stored_credential(tenant, name)?;
            let count = || Ok::<_, VaultError>(self.documents(tenant).all::<StoredCredential>(CREDENTIAL)?.len());
            if found.is_none() && count()? >= MAX_CREDENTIALS {
                return Err(VaultError::TooManyCredentials);
            }
            let (number, key) = self.current_key(tenant)?;
            let now = self.timers.now();
            let seen = found.as_ref().map_or(0, |(_, seen)| *seen);
            let (version, created) = found.map_or((1, now), |(kept, _)| (kept.version + 1, kept.created));
            let (sealed, settings) = (Sealed::default(), settings.to_text());
            let origins = servers.to_vec();
            let kept =
                StoredCredential { settings, origins, version, created, updated: now, key: number.clone(), sealed };
            let kept = kept.sealed_under(&number, tenant, name, &key, &secrets.to_text())?;
            self.remove_tokens(tenant, name)?;
            if self.documents(tenant).put(CREDENTIAL, name, Some(&kept), seen)? {
                self.note(tenant, actor, "credential.set", name, Outcome::Done)?;
                return Ok(kept.row(name.to_owned()));
            }
        }
        Err(VaultError::Changed(name.to_owned()))
    }

    /// Returns the credentials of a tenant with the states of their tokens, sorted by name, without their secrets.
    pub fn list_credentials(&self, tenant: &Tenant) -> Result<Vec<CredentialRow>, VaultError> {
        let all = self.documents(tenant).all::<StoredCredential>(CREDENTIAL)?;
        let mut tokens: BTreeMap<_, _> = self.documents(tenant).all::<StoredTokens>(TOKEN)?.into_iter().collect();
        let row = |(name, kept): (String, StoredCredential)| {
            let found = tokens.remove(&name);
            kept.row_with(found, name)
        };
        Ok(all.into_iter().map(row).collect())
    }

    /// Returns a credential with the state of its tokens, without its secrets.
    pub fn find_credential(&self, tenant: &Tenant, name: &str) -> Result<Option<CredentialRow>, VaultError> {
        let Some((kept, _)) = self.stored_credential(tenant, name)? else { return Ok(None) };
        kept.known(name)?;
        let found = self.documents(tenant).get::<StoredTokens>(TOKEN, name)?.map(|(found, _)| found);
        Ok(Some(kept.row_with(found, name.to_owned())))
    }

    /// Returns the states of the tokens of a tenant.
    pub(crate) fn token_health(&self, tenant: &Tenant) -> Result<Vec<TokenHealth>, VaultError> {
        let all = self.documents(tenant).all::<StoredTokens>(TOKEN)?.into_iter();
        let health = |(name, kept): (String, StoredTokens)| TokenHealth {
            name,
            lifetime: kept.lifetime.map(Lifetime::from),
            failure: kept.failure.map(RefreshFailure::from),
        };
        Ok(all.map(health).collect())
    }

    /// Returns a credential without its secrets, in the form in which requests use it.
    pub(crate) fn known_credential(&self, tenant: &Tenant, name: &str) -> Result<Option<KnownCredential>, VaultError> {
        self.stored_credential(tenant, name)?.map(|(kept, _)| kept.known(name)).transpose()
    }

    /// Removes a credential with its tokens. The audit log records the actor.
    pub fn remove_credential(&self, tenant: &Tenant, actor: &str, name: &str) -> Result<(), VaultError> {
        let found = self.stored_credential(tenant, name)?;
        let (_, seen) = found.ok_or_else(|| VaultError::UnknownCredential(name.to_owned()))?;
        if !self.documents(tenant).put::<StoredCredential>(CREDENTIAL, name, None, seen)? {
            return Err(VaultError::Changed(name.to_owned()));
        }
        self.remove_tokens(tenant, name)?;
        self.note(tenant, actor, "credential.remove", name, Outcome::Done)
    }

    /// Checks that the operator's policy allows the tenant requests to a token endpoint. The inner error is a part of a
    /// sentence.
    pub(crate) fn token_url_allowed(&self, tenant: &Tenant, url: &str) -> Result<Result<(), String>, VaultError> {
        let policy = Policy::read(&*self.documents, tenant).map_err(super::document_error)?;
        Ok(policy.check_url(url).map_err(|why| format!("`tokenUrl`: {why}")))
    }

    /// Records in the audit log that a person has connected a credential, or could not.
    pub(crate) fn note_connected(
        &self,
        tenant: &Tenant,
        actor: &str,
        name: &str,
        outcome: Outcome,
    ) -> Result<(), VaultError> {
        self.note(tenant, actor, "credential.connect", name, outcome)
    }

    /// Returns the error of opening a credential, for the check of a flow. See [`Vault::locked`].
    pub(crate) fn locked_credential(&self, tenant: &Tenant, name: &str) -> Option<VaultError> {
        if !self.opens_for_checks {
            return None;
        }
        let (kept, _) = self.stored_credential(tenant, name).ok()??;
        self.data_key(tenant, &kept.key).and_then(|key| kept.open(tenant, name, &key)).err()
    }

    pub(super) fn remove_tokens(&self, tenant: &Tenant, name: &str) -> Result<(), VaultError> {
        for _ in 0..MAX_WRITE_TRIES {
            let Some(found) = self.documents.get(tenant, TOKEN, name).map_err(super::document_error)? else {
                return Ok(());
            };
            if self.documents(tenant).put::<StoredTokens>(TOKEN, name, None, found.version)? {
                return Ok(());
            }
        }
        Err(VaultError::Changed(name.to_owned()))
    }

    fn stored_credential(&self, tenant: &Tenant, name: &str) -> Result<Option<(StoredCredential, u64)>, VaultError> {
        // An invalid name cannot have a credential.
        match check_credential_name(name) {
            Ok(()) => Ok(self.documents(tenant).get(CREDENTIAL, name)?),
            Err(_) => Ok(None),
        }
    }

    fn open_credential(&self, tenant: &Tenant, name: &str) -> Result<Option<OpenCredential>, VaultError> {
        let Some((kept, _)) = self.stored_credential(tenant, name)? else { return Ok(None) };
        let opened = self.data_key(tenant, &kept.key).and_then(|key| kept.open(tenant, name, &key));
        if opened.as_ref().is_err_and(VaultError::is_decryption_failure) {
            self.note_refused_credential(tenant, name);
        }
        let secrets = SecretMembers::from_text(&opened?);
        let secrets = secrets.ok_or_else(|| VaultError::DamagedCredential(name.to_owned()))?;
        Ok(Some(OpenCredential { known: kept.known(name)?, secrets }))
    }

    fn token_state(&self, tenant: &Tenant, name: &str, version: u64) -> Result<TokenState, VaultError> {
        let Some((kept, seen)) = self.documents(tenant).get::<StoredTokens>(TOKEN, name)? else {
            return Ok(TokenState::default());
        };
        if kept.version != version {
            return Ok(TokenState { seen, ..TokenState::default() });
        }
        let token = match kept.key.is_empty() {
            true => None,
            false => {
                let opened = self.data_key(tenant, &kept.key).and_then(|key| kept.open(tenant, name, &key));
                if opened.as_ref().is_err_and(VaultError::is_decryption_failure) {
                    self.note_refused_credential(tenant, name);
                }
                let members = SecretMembers::from_text(&opened?);
                let members = members.ok_or_else(|| VaultError::DamagedCredential(name.to_owned()))?;
                Token::from_members(&members, kept.issued, kept.renew_at, kept.lifetime.map(Lifetime::from))
            }
        };
        let failure = kept.failure.map(RefreshFailure::from);
        Ok(TokenState { token, claimed_until: kept.claimed_until, failure, seen })
    }

    fn replace_token_state(
        &self,
        tenant: &Tenant,
        name: &str,
        version: u64,
        state: &TokenState,
    ) -> Result<bool, VaultError> {
        // The tokens of a removed or changed credential are not kept.
        let is_current = self.stored_credential(tenant, name)?.is_some_and(|(kept, _)| kept.version == version);
        if !is_current {
            return Err(VaultError::Changed(name.to_owned()));
        }
        let issued = state.token.as_ref().and_then(|token| token.issued);
        let renew_at = state.token.as_ref().and_then(|token| token.renew_at);
        let lifetime = state.token.as_ref().and_then(|token| token.lifetime);
        let kept = StoredTokens {
            version,
            issued,
            renew_at,
            lifetime: lifetime.map(|Lifetime { since, ends }| StoredLifetime { since, ends }),
            claimed_until: state.claimed_until,
            failure: state.failure.clone().map(StoredFailure::from),
            ..StoredTokens::default()
        };
        let kept = match &state.token {
            Some(token) => {
                let (number, key) = self.current_key(tenant)?;
                kept.sealed_under(&number, tenant, name, &key, &token.to_members().to_text())?
            }
            None => kept,
        };
        Ok(self.documents(tenant).put(TOKEN, name, Some(&kept), state.seen)?)
    }
}

impl CredentialStore for Vault {
    fn find(&self, tenant: &Tenant, name: &str) -> Result<Option<KnownCredential>, Failure> {
        Ok(self.known_credential(tenant, name)?)
    }

    fn open(&self, tenant: &Tenant, name: &str) -> Result<Option<OpenCredential>, Failure> {
        Ok(self.open_credential(tenant, name)?)
    }

    fn refused(&self, tenant: &Tenant, name: &str) {
        self.note_refused_credential(tenant, name);
    }

    fn check_token_url(&self, tenant: &Tenant, url: &str) -> Result<(), Failure> {
        self.token_url_allowed(tenant, url)?.map_err(|why| Failure::new(code::DENIED, why))
    }

    fn now(&self) -> u64 {
        self.timers.now()
    }

    fn tokens(&self, tenant: &Tenant, name: &str, version: u64) -> Result<TokenState, Failure> {
        Ok(self.token_state(tenant, name, version)?)
    }

    fn replace_tokens(&self, tenant: &Tenant, name: &str, version: u64, state: &TokenState) -> Result<bool, Failure> {
        Ok(self.replace_token_state(tenant, name, version, state)?)
    }

    fn pause(&self) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(PAUSE))
    }
}
