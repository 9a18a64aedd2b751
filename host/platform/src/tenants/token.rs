//! Tokens: 256 random bits that are shown once. What is kept is their hash, which is of no use to whoever reads it.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Outcome, TOKEN, TenantError, Tenants};
use crate::operate::identity::{Scope, Scopes};

/// What every token begins with, so that it is recognised where it should not be.
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

/// A token, as operators see it: never the token itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRow {
    /// Its name.
    pub id: String,
    /// Whom it lets in.
    pub tenant: String,
    /// What it is for.
    pub note: String,
    /// What it allows.
    pub scopes: Vec<String>,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// When it is over; none: never.
    pub expires: Option<u64>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
}

/// A token that was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewToken {
    /// Its name.
    pub id: String,
    /// What to send as `Authorization: Bearer`. It is told now and never again.
    pub token: String,
    /// When it is over, in milliseconds since 1970; none: never.
    pub expires: Option<u64>,
}

/// The name and the secret of a token.
pub(super) fn parts(token: &str) -> Option<(&str, &str)> {
    token.strip_prefix(PREFIX)?.split_once('_')
}

impl Token {
    /// Whether a secret is its own, and it is not over.
    ///
    /// What is compared is hashes: how far two agree says nothing about the secret.
    pub(super) fn opens(&self, secret: &str, now: u64) -> bool {
        self.lasts(now) && hash(secret) == self.hash
    }

    /// Whether it is not over.
    pub(super) fn lasts(&self, now: u64) -> bool {
        self.expires.is_none_or(|expires| now < expires) && self.revoked.is_none()
    }

    pub(super) fn scopes(&self) -> Scopes {
        self.scopes.iter().filter_map(|name| Scope::named(name)).collect()
    }

    fn row(self, id: String) -> TokenRow {
        let Token { tenant, note, scopes, created, expires, revoked, .. } = self;
        TokenRow { id, tenant, note, scopes, created, expires, revoked }
    }
}

fn hash(secret: &str) -> String {
    hex::encode(Sha256::digest(secret))
}

impl Tenants {
    /// Makes a token for a tenant, which lasts for so many milliseconds.
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
            hash: hash(&secret),
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

    /// The tokens of a tenant, or all.
    pub fn tokens(&self, tenant: Option<&str>) -> Result<Vec<TokenRow>, TenantError> {
        let all = self.all::<Token>(TOKEN)?.into_iter();
        let of_tenant = all.filter(|(_, token)| tenant.is_none_or(|tenant| token.tenant == tenant));
        Ok(of_tenant.map(|(id, token)| token.row(id)).collect())
    }

    /// Lets a token open nothing any more. One that was revoked before stays as it is.
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
