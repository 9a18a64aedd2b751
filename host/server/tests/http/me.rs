//! The route that shows the caller to itself.

use std::sync::{Arc, Mutex};

use flowcell_platform::{
    policy::{PerDay, Policy},
    tenants::Tenants,
};
use flowcell_server::{Limits, identity::Identify};
use serde_json::{Value, json};

use crate::{client::Served, tenants::call};

#[test]
fn a_local_caller_has_no_token_and_all_scopes() {
    let served = Served::local();
    let me = served.get("/v1/me").json();
    assert_eq!(
        (&me["tenant"], &me["local"], &me["operator"], me.get("token")),
        (&json!("local"), &json!(true), &json!(true), None),
        "{me}"
    );
    assert_eq!(me["version"], served.get("/version").json()["flowcell"]);
    assert!(me["scopes"].as_array().unwrap().contains(&json!("gate:decide")));
    assert_eq!(me["limits"]["pageRuns"], 500);
    assert_eq!(served.get("/v1/me?x=1").status, 200, "unknown members of the query do not matter");
}

#[test]
fn a_token_sees_its_name_and_limits_but_no_secret() {
    let tokens = Mutex::new(Vec::new());
    let served = Served::of(
        |host| {
            let tenants = Tenants::of(host);
            ["a", "b"].iter().for_each(|name| tenants.create(name).unwrap());
            let policy = Policy {
                max_live_runs: Some(7),
                per_day: PerDay { events: Some(99), ..PerDay::default() },
                ..Policy::default()
            };
            tenants.set_policy("a", &policy).unwrap();
            // Neither token has the scope of another route.
            let day = Some(24 * 3_600 * 1_000);
            let scopes = vec!["metrics:read".to_owned()];
            let named = tenants.create_named_token("a", "lena", &scopes, "of Lena", day).unwrap();
            let other = tenants.create_token("b", &[], "", None).unwrap();
            let operator = tenants.create_token("", &["admin:read".to_owned()], "", None).unwrap();
            tokens.lock().unwrap().extend([named, other, operator]);
            let known: Arc<dyn Identify> = Arc::new(tenants);
            known
        },
        Limits::default(),
    );
    let [lena, other, operator] = tokens.into_inner().unwrap().try_into().unwrap();
    let me = |token: &str| call(&served, token, "GET", "/v1/me", &Value::Null);
    let answer = me(&lena.token);
    let secret = lena.token.rsplit('_').next().unwrap();
    assert!(!answer.body.contains(secret), "{answer:?}");
    let shown = answer.json();
    assert_eq!(
        (&shown["tenant"], &shown["token"]["id"], &shown["token"]["name"], &shown["token"]["expires"]),
        (&json!("a"), &json!(lena.id), &json!("lena"), &json!(lena.expires.unwrap())),
        "{shown}"
    );
    assert!(shown["token"]["warning"].as_str().unwrap().starts_with("expires in "), "{shown}");
    assert_eq!((&shown["scopes"], &shown["local"]), (&json!(["metrics:read"]), &json!(false)));
    assert_eq!((&shown["limits"]["liveRuns"], &shown["limits"]["perDay"]), (&json!(7), &json!({ "events": 99 })));
    let shown = me(&other.token).json();
    assert_eq!((&shown["tenant"], &shown["token"]), (&json!("b"), &json!({ "id": other.id })), "{shown}");
    assert_eq!((&shown["scopes"], shown["limits"].get("liveRuns")), (&json!([]), None), "{shown}");
    let shown = me(&operator.token).json();
    assert_eq!((shown.get("tenant"), &shown["operator"]), (None, &json!(true)), "{shown}");
    assert_eq!(served.get("/v1/me").fault(), (401, "unauthorized".to_owned()));
    assert_eq!(me(&format!("{}x", lena.token)).fault(), (401, "unauthorized".to_owned()));
}
