//! The vault: secrets of tenants, encrypted at rest, in every store.
//!
//! A data key of the tenant encrypts each secret. A key of the operator, which is not in the store ([`KeySource`]),
//! encrypts the data key. The encryption includes the place of the secret: its tenant, name, version and origins. So
//! a row that was changed or moved does not decrypt, and the audit log records the failure.
//!
//! | module | contents |
//! |---|---|
//! | credential | credentials and their tokens |
//! | row | rows with encrypted texts |
//! | key | the operator's keys: their sources and their creation |
//! | seal | encryption and decryption |
//! | tenant_key | the keys of tenants |
//! | signing | keys that sign texts of a tenant, such as links |
//! | rotation | encrypting everything with a new key, and removing the secrets that no key opens |
//! | serving | errors of secrets as failures of runs |
//! | hidden | strings that are not printed |
//! | error | errors of the vault |

mod credential;
mod error;
mod hidden;
mod key;
mod rotation;
mod row;
mod seal;
mod serving;
pub(crate) mod signing;
mod tenant_key;

use std::{collections::HashSet, fmt, sync::Arc};

use flowcell_contract::{Json, Tenant};
use flowcell_runtime::ports::{DocumentStore, Timers};
use flowcell_services::{
    egress::OriginGrants,
    secrets::{WEBHOOK, check_name, check_value},
};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::operate::{
    audit::{self, Act, Outcome},
    documents::Documents,
};

pub(crate) use self::{
    credential::TokenHealth,
    key::{KeyPlace, write_new as write_private},
};
pub use self::{
    credential::{CredentialRow, NewCredential, TokenRow},
    error::VaultError,
    hidden::Hidden,
    key::{KEY_FILE, KeySource, check_keys, exposure_warning, open_to_others},
    rotation::{LostSecrets, Rotated},
};
use self::{
    key::Kek,
    rotation::Rotation,
    row::SealedRow,
    seal::{KeyBytes, Sealed},
};

/// Maximum number of secrets of a tenant.
pub const MAX_SECRETS: usize = 1_000;
/// Maximum number of credentials of a tenant.
pub const MAX_CREDENTIALS: usize = 500;
/// Maximum size in bytes of a secret.
pub const MAX_VALUE: usize = 64 * 1024;
/// Minimum size of a secret in bytes. Texts are searched for secrets, and a shorter one would match too many of them.
pub const MIN_VALUE: usize = 8;
/// Maximum time in milliseconds after which a secret expires.
pub const MAX_LIFETIME_MS: u64 = 365 * 24 * 3_600_000;
/// Maximum number of origins of a secret.
const MAX_ORIGINS: usize = 32;
/// Maximum number of characters of a secret's name.
const MAX_NAME: usize = 64;
/// Maximum number of tries of a write after conflicts.
const MAX_WRITE_TRIES: usize = 100;
/// Maximum number of secrets whose refusals this process logs. Each is logged once, so that no flow can fill the
/// audit log.
const MAX_NOTED: usize = 1_000;

const SECRET: &str = "secret";
const DATA_KEY: &str = "secret.key";

/// Stores the secrets of tenants.
pub struct Vault {
    documents: Arc<dyn DocumentStore>,
    timers: Arc<dyn Timers>,
    key_place: KeyPlace,
    /// True if checks of flows open the secrets that the flows name.
    opens_for_checks: bool,
    /// The operator's keys, loaded on first use. The first key encrypts, and all keys decrypt.
    keys: RwLock<Option<Vec<Kek>>>,
    noted: Mutex<HashSet<(Tenant, String)>>,
}

/// A stored data key, encrypted with a key of the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DataKey {
    /// The name of the operator's key that encrypts this data key.
    under: String,
    created: u64,
    /// True if the key of the tenant encrypts this data key, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    with_tenant_key: bool,
    sealed: Sealed,
}

/// A stored secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredSecret {
    origins: Vec<String>,
    version: u64,
    created: u64,
    updated: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    /// The number of the data key that encrypts the secret.
    key: String,
    sealed: Sealed,
}

/// The metadata of a secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecretRow {
    /// The secret's name.
    pub name: String,
    /// The servers that it may be sent to.
    #[serde(rename = "for")]
    pub origins: Vec<String>,
    /// The number of times that it was set.
    pub version: u64,
    /// The time when it was first set, in milliseconds since 1970.
    pub created: u64,
    /// The time when it was last set, in milliseconds since 1970.
    pub updated: u64,
    /// The time when the server that issued it ends it, in milliseconds since 1970. The host still sends it then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

impl StoredSecret {
    fn row(self, name: String) -> SecretRow {
        let StoredSecret { origins, version, created, updated, expires, .. } = self;
        SecretRow { name, origins, version, created, updated, expires }
    }
}

