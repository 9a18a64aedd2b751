//! An issuer that sends any token that a test wants.

use std::sync::{Arc, Mutex};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};

use crate::outside::server::{Server, answer};

/// The parts of a token, which a test changes before it is signed.
pub(super) struct Parts {
    pub(super) head: Value,
    pub(super) claims: Value,
    pub(super) signer: Signer,
}

/// The way to sign a token.
pub(super) enum Signer {
    /// By the listed key.
    Own,
    /// By another key.
    Other,
    /// By a shared secret, which is the listed key.
    PublicKey,
    /// Not at all.
    Nobody,
}

/// The issuer.
pub(super) struct Fake {
    pub(super) server: Server,
    state: Arc<Mutex<State>>,
    own: EcdsaKeyPair,
}

#[derive(Default)]
struct State {
    token: String,
    metadata: Value,
    keys: Value,
}

fn new_key() -> EcdsaKeyPair {
    let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap()
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Fake {
    pub(super) fn start() -> Fake {
        let (state, own) = (Arc::new(Mutex::new(State::default())), new_key());
        let shared = state.clone();
        let server = Server::start(move |seen, _| {
            let state = shared.lock().unwrap();
            let path = seen.head.split(' ').nth(1).unwrap();
            let body = match path {
                "/.well-known/openid-configuration" => state.metadata.to_string(),
                "/keys" => state.keys.to_string(),
                "/token" => json!({ "id_token": state.token, "access_token": "unused" }).to_string(),
                _ => return answer("404 Not Found", &[], ""),
            };
            answer("200 OK", &[("content-type", "application/json")], &body)
        });
        let fake = Fake { server, state, own };
        let point = fake.own.public_key().as_ref();
        fake.state.lock().unwrap().keys = json!({ "keys": [
            { "kty": "EC", "crv": "P-256", "kid": "own", "x": encode(&point[1..33]), "y": encode(&point[33..]) },
            { "kty": "oct", "kid": "shared", "k": encode(b"a shared secret that is no key of an issuer") },
        ] });
        fake.set_metadata(|_| {});
        fake
    }

    /// Sets the metadata, after a change.
    pub(super) fn set_metadata(&self, change: impl FnOnce(&mut Value)) {
        let origin = self.server.origin();
        let mut metadata = json!({ "issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
            "token_endpoint": format!("{origin}/token"), "jwks_uri": format!("{origin}/keys") });
        change(&mut metadata);
        self.state.lock().unwrap().metadata = metadata;
    }

    /// Sets the token of the next exchange, after a change of its parts.
    pub(super) fn set_token(&self, nonce: &str, change: impl FnOnce(&mut Parts)) {
        self.state.lock().unwrap().token = self.token(nonce, change);
    }

    /// Returns a token, after a change of its parts.
    pub(super) fn token(&self, nonce: &str, change: impl FnOnce(&mut Parts)) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({ "iss": self.server.origin(), "sub": "ada", "aud": "flowcell", "nonce": nonce, "iat": now,
            "exp": now + 300, "groups": ["users"] });
        let mut parts = Parts { head: json!({ "alg": "ES256", "kid": "own" }), claims, signer: Signer::Own };
        change(&mut parts);
        let signed =
            format!("{}.{}", encode(parts.head.to_string().as_bytes()), encode(parts.claims.to_string().as_bytes()));
        let sign = |key: &EcdsaKeyPair| key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec();
        let signature = match parts.signer {
            Signer::Own => sign(&self.own),
            Signer::Other => sign(&new_key()),
            Signer::PublicKey => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.own.public_key().as_ref());
                hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
            }
            Signer::Nobody => Vec::new(),
        };
        format!("{signed}.{}", encode(&signature))
    }
}
