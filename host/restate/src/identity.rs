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
