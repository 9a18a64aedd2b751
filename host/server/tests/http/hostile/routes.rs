//! Checks that apply to every route, made from the router's table.

use flowcell_server::{
    Limits,
    identity::Scope,
    route::{Access, Route, routes},
};
use serde_json::json;

use super::household::{Household, MINE, all_scopes, ask_from, ask_with, request};
use crate::client::{Answer, Served};

fn guarded_routes() -> impl Iterator<Item = (Route, Scope)> {
    routes().into_iter().filter_map(|route| match route.access {
        Access::Needs(scope) => Some((route, scope)),
        _ => None,
    })
}

#[test]
fn h1_refused_requests_have_no_effect() {
    let house = Household::furnished();
    let before = house.belongings();
    let expired = house.tenants.create_token("a", &all_scopes(), "", Some(0)).unwrap().token;
    let lacking = |scope: Scope| {
        let scopes: Vec<_> = all_scopes().into_iter().filter(|name| name != scope.name()).collect();
        house.tenants.create_token("a", &scopes, "", None).unwrap().token
    };
    let lacking: Vec<_> = Scope::ALL.into_iter().map(|scope| (scope, lacking(scope))).collect();
    let mut cells = 0;
    for (n, (route, scope)) in guarded_routes().enumerate() {
        // An address may send 100 unknown tokens in a minute.
        let from = format!("127.0.0.{}", 1 + n / 50);
        let (path, body) = request(&route, MINE);
        let (_, without) = lacking.iter().find(|(known, _)| *known == scope).unwrap();
        let credentials = [
            (None, 401),
            (Some("Bearer".to_owned()), 401),
            (Some(format!("Basic {}", house.a)), 401),
            (Some(format!("Bearer {expired}")), 401),
            (Some(format!("Bearer {without}")), 403),
        ];
        for (credential, status) in credentials {
            let headers: Vec<_> = credential.iter().map(|value| ("Authorization", value.as_str())).collect();
            let answer = ask_from(&from, &house.served, route.method.as_str(), &path, &headers, &body);
            assert_eq!(answer.status, status, "{route:?} {credential:?}: {answer:?}");
            cells += 1;
        }
    }
    assert!(cells > 200, "the table has lost its routes: {cells}");
    assert_eq!(house.belongings(), before);
    // With a permitted token, the same request has an effect.
    let reply = house.call(&house.a, "POST", "/v1/runs/mine/gates/ok/reply", &json!({ "answer": "yes" }));
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_ne!(house.belongings(), before);
}

/// Returns the parts of an answer that do not change from one request to the next.
fn stable_parts(answer: &Answer, name: &str) -> (u16, Vec<(String, String)>, String) {
    let headers =
        answer.headers.iter().filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str())).cloned().collect();
    (answer.status, headers, answer.body.replace(name, MINE))
}

#[test]
fn h2_objects_of_another_tenant_look_like_missing_ones() {
    let house = Household::furnished();
    let before = house.belongings();
    let token = format!("Bearer {}", house.b);
    let headers = [("Authorization", token.as_str())];
    // The catalog is the same for all tenants, and `PUT` creates a secret of the caller's own.
    let places =
        |route: &Route| route.path.contains('{') && !route.path.starts_with("/v1/nodes") && route.method != "PUT";
    let mut compared = 0;
    for route in routes().into_iter().filter(places) {
        let answers = [MINE, "nobo"].map(|name| {
            let (path, body) = request(&route, name);
            stable_parts(&ask_with(&house.served, route.method.as_str(), &path, &headers, &body), name)
        });
        assert_eq!(answers[0], answers[1], "{route:?}");
        let is_admin = route.path.starts_with("/v1/admin/");
        let expected: &[u16] = if is_admin { &[403] } else { &[401, 404] };
        assert!(expected.contains(&answers[0].0), "{route:?}: {answers:?}");
        compared += 1;
    }
    assert!(compared > 25, "the table has lost its routes: {compared}");
    assert_eq!(house.belongings(), before);
    house.canary();
}

#[test]
fn h3_no_route_accepts_requests_that_a_web_page_can_send() {
    let served = Served::with(std::sync::Arc::new(flowcell_server::identity::Local), Limits::default());
    let foreign = [
        ("Host", "evil.test", "foreign_host"),
        ("Origin", "https://evil.test", "foreign_origin"),
        ("Origin", "null", "foreign_origin"),
    ];
    let simple = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"];
    for route in routes() {
        let (path, body) = request(&route, MINE);
        for (name, value, code) in foreign {
            // Health checks show nothing of the server, and ask any address of it.
            if name == "Host" && ["/healthz", "/readyz"].contains(&route.path.as_str()) {
                continue;
            }
            let answer = ask_with(&served, route.method.as_str(), &path, &[(name, value)], &body);
            assert_eq!(answer.fault(), (403, code.to_owned()), "{route:?} {name}: {value}");
        }
        // SPEC6 does not define content types. Its routes are protected by the check of `Origin`.
        let typed = !body.is_null() && !route.path.starts_with("/api/");
        for kind in simple.iter().filter(|_| typed) {
            let answer = ask_with(&served, route.method.as_str(), &path, &[("Content-Type", kind)], &body);
            let expected: &[u16] = match (route.access, route.path.as_str()) {
                (Access::Signed, _) => &[401],
                (_, "/mcp") => &[406, 415],
                _ => &[415],
            };
            assert!(expected.contains(&answer.status), "{route:?} {kind}: {answer:?}");
        }
    }
    assert_eq!(served.get("/v1/runs").json()["runs"], json!([]));
    assert_eq!(served.get("/v1/flows").json()["flows"], json!([]));
    assert_eq!(served.get("/v1/secrets").json()["secrets"], json!([]));
}
