//! A tenant's own credentials over HTTP: their secrets are written, and never read.

use flowcell_platform::policy::Policy;
use serde_json::{Value, json};

use crate::tenants::{call, served};

const VALUE: &str = "hunter2-hunter2";

#[test]
fn t3_a_tenant_sets_lists_and_removes_credentials_and_no_secret_is_returned() {
    let (served, [a, b]) = served(&Policy::default());
    let ask = |token: &str, method: &str, path: &str, body: &Value| call(&served, token, method, path, body);
    let path = "/v1/credentials/shop";
    let body = json!({
        "kind": "apiKey", "settings": { "in": "query", "key": "api_key" }, "secrets": { "value": VALUE },
        "for": ["https://api.example.com"],
    });
    let set = ask(&a, "PUT", path, &body);
    assert_eq!(
        (set.status, &set.json()["version"], &set.json()["kind"]),
        (200, &json!(1), &json!("apiKey")),
        "{set:?}"
    );
    assert_eq!(set.json()["settings"], json!({ "in": "query", "key": "api_key" }));
    let (shown, listed) = (ask(&a, "GET", path, &Value::Null), ask(&a, "GET", "/v1/credentials", &Value::Null));
    assert_eq!(shown.json(), set.json());
    assert_eq!(listed.json()["credentials"], json!([set.json()]));
    for answer in [&set, &shown, &listed] {
        assert!(!answer.body.contains("hunter2"), "{answer:?}");
    }
    // Another tenant may use the same name, and cannot see this credential.
    for method in ["GET", "DELETE"] {
        assert_eq!(ask(&b, method, path, &Value::Null).fault(), (404, "credential_not_found".into()), "{method}");
    }
    let bearer = json!({ "kind": "bearer", "secrets": { "token": VALUE }, "for": ["https://b.example"] });
    assert_eq!(ask(&b, "PUT", path, &bearer).json()["kind"], "bearer");
    assert_eq!(ask(&a, "PUT", path, &body).json()["version"], 2);
    // A secret and a credential of one name are two things.
    assert_eq!(ask(&a, "GET", "/v1/secrets/shop", &Value::Null).fault(), (404, "secret_not_found".into()));
    assert_eq!(ask(&a, "DELETE", path, &Value::Null).status, 204);
    assert_eq!(ask(&a, "GET", path, &Value::Null).status, 404);
    assert_eq!(ask(&b, "GET", path, &Value::Null).status, 200);
}

#[test]
fn an_invalid_credential_is_refused_without_repeating_its_secret() {
    let (served, [a, _]) = served(&Policy::default());
    let put = |name: &str, body: &Value| call(&served, &a, "PUT", &format!("/v1/credentials/{name}"), body);
    let origin = "https://api.example.com";
    let table = [
        ("n", json!({ "kind": "cookie", "secrets": { "token": VALUE }, "for": [origin] }), "invalid_credential"),
        ("n", json!({ "kind": "bearer", "for": [origin] }), "invalid_credential"),
        ("n", json!({ "kind": "bearer", "secrets": { "token": "hunter2" }, "for": [origin] }), "invalid_credential"),
        (
            "n",
            json!({ "kind": "bearer", "secrets": { "token": "hunter2\r\nx: y" }, "for": [origin] }),
            "invalid_credential",
        ),
        ("n", json!({ "kind": "bearer", "secrets": { "tokens": VALUE }, "for": [origin] }), "invalid_credential"),
        (
            "n",
            json!({ "kind": "bearer", "settings": { "token": VALUE }, "secrets": { "token": VALUE }, "for": [origin] }),
            "invalid_credential",
        ),
        ("n", json!({ "kind": "bearer", "secrets": { "token": VALUE }, "for": [] }), "invalid_secret"),
        ("n", json!({ "kind": "bearer", "secrets": { "token": VALUE }, "for": ["webhook"] }), "invalid_secret"),
        ("n", json!({ "kind": "bearer", "secrets": { "token": VALUE }, "for": ["api.example.com"] }), "invalid_secret"),
        ("a.b", json!({ "kind": "bearer", "secrets": { "token": VALUE }, "for": [origin] }), "invalid_credential"),
    ];
    for (name, body, code) in table {
        let answer = put(name, &body);
        assert_eq!(answer.fault(), (422, code.into()), "{body}");
        assert!(!answer.body.contains("hunter2"), "{answer:?}");
    }
}

#[test]
fn a_token_url_that_the_policy_forbids_is_refused() {
    let policy = json!({ "grants": { "http": ["https://*.example.com/oauth"], "credentials": ["*"] } });
    let (served, [a, _]) = served(&serde_json::from_value(policy).unwrap());
    let put = |token_url: &str| {
        let settings = json!({ "grant": "client_credentials", "tokenUrl": token_url, "clientId": "flows" });
        let secrets = json!({ "clientSecret": VALUE });
        let body = json!({ "kind": "oauth2", "settings": settings, "secrets": secrets, "for": ["https://b.example"] });
        call(&served, &a, "PUT", "/v1/credentials/crm", &body)
    };
    for forbidden in
        ["https://evil.example/oauth", "https://login.example.com/x?y=/oauth", "http://a.example.com/oauth"]
    {
        let refused = put(forbidden);
        assert_eq!(refused.fault(), (422, "invalid_credential".into()), "{forbidden}");
        let told = ["`tokenUrl`: ", "exceeds the operator's limits", "`https://*.example.com/oauth`"];
        assert!(told.iter().all(|part| refused.body.contains(part)), "{refused:?}");
    }
    assert_eq!(call(&served, &a, "GET", "/v1/credentials/crm", &Value::Null).status, 404);
    assert_eq!(put("https://login.example.com/oauth/token?tenant=7").status, 200);
}
