//! Fake credentials, so that the cases of a node need none of a tenant. No call of a case leaves the host.

use std::collections::BTreeMap;

use flowcell::{
    Host,
    contract::{CredentialKind, CredentialRequest, KeyPlace, NodeType},
    tenants::operation::credential::{self, CredentialToSet},
    vault::Hidden,
};
use serde_json::{Value, json};

use super::cases::Case;

/// The member of the grants that lists credentials.
const CREDENTIALS: &str = "credentials";
/// The server of a credential that declares none.
const FAKE_SERVER: &str = "https://credential.invalid";

/// Returns the grants of a case. Declared credentials that the case does not grant are added. The host, whose store is in
/// memory, gets a fake credential for each granted one.
pub(super) fn grants(host: &Host, node: &NodeType, case: &Case) -> BTreeMap<String, Value> {
    let mut grants = case.grants.clone();
    if node.credentials.is_empty() {
        return grants;
    }
    let declared = node.credentials.iter().map(|request| Value::from(&*request.name)).collect();
    let granted = grants.entry(CREDENTIALS.to_owned()).or_insert(Value::Array(declared));
    for request in &node.credentials {
        let own = granted.get(&*request.name).and_then(Value::as_str).unwrap_or(&request.name).to_owned();
        // If the name or a host is wrong, the check of the flow reports it.
        let _ = credential::set(host, "test", &own, &fake(request));
    }
    grants
}

/// Returns a credential as a node type declares it, with values that are obviously not real.
fn fake(request: &CredentialRequest) -> CredentialToSet {
    let settings = match request.kind {
        CredentialKind::Bearer | CredentialKind::Basic => json!({}),
        CredentialKind::ApiKey => {
            let place = request.place.unwrap_or(KeyPlace::Header).name();
            json!({ "in": place, "key": request.key.as_deref().unwrap_or("x-api-key") })
        }
        CredentialKind::OAuth2 => {
            json!({ "grant": "client_credentials", "tokenUrl": FAKE_SERVER, "clientId": "fake" })
        }
        CredentialKind::Hmac => json!({ "header": "x-signature", "message": "{body}" }),
        CredentialKind::SigV4 => json!({ "accessKeyId": "fake", "region": "fake", "service": "fake" }),
    };
    let secret = match request.kind {
        CredentialKind::Bearer => ("token", "fake-token"),
        CredentialKind::Basic => ("login", "fake:password"),
        CredentialKind::ApiKey => ("value", "fake-value"),
        CredentialKind::OAuth2 => ("clientSecret", "fake-secret"),
        CredentialKind::Hmac => ("secret", "fake-secret"),
        CredentialKind::SigV4 => ("secretAccessKey", "fake-secret"),
    };
    let hosts = request.hosts.iter().map(|host| match host.contains("://") {
        true => host.clone(),
        false => format!("https://{host}"),
    });
    let mut origins: Vec<_> = hosts.collect();
    if origins.is_empty() {
        origins.push(FAKE_SERVER.to_owned());
    }
    CredentialToSet {
        kind: request.kind.name().to_owned(),
        settings: settings.as_object().cloned().unwrap_or_default(),
        secrets: [(secret.0.to_owned(), Hidden::from(secret.1.to_owned()))].into_iter().collect(),
        origins,
    }
}
