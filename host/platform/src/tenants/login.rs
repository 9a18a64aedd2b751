//! Logins of browsers. An operator makes a code, which works once, and the browser exchanges it for a token of its own. A
//! token may be exchanged in the same way.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Outcome, TOKEN, TenantError, Tenants, accounts,
    token::{Token, check_scopes, hash_secret, new_secret, split_token},
};
use crate::operate::identity::{AuthError, Caller, Identify, Login, Refusal, Scope};

/// Lifetime of a one-time code in milliseconds.
pub const CODE_LIFETIME_MS: u64 = 2 * 60 * 1_000;
/// Lifetime of the token of a browser in milliseconds.
pub const LOGIN_LIFETIME_MS: u64 = 12 * 60 * 60 * 1_000;
/// Maximum number of codes of a tenant that callers have made and no login has used, within their lifetime.
pub const MAX_OPEN_CODES: usize = 20;
/// The kind of the documents of one-time codes, by their ids.
const CODE: &str = "login-code";
/// The prefix of every one-time code.
const PREFIX: &str = "fcc_";

/// The document of a one-time code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Code {
    tenant: String,
    /// SHA-256 of the secret, in hexadecimal.
    hash: String,
    scopes: Vec<String>,
    expires: u64,
    /// The id of the token that has made the code, and with which the login ends. `None` for a code of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
}

/// A code that a caller may not make.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The caller has no token of its own, or that of a browser.
    #[error(
        "only a token of a tenant makes codes, and neither the login of a browser nor a token of the operators does"
    )]
    NotAToken,
    /// The caller's token has no scopes, so that a login could do nothing.
    #[error("the token has no scopes, so that a login with its code could do nothing; use another token")]
    NoScopes,
    /// The tenant has too many codes.
    #[error("the tenant has {MAX_OPEN_CODES} codes that were not used: use one, or try again in two minutes")]
    TooMany,
    /// The scopes or the tenant are refused.
    #[error(transparent)]
    Tenant(#[from] TenantError),
}

impl Code {
    /// Returns whether the code is for this tenant.
    pub(super) fn is_of(&self, tenant: &str) -> bool {
        self.tenant == tenant
    }
}

/// Makes a code with which a browser can log in once, as a tenant, within [`CODE_LIFETIME_MS`]. Without scopes, the
/// browser gets all scopes that a tenant may have.
pub fn create_code(tenants: &Tenants, tenant: &str, scopes: &[String]) -> Result<String, TenantError> {
    tenants.tenant(tenant)?;
    check_scopes(tenant, scopes)?;
    let now = tenants.host.now();
    remove_codes(tenants, |code| now >= code.expires)?;
    add_code(tenants, tenant, scopes, None)
}

/// Makes a code for a caller with a token of a tenant. The login has these scopes, and the caller must have all of
/// them. Without scopes it has those of the caller. It ends with the caller's token.
pub fn create_code_for(tenants: &Tenants, caller: &Caller, scopes: &[String]) -> Result<String, CodeError> {
    let tenant = caller.tenant.as_str();
    let Some(id) = caller.token.as_deref().filter(|_| !caller.is_operator()) else { return Err(CodeError::NotAToken) };
    // A login that was made by a login would not end with the first token.
    let known = tenants.get::<Token>(TOKEN, id)?;
    if known.is_none_or(|(known, _)| known.is_login) {
        return Err(CodeError::NotAToken);
    }
    tenants.tenant(tenant)?;
    check_scopes(tenant, scopes)?;
    let now = tenants.host.now();
    remove_codes(tenants, |code| now >= code.expires)?;
    let open = tenants.all::<Code>(CODE)?.into_iter().filter(|(_, code)| code.is_of(tenant) && code.parent.is_some());
    if open.count() >= MAX_OPEN_CODES {
        return Err(CodeError::TooMany);
    }
    let own = caller.scopes.names();
    let scopes = if scopes.is_empty() { &own[..] } else { scopes };
    // Without scopes, a code of the operator has all of them.
    if scopes.is_empty() {
        return Err(CodeError::NoScopes);
    }
    Ok(add_code(tenants, tenant, scopes, Some(id))?)
}

/// Stores a new code.
fn add_code(tenants: &Tenants, tenant: &str, scopes: &[String], parent: Option<&str>) -> Result<String, TenantError> {
    let now = tenants.host.now();
    let all = || Scope::of_tenants().map(|scope| scope.name().to_owned()).collect();
    let scopes = if scopes.is_empty() { all() } else { scopes.to_vec() };
    let (id, secret) = new_secret();
    let expires = now.saturating_add(CODE_LIFETIME_MS);
    let parent = parent.map(str::to_owned);
    let code = Code { tenant: tenant.to_owned(), hash: hash_secret(&secret), scopes, expires, parent };
    if !tenants.put(CODE, &id, Some(&code), 0)? {
        return Err(TenantError::Changed(id));
    }
    tenants.note(tenant, "login.code", &id, Outcome::Done)?;
    Ok(format!("{PREFIX}{id}_{secret}"))
}

