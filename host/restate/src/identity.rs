//! The check of the cluster's signatures: `jsonwebtoken`, which the SDK uses, reads the tokens, and `ring` checks them.
//! So no second library of cryptography is in the program.

use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey,
    crypto::{CryptoProvider, JwkUtils, JwtSigner, JwtVerifier},
    errors::{ErrorKind, Result},
};
use ring::signature::{ED25519, UnparsedPublicKey};
use signature::{Error, Verifier};

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory, verifier_factory, jwk_utils: JwkUtils::new_unimplemented() };

/// Makes `ring` check the signatures of this process. A program that embeds this crate may have chosen another library.
pub(crate) fn install() {
    let _ = PROVIDER.install_default();
}

fn signer_factory(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

fn verifier_factory(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    match algorithm {
        Algorithm::EdDSA => Ok(Box::new(Ed25519Verifier(UnparsedPublicKey::new(&ED25519, key.as_bytes().to_vec())))),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

/// A public key of the cluster.
struct Ed25519Verifier(UnparsedPublicKey<Vec<u8>>);

impl Verifier<Vec<u8>> for Ed25519Verifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        self.0.verify(message, signature).map_err(|_| Error::new())
    }
}

impl JwtVerifier for Ed25519Verifier {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;

    #[test]
    fn only_a_signature_of_the_key_over_the_same_text_is_accepted() {
        let [own, other] = [1, 2].map(|seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap());
        let key = DecodingKey::from_ed_der(own.public_key().as_ref());
        let verifier = verifier_factory(&Algorithm::EdDSA, &key).unwrap();
        let accepts = |text: &str, signature: &[u8]| verifier.verify(text.as_bytes(), &signature.to_vec()).is_ok();
        let signature = own.sign(b"a.b");
        assert!(accepts("a.b", signature.as_ref()));
        assert!(!accepts("a.c", signature.as_ref()), "another text");
        assert!(!accepts("a.b", other.sign(b"a.b").as_ref()), "another key");
        assert!(!accepts("a.b", &[]) && !accepts("a.b", &[0; 64]), "no signature");
        assert!(verifier_factory(&Algorithm::HS256, &key).is_err(), "a public key is no secret");
    }
}
