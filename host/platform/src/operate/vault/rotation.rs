//! Rotation: new data keys encrypt all secrets, and a new key of the operator's encrypts the data keys.
//!
//! A rotation may stop anywhere, and can be repeated with the same key. Until it has ended, some rows need the old key
//! and some the new one. The rotating process has both. A replaced data key stays until the next rotation, since
//! another process may be writing a secret with it. The new key encrypts it too.
//!
//! A reset removes the secrets and data keys that no given key opens.

use flowcell_contract::Tenant;
use serde::{Deserialize, Serialize};

use super::{
    DATA_KEY, DataKey, Kek, KeyPlace, MAX_WRITE_TRIES, Outcome, StoredSecret, Vault, VaultError,
    credential::{StoredCredential, StoredTokens},
    row::SealedRow,
};

/// The result of a rotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotated {
    /// The name of the new key, which encrypts everything from now on.
    pub key: String,
    /// Number of new data keys.
    pub data_keys: usize,
    /// Number of secrets that were encrypted again.
    pub secrets: usize,
    /// Number of credentials that were encrypted again.
    #[serde(skip_serializing_if = "is_zero")]
    pub credentials: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The secrets of a tenant that none of the given keys opens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostSecrets {
    /// The names of the lost secrets.
    pub secrets: Vec<String>,
    /// The names of the lost credentials, and of those with lost tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
    /// The numbers of the data keys that do not decrypt. A lost data key prevents new secrets.
    pub data_keys: Vec<String>,
    /// True if they were removed.
    pub removed: bool,
}

impl LostSecrets {
    /// Returns true if every secret and every data key opens.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.credentials.is_empty() && self.data_keys.is_empty()
    }
}

/// Adds the name of the tenant to an error.
fn in_tenant(tenant: &Tenant) -> impl Fn(VaultError) -> VaultError {
    move |error| VaultError::Of(tenant.to_string(), Box::new(error))
}

/// The keys of a vault, and what they encrypt.
pub(super) struct Rotation<'v>(pub &'v Vault);

