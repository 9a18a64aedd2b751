//! Tokens of 256 random bits, which are shown once. The store has only their hashes, which cannot be used as tokens.

use std::collections::HashMap;

use flowcell_contract::Tenant;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    MAX_NAME, Outcome, TOKEN, TenantError, Tenants,
    token_use::{IN_USE_MS, LastUse, TOKEN_USE, expiry_warning},
};
use crate::operate::{
    identity::{AuthError, Caller, OwnToken, Refusal, Scope, Scopes},
    policy::OPERATORS,
};

/// The prefix of every token, which helps scanners to find leaked tokens.
const PREFIX: &str = "fct_";

/// The document of a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Token {
    /// Empty for a token of the operators.
    pub(super) tenant: String,
    /// SHA-256 of the secret, in hexadecimal.
    hash: String,
    scopes: Vec<String>,
    /// Empty if the token has no name.
    #[serde(default)]
    pub(super) name: String,
    note: String,
    created: u64,
    pub(super) expires: Option<u64>,
    #[serde(default)]
    revoked: Option<u64>,
    /// The token that this one was made from. It is no longer valid once its parent is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<String>,
    /// True for the token of a browser, a command or a machine, which a logout revokes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_login: bool,
    /// The account whose session the token is. It is no longer valid once the account is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) account: Option<String>,
}

/// The kind of the client that has logged in with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginKind {
    /// A browser.
    Browser,
    /// A command of a person, such as `flowcell api`.
    Command,
    /// A machine with the token of an issuer.
    Machine,
}

impl LoginKind {
    const ALL: [LoginKind; 3] = [LoginKind::Browser, LoginKind::Command, LoginKind::Machine];

    /// Returns the note of its tokens, which tells the kinds apart.
    fn note(self) -> &'static str {
        match self {
            LoginKind::Browser => "console",
            LoginKind::Command => "command",
            LoginKind::Machine => "machine",
        }
    }
}

/// The token of a client that logs in.
pub(super) struct NewLogin {
    pub(super) kind: LoginKind,
    pub(super) tenant: String,
    pub(super) scopes: Vec<String>,
    pub(super) name: String,
    pub(super) parent: Option<String>,
    pub(super) account: Option<String>,
    /// The time of the login, in milliseconds since 1970.
    pub(super) created: u64,
    /// The lifetime of the token, in milliseconds.
    pub(super) lasts: u64,
}

/// A token as operators see it, without its secret.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRow {
    /// The token's id.
    pub id: String,
    /// The tenant of the token. Empty for a token of the operators.
    pub tenant: String,
    /// Its name. Empty if it has none.
    pub name: String,
    /// A note about its purpose.
    pub note: String,
    /// The names of its scopes.
    pub scopes: Vec<String>,
    /// The time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// The time when it expires, in milliseconds since 1970. `None` means never.
    pub expires: Option<u64>,
    /// The time of its last use, in milliseconds since 1970, as exact as a minute. `None` means that it was never used.
    pub last_used: Option<u64>,
    /// A warning before and after it expires, such as `expires in 3 days`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
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

/// Returns whether a name consists of 1 to [`MAX_NAME`] letters, digits, `-` and `_`.
pub(super) fn is_valid_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits)
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
        let scopes = self.scopes.iter().filter_map(|name| Scope::named(name));
        scopes.filter(|scope| scope.is_allowed_for(&self.tenant)).collect()
    }

    /// Returns the kind of the client that has logged in with the token. `None`: it is no token of a login.
    pub(super) fn login_kind(&self) -> Option<LoginKind> {
        LoginKind::ALL.into_iter().find(|kind| self.is_login && self.note == kind.note())
    }

    /// Returns the end that operators should know of in time. A login has none: its client begins a new one.
    pub(super) fn expiry_of_use(&self) -> Option<u64> {
        self.expires.filter(|_| !self.is_login)
    }

    /// Returns whether the token belongs to the operators, and to no tenant.
    pub(super) fn is_of_operators(&self) -> bool {
        self.tenant == OPERATORS
    }

    fn row(self, id: String, last_used: Option<u64>, now: u64) -> TokenRow {
        let Token { tenant, name, note, scopes, created, expires, revoked, .. } = self;
        let warning = if revoked.is_none() { expiry_warning(expires, now) } else { None };
        TokenRow { id, tenant, name, note, scopes, created, expires, last_used, warning, revoked }
    }
}

/// Returns a random id, and a random secret of 256 bits.
pub(super) fn new_secret() -> (String, String) {
    (hex::encode(rand::random::<[u8; 8]>()), hex::encode(rand::random::<[u8; 32]>()))
}

pub(super) fn hash_secret(secret: &str) -> String {
    hex::encode(Sha256::digest(secret))
}

