//! The keys of tenants: a file for each tenant beside the key of the store.
//!
//! A tenant's data keys are encrypted with the key of the store and this key together. So copies of the database and of
//! the store's key decrypt nothing of a tenant whose key was destroyed. Only a store in a folder, which makes its own
//! key, makes keys of tenants: processes that get their key from the operator have no common place for new files. They
//! read the keys of tenants that lie beside a key file. The tenant `local` cannot be removed and has none.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use flowcell_contract::Tenant;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{
    VaultError,
    key::{KEY_FILE, Kek, KeyPlace, KeySource},
    seal::{KEY_BYTES, KeyBytes, new_key},
};

/// The folder with the keys of tenants is named like the key file, with this suffix.
pub(super) const TENANT_KEYS_SUFFIX: &str = ".tenants";
/// A constant text, from which the common key of a store and a tenant is derived together with both keys.
const COMMON_KEY_INPUT: &[u8] = b"flowcell tenant key";
/// Number of characters of the name of a tenant's key file.
const FILE_NAME_CHARS: usize = 32;

impl KeyPlace {
    /// Returns the folders that may have keys of tenants.
    fn tenant_key_folders(&self) -> Vec<PathBuf> {
        let beside = |file: &Path| {
            let mut folder = file.as_os_str().to_owned();
            folder.push(TENANT_KEYS_SUFFIX);
            PathBuf::from(folder)
        };
        match self {
            KeyPlace::Given(sources) => {
                let file =
                    |source: &KeySource| if let KeySource::File(file) = source { Some(beside(file)) } else { None };
                sources.iter().filter_map(file).collect()
            }
            KeyPlace::Beside(folder) => vec![beside(&folder.join(KEY_FILE))],
            KeyPlace::Memory | KeyPlace::Missing => Vec::new(),
        }
    }

    /// Returns the key of a tenant. `None`: this process finds none.
    pub(super) fn tenant_key(&self, tenant: &Tenant) -> Result<Option<Kek>, VaultError> {
        let files = self.tenant_key_folders().into_iter().map(|folder| folder.join(file_name(tenant)));
        files.filter(|file| file.exists()).map(|file| KeySource::File(file).key()).next().transpose()
    }

    /// Returns the key of a tenant, and makes it if it is missing. `None`: the tenant has none, because it is `local`,
    /// or because this process has no place for it.
    pub(super) fn make_tenant_key(&self, tenant: &Tenant) -> Result<Option<Kek>, VaultError> {
        let (KeyPlace::Beside(_), false) = (self, *tenant == Tenant::local()) else { return Ok(None) };
        if let Some(key) = self.tenant_key(tenant)? {
            return Ok(Some(key));
        }
        let Some(folder) = self.tenant_key_folders().into_iter().next() else { return Ok(None) };
        let made = make_folder(&folder).and_then(|()| make_file(&folder, &folder.join(file_name(tenant))));
        made.map_err(|error| VaultError::Key(format!("{}: {error}", folder.display())))?;
        self.tenant_key(tenant)
    }

    /// Destroys the key of a tenant, if it has one: overwrites its file, removes it, and waits for the disk.
    pub(super) fn destroy_tenant_key(&self, tenant: &Tenant) -> Result<(), VaultError> {
        for folder in self.tenant_key_folders() {
            let file = folder.join(file_name(tenant));
            destroy(&folder, &file).map_err(|error| VaultError::Key(format!("{}: {error}", file.display())))?;
        }
        Ok(())
    }
}

/// Derives the key that encrypts a tenant's data keys, from the key of the store and the key of the tenant.
pub(super) fn common_key(store: &Kek, tenant: &Kek) -> KeyBytes {
    let mut hasher = Sha256::new();
    hasher.update(COMMON_KEY_INPUT);
    hasher.update(&store.bytes[..]);
    hasher.update(&tenant.bytes[..]);
    Zeroizing::new(hasher.finalize().into())
}

/// Returns the name of a tenant's key file. It is a hash, so that names that differ only in their case differ on every
/// file system.
fn file_name(tenant: &Tenant) -> String {
    let mut name = hex::encode(Sha256::digest(tenant.as_str()));
    name.truncate(FILE_NAME_CHARS);
    name
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    folder.parent().map_or(Ok(()), |above| fs::File::open(above)?.sync_all())
}

/// Creates a key in a file that only its owner may read, completely or not at all. Does nothing if another caller has
/// created it meanwhile. The file is on stable storage before the key encrypts anything.
fn make_file(folder: &Path, file: &Path) -> io::Result<()> {
    let text = Zeroizing::new(hex::encode(&new_key()[..]) + "\n");
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    io::Write::write_all(&mut new, text.as_bytes())?;
    new.as_file().sync_all()?;
    match new.persist_noclobber(file) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => return Err(error.error),
        _ => {}
    }
    fs::File::open(folder)?.sync_all()
}

fn destroy(folder: &Path, file: &Path) -> io::Result<()> {
    let mut open = match fs::OpenOptions::new().write(true).open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    io::Write::write_all(&mut open, &[b'0'; KEY_BYTES * 2])?;
    open.sync_all()?;
    fs::remove_file(file)?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn each_tenant_but_local_has_a_key_of_its_own_until_it_is_destroyed() {
        let folder = tempfile::tempdir().unwrap();
        let place = KeyPlace::Beside(folder.path().to_owned());
        assert!(place.make_tenant_key(&Tenant::local()).unwrap().is_none());
        let [a, upper, longer] = ["a", "A", "ab"].map(Tenant::from);
        let made = [&a, &upper, &longer].map(|tenant| place.make_tenant_key(tenant).unwrap().unwrap().name);
        assert!(made[0] != made[1] && made[0] != made[2] && made[1] != made[2], "{made:?}");
        assert_eq!(place.make_tenant_key(&a).unwrap().unwrap().name, made[0]);
        // A process with the key file of the store as an option reads the keys, and makes none.
        let given = KeyPlace::Given(vec![KeySource::File(folder.path().join(KEY_FILE))]);
        assert_eq!(given.tenant_key(&a).unwrap().unwrap().name, made[0]);
        assert!(given.make_tenant_key(&Tenant::from("b")).unwrap().is_none());
        place.destroy_tenant_key(&a).unwrap();
        place.destroy_tenant_key(&a).unwrap();
        assert!(place.tenant_key(&a).unwrap().is_none());
        assert_eq!(place.tenant_key(&longer).unwrap().unwrap().name, made[2]);
        let other = KeyPlace::Given(vec![KeySource::Environment("NONE".into())]);
        other.destroy_tenant_key(&longer).unwrap();
        assert!(other.tenant_key(&longer).unwrap().is_none() && place.tenant_key(&longer).unwrap().is_some());
    }
}
