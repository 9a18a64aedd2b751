//! Tests what the vault refuses of changed rows of tokens.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::{Value, json};

use super::*;
use crate::{
    Host,
    operate::{audit::AUDIT, documents::Documents},
};

#[test]
fn a_swapped_token_is_refused_and_in_the_audit_log() {
    let host = Host::builder().build().unwrap().for_tenant("a".into());
    let (vault, tenant) = (host.vault(), host.tenant());
    for name in ["crm", "shop"] {
        let settings =
            json!({ "grant": "client_credentials", "tokenUrl": "https://a.example/token", "clientId": "flows" });
        let settings = Settings::parse("oauth2", settings.as_object().cloned().unwrap()).unwrap();
        let secrets: SecretMembers = [("clientSecret".to_owned(), "client-secret".to_owned())].into_iter().collect();
        let origins = ["https://api.example.com".to_owned()];
        let new = NewCredential { name, settings: &settings, secrets: &secrets, origins: &origins };
        vault.set_credential(tenant, "test", &new).unwrap();
        let members: SecretMembers = [("access".to_owned(), format!("token-of-{name}"))].into_iter().collect();
        let state = TokenState { token: Token::from_members(&members, None, None, None), ..TokenState::default() };
        assert!(vault.replace_tokens(tenant, name, 1, &state).unwrap());
        assert_eq!(vault.tokens(tenant, name, 1).unwrap().token, state.token);
    }
    let documents = Documents { store: host.documents(), tenant };
    let stored = |name: &str| documents.get::<StoredTokens>(TOKEN, name).unwrap().unwrap();
    let ((other, _), (_, seen)) = (stored("shop"), stored("crm"));
    assert!(documents.put(TOKEN, "crm", Some(&other), seen).unwrap());
    let refusals = || {
        let entries = documents.all::<Value>(AUDIT).unwrap().into_iter();
        entries.filter(|(_, entry)| entry.to_string().contains("credential.read")).count()
    };
    assert_eq!(refusals(), 0);
    for _ in 0..2 {
        assert!(vault.tokens(tenant, "crm", 1).unwrap_err().message.contains("was changed in the store"));
    }
    assert_eq!(refusals(), 1, "once in each process");
    assert!(vault.tokens(tenant, "shop", 1).is_ok());
}