/// Performs `Identify::token_of`. A token that does not exist any more has nothing to show.
pub(super) fn own_token(tenants: &Tenants, caller: &Caller) -> Result<OwnToken, AuthError> {
    let Some(id) = caller.token.as_deref() else { return Ok(OwnToken::default()) };
    let found: Option<(Token, u64)> = tenants.get(TOKEN, id).map_err(|_| AuthError::Unavailable)?;
    let own = found.map(|(token, _)| token).filter(|token| *token.tenant == *caller.tenant.as_str());
    let now = tenants.host.now();
    Ok(own.map_or_else(OwnToken::default, |Token { name, expires, .. }| OwnToken {
        warning: expiry_warning(expires, now),
        name,
        expires,
    }))
}

/// Performs `Identify::token_ends`. Tokens of logins are left out, because they are short-lived and made by a login.
pub(super) fn token_ends(tenants: &Tenants, now: u64) -> Result<HashMap<Tenant, u64>, TenantError> {
    let uses: HashMap<String, LastUse> = tenants.all(TOKEN_USE)?.into_iter().collect();
    let is_used = |id: &str| uses.get(id).is_some_and(|last| now < last.at.saturating_add(IN_USE_MS));
    let mut ends = HashMap::new();
    for (id, token) in tenants.all::<Token>(TOKEN)? {
        if let Some(expires) = token.expires
            && !token.is_login
            && token.is_valid_at(now)
            && is_used(&id)
        {
            let end = ends.entry(Tenant::from(token.tenant.as_str())).or_insert(expires);
            *end = expires.min(*end);
        }
    }
    Ok(ends)
}

