//! The accounts of people identified by an issuer, and their sessions.
//!
//! An account is made by its first sign-in. Each sign-in sets its tenant and its scopes anew by the rules of the operator. A
//! session is the token of a browser that ends with its account. Sessions beyond [`MAX_SESSIONS`], and those with other
//! rights than the last sign-in gave, are removed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Outcome, TOKEN, TenantError, Tenants,
    token::{LoginKind, NewLogin, Token, new_secret},
    token_use::{LastUse, TOKEN_USE},
};
use crate::operate::{
    account::{AccountRefusal, Granted, Subject},
    identity::{AuthError, Login, Refusal},
};

/// The kind of the documents of accounts, by their ids.
const ACCOUNT: &str = "account";
/// Maximum number of accounts of a store. A tenant may have as many of them as are still free.
pub const MAX_ACCOUNTS: usize = 10_000;
/// Maximum number of sessions of an account. A sign-in beyond it removes the oldest.
pub const MAX_SESSIONS: usize = 20;
/// Maximum number of sessions of the account of a machine, such as of the jobs of a repository.
pub const MAX_MACHINE_SESSIONS: usize = 200;
/// Maximum number of tries of a sign-in while other processes change its account.
const MAX_WRITE_TRIES: usize = 20;

/// The document of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Account {
    issuer: String,
    subject: String,
    tenant: String,
    scopes: Vec<String>,
    created: u64,
    last_sign_in: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    disabled: bool,
    /// The sessions, the oldest first.
    #[serde(default)]
    sessions: Vec<Session>,
}

/// A session of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    /// The id of its token.
    id: String,
    expires: u64,
}

/// An account, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountRow {
    /// The id.
    pub id: String,
    /// The name in audit logs: `oidc:ISSUER:SUBJECT`.
    pub name: String,
    /// The tenant at the last sign-in.
    pub tenant: String,
    /// The scopes at the last sign-in.
    pub scopes: Vec<String>,
    /// The time of the first sign-in, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last sign-in, in milliseconds since 1970.
    pub last_sign_in: u64,
    /// True while the account cannot sign in.
    pub disabled: bool,
    /// The number of sessions that have not expired. Those that were logged out count until the next sign-in.
    pub sessions: usize,
}

impl Account {
    fn subject(&self) -> Subject {
        Subject { issuer: self.issuer.clone(), subject: self.subject.clone() }
    }

    /// Returns true if the account has no open session, and nothing that its next sign-in would not make again.
    fn is_idle(&self, now: u64) -> bool {
        !self.disabled && self.sessions.iter().all(|session| now >= session.expires)
    }

    fn row(self, id: String, now: u64) -> AccountRow {
        let (name, sessions) = (self.subject().name(), self.sessions.iter().filter(|one| now < one.expires).count());
        let Account { tenant, scopes, created, last_sign_in, disabled, .. } = self;
        AccountRow { id, name, tenant, scopes, created, last_sign_in, disabled, sessions }
    }
}

/// Makes a session for a person with the rights of the operator's rules.
pub(super) fn sign_in(tenants: &Tenants, granted: &Granted) -> Result<Login, AccountRefusal> {
    let name = granted.subject.name();
    let made = check_tenant(tenants, granted).and_then(|()| add_session(tenants, granted));
    if let Err(refusal) = &made
        && *refusal != AccountRefusal::Unavailable
        && tenants.refusals.is_due_for_account(&name, tenants.host.now())
    {
        let log = match refusal {
            AccountRefusal::TenantUnknown(_) => super::OPERATORS,
            _ => &granted.tenant,
        };
        let noted = tenants.note_by(&name, log, "account.sign-in", refusal.code(), Outcome::Refused);
        noted.unwrap_or_else(|error| tracing::warn!("cannot write a refusal to the audit log: {error}"));
    }
    made
}

