//! Logins of browsers and of commands. An operator or the holder of a token makes a code, which works once, and the client
//! exchanges it for a token of its own. A token may be exchanged in the same way.
//!
//! The code of a command is bound to a challenge: only the command that has its verifier can use it. A person who has logged in
//! with a browser makes such a code, so that the command acts for the same person.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Outcome, TOKEN, TenantError, Tenants, accounts,
    token::{LoginKind, NewLogin, Token, check_scopes, hash_secret, new_secret, split_token},
};
use crate::operate::{
    identity::{AuthError, Caller, Identify, Login, LoginClient, Refusal, Scope},
    pkce,
};

/// Lifetime of a one-time code in milliseconds.
pub const CODE_LIFETIME_MS: u64 = 2 * 60 * 1_000;
/// Lifetime of the token of a browser or a command in milliseconds.
pub const LOGIN_LIFETIME_MS: u64 = 12 * 60 * 60 * 1_000;
/// Maximum number of codes of a tenant that callers have made and no login has used, within their lifetime.
pub const MAX_OPEN_CODES: usize = 20;
/// Maximum number of tokens from the token of a login to the token or the account that it was first made from. A console
/// that a command has opened, and that approves another command, adds two.
const MAX_CHAIN: usize = 6;
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
    /// The challenge whose verifier a command has. `None` for the code of a browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    challenge: Option<String>,
}

/// A code that a caller may not make.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The caller has no token of its own, or one that makes no such codes.
    #[error(
        "only a token of a tenant and the login of a command make codes, and the login of a browser makes those of commands; \
         a token of the operators and a machine make none"
    )]
    NotAToken,
    /// The challenge is not one of PKCE.
    #[error("`challenge` is the SHA-256 of the verifier in Base64 for URLs, without padding: 43 characters")]
    Challenge,
    /// Too many logins were made from each other.
    #[error("the login was made from a login that was made from a login, and so on; log in anew")]
    TooDeep,
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
    add_code(tenants, tenant, scopes, None, None)
}

