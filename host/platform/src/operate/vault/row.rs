//! Stored rows with encrypted texts.

use flowcell_contract::Tenant;
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

use super::{
    VaultError,
    seal::{self, KeyBytes, Sealed},
};

/// A stored row with an encrypted text.
pub(super) trait SealedRow: Serialize + DeserializeOwned {
    /// The kind of the document.
    const KIND: &'static str;

    /// Returns the number of the data key that encrypts the text. Empty: the row has no text.
    fn data_key(&self) -> &str;

    /// Returns how often the text was written.
    fn version(&self) -> u64;

    /// Returns the encrypted text.
    fn sealed(&self) -> &Sealed;

    /// Returns the number of the data key and the encrypted text, which change together.
    fn sealed_mut(&mut self) -> (&mut String, &mut Sealed);

    /// Returns the texts that the encryption includes, such as the tenant and the name. If one of them changes, the row
    /// does not decrypt. `version` is the version of the row as a text.
    fn place<'a>(&'a self, tenant: &'a Tenant, name: &'a str, version: &'a str) -> Vec<&'a str>;

    /// Returns the error of a row that does not decrypt.
    fn damaged(name: &str) -> VaultError;

    /// Decrypts the text.
    fn open(&self, tenant: &Tenant, name: &str, key: &KeyBytes) -> Result<Zeroizing<String>, VaultError> {
        let version = self.version().to_string();
        let bytes = seal::open(key, &self.place(tenant, name, &version), self.sealed());
        let text = bytes.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.map(|text| Zeroizing::new(text.to_owned())).ok_or_else(|| Self::damaged(name))
    }

    /// Returns the same row with the text `value`, encrypted with the data key of this number.
    fn sealed_under(
        mut self,
        number: &str,
        tenant: &Tenant,
        name: &str,
        key: &KeyBytes,
        value: &str,
    ) -> Result<Self, VaultError> {
        number.clone_into(self.sealed_mut().0);
        let version = self.version().to_string();
        let sealed = seal::seal(key, &self.place(tenant, name, &version), value.as_bytes());
        *self.sealed_mut().1 = sealed.ok_or(VaultError::Value)?;
        Ok(self)
    }
}
