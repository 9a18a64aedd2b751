//! Proof Key for Code Exchange (RFC 7636): the client that asks for a code keeps a random verifier, and gives only its SHA-256
//! away. So a program that has seen the code cannot use it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// Length of a challenge, and of the texts of [`random`], in characters.
pub const CHALLENGE_CHARS: usize = 43;

/// Returns 256 random bits in Base64 for URLs, for a verifier or a state.
pub fn random() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// Returns the challenge of a verifier by the method S256.
pub fn challenge_of(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

/// Returns whether a text has the form of a challenge or of a text of [`random`].
pub fn is_challenge(text: &str) -> bool {
    text.len() == CHALLENGE_CHARS && URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_that_of_the_standard() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge_of(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert!(is_challenge(&random()) && is_challenge(&challenge_of("")) && random() != random());
        for odd in ["", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM", "é", &"A".repeat(44), &"\"".repeat(43)] {
            assert!(!is_challenge(odd), "{odd}");
        }
    }
}
