//! The signed cookie of a sign-in that has begun.
//!
//! It has the random values of the sign-in, the issuer, the address of the console, and the page to open afterwards. The key
//! follows from a data key of `local` ([`signing`]), so all processes of a shared store accept it, and nothing is stored for
//! a sign-in that does not end.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use flowcell_contract::Tenant;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::operate::{
    pkce,
    vault::{Vault, VaultError, signing},
};

/// The time for a sign-in in milliseconds: 10 minutes.
pub const PENDING_LIFETIME_MS: u64 = 10 * 60_000;
/// Maximum length of a cookie.
const MAX_COOKIE_BYTES: usize = 3_072;
/// Maximum length of the page to open afterwards. A longer one is left out.
pub(super) const MAX_NEXT_BYTES: usize = 512;
/// The purpose of the key that signs cookies.
const PURPOSE: &str = "flowcell sign-in 1";

/// A sign-in that has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pending {
    /// The number of the data key.
    key: String,
    /// The name of the issuer in the file.
    pub(super) name: String,
    /// The identifier of the issuer.
    pub(super) issuer: String,
    pub(super) state: String,
    pub(super) nonce: String,
    pub(super) verifier: String,
    /// The address of the console.
    pub(super) origin: String,
    /// The page to open afterwards.
    pub(super) next: String,
    pub(super) ends: u64,
}

impl Pending {
    /// Begins a sign-in. Returns it with its cookie. Reads the store.
    pub(super) fn begin(
        vault: &Vault,
        (name, issuer): (&str, &str),
        (origin, next): (&str, &str),
        now: u64,
    ) -> Result<(Pending, String), VaultError> {
        let (key, signing) = signing::new_key(vault, &Tenant::local(), PURPOSE)?;
        let pending = Pending {
            key,
            name: name.to_owned(),
            issuer: issuer.to_owned(),
            state: pkce::random(),
            nonce: pkce::random(),
            verifier: pkce::random(),
            origin: origin.to_owned(),
            next: if next.len() > MAX_NEXT_BYTES { String::new() } else { next.to_owned() },
            ends: now.saturating_add(PENDING_LIFETIME_MS),
        };
        let json = serde_json::to_vec(&pending).unwrap_or_default();
        let signed = URL_SAFE_NO_PAD.encode(json);
        let tag = URL_SAFE_NO_PAD.encode(hmac::sign(&signing, signed.as_bytes()));
        let cookie = format!("{signed}.{tag}");
        Ok((pending, cookie))
    }

    /// Opens a cookie. `None`: this store has not signed it. Reads the store.
    ///
    /// The content is not signed before the check of its signature. Until then it selects only a data key.
    pub(super) fn open(vault: &Vault, cookie: &str) -> Result<Option<Pending>, VaultError> {
        let Some((pending, signed, tag)) = parse(cookie) else { return Ok(None) };
        let key = signing::earlier_key(vault, &Tenant::local(), &pending.key, PURPOSE)?;
        let is_signed = key.is_some_and(|key| hmac::verify(&key, signed.as_bytes(), &tag).is_ok());
        Ok(is_signed.then_some(pending))
    }

    /// Returns the SHA-256 of the verifier for the issuer, in Base64.
    pub(super) fn challenge(&self) -> String {
        pkce::challenge_of(&self.verifier)
    }

    /// Returns the address that the issuer sends the browser to.
    pub(super) fn callback(&self) -> String {
        format!("{}{CALLBACK_PATH}", self.origin)
    }
}

/// The path of the page that issuers send browsers to.
pub(super) const CALLBACK_PATH: &str = "/console/sign-in/callback";

fn parse(cookie: &str) -> Option<(Pending, &str, Vec<u8>)> {
    if cookie.len() > MAX_COOKIE_BYTES {
        return None;
    }
    let (signed, tag) = cookie.split_once('.')?;
    let json = URL_SAFE_NO_PAD.decode(signed).ok()?;
    Some((serde_json::from_slice(&json).ok()?, signed, URL_SAFE_NO_PAD.decode(tag).ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::Host;

    #[test]
    fn only_an_unchanged_cookie_of_this_store_opens() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let host = Host::builder().state_dir(folder.path()).build().unwrap();
        let elsewhere = Host::builder().state_dir(other.path()).build().unwrap();
        let begin = |next: &str| {
            Pending::begin(host.vault(), ("a", "https://login.test"), ("https://flows.test", next), 5).unwrap()
        };
        let (pending, cookie) = begin("/console/runs");
        assert_eq!(Pending::open(host.vault(), &cookie).unwrap(), Some(pending.clone()));
        assert_eq!(
            (pending.ends, pending.callback().as_str()),
            (600_005, "https://flows.test/console/sign-in/callback")
        );
        assert_eq!(Pending::open(elsewhere.vault(), &cookie).unwrap(), None);
        let (_, tag) = cookie.split_once('.').unwrap();
        let forged = Pending { name: "b".into(), ..pending.clone() };
        let forged = format!("{}.{tag}", URL_SAFE_NO_PAD.encode(serde_json::to_vec(&forged).unwrap()));
        let changed =
            [forged, cookie.replace('.', ""), format!("{cookie}A"), String::new(), "a.b".into(), "x".repeat(9_000)];
        for changed in changed {
            assert_eq!(Pending::open(host.vault(), &changed).unwrap(), None, "{changed}");
        }
        let (second, _) = begin(&"x".repeat(513));
        assert!(second.next.is_empty() && second.state != pending.state && second.state.len() == 43);
        let longest = Pending::begin(
            host.vault(),
            (&"n".repeat(32), &"i".repeat(512)),
            (&"o".repeat(512), &"x".repeat(512)),
            u64::MAX,
        );
        assert!(longest.unwrap().1.len() <= MAX_COOKIE_BYTES);
    }
}
