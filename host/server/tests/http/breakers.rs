//! The lists of circuit breakers: each tenant sees its own, and the operators see those of all tenants.

use std::net::TcpListener;

use flowcell_platform::{policy::Policy, tenants::Tenants};
use serde_json::{Value, json};

use crate::tenants::{call, served_with};

/// The number of failures that opens a breaker.
const MAX_FAILURES: usize = 10;

/// Returns an address of this machine where no server listens.
fn closed_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Returns a flow whose requests to an address all fail.
fn calls(address: &str) -> Value {
    let url = format!("http://{address}/secret-path?key=secret");
    let node = |number| {
        json!({ "id": format!("n{number}"), "type": "http.request", "input": { "url": url },
            "grants": { "http": [format!("http://{address}")] } })
    };
    let nodes: Vec<_> = (0..MAX_FAILURES).map(node).collect();
    json!({ "flow": { "name": "calls", "policy": { "failFast": false, "maxConcurrency": 1 } }, "nodes": nodes })
}

#[test]
fn t3_a_tenant_sees_its_own_breakers_and_the_operators_see_all() {
    let loopback = "127.0.0.0/8".parse().unwrap();
    let (served, [a, b]) = served_with(&Policy::default(), |builder| builder.allow_private([loopback]));
    let list = |token: &str, path: &str| {
        let answer = call(&served, token, "GET", path, &Value::Null);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    };
    assert_eq!(list(&a, "/v1/breakers")["breakers"], json!([]));
    let (first, second) = (closed_port(), closed_port());
    for (token, address) in [(&a, &first), (&b, &second)] {
        let ended = call(&served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": calls(address) }));
        assert_eq!(ended.json()["status"], "failed", "{ended:?}");
    }
    let own = list(&a, "/v1/breakers");
    let breaker = &own["breakers"][0];
    assert_eq!((&breaker["tenant"], &breaker["origin"]), (&json!("a"), &json!(format!("http://{first}"))), "{own}");
    assert!(["open", "halfOpen"].iter().any(|state| breaker["state"] == *state), "{own}");
    let at = |name: &str| breaker[name].as_u64().unwrap();
    assert!(at("since") <= at("until") && at("since") <= own["now"].as_u64().unwrap(), "{own}");
    assert!(own["breakers"].as_array().unwrap().len() == 1 && !own.to_string().contains("secret"), "{own}");

    let tenants = Tenants::of(&served.host());
    let operator = tenants.create_token("", &["admin:read".to_owned()], "", None).unwrap().token;
    let all = list(&operator, "/v1/admin/breakers");
    let names: Vec<_> = all["breakers"].as_array().unwrap().iter().map(|breaker| &breaker["tenant"]).collect();
    assert_eq!(names, ["a", "b"], "{all}");
    assert_eq!(call(&served, &a, "GET", "/v1/admin/breakers", &Value::Null).status, 403);
    assert_eq!(call(&served, &operator, "GET", "/v1/breakers", &Value::Null).status, 403);
}