impl Rotation<'_> {
    /// Performs [`Vault::rotate`].
    pub(super) fn rotate(&self, tenants: &[Tenant], actor: &str, new: Option<&str>) -> Result<Rotated, VaultError> {
        let given = new.map(Kek::parse).transpose().map_err(VaultError::Key)?;
        // The existing keys are loaded first, so that the new key is not among them.
        self.0.with_keys(|_| ())?;
        given.iter().for_each(|new| self.add_key(new));
        tenants.iter().try_for_each(|tenant| self.check_keys(tenant).map_err(in_tenant(tenant)))?;
        let new = given.map_or_else(|| self.0.key_place.make_next(), Ok)?;
        self.add_key(&new);
        let mut rotated = Rotated { key: new.name.clone(), ..Rotated::default() };
        for tenant in tenants {
            if self.rotate_tenant(tenant, &new, &mut rotated).map_err(in_tenant(tenant))? {
                self.0.note(tenant, actor, "secret.rotate", &new.name, Outcome::Done)?;
            }
        }
        self.0.key_place.promote_next(&new)?;
        self.make_first(&new);
        Ok(rotated)
    }

    /// Performs [`Vault::lost`].
    pub(super) fn lost(&self, tenant: &Tenant) -> Result<LostSecrets, VaultError> {
        let mut lost = LostSecrets::default();
        for (number, _) in self.0.documents(tenant).all::<DataKey>(DATA_KEY)? {
            if is_lost(self.0.data_key(tenant, &number))? {
                lost.data_keys.push(number);
            }
        }
        lost.secrets = self.lost_rows::<StoredSecret>(tenant)?;
        lost.credentials = self.lost_rows::<StoredCredential>(tenant)?;
        lost.credentials.extend(self.lost_rows::<StoredTokens>(tenant)?);
        lost.credentials.sort();
        lost.credentials.dedup();
        Ok(lost)
    }

    /// Returns the names of the rows of a kind that none of the given keys opens.
    fn lost_rows<R: SealedRow>(&self, tenant: &Tenant) -> Result<Vec<String>, VaultError> {
        let mut lost = Vec::new();
        for (name, kept) in self.0.documents(tenant).all::<R>(R::KIND)? {
            if kept.data_key().is_empty() {
                continue;
            }
            let opened = self.0.data_key(tenant, kept.data_key()).and_then(|key| kept.open(tenant, &name, &key));
            if is_lost(opened)? {
                lost.push(name);
            }
        }
        Ok(lost)
    }

    /// Performs [`Vault::reset`].
    pub(super) fn reset(&self, tenant: &Tenant, actor: &str) -> Result<LostSecrets, VaultError> {
        if self.0.key_place == KeyPlace::Missing {
            return Err(VaultError::NoKey);
        }
        let lost = self.lost(tenant)?;
        for name in &lost.secrets {
            self.0.remove(tenant, actor, name)?;
        }
        for name in self.lost_rows::<StoredCredential>(tenant)? {
            self.0.remove_credential(tenant, actor, &name)?;
        }
        for name in self.lost_rows::<StoredTokens>(tenant)? {
            self.0.remove_tokens(tenant, &name)?;
        }
        for number in &lost.data_keys {
            let Some((_, seen)) = self.0.documents(tenant).get::<DataKey>(DATA_KEY, number)? else { continue };
            if !self.0.documents(tenant).put::<DataKey>(DATA_KEY, number, None, seen)? {
                return Err(VaultError::Changed(format!("the data key {number} of {tenant}")));
            }
        }
        if !lost.is_empty() {
            let lost = lost.secrets.len() + lost.credentials.len();
            self.0.note(tenant, actor, "secret.reset", &lost.to_string(), Outcome::Done)?;
        }
        Ok(LostSecrets { removed: true, ..lost })
    }

    /// Checks that all data keys of a tenant can be decrypted, so that the rotation can finish.
    fn check_keys(&self, tenant: &Tenant) -> Result<(), VaultError> {
        for (number, _) in self.0.documents(tenant).all::<DataKey>(DATA_KEY)? {
            match self.0.data_key(tenant, &number) {
                // Secrets under a damaged key are already lost.
                Ok(_) | Err(VaultError::DamagedKey(..)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Rotates a tenant's keys. Returns whether the tenant has any data keys.
    fn rotate_tenant(&self, tenant: &Tenant, new: &Kek, rotated: &mut Rotated) -> Result<bool, VaultError> {
        let keys = self.0.documents(tenant).all::<DataKey>(DATA_KEY)?;
        let Some((last, current)) = keys.last() else { return Ok(false) };
        if current.under != new.name {
            let number = u64::from_str_radix(last, 16).unwrap_or_default() + 1;
            // If another process has just created this key, the following lines encrypt it with the new key.
            rotated.data_keys += usize::from(self.0.make_data_key(tenant, number, new)?.is_some());
        }
        keys.iter().try_for_each(|(number, _)| self.rewrap(tenant, number, new))?;
        let (current, _) = self.0.current_key(tenant)?;
        rotated.secrets += self.rewrite_all::<StoredSecret>(tenant, &current)?;
        rotated.credentials += self.rewrite_all::<StoredCredential>(tenant, &current)?;
        self.rewrite_all::<StoredTokens>(tenant, &current)?;
        self.remove_unused(tenant, &current)?;
        Ok(true)
    }

    /// Encrypts a data key with the new key.
    fn rewrap(&self, tenant: &Tenant, number: &str, new: &Kek) -> Result<(), VaultError> {
        for _ in 0..MAX_WRITE_TRIES {
            let Some((kept, seen)) = self.0.documents(tenant).get::<DataKey>(DATA_KEY, number)? else { return Ok(()) };
            if kept.under == new.name {
                return Ok(());
            }
            let key = match self.0.data_key(tenant, number) {
                Err(VaultError::DamagedKey(..)) => return Ok(()),
                key => key?,
            };
            let again = self.0.wrap_key(tenant, number, new, &key, kept.created)?;
            if self.0.documents(tenant).put(DATA_KEY, number, Some(&again), seen)? {
                return Ok(());
            }
        }
        Err(VaultError::Changed(format!("the data key {number} of {tenant}")))
    }

    /// Encrypts the rows of a kind with the current data key. Returns the number of those that another data key had
    /// encrypted.
    fn rewrite_all<R: SealedRow>(&self, tenant: &Tenant, current: &str) -> Result<usize, VaultError> {
        let mut rewritten = 0;
        for (name, _) in self.0.documents(tenant).all::<R>(R::KIND)? {
            rewritten += usize::from(self.rewrite::<R>(tenant, &name, current)?);
        }
        Ok(rewritten)
    }

    /// Encrypts a row with the current data key. Returns true if another data key had encrypted it.
    fn rewrite<R: SealedRow>(&self, tenant: &Tenant, name: &str, current: &str) -> Result<bool, VaultError> {
        for _ in 0..MAX_WRITE_TRIES {
            let Some((kept, seen)) = self.0.documents(tenant).get::<R>(R::KIND, name)? else { return Ok(false) };
            if kept.data_key().is_empty() || kept.data_key() == current {
                return Ok(false);
            }
            let opened = self.0.data_key(tenant, kept.data_key()).and_then(|key| kept.open(tenant, name, &key));
            let value = opened.inspect_err(|_| self.0.note_refusal(tenant, name))?;
            let again = kept.sealed_under(current, tenant, name, &self.0.data_key(tenant, current)?, &value)?;
            if self.0.documents(tenant).put(R::KIND, name, Some(&again), seen)? {
                return Ok(true);
            }
        }
        Err(VaultError::Changed(name.to_owned()))
    }

    /// Removes unused data keys, except the current one and the one before it.
    fn remove_unused(&self, tenant: &Tenant, current: &str) -> Result<(), VaultError> {
        let mut used = self.used_keys::<StoredSecret>(tenant)?;
        used.extend(self.used_keys::<StoredCredential>(tenant)?);
        used.extend(self.used_keys::<StoredTokens>(tenant)?);
        let keys = self.0.documents(tenant).all::<DataKey>(DATA_KEY)?;
        let mut older: Vec<_> = keys.iter().map(|(number, _)| number).filter(|number| ***number < *current).collect();
        older.pop();
        for number in older.into_iter().filter(|number| !used.contains(*number)) {
            if let Some((_, seen)) = self.0.documents(tenant).get::<DataKey>(DATA_KEY, number)? {
                // If another process has changed the key, a later rotation removes it.
                let _ = self.0.documents(tenant).put::<DataKey>(DATA_KEY, number, None, seen)?;
            }
        }
        Ok(())
    }

    /// Returns the numbers of the data keys that encrypt the rows of a kind.
    fn used_keys<R: SealedRow>(&self, tenant: &Tenant) -> Result<Vec<String>, VaultError> {
        let rows = self.0.documents(tenant).all::<R>(R::KIND)?;
        Ok(rows.into_iter().map(|(_, row)| row.data_key().to_owned()).collect())
    }

    fn add_key(&self, new: &Kek) {
        let mut keys = self.0.keys.write();
        let keys = keys.get_or_insert_default();
        if !keys.iter().any(|key| key.name == new.name) {
            keys.push(new.clone());
        }
    }

    /// Makes the new key the one that encrypts. The other keys stay until the process ends, since another process may
    /// still use them.
    fn make_first(&self, new: &Kek) {
        let mut keys = self.0.keys.write();
        keys.get_or_insert_default().sort_by_key(|key| key.name != new.name);
    }
}

/// Returns true if `opened` failed because the key is missing or the row was changed, and false if it succeeded. Any
/// other error is returned.
fn is_lost<T>(opened: Result<T, VaultError>) -> Result<bool, VaultError> {
    match opened {
        Ok(_) => Ok(false),
        Err(error) if error.is_decryption_failure() => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::Arc;

    use flowcell_runtime::memory::{MemoryDocuments, SystemTimers};

    use super::*;

    #[test]
    fn a_process_without_a_key_removes_no_secret_that_another_one_opens() {
        let (documents, tenant) = (Arc::new(MemoryDocuments::default()), Tenant::local());
        let vault = |place| Vault::new(documents.clone(), Arc::new(SystemTimers::default()), place, false);
        let (with_key, without) = (vault(KeyPlace::Memory), vault(KeyPlace::Missing));
        with_key.set(&tenant, "test", "a", "hunter2-hunter2", &[], None).unwrap();
        assert_eq!(without.lost(&tenant).unwrap().secrets, ["a"]);
        assert_eq!(without.reset(&tenant, "test").unwrap_err().code(), "secret_key_missing");
        assert_eq!(with_key.open(&tenant, "a").unwrap().as_deref().map(String::as_str), Some("hunter2-hunter2"));
    }
}