impl SealedRow for StoredSecret {
    const KIND: &'static str = SECRET;

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
        let mut place = vec![SECRET, tenant.as_str(), name, version, &*self.key];
        place.extend(self.origins.iter().map(String::as_str));
        place
    }

    fn damaged(name: &str) -> VaultError {
        VaultError::Damaged(name.to_owned())
    }
}

impl Vault {
    pub(crate) fn new(
        documents: Arc<dyn DocumentStore>,
        timers: Arc<dyn Timers>,
        key_place: KeyPlace,
        opens_for_checks: bool,
    ) -> Vault {
        let (keys, noted) = (RwLock::default(), Mutex::default());
        Vault { documents, timers, key_place, opens_for_checks, keys, noted }
    }

    /// Sets a secret that may be sent to these origins, and that its issuer ends after `lasts` milliseconds. The audit log
    /// records the actor.
    pub fn set(
        &self,
        tenant: &Tenant,
        actor: &str,
        name: &str,
        value: &str,
        origins: &[String],
        lasts: Option<u64>,
    ) -> Result<SecretRow, VaultError> {
        if lasts.is_some_and(|lasts| !(1..=MAX_LIFETIME_MS).contains(&lasts)) {
            return Err(VaultError::Lifetime);
        }
        check_name(name).map_err(|_| VaultError::Name)?;
        let ends = |text: &str| text.trim_matches(['\r', '\n']).len() == text.len();
        if !(MIN_VALUE..=MAX_VALUE).contains(&value.len()) || !ends(value) {
            return Err(VaultError::Value);
        }
        check_value(value, &parse_origins(origins)?).map_err(VaultError::Header)?;
        for _ in 0..MAX_WRITE_TRIES {
            let found = self.find_secret(tenant, name)?;
            if found.is_none() && self.list(tenant)?.len() >= MAX_SECRETS {
                return Err(VaultError::TooMany);
            }
            let (number, key) = self.current_key(tenant)?;
            let now = self.timers.now();
            let seen = found.as_ref().map_or(0, |(_, seen)| *seen);
            let (version, created) = found.map_or((1, now), |(kept, _)| (kept.version + 1, kept.created));
            let sealed = Sealed::default();
            let (origins, expires) = (origins.to_vec(), lasts.map(|lasts| now + lasts));
            let kept = StoredSecret { origins, version, created, updated: now, expires, key: number.clone(), sealed };
            let kept = kept.sealed_under(&number, tenant, name, &key, value)?;
            if self.documents(tenant).put(SECRET, name, Some(&kept), seen)? {
                self.note(tenant, actor, "secret.set", name, Outcome::Done)?;
                return Ok(kept.row(name.to_owned()));
            }
        }
        Err(VaultError::Changed(name.to_owned()))
    }

    /// Returns the secrets of a tenant, sorted by name.
    pub fn list(&self, tenant: &Tenant) -> Result<Vec<SecretRow>, VaultError> {
        let all = self.documents(tenant).all::<StoredSecret>(SECRET)?;
        Ok(all.into_iter().map(|(name, kept)| kept.row(name)).collect())
    }

    /// Returns the metadata of a secret.
    pub fn find(&self, tenant: &Tenant, name: &str) -> Result<Option<SecretRow>, VaultError> {
        Ok(self.find_secret(tenant, name)?.map(|(kept, _)| kept.row(name.to_owned())))
    }

    /// Removes a secret. The audit log records the actor.
    pub fn remove(&self, tenant: &Tenant, actor: &str, name: &str) -> Result<(), VaultError> {
        let (_, seen) = self.find_secret(tenant, name)?.ok_or_else(|| VaultError::Unknown(name.to_owned()))?;
        match self.documents(tenant).put::<StoredSecret>(SECRET, name, None, seen)? {
            true => self.note(tenant, actor, "secret.rm", name, Outcome::Done),
            false => Err(VaultError::Changed(name.to_owned())),
        }
    }

    /// Decrypts a secret. The audit log records a failed decryption.
    pub fn open(&self, tenant: &Tenant, name: &str) -> Result<Option<Zeroizing<String>>, VaultError> {
        let Some((kept, _)) = self.find_secret(tenant, name)? else { return Ok(None) };
        let opened = self.data_key(tenant, &kept.key).and_then(|key| kept.open(tenant, name, &key));
        if opened.as_ref().is_err_and(VaultError::is_decryption_failure) {
            self.note_refusal(tenant, name);
        }
        opened.map(Some)
    }

    /// Returns the error of opening a secret, for the check of a flow. `None`: it opens, does not exist, or checks do
    /// not open secrets. The audit log records nothing.
    pub(crate) fn locked(&self, tenant: &Tenant, name: &str) -> Option<VaultError> {
        if !self.opens_for_checks {
            return None;
        }
        let (kept, _) = self.find_secret(tenant, name).ok()??;
        self.data_key(tenant, &kept.key).and_then(|key| kept.open(tenant, name, &key)).err()
    }

