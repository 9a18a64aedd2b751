//! Identifies the callers of a server. Until a tenant exists, any local caller is accepted. From then on every caller
//! needs a token.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use flowcell_runtime::ports::StoreError;
use parking_lot::Mutex;

use super::{TenantError, Tenants, deletion::TOMBSTONE};
use crate::{
    Host,
    operate::{
        account::{AccountRefusal, Granted, Subject},
        identity::{AuthError, Caller, Identify, Local, Login, LoginClient, OwnToken, Refusal},
        policy::Policy,
        record::TENANT,
    },
};

/// While no tenant exists, a request without a token checks whether one exists now, at most once in this interval. A
/// request with a token makes this check every time.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The callers of a server on the store of a host.
pub struct Callers {
    tenants: Tenants,
    /// True once a tenant exists. It stays true after the last one was removed.
    asks_for_tokens: AtomicBool,
    looked: Mutex<Option<Instant>>,
}

impl Callers {
    /// Creates the callers of a host. It reads the store.
    pub fn of(host: &Host) -> Result<Callers, TenantError> {
        let callers =
            Callers { tenants: Tenants::of(host), asks_for_tokens: AtomicBool::new(false), looked: Mutex::default() };
        callers.check_for_tenants()?;
        Ok(callers)
    }

    /// Checks whether a tenant exists. If one exists, every caller needs a token from now on, and usage is counted.
    fn check_for_tenants(&self) -> Result<bool, TenantError> {
        // The tombstone of the last tenant counts, too: its removal does not open the server to callers without tokens.
        let (store, operators) = (self.tenants.document_store(), self.tenants.host.tenant());
        let has = |kind| store.list(operators, kind, "", 1).map(|found| !found.is_empty());
        let is_there = has(TENANT)? || has(TOMBSTONE)?;
        if is_there {
            self.tenants.host.usage().begin();
            self.asks_for_tokens.store(true, Ordering::Release);
        }
        Ok(is_there)
    }

    fn check_is_due(&self) -> bool {
        let mut looked = self.looked.lock();
        let now = Instant::now();
        let due = looked.is_none_or(|last| now >= last + CHECK_INTERVAL);
        if due {
            *looked = Some(now);
        }
        due
    }
}

impl Identify for Callers {
    fn identify(&self, bearer: Option<&str>) -> Result<Caller, AuthError> {
        let is_asked = self.asks_for_tokens()
            || (bearer.is_some() || self.check_is_due())
                && self.check_for_tenants().map_err(|_| AuthError::Unavailable)?;
        if is_asked { self.tenants.identify(bearer) } else { Local.identify(bearer) }
    }

    fn token_of(&self, caller: &Caller) -> Result<OwnToken, AuthError> {
        self.tenants.token_of(caller)
    }

    fn still_knows(&self, caller: &Caller) -> bool {
        let is_asked = self.asks_for_tokens() || self.check_is_due() && self.check_for_tenants().unwrap_or(true);
        !is_asked || self.tenants.still_knows(caller)
    }

    fn refusal(&self, caller: &Caller) -> Result<Option<Refusal>, AuthError> {
        match self.asks_for_tokens() || self.check_for_tenants().map_err(|_| AuthError::Unavailable)? {
            true => self.tenants.refusal(caller),
            false => Ok(None),
        }
    }

    fn asks_for_tokens(&self) -> bool {
        self.asks_for_tokens.load(Ordering::Acquire)
    }

    fn tenants(&self) -> Vec<Tenant> {
        Identify::tenants(&self.tenants)
    }

    fn token_ends(&self, now: u64) -> Result<HashMap<Tenant, u64>, StoreError> {
        self.tenants.token_ends(now)
    }

    fn log_in(&self, proof: &str, client: LoginClient<'_>) -> Result<Login, AuthError> {
        self.tenants.log_in(proof, client)
    }

    fn log_out(&self, caller: &Caller) -> Result<bool, AuthError> {
        self.tenants.log_out(caller)
    }

    fn sign_in(&self, granted: &Granted) -> Result<Login, AccountRefusal> {
        self.tenants.sign_in(granted)
    }

    fn end_sessions(&self, subject: &Subject) -> Result<(), AccountRefusal> {
        self.tenants.end_sessions(subject)
    }

    fn note(&self, caller: &Caller, action: &str, subject: &str) -> Result<(), AuthError> {
        Identify::note(&self.tenants, caller, action, subject)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.tenants.flush()
    }

    fn policy(&self, tenant: &Tenant) -> Result<Policy, AuthError> {
        Identify::policy(&self.tenants, tenant)
    }
}
