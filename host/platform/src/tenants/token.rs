//! Tokens of 256 random bits, which are shown once. The store has only their hashes, which cannot be used as tokens.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Outcome, TOKEN, TenantError, Tenants};
use crate::operate::identity::{Refusal, Scope, Scopes};

/// The prefix of every token, which helps scanners to find leaked tokens.
const PREFIX: &str = "fct_";

/// The document of a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Token {
    pub(super) tenant: String,
    /// SHA-256 of the secret, in hexadecimal.
    hash: String,
    scopes: Vec<String>,
    note: String,
    created: u64,
    expires: Option<u64>,
    #[serde(default)]
    revoked: Option<u64>,
}

/// A token as operators see it, without its secret.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRow {
    /// The token's id.
    pub id: String,
    /// The tenant of the token.
    pub tenant: String,
    /// A note about its purpose.
    pub note: String,
    /// The names of its scopes.
    pub scopes: Vec<String>,
    /// The time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// The time when it expires, in milliseconds since 1970. `None` means never.
    pub expires: Option<u64>,
    /// The time when it was revoked, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
}

/// A new token with its secret.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewToken {
    /// The token's id.
    pub id: String,
    /// The value for `Authorization: Bearer`. It is shown only once.
    pub token: String,
    /// The time when it expires, in milliseconds since 1970. `None` means never.
    pub expires: Option<u64>,
}

/// Splits a token into its id and its secret.
pub(super) fn split_token(token: &str) -> Option<(&str, &str)> {
    token.strip_prefix(PREFIX)?.split_once('_')
}

impl Token {
    /// Returns whether a secret matches and the token is still valid.
    ///
    /// It compares hashes, so the time of the comparison reveals nothing about the secret.
    pub(super) fn accepts(&self, secret: &str, now: u64) -> bool {
        self.is_valid_at(now) && hash_secret(secret) == self.hash
    }

    /// Returns true if the token is neither expired nor revoked at `now`.
    fn is_valid_at(&self, now: u64) -> bool {
        self.refusal_at(now).is_none()
    }

    /// Returns the reason why the token is not valid at `now`, or `None` if it is.
    pub(super) fn refusal_at(&self, now: u64) -> Option<Refusal> {
        let has_expired = self.expires.is_some_and(|expires| now >= expires);
        let revoked = self.revoked.map(|_| Refusal::TokenRevoked);
        revoked.or(has_expired.then_some(Refusal::TokenExpired))
    }

    pub(super) fn scopes(&self) -> Scopes {
        self.scopes.iter().filter_map(|name| Scope::named(name)).collect()
    }

    fn row(self, id: String) -> TokenRow {
        let Token { tenant, note, scopes, created, expires, revoked, .. } = self;
        TokenRow { id, tenant, note, scopes, created, expires, revoked }
    }
}

fn hash_secret(secret: &str) -> String {
    hex::encode(Sha256::digest(secret))
}

impl Tenants {
    /// Creates a token for a tenant. `lasts` is its lifetime in milliseconds.
    pub fn create_token(
        &self,
        tenant: &str,
        scopes: &[String],
        note: &str,
        lasts: Option<u64>,
    ) -> Result<NewToken, TenantError> {
        self.tenant(tenant)?;
        if let Some(unknown) = scopes.iter().find(|name| Scope::named(name).is_none()) {
            let known = Scope::ALL.map(Scope::name).join(", ");
            return Err(TenantError::UnknownScope(unknown.clone(), known));
        }
        let (id, secret) = (hex::encode(rand::random::<[u8; 8]>()), hex::encode(rand::random::<[u8; 32]>()));
        let created = self.host.now();
        let expires = lasts.map(|lasts| created.saturating_add(lasts));
        let token = Token {
            tenant: tenant.to_owned(),
            hash: hash_secret(&secret),
            scopes: scopes.to_vec(),
            note: note.to_owned(),
            created,
            expires,
            revoked: None,
        };
        if !self.put(TOKEN, &id, Some(&token), 0)? {
            return Err(TenantError::Changed(id));
        }
        self.note(tenant, "token.create", &id, Outcome::Done)?;
        Ok(NewToken { token: format!("{PREFIX}{id}_{secret}"), id, expires })
    }

    /// Returns the tokens of a tenant, or those of all tenants if `tenant` is `None`.
    pub fn tokens(&self, tenant: Option<&str>) -> Result<Vec<TokenRow>, TenantError> {
        let all = self.all::<Token>(TOKEN)?.into_iter();
        let of_tenant = all.filter(|(_, token)| tenant.is_none_or(|tenant| token.tenant == tenant));
        Ok(of_tenant.map(|(id, token)| token.row(id)).collect())
    }

    /// Revokes a token. A token that was revoked before keeps the time of its first revocation.
    pub fn revoke_token(&self, id: &str) -> Result<(), TenantError> {
        let found: Option<(Token, u64)> = self.get(TOKEN, id)?;
        let (token, version) = found.ok_or_else(|| TenantError::UnknownToken(id.to_owned()))?;
        if token.revoked.is_some() {
            return Ok(());
        }
        let token = Token { revoked: Some(self.host.now()), ..token };
        if !self.put(TOKEN, id, Some(&token), version)? {
            return Err(TenantError::Changed(id.to_owned()));
        }
        self.note(&token.tenant, "token.revoke", id, Outcome::Done)
    }
}