    /// Records in the audit log that a run did not get a secret, once per secret and process.
    pub(crate) fn note_refusal(&self, tenant: &Tenant, name: &str) {
        self.note_refused(tenant, "secret.read", name);
    }

    /// The same for a credential.
    fn note_refused_credential(&self, tenant: &Tenant, name: &str) {
        self.note_refused(tenant, "credential.read", name);
    }

    fn note_refused(&self, tenant: &Tenant, action: &str, name: &str) {
        let mut noted = self.noted.lock();
        if noted.len() >= MAX_NOTED || !noted.insert((tenant.clone(), format!("{action} {name}"))) {
            return;
        }
        drop(noted);
        if let Err(error) = self.note(tenant, "host", action, name, Outcome::Refused) {
            tracing::error!("cannot write the audit log of {tenant}: {error}");
        }
    }

    fn note(
        &self,
        tenant: &Tenant,
        actor: &str,
        action: &str,
        subject: &str,
        outcome: Outcome,
    ) -> Result<(), VaultError> {
        let act = Act { actor: actor.to_owned(), action: action.to_owned(), subject: subject.to_owned(), outcome };
        Ok(audit::append(&*self.documents, tenant, self.timers.now(), &act)?)
    }

    fn documents<'a>(&'a self, tenant: &'a Tenant) -> Documents<'a> {
        Documents { store: &*self.documents, tenant }
    }

    fn find_secret(&self, tenant: &Tenant, name: &str) -> Result<Option<(StoredSecret, u64)>, VaultError> {
        // An invalid name cannot have a secret.
        match check_name(name) {
            Ok(()) => Ok(self.documents(tenant).get(SECRET, name)?),
            Err(_) => Ok(None),
        }
    }

    /// Returns the data key that encrypts the tenant's new secrets.
    fn current_key(&self, tenant: &Tenant) -> Result<(String, KeyBytes), VaultError> {
        for _ in 0..MAX_WRITE_TRIES {
            let last = self.documents.last(tenant, DATA_KEY).map_err(document_error)?.map(|last| last.key);
            let next = match &last {
                None => 1,
                Some(last) => match self.data_key(tenant, last) {
                    // Secrets under a damaged key are lost. New secrets get a new key.
                    Err(VaultError::DamagedKey(..)) => u64::from_str_radix(last, 16).unwrap_or_default() + 1,
                    key => return Ok((last.clone(), key?)),
                },
            };
            if let Some(made) = self.make_data_key(tenant, next, &self.first_key()?)? {
                return Ok(made);
            }
        }
        Err(VaultError::Changed(format!("the data key of {tenant}")))
    }

    /// Creates a data key. Returns `None` if another caller has already created a key with this number.
    fn make_data_key(
        &self,
        tenant: &Tenant,
        number: u64,
        under: &Kek,
    ) -> Result<Option<(String, KeyBytes)>, VaultError> {
        let (number, key) = (format!("{number:08x}"), seal::new_key());
        let data_key = self.wrap_key(tenant, &number, under, &key, self.timers.now())?;
        let made = self.documents(tenant).put(DATA_KEY, &number, Some(&data_key), 0)?;
        Ok(made.then_some((number, key)))
    }

    /// Encrypts a data key with a key of the operator, and with the key of the tenant if the host makes such keys.
    fn wrap_key(
        &self,
        tenant: &Tenant,
        number: &str,
        under: &Kek,
        key: &KeyBytes,
        created: u64,
    ) -> Result<DataKey, VaultError> {
        let own = if under.is_own { self.key_place.make_tenant_key(tenant)? } else { None };
        let common = own.as_ref().map_or_else(|| under.bytes.clone(), |own| tenant_key::common_key(under, own));
        let sealed = seal::seal(&common, &[DATA_KEY, tenant.as_str(), number, &under.name], &key[..]);
        let sealed = sealed.ok_or_else(|| VaultError::Key("the key cannot encrypt".into()))?;
        Ok(DataKey { under: under.name.clone(), created, with_tenant_key: own.is_some(), sealed })
    }

    /// Returns whether a tenant has a key of its own beside the key of the store.
    pub(crate) fn has_key(&self, tenant: &Tenant) -> Result<bool, VaultError> {
        Ok(self.key_place.tenant_key(tenant)?.is_some())
    }

    /// Destroys the key of a tenant that is removed, if it has one.
    pub(crate) fn destroy_key(&self, tenant: &Tenant) -> Result<(), VaultError> {
        self.key_place.destroy_tenant_key(tenant)
    }

