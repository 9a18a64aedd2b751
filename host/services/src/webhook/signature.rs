//! Signs posts, so that the receiver can verify the sender, and compares signatures and secrets of received posts.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::{Failure, code};
use ring::{
    hmac,
    signature::{ED25519, ED25519_PUBLIC_KEY_LEN, UnparsedPublicKey},
};
use zeroize::Zeroizing;

use crate::secret::{Environment, KeySource, environment};

/// Prefix of a secret in the form of the Standard Webhooks. Base64 follows it.
const PREFIX: &str = "whsec_";

/// The source of a secret: `env:NAME`, an environment variable, or `file:PATH`, a file with only the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSource(KeySource);

/// A secret that senders and receivers of posts share. Its `Debug` form does not contain the secret.
#[derive(Clone)]
pub struct SigningKey(Arc<Zeroizing<Vec<u8>>>);

impl FromStr for SecretSource {
    type Err = String;

    fn from_str(text: &str) -> Result<SecretSource, String> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(SecretSource(KeySource::Environment(name.to_owned()))),
            Some(("file", path)) if !path.is_empty() => Ok(SecretSource(KeySource::File(PathBuf::from(path)))),
            // The message does not repeat the value, which may be the secret itself.
            _ => Err("write `env:NAME` or `file:PATH`; do not write a secret on the command line".into()),
        }
    }
}

impl SecretSource {
    /// Reads the secret. A failure names the source, never the content.
    pub async fn read(&self) -> Result<SigningKey, Failure> {
        self.read_from(&environment()).await
    }

    /// Reads the secret as a text, for a use other than a signature. A failure names the source, never the content.
    pub async fn read_text(&self) -> Result<Zeroizing<String>, Failure> {
        self.0.read_text(&environment(), code::INVALID_INPUT).await
    }

    async fn read_from(&self, environment: &Environment) -> Result<SigningKey, Failure> {
        let text = self.0.read_text(environment, code::INVALID_INPUT).await?;
        SigningKey::new(&text).map_err(|why| Failure::new(code::INVALID_INPUT, why))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SigningKey")
    }
}

impl SigningKey {
    /// Creates a key of Standard Webhooks from a secret: `whsec_BASE64`, or any other text.
    pub fn new(secret: &str) -> Result<SigningKey, String> {
        match secret.strip_prefix(PREFIX) {
            Some(encoded) => match STANDARD.decode(encoded) {
                Ok(bytes) => Ok(SigningKey(Arc::new(Zeroizing::new(bytes)))),
                Err(_) => Err(format!("the text after `{PREFIX}` in a secret must be base64")),
            },
            None => Ok(SigningKey::from_text(secret)),
        }
    }

    /// Creates a key from the characters of a secret, whatever they are.
    pub fn from_text(secret: &str) -> SigningKey {
        SigningKey(Arc::new(Zeroizing::new(secret.as_bytes().to_vec())))
    }

    /// Returns the value of `webhook-signature`.
    pub(super) fn signature(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        format!("v1,{}", STANDARD.encode(hmac::sign(&key, &signed_bytes(id, timestamp, body))))
    }

    /// Returns true if `signature` is the signature of `signed` with this key. Takes constant time.
    pub fn has_signed(&self, algorithm: hmac::Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        hmac::verify(&hmac::Key::new(algorithm, &self.0), signed, signature).is_ok()
    }

    /// Returns true if `signature` is the Ed25519 signature of `signed`, and the key is the signer's public key in
    /// hexadecimal digits.
    pub fn is_signed_by_owner(&self, signed: &[u8], signature: &[u8]) -> bool {
        self.public_key().is_some_and(|key| UnparsedPublicKey::new(&ED25519, key).verify(signed, signature).is_ok())
    }

    /// Returns the Ed25519 public key, if the secret has the form of one.
    pub fn public_key(&self) -> Option<Vec<u8>> {
        hex::decode(self.0.as_slice()).ok().filter(|key| key.len() == ED25519_PUBLIC_KEY_LEN)
    }

    /// Returns true if `presented` is `before` and then the secret. The time of the comparison does not depend on the
    /// secret, not even on its length, because signatures of the two texts are compared.
    pub fn is_presented(&self, before: &[u8], presented: &[u8]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let expected = Zeroizing::new([before, self.0.as_slice()].concat());
        hmac::verify(&key, presented, hmac::sign(&key, &expected).as_ref()).is_ok()
    }
}

/// Returns the bytes of a post that are signed: `ID.TIMESTAMP.BODY`.
fn signed_bytes(id: &str, timestamp: u64, body: &[u8]) -> Vec<u8> {
    [format!("{id}.{timestamp}.").as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks libraries.
    #[test]
    fn a_signature_equals_that_of_other_libraries() {
        let key = SigningKey::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = key.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn sources_and_secrets_are_checked() {
        for wrong in ["whsec_abc", "env:", "file:", ""] {
            assert!(wrong.parse::<SecretSource>().unwrap_err().contains("env:NAME"), "{wrong}");
        }
        assert!("env:HOOK".parse::<SecretSource>().is_ok() && "file:a/b:c".parse::<SecretSource>().is_ok());
        assert!(SigningKey::new("whsec_***").unwrap_err().contains("base64"));
        let environment: Environment = Arc::new(|_| Some("two words\n".into()));
        let source: SecretSource = "env:HOOK".parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let key = runtime.block_on(source.read_from(&environment)).unwrap();
        assert!(key.is_presented(b"", b"two words"));
    }

    #[test]
    fn a_presented_secret_is_compared_as_a_whole() {
        let key = SigningKey::from_text("whsec_***");
        for (before, presented, fits) in [
            ("", "whsec_***", true),
            ("name:", "name:whsec_***", true),
            ("name:", "whsec_***", false),
            ("", "whsec_**", false),
            ("", "whsec_****", false),
            ("", "", false),
        ] {
            assert_eq!(key.is_presented(before.as_bytes(), presented.as_bytes()), fits, "{before} {presented}");
        }
    }
}