/// Makes a code for a caller with a token of a tenant. The login has these scopes, and the caller must have all of
/// them. Without scopes it has those of the caller. It ends with the caller's token.
///
/// With a `challenge` the code is one of a command. If the login of a browser makes it, the login of the command ends no later,
/// but goes on if the browser logs out.
pub fn create_code_for(
    tenants: &Tenants,
    caller: &Caller,
    scopes: &[String],
    challenge: Option<&str>,
) -> Result<String, CodeError> {
    let tenant = caller.tenant.as_str();
    let Some(id) = caller.token.as_deref().filter(|_| !caller.is_operator()) else { return Err(CodeError::NotAToken) };
    if challenge.is_some_and(|challenge| !pkce::is_challenge(challenge)) {
        return Err(CodeError::Challenge);
    }
    let (known, _) = tenants.get::<Token>(TOKEN, id)?.ok_or(CodeError::NotAToken)?;
    match known.login_kind() {
        Some(LoginKind::Machine) => return Err(CodeError::NotAToken),
        Some(LoginKind::Browser) if challenge.is_none() => return Err(CodeError::NotAToken),
        _ => {}
    }
    if chain_of(tenants, &known)? + 1 >= MAX_CHAIN {
        return Err(CodeError::TooDeep);
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
    Ok(add_code(tenants, tenant, scopes, Some(id), challenge)?)
}

/// Returns the number of ancestors of a token, at most [`MAX_CHAIN`].
fn chain_of(tenants: &Tenants, token: &Token) -> Result<usize, TenantError> {
    let (mut count, mut next) = (0, token.parent.clone());
    while let Some(id) = next.filter(|_| count < MAX_CHAIN) {
        count += 1;
        next = tenants.get::<Token>(TOKEN, &id)?.and_then(|(token, _)| token.parent);
    }
    Ok(count)
}

/// Stores a new code.
fn add_code(
    tenants: &Tenants,
    tenant: &str,
    scopes: &[String],
    parent: Option<&str>,
    challenge: Option<&str>,
) -> Result<String, TenantError> {
    let now = tenants.host.now();
    let all = || Scope::of_tenants().map(|scope| scope.name().to_owned()).collect();
    let scopes = if scopes.is_empty() { all() } else { scopes.to_vec() };
    let (id, secret) = new_secret();
    let expires = now.saturating_add(CODE_LIFETIME_MS);
    let (parent, challenge) = (parent.map(str::to_owned), challenge.map(str::to_owned));
    let code = Code { tenant: tenant.to_owned(), hash: hash_secret(&secret), scopes, expires, parent, challenge };
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

/// Exchanges a one-time code or a token, of a tenant or of the operators, for the token of a client.
pub(super) fn log_in(tenants: &Tenants, proof: &str, client: LoginClient<'_>) -> Result<Login, AuthError> {
    match proof.strip_prefix(PREFIX).and_then(|code| code.split_once('_')) {
        Some((id, secret)) => with_code(tenants, (id, secret), client),
        None => with_token(tenants, proof, client),
    }
}

fn with_code(tenants: &Tenants, (id, secret): (&str, &str), client: LoginClient<'_>) -> Result<Login, AuthError> {
    let unavailable = |_| AuthError::Unavailable;
    let Some((code, version)) = tenants.get::<Code>(CODE, id).map_err(unavailable)? else {
        return Err(AuthError::Unknown);
    };
    if hash_secret(secret) != code.hash {
        return Err(tenants.reject_token(&code.tenant, id));
    }
    let fits = match (client, &code.challenge) {
        (LoginClient::Browser, challenge) => challenge.is_none(),
        (LoginClient::Command { verifier: Some(verifier) }, Some(challenge)) => {
            pkce::challenge_of(verifier) == *challenge
        }
        (LoginClient::Command { .. }, _) => false,
    };
    // Of several logins with the same code, only one removes it. A client that does not fit removes it, too: somebody else
    // has seen the code.
    let is_first = tenants.put::<Code>(CODE, id, None, version).map_err(unavailable)?;
    let (tenant, _) = tenants.tenant(&code.tenant).map_err(|_| AuthError::Unknown)?;
    if !fits || !is_first || tenants.host.now() >= code.expires || tenant.disabled {
        return Err(tenants.reject_token(&code.tenant, id));
    }
    let maker = match &code.parent {
        None => None,
        Some(parent) => match valid(tenants, parent)? {
            Some(maker) => Some((parent.as_str(), maker)),
            // The login of a code whose maker is revoked would end at once.
            None => return Err(tenants.reject_token(&code.tenant, id)),
        },
    };
    let acting = tenants.acting_as(&Arc::from(id));
    match new_login(&acting, &code.tenant, code.scopes, maker, kind_of(client))? {
        Some(login) => Ok(login),
        None => Err(tenants.reject_token(&code.tenant, id)),
    }
}

fn kind_of(client: LoginClient<'_>) -> LoginKind {
    match client {
        LoginClient::Browser => LoginKind::Browser,
        LoginClient::Command { .. } => LoginKind::Command,
    }
}

/// Returns a token if it is valid, and so are those that it was made from.
fn valid(tenants: &Tenants, id: &str) -> Result<Option<Token>, AuthError> {
    let found = tenants.get::<Token>(TOKEN, id).map_err(|_| AuthError::Unavailable)?;
    let Some((token, _)) = found.filter(|(token, _)| token.refusal_at(tenants.host.now()).is_none()) else {
        return Ok(None);
    };
    Ok(parent_refusal(tenants, id, &token)?.is_none().then_some(token))
}

fn with_token(tenants: &Tenants, token: &str, client: LoginClient<'_>) -> Result<Login, AuthError> {
    let caller = tenants.identify(Some(token))?;
    let Some((id, _)) = split_token(token) else { return Err(AuthError::Unknown) };
    let known = tenants.get::<Token>(TOKEN, id).map_err(|_| AuthError::Unavailable)?;
    let Some((known, _)) = known.filter(|(known, _)| !known.is_login) else { return Err(AuthError::Unknown) };
    let (acting, scopes) = (tenants.acting_as(&Arc::from(id)), caller.scopes.names());
    let login = new_login(&acting, caller.tenant.as_str(), scopes, Some((id, known)), kind_of(client))?;
    login.ok_or(AuthError::Unknown)
}

/// Makes the login of a client. `maker` is the token from which it is made, with its id: the login ends with it, and never later.
/// A command that a browser has approved takes the place beside the browser. Returns `None` if the account of the browser has
/// ended its sessions meanwhile.
fn new_login(
    tenants: &Tenants,
    tenant: &str,
    scopes: Vec<String>,
    maker: Option<(&str, Token)>,
    kind: LoginKind,
) -> Result<Option<Login>, AuthError> {
    let unavailable = |_: TenantError| AuthError::Unavailable;
    let now = tenants.host.now();
    let ends = maker.as_ref().and_then(|(_, maker)| maker.expires).unwrap_or(u64::MAX);
    let lasts = LOGIN_LIFETIME_MS.min(ends.saturating_sub(now));
    let secret = new_secret();
    let (name, parent, account) = match maker {
        None => (String::new(), None, None),
        Some((id, maker)) if maker.login_kind() == Some(LoginKind::Browser) => {
            if let Some(account) = &maker.account {
                let session = (secret.0.as_str(), now.saturating_add(lasts));
                if !accounts::add_command(tenants, account, id, session).map_err(unavailable)? {
                    return Ok(None);
                }
            }
            (maker.name, maker.parent, maker.account)
        }
        Some((id, maker)) => (maker.name, Some(id.to_owned()), None),
    };
    let new = NewLogin { kind, tenant: tenant.to_owned(), scopes, name, parent, account, created: now, lasts };
    let token = tenants.create_login_token(new, secret).map_err(unavailable)?;
    if kind == LoginKind::Command {
        tenants.note(tenant, "login.command", &token.id, Outcome::Done).map_err(unavailable)?;
    }
    Ok(Some(Login { token: token.token, lasts }))
}

/// Revokes the caller's token if it is one of a login. Returns whether the caller has no valid token any more. A machine has the
/// token of its issuer, which makes its next session.
pub(super) fn log_out(tenants: &Tenants, caller: &Caller) -> Result<bool, AuthError> {
    let Some(id) = &caller.token else { return Ok(true) };
    let known = tenants.get::<Token>(TOKEN, id).map_err(|_| AuthError::Unavailable)?;
    let Some((known, _)) = known else { return Ok(true) };
    if !known.is_login || known.login_kind() == Some(LoginKind::Machine) {
        return Ok(false);
    }
    tenants.acting_as(id).revoke_token(id).map_err(|_| AuthError::Unavailable)?;
    Ok(true)
}

/// Returns the reason why a token or the account that the token with this id was made from is not valid. Returns `None` if all
/// are, or if there are none.
pub(super) fn parent_refusal(tenants: &Tenants, id: &str, token: &Token) -> Result<Option<Refusal>, AuthError> {
    let (mut id, mut token) = (id.to_owned(), token.clone());
    for _ in 0..MAX_CHAIN {
        if let Some(account) = &token.account {
            return accounts::refusal(tenants, account, &id);
        }
        let Some(parent) = token.parent else { return Ok(None) };
        let found = tenants.get::<Token>(TOKEN, &parent).map_err(|_| AuthError::Unavailable)?;
        let Some((next, _)) = found else { return Ok(Some(Refusal::TokenUnknown)) };
        if let Some(refusal) = next.refusal_at(tenants.host.now()) {
            return Ok(Some(refusal));
        }
        (id, token) = (parent, next);
    }
    Ok(Some(Refusal::TokenUnknown))
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
            assert_eq!(log_in(&tenants, &code, LoginClient::Browser).is_ok(), is_good, "{ms}");
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
        assert_eq!(log_in(&tenants, &code, LoginClient::Browser), Err(AuthError::Unknown));
    }

    #[test]
    fn a_token_without_scopes_makes_no_code() {
        let tenants = tenants();
        let token = tenants.create_token("a", &[], "", None).unwrap().token;
        let caller = tenants.identify(Some(&token)).unwrap();
        assert!(matches!(create_code_for(&tenants, &caller, &[], None), Err(CodeError::NoScopes)));
        assert!(tenants.all::<Code>(CODE).unwrap().is_empty());
    }

    #[test]
    fn codes_and_logins_leave_with_their_tenant() {
        let tenants = tenants();
        tenants.create("b").unwrap();
        let login = log_in(&tenants, &create_code(&tenants, "a", &[]).unwrap(), LoginClient::Browser).unwrap();
        create_code(&tenants, "a", &[]).unwrap();
        let kept = create_code(&tenants, "b", &[]).unwrap();
        remove_codes(&tenants, |code| code.is_of("a")).unwrap();
        assert_eq!(tenants.all::<Code>(CODE).unwrap().len(), 1);
        assert!(tenants.identify(Some(&login.token)).is_ok() && log_in(&tenants, &kept, LoginClient::Browser).is_ok());
    }

    fn caller(tenants: &Tenants, token: &str) -> Caller {
        tenants.identify(Some(token)).unwrap()
    }

    fn command(tenants: &Tenants, code: &str, verifier: &str) -> Result<Login, AuthError> {
        log_in(tenants, code, LoginClient::Command { verifier: Some(verifier) })
    }

    /// Lets a browser approve a command. Returns the code for the verifier `v`.
    fn approve(tenants: &Tenants, browser: &Login) -> Result<String, CodeError> {
        let challenge = pkce::challenge_of("v");
        create_code_for(tenants, &caller(tenants, &browser.token), &[], Some(&challenge))
    }

    #[test]
    fn the_code_of_a_command_needs_its_verifier_and_is_used_up_by_another() {
        let tenants = tenants();
        let browser = log_in(&tenants, &create_code(&tenants, "a", &[]).unwrap(), LoginClient::Browser).unwrap();
        let made = || approve(&tenants, &browser).unwrap();
        let code = made();
        let login = command(&tenants, &code, "v").unwrap();
        assert_eq!(caller(&tenants, &login.token).tenant.as_str(), "a");
        assert_eq!(command(&tenants, &code, "v"), Err(AuthError::Unknown), "used twice");
        for client in [
            LoginClient::Command { verifier: Some("w") },
            LoginClient::Command { verifier: None },
            LoginClient::Browser,
        ] {
            let code = made();
            assert_eq!(log_in(&tenants, &code, client), Err(AuthError::Unknown), "{client:?}");
            assert_eq!(command(&tenants, &code, "v"), Err(AuthError::Unknown), "{client:?} has used it up");
        }
        let of_browser = create_code(&tenants, "a", &[]).unwrap();
        assert_eq!(command(&tenants, &of_browser, ""), Err(AuthError::Unknown), "a code of a browser");
        for odd in ["", "v", &"=".repeat(43)] {
            let wrong = create_code_for(&tenants, &caller(&tenants, &browser.token), &[], Some(odd));
            assert!(matches!(wrong, Err(CodeError::Challenge)), "{odd}");
        }
    }

    #[test]
    fn a_login_ends_with_all_from_which_it_was_made_and_never_later() {
        let tenants = tenants();
        let token = tenants.create_token("a", &["run:read".into()], "", Some(60_000)).unwrap();
        let first = log_in(&tenants, &token.token, LoginClient::Command { verifier: None }).unwrap();
        assert!(first.lasts <= 60_000, "{}", first.lasts);
        let code = create_code_for(&tenants, &caller(&tenants, &first.token), &[], None).unwrap();
        let browser = log_in(&tenants, &code, LoginClient::Browser).unwrap();
        let second = command(&tenants, &approve(&tenants, &browser).unwrap(), "v").unwrap();
        assert!(second.lasts <= first.lasts);
        // The browser ends, and the command that it has approved goes on.
        assert!(log_out(&tenants, &caller(&tenants, &browser.token)).unwrap());
        assert_eq!(tenants.identify(Some(&browser.token)).unwrap_err(), AuthError::Unknown);
        let held = caller(&tenants, &second.token);
        assert_eq!(tenants.refusal(&held), Ok(None));
        assert!(log_out(&tenants, &caller(&tenants, &first.token)).unwrap());
        assert_eq!(tenants.refusal(&held), Ok(Some(Refusal::TokenRevoked)), "the end of the first ends all");
        assert!(!log_out(&tenants, &caller(&tenants, &token.token)).unwrap());
        assert!(tenants.identify(Some(&token.token)).is_ok(), "a logout ends no token of an operator");
    }

    #[test]
    fn logins_of_logins_are_limited() {
        let tenants = tenants();
        let token = tenants.create_token("a", &["run:read".into()], "", None).unwrap();
        let mut login = log_in(&tenants, &token.token, LoginClient::Command { verifier: None }).unwrap();
        let mut rounds = 0;
        let refused = loop {
            match create_code_for(&tenants, &caller(&tenants, &login.token), &[], None) {
                Ok(code) => {
                    let browser = log_in(&tenants, &code, LoginClient::Browser).unwrap();
                    match approve(&tenants, &browser) {
                        Ok(code) => login = command(&tenants, &code, "v").unwrap(),
                        Err(error) => break error,
                    }
                }
                Err(error) => break error,
            }
            assert_eq!(tenants.refusal(&caller(&tenants, &login.token)), Ok(None), "round {rounds}");
            rounds += 1;
        };
        assert!(matches!(refused, CodeError::TooDeep) && (2..MAX_CHAIN).contains(&rounds), "{refused} {rounds}");
    }
}
