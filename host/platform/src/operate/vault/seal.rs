//! Sealing: encryption for a place, which is a list of texts such as the tenant and the name of a secret. Sealed
//! bytes decrypt only with the same key and the same place, so they cannot be moved to another row.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 32;

/// The bytes of a key, cleared on drop.
pub(super) type KeyBytes = Zeroizing<[u8; KEY_BYTES]>;

/// An encrypted text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sealed {
    /// A random value per encryption, in base64.
    nonce: String,
    /// The encrypted bytes with their tag, in base64.
    text: String,
}

/// Creates a random key.
pub(super) fn new_key() -> KeyBytes {
    Zeroizing::new(rand::random())
}

/// Encrypts bytes for a place.
pub(super) fn seal(key: &KeyBytes, place: &[&str], bytes: &[u8]) -> Option<Sealed> {
    let nonce: [u8; NONCE_LEN] = rand::random();
    // The tag is appended in place. Without spare capacity, a reallocation would leave a copy of the plain text
    // behind.
    let mut text = Vec::with_capacity(bytes.len() + CHACHA20_POLY1305.tag_len());
    text.extend_from_slice(bytes);
    let sealing = cipher(key)?.seal_in_place_append_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(place_bytes(place)),
        &mut text,
    );
    sealing.ok()?;
    Some(Sealed { nonce: STANDARD.encode(nonce), text: STANDARD.encode(text) })
}

/// Decrypts bytes for a place. It returns `None` if the key, the place or the bytes differ.
pub(super) fn open(key: &KeyBytes, place: &[&str], sealed: &Sealed) -> Option<Zeroizing<Vec<u8>>> {
    let nonce: [u8; NONCE_LEN] = STANDARD.decode(&sealed.nonce).ok()?.try_into().ok()?;
    let mut text = Zeroizing::new(STANDARD.decode(&sealed.text).ok()?);
    let (nonce, place) = (Nonce::assume_unique_for_key(nonce), Aad::from(place_bytes(place)));
    let length = cipher(key)?.open_in_place(nonce, place, &mut text).ok()?.len();
    text.truncate(length);
    Some(text)
}

fn cipher(key: &KeyBytes) -> Option<LessSafeKey> {
    Some(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key[..]).ok()?))
}

/// Joins the parts of a place with their lengths, so that different places have different bytes.
fn place_bytes(place: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in place {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn sealed_bytes_open_only_with_their_key_and_place() {
        let (key, other) = (new_key(), new_key());
        let sealed = seal(&key, &["a", "bc"], b"hunter2-hunter2").unwrap();
        assert_eq!(&open(&key, &["a", "bc"], &sealed).unwrap()[..], b"hunter2-hunter2");
        assert_eq!(open(&other, &["a", "bc"], &sealed), None);
        for place in [&["ab", "c"][..], &["abc"], &["a", "bc", ""], &["a"], &["a", "bd"]] {
            assert_eq!(open(&key, place, &sealed), None, "{place:?}");
        }
        let bytes = STANDARD.decode(&sealed.text).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = Sealed { text: STANDARD.encode(changed), ..sealed.clone() };
            assert_eq!(open(&key, &["a", "bc"], &changed), None, "{at}");
        }
        let shorter = Sealed { text: STANDARD.encode(&bytes[..bytes.len() - 1]), ..sealed.clone() };
        assert_eq!(open(&key, &["a", "bc"], &shorter), None);
        let again = seal(&key, &["a", "bc"], b"hunter2-hunter2").unwrap();
        assert_ne!((&again.nonce, &again.text), (&sealed.nonce, &sealed.text));
    }
}
