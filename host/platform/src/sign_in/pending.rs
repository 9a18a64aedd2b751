//! The signed cookie of a sign-in that has begun.
//!
//! It has the random values of the sign-in, the issuer, the address of the console, and the page to open afterwards. The key
//! follows from a data key of `local` ([`signing`]), so all processes of a shared store accept it, and nothing is stored for
//! a sign-in that does not end.

use flowcell_contract::Tenant;
use serde::{Deserialize, Serialize};

use crate::operate::{
    pkce,
    vault::{Vault, VaultError, signing::SignedText},
};

/// The time for a sign-in in milliseconds: 10 minutes.
pub const PENDING_LIFETIME_MS: u64 = 10 * 60_000;
/// Maximum length of a cookie.
const MAX_COOKIE_BYTES: usize = 3_072;
/// Maximum length of the page to open afterwards. A longer one is left out, and so is one that is no page of the console.
pub(super) const MAX_NEXT_BYTES: usize = 512;
const COOKIE: SignedText = SignedText { prefix: "", purpose: "flowcell sign-in 1", most: MAX_COOKIE_BYTES };

/// A sign-in that has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pending {
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

/// Returns whether a place is a page of the console: a path below `/console` that no browser takes for another one, with a
/// query and a fragment.
fn is_console_page(place: &str) -> bool {
    let path = place.split(['?', '#']).next().unwrap_or_default();
    let is_dots = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    let is_safe = |letter: char| letter != '\\' && !letter.is_control() && !letter.is_whitespace();
    place.len() <= MAX_NEXT_BYTES
        && (path == "/console" || path.starts_with("/console/"))
        && place.chars().all(is_safe)
        && !path.split('/').any(is_dots)
}

impl Pending {
    /// Begins a sign-in. Returns it with its cookie. Reads the store.
    pub(super) fn begin(
        vault: &Vault,
        (name, issuer): (&str, &str),
        (origin, next): (&str, &str),
        now: u64,
    ) -> Result<(Pending, String), VaultError> {
        let pending = Pending {
            name: name.to_owned(),
            issuer: issuer.to_owned(),
            state: pkce::random(),
            nonce: pkce::random(),
            verifier: pkce::random(),
            origin: origin.to_owned(),
            next: if is_console_page(next) { next.to_owned() } else { String::new() },
            ends: now.saturating_add(PENDING_LIFETIME_MS),
        };
        let cookie = COOKIE.sign(vault, &Tenant::local(), &pending)?;
        Ok((pending, cookie))
    }

    /// Opens a cookie. `None`: this store has not signed it. Reads the store.
    pub(super) fn open(vault: &Vault, cookie: &str) -> Result<Option<Pending>, VaultError> {
        COOKIE.parse::<Pending>(cookie).map_or(Ok(None), |unchecked| unchecked.check(vault, &Tenant::local()))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{Host, operate::vault::signing};

    #[test]
    fn the_page_afterwards_is_one_of_the_console() {
        for own in [
            "/console",
            "/console/runs",
            "/console?a=b",
            "/console/runs?next=https://x/../y#part",
            "/console/...",
            "/console/a..b",
        ] {
            assert!(is_console_page(own), "{own}");
        }
        for other in [
            "",
            "/",
            "https://evil.test",
            "//evil.test/console",
            "/consoles",
            "console/runs",
            "javascript:alert(1)",
            "/console/../../evil",
            "/console/..",
            "/console/./x",
            "/console/%2e%2E/x",
            "/console/.%2e?a",
            "/console/..#a",
            "/console/\\evil.test",
            "/console/.\t./x",
            "/console/a\r\nb",
            "/console/a b",
            "/console/\u{85}",
            " /console",
        ] {
            assert!(!is_console_page(other), "{other:?}");
        }
    }

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
        let (number, key) = signing::new_key(host.vault(), &Tenant::from("other"), COOKIE.purpose).unwrap();
        let sealed = COOKIE.seal(number, &key, &forged);
        let forged = format!("{}.{tag}", sealed.split_once('.').unwrap().0);
        let changed = [
            sealed,
            forged,
            cookie.replace('.', ""),
            format!("{cookie}A"),
            String::new(),
            "a.b".into(),
            "x".repeat(9_000),
        ];
        for changed in changed {
            assert_eq!(Pending::open(host.vault(), &changed).unwrap(), None, "{changed}");
        }
        let (second, _) = begin(&format!("/console/{}", "x".repeat(504)));
        assert!(second.next.is_empty() && second.state != pending.state && second.state.len() == 43);
        let longest = Pending::begin(
            host.vault(),
            (&"n".repeat(32), &"i".repeat(512)),
            (&"o".repeat(512), &format!("/console/{}", "x".repeat(503))),
            u64::MAX,
        );
        assert!(longest.unwrap().1.len() <= MAX_COOKIE_BYTES);
    }
}