fn check_tenant(tenants: &Tenants, granted: &Granted) -> Result<(), AccountRefusal> {
    let name = || granted.tenant.clone();
    match tenants.tenant(&granted.tenant) {
        Ok((record, _)) if record.disabled => Err(AccountRefusal::TenantDisabled(name())),
        Ok(_) => Ok(()),
        Err(TenantError::Unknown(_) | TenantError::BeingRemoved(_)) => Err(AccountRefusal::TenantUnknown(name())),
        Err(_) => Err(AccountRefusal::Unavailable),
    }
}

fn add_session(tenants: &Tenants, granted: &Granted) -> Result<Login, AccountRefusal> {
    let unavailable = |_: TenantError| AccountRefusal::Unavailable;
    let subject = &granted.subject;
    let (id, name) = (subject.id(), subject.name());
    let secret = new_secret();
    for _ in 0..MAX_WRITE_TRIES {
        let now = tenants.host.now();
        let found = tenants.get::<Account>(ACCOUNT, &id).map_err(unavailable)?;
        if found.as_ref().is_some_and(|(account, _)| account.disabled) {
            return Err(AccountRefusal::Disabled(name));
        }
        if found.is_none() && !has_room(tenants, &granted.tenant, MAX_ACCOUNTS).map_err(unavailable)? {
            return Err(AccountRefusal::TooMany(MAX_ACCOUNTS));
        }
        let (earlier, version) = found.map_or((None, 0), |(account, version)| (Some(account), version));
        let (kept, dropped) = match &earlier {
            Some(account) => sorted(tenants, account, granted, now).map_err(unavailable)?,
            None => Default::default(),
        };
        let mut sessions = kept;
        sessions.push(Session { id: secret.0.clone(), expires: now.saturating_add(granted.lasts) });
        let account = Account {
            issuer: subject.issuer.clone(),
            subject: subject.subject.clone(),
            tenant: granted.tenant.clone(),
            scopes: granted.scopes.clone(),
            created: earlier.map_or(now, |account| account.created),
            last_sign_in: now,
            disabled: false,
            sessions,
        };
        if !tenants.put(ACCOUNT, &id, Some(&account), version).map_err(unavailable)? {
            continue;
        }
        remove_tokens(tenants, &dropped).map_err(unavailable)?;
        let tenants = tenants.acting_as(&Arc::from(name.as_str()));
        let new = NewLogin {
            kind: if granted.is_machine { LoginKind::Machine } else { LoginKind::Browser },
            tenant: granted.tenant.clone(),
            scopes: granted.scopes.clone(),
            name,
            parent: None,
            account: Some(id),
            created: now,
            lasts: granted.lasts,
        };
        let token = tenants.create_login_token(new, secret).map_err(unavailable)?;
        tenants.note(&granted.tenant, "account.sign-in", &token.id, Outcome::Done).map_err(unavailable)?;
        return Ok(Login { token: token.token, lasts: granted.lasts });
    }
    Err(AccountRefusal::Unavailable)
}

/// Adds the login of a command to the sessions of an account. `beside` is the session that has approved it. The oldest of
/// the other sessions gives way if there are too many. Returns false if the account does not list `beside` any more.
pub(super) fn add_command(
    tenants: &Tenants,
    id: &str,
    beside: &str,
    (session, expires): (&str, u64),
) -> Result<bool, TenantError> {
    for _ in 0..MAX_WRITE_TRIES {
        let Some((mut account, version)) = tenants.get::<Account>(ACCOUNT, id)? else { return Ok(false) };
        if account.disabled || !account.sessions.iter().any(|listed| listed.id == beside) {
            return Ok(false);
        }
        let excess = (account.sessions.len() + 1).saturating_sub(MAX_SESSIONS);
        let others = account.sessions.iter().filter(|listed| listed.id != beside);
        let dropped: Vec<String> = others.take(excess).map(|listed| listed.id.clone()).collect();
        account.sessions.retain(|listed| !dropped.contains(&listed.id));
        account.sessions.push(Session { id: session.to_owned(), expires });
        if tenants.put(ACCOUNT, id, Some(&account), version)? {
            remove_tokens(tenants, &dropped)?;
            return Ok(true);
        }
    }
    Err(TenantError::Changed(id.to_owned()))
}