    /// Counts the data keys of a tenant that the key of the store alone opens.
    pub(crate) fn count_plain_keys(&self, tenant: &Tenant) -> Result<u64, VaultError> {
        let keys = self.documents(tenant).all::<DataKey>(DATA_KEY)?;
        Ok(keys.iter().filter(|(_, key)| !key.with_tenant_key).count() as u64)
    }

    fn data_key(&self, tenant: &Tenant, number: &str) -> Result<KeyBytes, VaultError> {
        let damaged = || VaultError::DamagedKey(tenant.to_string(), number.to_owned());
        let (kept, _) = self.documents(tenant).get::<DataKey>(DATA_KEY, number)?.ok_or_else(damaged)?;
        let under = self.with_keys(|keys| keys.iter().find(|key| key.name == kept.under).cloned())?;
        let under = under.map_or_else(|| Err(self.wrong_key_error(&kept.under)), Ok)?;
        let key = match kept.with_tenant_key {
            true => {
                let own = self.key_place.tenant_key(tenant)?;
                tenant_key::common_key(&under, &own.ok_or_else(|| VaultError::NoTenantKey(tenant.to_string()))?)
            }
            false => under.bytes.clone(),
        };
        let place = [DATA_KEY, tenant.as_str(), number, &under.name];
        let bytes = seal::open(&key, &place, &kept.sealed).ok_or_else(damaged)?;
        Ok(Zeroizing::new(bytes.as_slice().try_into().map_err(|_| damaged())?))
    }

    fn wrong_key_error(&self, wanted: &str) -> VaultError {
        let names = |keys: &[Kek]| keys.iter().map(|key| key.name.clone()).collect::<Vec<_>>().join(", ");
        let given = self.with_keys(names).ok().filter(|names| !names.is_empty());
        VaultError::OtherKey { wanted: wanted.to_owned(), given: given.unwrap_or_else(|| "none".into()) }
    }

    /// Returns the operator's key that encrypts. If no key exists and its place is a file beside the store, the method
    /// creates the key.
    fn first_key(&self) -> Result<Kek, VaultError> {
        if let Some(first) = self.with_keys(|keys| keys.first().cloned())? {
            return Ok(first);
        }
        let mut keys = self.keys.write();
        let keys = keys.get_or_insert_default();
        match keys.first() {
            Some(first) => Ok(first.clone()),
            None => {
                let made = self.key_place.make()?;
                keys.push(made.clone());
                Ok(made)
            }
        }
    }

    /// Encrypts the secrets of these tenants with a new key. The key is `new` (64 hexadecimal digits), or one that is
    /// created beside the store. The audit log of each tenant records the actor.
    pub fn rotate(&self, tenants: &[Tenant], actor: &str, new: Option<&str>) -> Result<Rotated, VaultError> {
        Rotation(self).rotate(tenants, actor, new)
    }

    /// Returns the secrets and data keys of a tenant that none of the given keys opens, so all of them if none is given.
    /// Fails if the store does not answer.
    pub fn lost(&self, tenant: &Tenant) -> Result<LostSecrets, VaultError> {
        Rotation(self).lost(tenant)
    }

    /// Removes the secrets and data keys of a tenant that none of the given keys opens, so that the tenant can have
    /// secrets again. The audit log records the actor and each secret. Fails if the operator has given no key: then no
    /// secret opens, also those that another process opens with its key.
    pub fn reset(&self, tenant: &Tenant, actor: &str) -> Result<LostSecrets, VaultError> {
        Rotation(self).reset(tenant, actor)
    }

    /// Calls `look` with the operator's keys and returns its result. The keys are loaded on first use.
    fn with_keys<T>(&self, look: impl Fn(&[Kek]) -> T) -> Result<T, VaultError> {
        if let Some(keys) = &*self.keys.read() {
            return Ok(look(keys));
        }
        let mut keys = self.keys.write();
        if keys.is_none() {
            *keys = Some(self.key_place.load()?);
        }
        Ok(look(keys.as_deref().unwrap_or_default()))
    }
}

/// Parses the origins of a secret as grants.
pub(crate) fn parse_origins(origins: &[String]) -> Result<OriginGrants, VaultError> {
    if origins.len() > MAX_ORIGINS {
        return Err(VaultError::Origins(format!("it has more than {MAX_ORIGINS} origins")));
    }
    if matches!(origins, [only] if only == WEBHOOK) {
        return Ok(OriginGrants::default());
    }
    let origins = Json::array(origins.iter().map(|origin| Json::from(origin.as_str())));
    OriginGrants::parse(&origins).map_err(VaultError::Origins)
}

fn document_error(error: flowcell_runtime::ports::StoreError) -> VaultError {
    VaultError::Document(error.into())
}

impl fmt::Debug for Vault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Vault")
    }
}
