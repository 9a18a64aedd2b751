//! Stored rows with encrypted texts.

use flowcell_contract::Tenant;
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

use super::{VaultError, seal::KeyBytes};

/// A stored row with an encrypted text.
pub(super) trait SealedRow: Serialize + DeserializeOwned {
    /// The kind of the document.
    const KIND: &'static str;

    /// Returns the number of the data key that encrypts the text. Empty: the row has no text.
    fn data_key(&self) -> &str;

    /// Decrypts the text.
    fn open(&self, tenant: &Tenant, name: &str, key: &KeyBytes) -> Result<Zeroizing<String>, VaultError>;

    /// Returns the same row with the text `value`, encrypted with the data key of this number.
    fn sealed_under(
        self,
        number: &str,
        tenant: &Tenant,
        name: &str,
        key: &KeyBytes,
        value: &str,
    ) -> Result<Self, VaultError>;
}