/// Returns whether a tenant may have one more account, if a store has at most this many. A tenant may have as many accounts
/// as are still free, so that it leaves some to others. If it has its share, the account that was idle for the longest time
/// is removed.
fn has_room(tenants: &Tenants, tenant: &str, most: usize) -> Result<bool, TenantError> {
    let (all, now) = (tenants.all::<Account>(ACCOUNT)?, tenants.host.now());
    let free = most.saturating_sub(all.len());
    let own: Vec<_> = all.into_iter().filter(|(_, account)| account.tenant == tenant).collect();
    if own.len() < free {
        return Ok(true);
    }
    let idle = own.into_iter().filter(|(_, account)| account.is_idle(now));
    let Some((id, _)) = idle.min_by_key(|(_, account)| account.last_sign_in) else { return Ok(false) };
    // Another process may have used or removed it since.
    if let Some((account, version)) = tenants.get::<Account>(ACCOUNT, &id)?.filter(|(account, _)| account.is_idle(now))
        && tenants.put::<Account>(ACCOUNT, &id, None, version)?
    {
        let ended: Vec<_> = account.sessions.iter().map(|session| session.id.clone()).collect();
        remove_tokens(tenants, &ended)?;
        tenants.note_by("host", tenant, "account.delete", &account.subject().name(), Outcome::Done)?;
    }
    Ok(true)
}

/// Divides the sessions of an account into those that go on beside a new one, and the ids of the others.
fn sorted(
    tenants: &Tenants,
    account: &Account,
    granted: &Granted,
    now: u64,
) -> Result<(Vec<Session>, Vec<String>), TenantError> {
    let has_same_rights = account.tenant == granted.tenant && account.scopes == granted.scopes;
    let most = if granted.is_machine { MAX_MACHINE_SESSIONS } else { MAX_SESSIONS };
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for session in account.sessions.iter().rev() {
        let goes_on = has_same_rights
            && kept.len() + 1 < most
            && tenants.get::<Token>(TOKEN, &session.id)?.is_some_and(|(token, _)| token.refusal_at(now).is_none());
        if goes_on { kept.push(session.clone()) } else { dropped.push(session.id.clone()) }
    }
    kept.reverse();
    Ok((kept, dropped))
}

/// Removes the tokens of sessions.
fn remove_tokens(tenants: &Tenants, ids: &[String]) -> Result<(), TenantError> {
    for id in ids {
        if let Some((_, version)) = tenants.get::<Token>(TOKEN, id)? {
            tenants.put::<Token>(TOKEN, id, None, version)?;
        }
        tenants.uses.forget(id);
        if let Some((_, version)) = tenants.get::<LastUse>(TOKEN_USE, id)? {
            tenants.put::<LastUse>(TOKEN_USE, id, None, version)?;
        }
    }
    Ok(())
}

/// Ends the sessions of an account that the rules do not admit any more, if it exists. Adds an audit entry: at most once a
/// minute for an account, and for all strangers of an issuer together, who may be as many as they like.
pub(super) fn end_sessions(tenants: &Tenants, subject: &Subject) -> Result<(), AccountRefusal> {
    let name = subject.name();
    let (log, counted) = match change(tenants, &subject.id(), |_| {}) {
        Ok(account) => (account.tenant, name.as_str()),
        Err(TenantError::UnknownAccount(_)) => (super::OPERATORS.to_owned(), subject.issuer.as_str()),
        Err(_) => return Err(AccountRefusal::Unavailable),
    };
    if tenants.refusals.is_due_for_account(counted, tenants.host.now()) {
        let noted = tenants.note_by(&name, &log, "account.sign-in", "no_rule", Outcome::Refused);
        noted.map_err(|_| AccountRefusal::Unavailable)?;
    }
    Ok(())
}