/// Removes the codes for which `is_due` is true.
pub(super) fn remove_codes(tenants: &Tenants, is_due: impl Fn(&Code) -> bool) -> Result<(), TenantError> {
    for (id, code) in tenants.all::<Code>(CODE)? {
        let seen = tenants.get::<Code>(CODE, &id)?.filter(|_| is_due(&code));
        if let Some((_, version)) = seen {
            // If this fails, a login has used the code.
            tenants.put::<Code>(CODE, &id, None, version)?;
        }
    }
    Ok(())
}

/// Exchanges a one-time code or a token, of a tenant or of the operators, for the token of a browser.
pub(super) fn log_in(tenants: &Tenants, proof: &str) -> Result<Login, AuthError> {
    match proof.strip_prefix(PREFIX).and_then(|code| code.split_once('_')) {
        Some((id, secret)) => with_code(tenants, id, secret),
        None => with_token(tenants, proof),
    }
}

fn with_code(tenants: &Tenants, id: &str, secret: &str) -> Result<Login, AuthError> {
    let unavailable = |_| AuthError::Unavailable;
    let Some((code, version)) = tenants.get::<Code>(CODE, id).map_err(unavailable)? else {
        return Err(AuthError::Unknown);
    };
    if hash_secret(secret) != code.hash {
        return Err(tenants.reject_token(&code.tenant, id));
    }
    // Of several logins with the same code, only one removes it.
    let is_first = tenants.put::<Code>(CODE, id, None, version).map_err(unavailable)?;
    let (tenant, _) = tenants.tenant(&code.tenant).map_err(|_| AuthError::Unknown)?;
    if !is_first || tenants.host.now() >= code.expires || tenant.disabled {
        return Err(tenants.reject_token(&code.tenant, id));
    }
    // The login of a code whose maker is revoked would end at once.
    if let Some(parent) = &code.parent
        && is_revoked(tenants, parent)?
    {
        return Err(tenants.reject_token(&code.tenant, id));
    }
    new_login(&tenants.acting_as(&Arc::from(id)), &code.tenant, code.scopes, code.parent)
}

/// Returns whether a token is not valid any more.
fn is_revoked(tenants: &Tenants, id: &str) -> Result<bool, AuthError> {
    let found = tenants.get::<Token>(TOKEN, id).map_err(|_| AuthError::Unavailable)?;
    Ok(found.is_none_or(|(token, _)| token.refusal_at(tenants.host.now()).is_some()))
}

fn with_token(tenants: &Tenants, token: &str) -> Result<Login, AuthError> {
    let caller = tenants.identify(Some(token))?;
    let Some((id, _)) = split_token(token) else { return Err(AuthError::Unknown) };
    let known = tenants.get::<Token>(TOKEN, id).map_err(|_| AuthError::Unavailable)?;
    if known.is_none_or(|(known, _)| known.is_login) {
        return Err(AuthError::Unknown);
    }
    let parent = Some(id.to_owned());
    new_login(&tenants.acting_as(&Arc::from(id)), caller.tenant.as_str(), caller.scopes.names(), parent)
}

fn new_login(tenants: &Tenants, tenant: &str, scopes: Vec<String>, parent: Option<String>) -> Result<Login, AuthError> {
    let new = tenants.create_login_token(tenant, scopes, parent, LOGIN_LIFETIME_MS);
    let token = new.map_err(|_| AuthError::Unavailable)?.token;
    Ok(Login { token, lasts: LOGIN_LIFETIME_MS })
}

/// Revokes the caller's token if it is one of a browser.
pub(super) fn log_out(tenants: &Tenants, caller: &Caller) -> Result<(), AuthError> {
    let Some(id) = &caller.token else { return Ok(()) };
    let known = tenants.get::<Token>(TOKEN, id).map_err(|_| AuthError::Unavailable)?;
    match known.is_some_and(|(known, _)| known.is_login) {
        true => tenants.acting_as(id).revoke_token(id).map_err(|_| AuthError::Unavailable),
        false => Ok(()),
    }
}

/// Returns the reason why the parent or the account of the token with this id is not valid. Returns `None` if it is, or if
/// the token has neither.
pub(super) fn parent_refusal(tenants: &Tenants, id: &str, token: &Token) -> Result<Option<Refusal>, AuthError> {
    if let Some(account) = &token.account {
        return accounts::refusal(tenants, account, id);
    }
    let Some(parent) = &token.parent else { return Ok(None) };
    let parent = tenants.get::<Token>(TOKEN, parent).map_err(|_| AuthError::Unavailable)?;
    Ok(parent.map_or(Some(Refusal::TokenUnknown), |(parent, _)| parent.refusal_at(tenants.host.now())))
}

