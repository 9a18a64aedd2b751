//! Rotation: everything is rewritten under new data keys, and these are encrypted by a new key of the operator's.
//!
//! It may end anywhere and be begun again with the same key. Until it has ended some rows need the key before, some the new
//! one, and the process that rotates has both. A data key that was replaced stays, encrypted by the new key, until the next
//! rotation: somebody else may just be writing a secret with it.

use flowcell_contract::Tenant;
use serde::Serialize;

use super::{DATA_KEY, DataKey, Kek, Kept, Outcome, SECRET, TRIES, Vault, VaultError, wrapped};

/// What was rewritten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotated {
    /// The name of the key under which everything is from now on.
    pub key: String,
    /// Data keys that were made.
    pub data_keys: usize,
    /// Secrets that were rewritten.
    pub secrets: usize,
}

/// Says whose secrets something is about.
fn of(tenant: &Tenant) -> impl Fn(VaultError) -> VaultError {
    move |error| VaultError::Of(tenant.to_string(), Box::new(error))
}

impl Vault {
    /// Rewrites the secrets of these tenants under a new key: this one, 64 hexadecimal digits, or one that is made beside
    /// the store. The audit log of each has by whom.
    pub fn rotate(&self, tenants: &[Tenant], actor: &str, new: Option<&str>) -> Result<Rotated, VaultError> {
        let given = new.map(Kek::parse).transpose().map_err(VaultError::Key)?;
        // The keys before are read first: one that is made now is not among them.
        self.with_keys(|_| ())?;
        given.iter().for_each(|new| self.add_key(new));
        tenants.iter().try_for_each(|tenant| self.check_keys(tenant).map_err(of(tenant)))?;
        let new = given.map_or_else(|| self.keeping.make_next(), Ok)?;
        self.add_key(&new);
        let mut rotated = Rotated { key: new.name.clone(), ..Rotated::default() };
        for tenant in tenants {
            if self.rotate_tenant(tenant, &new, &mut rotated).map_err(of(tenant))? {
                self.note(tenant, actor, "secret.rotate", &new.name, Outcome::Done)?;
            }
        }
        self.keeping.take_next(&new)?;
        self.make_first(&new);
        Ok(rotated)
    }

    /// Whether all that has to be read can be: nothing is begun that could not end.
    fn check_keys(&self, tenant: &Tenant) -> Result<(), VaultError> {
        for (number, _) in self.documents(tenant).all::<DataKey>(DATA_KEY)? {
            match self.data_key(tenant, &number) {
                // What it encrypts is lost already.
                Ok(_) | Err(VaultError::DamagedKey(..)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Answers whether the tenant has anything to rewrite.
    fn rotate_tenant(&self, tenant: &Tenant, new: &Kek, rotated: &mut Rotated) -> Result<bool, VaultError> {
        let keys = self.documents(tenant).all::<DataKey>(DATA_KEY)?;
        let Some((last, current)) = keys.last() else { return Ok(false) };
        if current.under != new.name {
            let number = u64::from_str_radix(last, 16).unwrap_or_default() + 1;
            // If somebody else has made it, that one is looked at below.
            rotated.data_keys += usize::from(self.make_data_key(tenant, number, new)?.is_some());
        }
        keys.iter().try_for_each(|(number, _)| self.rewrap(tenant, number, new))?;
        let (current, _) = self.current_key(tenant)?;
        for (name, _) in self.documents(tenant).all::<Kept>(SECRET)? {
            rotated.secrets += usize::from(self.rewrite(tenant, &name, &current)?);
        }
        self.remove_unused(tenant, &current)?;
        Ok(true)
    }

    /// Encrypts a data key by the new key.
    fn rewrap(&self, tenant: &Tenant, number: &str, new: &Kek) -> Result<(), VaultError> {
        for _ in 0..TRIES {
            let Some((kept, seen)) = self.documents(tenant).get::<DataKey>(DATA_KEY, number)? else { return Ok(()) };
            if kept.under == new.name {
                return Ok(());
            }
            let key = match self.data_key(tenant, number) {
                Err(VaultError::DamagedKey(..)) => return Ok(()),
                key => key?,
            };
            let again = wrapped(tenant, number, new, &key, kept.created)?;
            if self.documents(tenant).put(DATA_KEY, number, Some(&again), seen)? {
                return Ok(());
            }
        }
        Err(VaultError::Changed(format!("the data key {number} of {tenant}")))
    }

    /// Encrypts a secret with the current data key. Answers whether it was not.
    fn rewrite(&self, tenant: &Tenant, name: &str, current: &str) -> Result<bool, VaultError> {
        for _ in 0..TRIES {
            let Some((kept, seen)) = self.kept(tenant, name)? else { return Ok(false) };
            if *kept.key == *current {
                return Ok(false);
            }
            let opened = self.data_key(tenant, &kept.key).and_then(|key| kept.open(tenant, name, &key));
            let value = opened.inspect_err(|_| self.note_refusal(tenant, name))?;
            let again = Kept { key: current.to_owned(), ..kept };
            let again = again.sealed(tenant, name, &self.data_key(tenant, current)?, &value)?;
            if self.documents(tenant).put(SECRET, name, Some(&again), seen)? {
                return Ok(true);
            }
        }
        Err(VaultError::Changed(name.to_owned()))
    }

    /// Removes the data keys that nothing is encrypted with, but the current one and the one before it.
    fn remove_unused(&self, tenant: &Tenant, current: &str) -> Result<(), VaultError> {
        let used = self.documents(tenant).all::<Kept>(SECRET)?;
        let keys = self.documents(tenant).all::<DataKey>(DATA_KEY)?;
        let mut older: Vec<_> = keys.iter().map(|(number, _)| number).filter(|number| ***number < *current).collect();
        older.pop();
        for number in older.into_iter().filter(|number| !used.iter().any(|(_, kept)| kept.key == **number)) {
            if let Some((_, seen)) = self.documents(tenant).get::<DataKey>(DATA_KEY, number)? {
                // Whoever has changed it removes it next time.
                let _ = self.documents(tenant).put::<DataKey>(DATA_KEY, number, None, seen)?;
            }
        }
        Ok(())
    }

    fn add_key(&self, new: &Kek) {
        let mut keys = self.keys.write();
        let keys = keys.get_or_insert_default();
        if !keys.iter().any(|key| key.name == new.name) {
            keys.push(new.clone());
        }
    }

    /// From now on the new key encrypts. The others stay until the process ends: another process may still use them.
    fn make_first(&self, new: &Kek) {
        let mut keys = self.keys.write();
        keys.get_or_insert_default().sort_by_key(|key| key.name != new.name);
    }
}