/// Changes an account, and ends its sessions.
fn change(tenants: &Tenants, id: &str, set: impl FnOnce(&mut Account)) -> Result<Account, TenantError> {
    let found = tenants.get::<Account>(ACCOUNT, id)?;
    let (mut account, version) = found.ok_or_else(|| TenantError::UnknownAccount(id.to_owned()))?;
    let ended: Vec<_> = std::mem::take(&mut account.sessions).into_iter().map(|session| session.id).collect();
    set(&mut account);
    if !tenants.put(ACCOUNT, id, Some(&account), version)? {
        return Err(TenantError::Changed(id.to_owned()));
    }
    remove_tokens(tenants, &ended)?;
    Ok(account)
}

/// Returns the reason why a session of an account is not valid, or `None` if it is.
///
/// A session counts only while its account lists it. So it ends also if its token cannot be removed, because the store or
/// the process fails at that moment.
pub(super) fn refusal(tenants: &Tenants, id: &str, session: &str) -> Result<Option<Refusal>, AuthError> {
    let account = tenants.get::<Account>(ACCOUNT, id).map_err(|_| AuthError::Unavailable)?;
    Ok(match account {
        Some((account, _)) if account.disabled => Some(Refusal::AccountDisabled),
        Some((account, _)) if account.sessions.iter().any(|listed| listed.id == session) => None,
        Some(_) | None => Some(Refusal::TokenUnknown),
    })
}

/// Returns the accounts of a tenant, or all of them.
pub fn list(tenants: &Tenants, tenant: Option<&str>) -> Result<Vec<AccountRow>, TenantError> {
    let now = tenants.host.now();
    let all = tenants.all::<Account>(ACCOUNT)?.into_iter();
    let of_tenant = all.filter(|(_, account)| tenant.is_none_or(|tenant| account.tenant == tenant));
    Ok(of_tenant.map(|(id, account)| account.row(id, now)).collect())
}

/// Enables an account, or disables it and ends its sessions.
pub fn enable(tenants: &Tenants, id: &str, enabled: bool) -> Result<(), TenantError> {
    let account = change(tenants, id, |account| account.disabled = !enabled)?;
    let action = if enabled { "account.enable" } else { "account.disable" };
    tenants.note(&account.tenant, action, &account.subject().name(), Outcome::Done)
}

/// Removes an account with its sessions. The next sign-in makes it again.
pub fn delete(tenants: &Tenants, id: &str) -> Result<(), TenantError> {
    let account = change(tenants, id, |_| {})?;
    remove(tenants, id)?;
    tenants.note(&account.tenant, "account.delete", &account.subject().name(), Outcome::Done)
}