/// Performs `Identify::refusal`.
pub(super) fn refusal(tenants: &Tenants, caller: &Caller) -> Result<Option<Refusal>, AuthError> {
    let Some(id) = caller.token.as_deref() else { return Ok(Some(Refusal::TokenRequired)) };
    let token: Option<(Token, u64)> = tenants.get(TOKEN, id).map_err(|_| AuthError::Unavailable)?;
    let Some((token, _)) = token.filter(|(token, _)| *token.tenant == *caller.tenant.as_str()) else {
        return Ok(Some(Refusal::TokenUnknown));
    };
    let of_parent = parent_refusal(tenants, id, &token)?;
    if let Some(refusal) = token.refusal_at(tenants.host.now()).or(of_parent) {
        return Ok(Some(refusal));
    }
    if token.is_of_operators() {
        return Ok(None);
    }
    match tenants.tenant(&token.tenant) {
        Ok((tenant, _)) => Ok(tenant.disabled.then_some(Refusal::TenantDisabled)),
        Err(TenantError::Unknown(_)) => Ok(Some(Refusal::TokenUnknown)),
        Err(_) => Err(AuthError::Unavailable),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::Host;

    fn tenants() -> Tenants {
        let tenants = Tenants::of(&Host::builder().build().unwrap());
        tenants.create("a").unwrap();
        tenants
    }

    /// Lets the code expire this many milliseconds from now.
    fn expire_in(tenants: &Tenants, code: &str, ms: i64) {
        let id = code[PREFIX.len()..].split_once('_').unwrap().0;
        let (stored, version) = tenants.get::<Code>(CODE, id).unwrap().unwrap();
        assert_eq!(stored.expires.saturating_sub(tenants.host.now()).div_ceil(1_000), CODE_LIFETIME_MS / 1_000);
        let expires = tenants.host.now().checked_add_signed(ms).unwrap();
        assert!(tenants.put(CODE, id, Some(&Code { expires, ..stored }), version).unwrap());
    }

    #[test]
    fn a_late_code_is_refused_and_removed() {
        let tenants = tenants();
        for (ms, is_good) in [(60_000, true), (0, false), (-1, false)] {
            let code = create_code(&tenants, "a", &[]).unwrap();
            expire_in(&tenants, &code, ms);
            assert_eq!(log_in(&tenants, &code).is_ok(), is_good, "{ms}");
            assert!(tenants.all::<Code>(CODE).unwrap().is_empty());
        }
        let forgotten = create_code(&tenants, "a", &[]).unwrap();
        expire_in(&tenants, &forgotten, 0);
        create_code(&tenants, "a", &[]).unwrap();
        assert_eq!(tenants.all::<Code>(CODE).unwrap().len(), 1, "the next code removes those that were forgotten");
    }

    #[test]
    fn a_code_needs_an_enabled_tenant_and_scopes_of_tenants() {
        let tenants = tenants();
        let refused = |tenant: &str, scopes: &[&str]| {
            let scopes: Vec<_> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            create_code(&tenants, tenant, &scopes).map_err(|error| error.code()).unwrap_err()
        };
        assert_eq!(refused("none", &[]), "tenant_not_found");
        assert_eq!(refused("a", &["run:fly"]), "unknown_scope");
        assert_eq!(refused("a", &["admin:write"]), "scope_not_allowed");
        let code = create_code(&tenants, "a", &["run:read".into()]).unwrap();
        tenants.enable("a", false).unwrap();
        assert_eq!(log_in(&tenants, &code), Err(AuthError::Unknown));
    }

    #[test]
    fn a_token_without_scopes_makes_no_code() {
        let tenants = tenants();
        let token = tenants.create_token("a", &[], "", None).unwrap().token;
        let caller = tenants.identify(Some(&token)).unwrap();
        assert!(matches!(create_code_for(&tenants, &caller, &[]), Err(CodeError::NoScopes)));
        assert!(tenants.all::<Code>(CODE).unwrap().is_empty());
    }

    #[test]
    fn codes_and_logins_leave_with_their_tenant() {
        let tenants = tenants();
        tenants.create("b").unwrap();
        let login = log_in(&tenants, &create_code(&tenants, "a", &[]).unwrap()).unwrap();
        create_code(&tenants, "a", &[]).unwrap();
        let kept = create_code(&tenants, "b", &[]).unwrap();
        remove_codes(&tenants, |code| code.is_of("a")).unwrap();
        assert_eq!(tenants.all::<Code>(CODE).unwrap().len(), 1);
        assert!(tenants.identify(Some(&login.token)).is_ok() && log_in(&tenants, &kept).is_ok());
    }
}
