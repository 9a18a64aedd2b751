//! Keys that sign texts of a tenant, such as links. They follow from the data keys of the tenant, so a reader of the store
//! alone cannot sign, all processes with the key of the operator can, and the removal of the tenant destroys them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use flowcell_contract::Tenant;
use ring::hmac;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Vault, VaultError};

/// The number of characters in the number of a data key.
const NUMBER_CHARS: usize = 8;

/// Fails if this process has no key of the operator and cannot make one.
pub(crate) fn check(vault: &Vault) -> Result<(), VaultError> {
    let has_key = vault.with_keys(|keys| !keys.is_empty())?;
    if has_key || vault.key_place.makes_keys() { Ok(()) } else { Err(VaultError::NoKey) }
}

/// A kind of signed texts, such as the codes of links: a prefix, a content as JSON, and a signature, both in Base64 for URLs.
pub(crate) struct SignedText {
    pub(crate) prefix: &'static str,
    /// The purpose of the key, so that no text of another kind is one of this kind.
    pub(crate) purpose: &'static str,
    /// Maximum length of a text.
    pub(crate) most: usize,
}

/// The content of a text, with the number of the data key that signs it.
#[derive(Serialize, Deserialize)]
struct Numbered<T> {
    key: String,
    #[serde(flatten)]
    content: T,
}

/// A text that has the right form, and whose signature is not checked. Until then its content selects only a tenant, and a
/// data key of this tenant.
pub(crate) struct Unchecked<'a, T> {
    pub(crate) content: T,
    key: String,
    signed: &'a str,
    tag: Vec<u8>,
    purpose: &'static str,
}

impl SignedText {
    /// Signs a content of a tenant. The text may be longer than [`SignedText::most`]. Reads the store.
    pub(crate) fn sign<T: Serialize>(&self, vault: &Vault, tenant: &Tenant, content: &T) -> Result<String, VaultError> {
        let (number, key) = new_key(vault, tenant, self.purpose)?;
        Ok(self.seal(number, &key, content))
    }

    pub(crate) fn seal<T: Serialize>(&self, number: String, key: &hmac::Key, content: &T) -> String {
        let json = serde_json::to_vec(&Numbered { key: number, content }).unwrap_or_default();
        let signed = format!("{}{}", self.prefix, URL_SAFE_NO_PAD.encode(json));
        let tag = hmac::sign(key, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Parses a text. `None`: it has another form.
    pub(crate) fn parse<'a, T: DeserializeOwned>(&self, text: &'a str) -> Option<Unchecked<'a, T>> {
        if text.len() > self.most {
            return None;
        }
        let (signed, tag) = text.split_once('.')?;
        let json = URL_SAFE_NO_PAD.decode(signed.strip_prefix(self.prefix)?).ok()?;
        let Numbered { key, content } = serde_json::from_slice(&json).ok()?;
        Some(Unchecked { content, key, signed, tag: URL_SAFE_NO_PAD.decode(tag).ok()?, purpose: self.purpose })
    }
}

impl<T> Unchecked<'_, T> {
    /// Returns the content if the tenant has signed it. Reads the store.
    pub(crate) fn check(self, vault: &Vault, tenant: &Tenant) -> Result<Option<T>, VaultError> {
        let key = earlier_key(vault, tenant, &self.key, self.purpose)?;
        // The comparison takes the same time for each wrong signature.
        let is_signed = key.is_some_and(|key| hmac::verify(&key, self.signed.as_bytes(), &self.tag).is_ok());
        Ok(is_signed.then_some(self.content))
    }
}

/// Returns the key that signs new texts of a tenant for a purpose, and the number of its data key.
pub(crate) fn new_key(vault: &Vault, tenant: &Tenant, purpose: &str) -> Result<(String, hmac::Key), VaultError> {
    let (number, key) = vault.current_key(tenant)?;
    Ok((number, derived(&key[..], purpose)))
}

/// Returns the key that has signed texts of a tenant under a data key. `None`: the tenant has no such data key, or it
/// does not open. A stranger may have sent `number`.
pub(crate) fn earlier_key(
    vault: &Vault,
    tenant: &Tenant,
    number: &str,
    purpose: &str,
) -> Result<Option<hmac::Key>, VaultError> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if number.len() != NUMBER_CHARS || !number.bytes().all(is_digit) {
        return Ok(None);
    }
    match vault.data_key(tenant, number) {
        Ok(key) => Ok(Some(derived(&key[..], purpose))),
        Err(error) if error.is_decryption_failure() => Ok(None),
        Err(error) => Err(error),
    }
}

fn derived(key: &[u8], purpose: &str) -> hmac::Key {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), purpose.as_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::Host;

    #[test]
    fn a_key_differs_by_tenant_and_purpose_and_survives_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::builder().state_dir(folder.path()).build().unwrap();
        let (a, b) = (Tenant::from("a"), Tenant::from("b"));
        let vault = host.vault();
        check(vault).unwrap();
        let (number, key) = new_key(vault, &a, "links").unwrap();
        let tag = hmac::sign(&key, b"text");
        let accepts = |tenant: &Tenant, number: &str, purpose: &str| {
            let key = earlier_key(vault, tenant, number, purpose).unwrap();
            key.is_some_and(|key| hmac::verify(&key, b"text", tag.as_ref()).is_ok())
        };
        assert!(accepts(&a, &number, "links") && !accepts(&a, &number, "other"));
        new_key(vault, &b, "links").unwrap();
        assert!(!accepts(&b, &number, "links"));
        for odd in ["", "1", "0000000\u{e9}", "../../..", "ffffffff", "0000000G"] {
            assert!(!accepts(&a, odd, "links"), "{odd}");
        }
        vault.rotate(&[a.clone(), b], "operator", None).unwrap();
        assert_ne!(new_key(vault, &a, "links").unwrap().0, number);
        assert!(accepts(&a, &number, "links"));
    }
}