fn remove(tenants: &Tenants, id: &str) -> Result<(), TenantError> {
    match tenants.get::<Account>(ACCOUNT, id)? {
        Some((_, version)) if !tenants.put::<Account>(ACCOUNT, id, None, version)? => {
            Err(TenantError::Changed(id.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Removes the accounts of a tenant that is being removed. Their tokens are removed with those of the tenant.
pub(super) fn remove_of(tenants: &Tenants, tenant: &str) -> Result<(), TenantError> {
    let all = tenants.all::<Account>(ACCOUNT)?;
    all.iter().filter(|(_, account)| account.tenant == tenant).try_for_each(|(id, _)| remove(tenants, id))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{Host, operate::identity::Identify};

    fn tenants() -> Tenants {
        let tenants = Tenants::of(&Host::builder().build().unwrap());
        ["a", "b"].iter().for_each(|name| tenants.create(name).unwrap());
        tenants
    }

    fn subject(name: &str) -> Subject {
        Subject { issuer: "company".into(), subject: name.into() }
    }

    fn granted(name: &str, tenant: &str, lasts: u64) -> Granted {
        let scopes = vec!["run:read".to_owned()];
        Granted { subject: subject(name), tenant: tenant.into(), scopes, lasts, is_machine: false }
    }

    #[test]
    fn a_session_that_its_account_does_not_list_has_ended() {
        let tenants = tenants();
        let login = sign_in(&tenants, &granted("ada", "a", 60_000)).unwrap();
        let caller = tenants.identify(Some(&login.token)).unwrap();
        assert_eq!(tenants.refusal(&caller), Ok(None));
        // The process has died before it removed the token.
        let id = subject("ada").id();
        let (account, version) = tenants.get::<Account>(ACCOUNT, &id).unwrap().unwrap();
        assert!(tenants.put(ACCOUNT, &id, Some(&Account { sessions: Vec::new(), ..account }), version).unwrap());
        assert_eq!(tenants.identify(Some(&login.token)).unwrap_err(), AuthError::Unknown);
        assert_eq!(tenants.refusal(&caller), Ok(Some(Refusal::TokenUnknown)));
        // A later account of the same person does not bring it back.
        sign_in(&tenants, &granted("ada", "a", 60_000)).unwrap();
        assert_eq!(tenants.identify(Some(&login.token)).unwrap_err(), AuthError::Unknown);
    }

    #[test]
    fn a_tenant_leaves_accounts_to_others_and_its_idle_ones_give_way() {
        let (tenants, most) = (tenants(), 9);
        let has_room = |tenant: &str| has_room(&tenants, tenant, most).unwrap();
        let mut made = 0;
        while has_room("a") {
            made += 1;
            sign_in(&tenants, &granted(&format!("job-{made}"), "a", 60_000)).unwrap();
        }
        assert_eq!((made, has_room("b")), (5, true), "a tenant alone gets a half");
        let count = || list(&tenants, Some("a")).unwrap().len();
        assert_eq!(count(), made, "accounts with sessions stay");
        for (name, is_disabled) in [("job-2", true), ("job-3", false)] {
            let id = subject(name).id();
            let change = |account: &mut Account| account.disabled = is_disabled;
            super::change(&tenants, &id, change).unwrap();
        }
        assert!(has_room("a"), "an account without a session gives way");
        let left: Vec<_> = list(&tenants, Some("a")).unwrap().into_iter().map(|row| row.name).collect();
        assert!(left.contains(&"oidc:company:job-2".to_owned()), "a disabled one stays: {left:?}");
        assert_eq!((left.len(), left.contains(&"oidc:company:job-3".to_owned())), (made - 1, false));
        let log = tenants.audit("a", 0, 100).unwrap();
        let noted = log.iter().filter(|entry| entry.action == "account.delete" && entry.actor == "host").count();
        assert_eq!(noted, 1);
    }

    #[test]
    fn strangers_of_an_issuer_fill_no_log_and_hide_no_rejected_token() {
        let tenants = tenants();
        (0..2_000).for_each(|n| end_sessions(&tenants, &subject(&format!("stranger-{n}"))).unwrap());
        let refused = |tenant: &str, action: &str| {
            let log = tenants.audit(tenant, 0, 100).unwrap();
            log.iter().filter(|entry| entry.action == action && entry.outcome == Outcome::Refused).count()
        };
        assert_eq!(refused(super::super::OPERATORS, "account.sign-in"), 1);
        let token = tenants.create_token("a", &[], "", None).unwrap();
        let wrong = format!("fct_{}_0", token.id);
        assert_eq!(tenants.identify(Some(&wrong)).unwrap_err(), AuthError::Unknown);
        assert_eq!(refused("a", "token.refused"), 1);
        // Accounts that a rule admits are many, too, and one after the other is refused.
        tenants.enable("b", false).unwrap();
        (0..2_000).for_each(|n| drop(sign_in(&tenants, &granted(&format!("job-{n}"), "b", 60_000)).unwrap_err()));
        let token = tenants.create_token("a", &[], "", None).unwrap();
        assert_eq!(tenants.identify(Some(&format!("fct_{}_0", token.id))).unwrap_err(), AuthError::Unknown);
        assert_eq!(refused("a", "token.refused"), 2);
    }
}