/// Checks the scopes of a new token.
pub(super) fn check_scopes(tenant: &str, scopes: &[String]) -> Result<(), TenantError> {
    for name in scopes {
        let allowed = || Scope::ALL.into_iter().filter(|scope| scope.is_allowed_for(tenant));
        let allowed = || allowed().map(Scope::name).collect::<Vec<_>>().join(", ");
        match Scope::named(name) {
            None => return Err(TenantError::UnknownScope(name.clone(), allowed())),
            Some(scope) if !scope.is_allowed_for(tenant) => {
                let of = if tenant == OPERATORS { "the operators" } else { "a tenant" };
                return Err(TenantError::ScopeNotAllowed(name.clone(), of, allowed()));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl Tenants {
    /// Creates a token without a name for a tenant. `lasts` is its lifetime in milliseconds.
    pub fn create_token(
        &self,
        tenant: &str,
        scopes: &[String],
        note: &str,
        lasts: Option<u64>,
    ) -> Result<NewToken, TenantError> {
        self.create_named_token(tenant, "", scopes, note, lasts)
    }

    /// Creates a token for a tenant, or for the operators if `tenant` is empty. A valid token of the tenant must not have
    /// the same name. An empty name is none.
    pub fn create_named_token(
        &self,
        tenant: &str,
        name: &str,
        scopes: &[String],
        note: &str,
        lasts: Option<u64>,
    ) -> Result<NewToken, TenantError> {
        self.check_token_tenant(tenant)?;
        if !name.is_empty() {
            self.check_token_name(tenant, name)?;
        }
        check_scopes(tenant, scopes)?;
        let created = self.host.now();
        let expires = lasts.map(|lasts| created.saturating_add(lasts));
        self.add_token(new_secret(), |hash| Token {
            tenant: tenant.to_owned(),
            hash,
            scopes: scopes.to_vec(),
            name: name.to_owned(),
            note: note.to_owned(),
            created,
            expires,
            revoked: None,
            parent: None,
            is_login: false,
            account: None,
        })
    }

    /// Creates the token of a login. `secret` is the id and the secret of the token.
    pub(super) fn create_login_token(&self, new: NewLogin, secret: (String, String)) -> Result<NewToken, TenantError> {
        let NewLogin { kind, tenant, scopes, name, parent, account, created, lasts } = new;
        self.add_token(secret, |hash| Token {
            tenant,
            hash,
            scopes,
            name,
            note: kind.note().to_owned(),
            created,
            expires: Some(created.saturating_add(lasts)),
            revoked: None,
            parent,
            is_login: true,
            account,
        })
    }

    /// Stores a new token with this id and secret. `token` makes it from the hash of its secret.
    fn add_token(
        &self,
        (id, secret): (String, String),
        token: impl FnOnce(String) -> Token,
    ) -> Result<NewToken, TenantError> {
        let token = token(hash_secret(&secret));
        let (tenant, expires) = (token.tenant.as_str(), token.expires);
        if !self.put(TOKEN, &id, Some(&token), 0)? {
            return Err(TenantError::Changed(id));
        }
        // The tenant may have been removed since the first check.
        if let Err(gone) = self.check_token_tenant(tenant) {
            self.put::<Token>(TOKEN, &id, None, 1)?;
            return Err(gone);
        }
        let subject = format!("{id} {}", token.scopes.join(","));
        self.note(tenant, "token.create", &subject, Outcome::Done)?;
        Ok(NewToken { token: format!("{PREFIX}{id}_{secret}"), id, expires })
    }

    /// Returns the tokens of a tenant, or those of all tenants if `tenant` is `None`.
    pub fn tokens(&self, tenant: Option<&str>) -> Result<Vec<TokenRow>, TenantError> {
        let uses: HashMap<String, LastUse> = self.all(TOKEN_USE)?.into_iter().collect();
        let now = self.host.now();
        let all = self.all::<Token>(TOKEN)?.into_iter();
        let of_tenant = all.filter(|(_, token)| tenant.is_none_or(|tenant| token.tenant == tenant));
        Ok(of_tenant
            .map(|(id, token)| (uses.get(&id).map(|last| last.at), id, token))
            .map(|(last, id, token)| token.row(id, last, now))
            .collect())
    }

    /// Returns an error if a token cannot belong to this tenant. A token of the operators belongs to none.
    fn check_token_tenant(&self, tenant: &str) -> Result<(), TenantError> {
        if tenant == OPERATORS { Ok(()) } else { self.tenant(tenant).map(drop) }
    }

    /// Checks the name of a new token.
    fn check_token_name(&self, tenant: &str, name: &str) -> Result<(), TenantError> {
        if !is_valid_name(name) {
            return Err(TenantError::TokenName(name.to_owned()));
        }
        let now = self.host.now();
        let mut all = self.all::<Token>(TOKEN)?.into_iter();
        match all.find(|(_, token)| token.tenant == tenant && token.name == name && token.is_valid_at(now)) {
            Some((id, _)) => Err(TenantError::TokenNameTaken(name.to_owned(), id)),
            None => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{Host, operate::identity::Identify};

    #[test]
    fn the_first_expiry_is_that_of_a_valid_token_in_use() {
        let host = Host::builder().without_cache().instances(1).build().unwrap();
        let tenants = Tenants::of(&host);
        tenants.create("acme").unwrap();
        let scopes = ["run:read".to_owned()];
        let create = |tenant: &str, scope: &str, lasts| tenants.create_token(tenant, &[scope.to_owned()], "", lasts);
        let days = |days: u64| Some(days * 24 * 3_600 * 1_000);
        let login = NewLogin {
            kind: LoginKind::Browser,
            tenant: "acme".to_owned(),
            scopes: scopes.to_vec(),
            name: String::new(),
            parent: None,
            account: None,
            created: host.now(),
            lasts: 5_000_000,
        };
        let used = [
            create("acme", "run:read", days(30)).unwrap(),
            create("acme", "run:read", days(20)).unwrap(),
            create("acme", "run:read", None).unwrap(),
            tenants.create_login_token(login, new_secret()).unwrap(),
            create(OPERATORS, "metrics:read", days(90)).unwrap(),
        ];
        let revoked = create("acme", "run:read", days(1)).unwrap();
        create("acme", "run:read", days(2)).unwrap();
        assert_eq!(tenants.token_ends(host.now()).unwrap(), HashMap::new(), "no token was used");
        for token in used.iter().chain([&revoked]) {
            tenants.identify(Some(&token.token)).unwrap();
        }
        tenants.flush().unwrap();
        let warned_of = |id: &str| tenants.get::<Token>(TOKEN, id).unwrap().unwrap().0.expiry_of_use();
        assert_eq!([warned_of(&used[3].id), warned_of(&used[0].id)], [None, used[0].expires], "a login is no news");
        tenants.revoke_token(&revoked.id).unwrap();
        let (first, second, own) = (used[1].expires.unwrap(), used[0].expires.unwrap(), used[4].expires.unwrap());
        let of = |acme: u64| HashMap::from([(Tenant::from("acme"), acme), (Tenant::from(OPERATORS), own)]);
        let now = host.now();
        assert_eq!(tenants.token_ends(now).unwrap(), of(first));
        // A token that is no longer valid does not count, nor does one that was not used for long.
        let expired = Token { expires: Some(now), ..tenants.get::<Token>(TOKEN, &used[1].id).unwrap().unwrap().0 };
        let (_, version) = tenants.get::<Token>(TOKEN, &used[1].id).unwrap().unwrap();
        assert!(tenants.put(TOKEN, &used[1].id, Some(&expired), version).unwrap());
        assert_eq!(tenants.token_ends(now).unwrap(), of(second));
        assert_eq!(tenants.token_ends(now + IN_USE_MS).unwrap(), HashMap::new());
    }
}
