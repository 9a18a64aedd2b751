//! The permissions of callers: every route of the router's table with every kind of credential.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use flowcell_platform::contract::Tenant;
use flowcell_server::{
    Limits,
    identity::{AuthError, Caller, Identify, Scope, Scopes},
    route::{Access, Route, routes},
};
use serde_json::{Value, json};

use crate::{
    client::{Served, ask, connect, read, send},
    samples::{asks, hello},
};

/// A token for each scope of the tenant `a`, one with all scopes of `a`, and one with all scopes of `b`.
struct Tokens(BTreeMap<String, (Tenant, Scopes)>);

impl Tokens {
    fn new() -> Tokens {
        let all = |tenant: &str| (Tenant::from(tenant), Scopes::all());
        let one = |scope: Scope| (scope.name().to_owned(), (Tenant::from("a"), [scope].into_iter().collect()));
        let mut tokens: BTreeMap<_, _> = Scope::ALL.into_iter().map(one).collect();
        tokens.extend([("all-a".to_owned(), all("a")), ("all-b".to_owned(), all("b"))]);
        Tokens(tokens)
    }
}

impl Identify for Tokens {
    fn identify(&self, bearer: Option<&str>) -> Result<Caller, AuthError> {
        let token = bearer.ok_or(AuthError::Missing)?;
        let (tenant, scopes) = self.0.get(token).cloned().ok_or(AuthError::Unknown)?;
        Ok(Caller { tenant, scopes, token: Some(token.into()), policy: Arc::default() })
    }

    fn tenants(&self) -> Vec<Tenant> {
        vec![Tenant::from("a"), Tenant::from("b")]
    }
}

fn served() -> Served {
    Served::with(Arc::new(Tokens::new()), Limits::default())
}

#[test]
fn h1_every_route_requires_its_scope() {
    let known = Tokens::new().0;
    let credentials: Vec<Option<&str>> =
        known.keys().map(|token| Some(token.as_str())).chain([None, Some("stolen")]).collect();
    let (mut cells, mut served) = (0, served());
    for (index, route) in routes().into_iter().enumerate() {
        // A server answers at most 100 unknown tokens of an address in a minute with 401.
        if index > 0 && index % 50 == 0 {
            served = self::served();
        }
        // The path names objects that do not exist, so the request changes nothing.
        let path = route.path.replace("{id}", "none").replace(['{', '}'], "");
        // An invalid cursor, because a stream of notices does not end.
        let path = if path == "/v1/stream" { format!("{path}?cursor=none") } else { path };
        for credential in &credentials {
            let header = credential.map(|token| format!("Bearer {token}"));
            let headers: Vec<_> = header.iter().map(|header| ("Authorization", header.as_str())).collect();
            let body = if route.method == "POST" { "{}" } else { "" };
            let answer = ask(served.address, route.method.as_str(), &path, &headers, body);
            let scopes = credential.and_then(|token| known.get(token)).map(|(_, scopes)| *scopes);
            let expected = match (route.access, scopes) {
                (Access::Open, _) => None,
                (Access::Signed, _) => Some((401, "unsigned")),
                (Access::Known | Access::Needs(_), None) => Some((401, "unauthorized")),
                (Access::Known, Some(_)) => None,
                // No token of a tenant may act on all tenants, although this identity provider gives it the scope.
                (Access::Needs(scope), Some(_)) if scope.is_for_operators() => Some((403, "forbidden")),
                (Access::Needs(scope), Some(scopes)) => (!scopes.has(scope)).then_some((403, "forbidden")),
            };
            match expected {
                Some((status, code)) => {
                    assert_eq!(answer.fault(), (status, code.to_owned()), "{route:?} {credential:?}")
                }
                None => assert!(![401, 403].contains(&answer.status), "{route:?} {credential:?}: {answer:?}"),
            }
            cells += 1;
        }
    }
    assert!(cells > 200, "the table has lost its routes: {cells}");
}

#[test]
fn h2_another_tenants_ids_are_not_found() {
    let served = served();
    let of = |tenant: &str| format!("Bearer all-{tenant}");
    let (a, b) = (of("a"), of("b"));
    let start = json!({ "flow": hello(), "runId": "r" }).to_string();
    let started = ask(served.address, "POST", "/v1/runs?wait=true", &[("Authorization", &a)], &start);
    assert_eq!(started.status, 201, "{started:?}");
    let of_runs = |route: &Route| route.path.contains("{id}") && !route.path.starts_with("/v1/admin/");
    for route in routes().into_iter().filter(of_runs) {
        let path = route.path.replace("{id}", "r").replace("{task}", "say").replace(['{', '}'], "");
        let body = match path.rsplit('/').next().unwrap() {
            "send" => r#"{"content":"x"}"#,
            "reply" => r#"{"answer":"x"}"#,
            "migrate" => r#"{"to":"latest"}"#,
            "resolve" => r#"{"repeat":true}"#,
            _ => "{}",
        };
        let upgrade = [("Upgrade", "websocket"), ("Connection", "upgrade"), ("Sec-WebSocket-Version", "13")];
        let mut headers = vec![("Authorization", b.as_str())];
        if path.ends_with("/socket") {
            headers.extend(upgrade);
            headers.push(("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="));
        }
        let body = if route.method == "POST" { body } else { "" };
        let answer = ask(served.address, route.method.as_str(), &path, &headers, body);
        assert_eq!(answer.fault(), (404, "run_not_found".into()), "{route:?}");
    }
    let own = ask(served.address, "POST", "/v1/runs?wait=true", &[("Authorization", &b)], &start);
    assert_eq!(own.status, 201, "the id is free for others: {own:?}");
    let listed = ask(served.address, "GET", "/v1/runs", &[("Authorization", &b)], "").json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn h3_requests_of_foreign_web_pages_are_refused() {
    let served = Served::local();
    let own = format!("http://{}", served.address);
    let table = [
        ("Origin", own.as_str(), None),
        ("Host", "evil.test", Some("foreign_host")),
        ("Host", "127.0.0.1:1", Some("foreign_host")),
        ("Origin", "http://evil.test", Some("foreign_origin")),
        ("Origin", "null", Some("foreign_origin")),
        ("Origin", "http://localhost:1", Some("foreign_origin")),
    ];
    for (name, value, code) in table {
        let headers = &[(name, value)];
        let answer = ask(served.address, "POST", "/v1/validate", headers, r#"{"flow":{}}"#);
        match code {
            Some(code) => assert_eq!(answer.fault(), (403, code.to_owned()), "{headers:?}"),
            None => assert_eq!(answer.status, 200, "{headers:?}: {answer:?}"),
        }
    }
}

#[test]
fn all_errors_have_one_format() {
    let served = Served::local();
    let ask = |method: &str, path: &str, body: &str| ask(served.address, method, path, &[], body).fault();
    let large = format!("{{\"flow\":\"{}\"}}", "x".repeat(9 << 20));
    let table = [
        ("GET", "/nothing", "", 404, "not_found"),
        ("GET", "/v1/runs/none", "", 404, "run_not_found"),
        ("GET", "/v1/runs/a%20b", "", 404, "run_not_found"),
        ("GET", "/v1/runs/none/events?from=-1", "", 400, "bad_request"),
        ("GET", "/v1/runs/none/socket", "", 426, "upgrade_required"),
        ("PUT", "/v1/runs", "", 405, "method_not_allowed"),
        ("DELETE", "/healthz", "", 405, "method_not_allowed"),
        ("POST", "/v1/runs", "{", 400, "bad_request"),
        ("POST", "/v1/runs", "{}", 400, "bad_request"),
        ("POST", "/v1/runs", r#"{"flow":7}"#, 400, "bad_request"),
        ("POST", "/v1/runs", r#"{"flow":{},"inputs":{}}"#, 400, "bad_request"),
        ("POST", "/v1/runs", r#"{"flow":"a: ["}"#, 422, "invalid_flow"),
        ("POST", "/v1/validate", &large, 413, "too_large"),
        ("POST", "/v1/runs/none/cancel", "", 404, "run_not_found"),
    ];
    for (method, path, body, status, code) in table {
        assert_eq!(
            ask(method, path, body),
            (status, code.to_owned()),
            "{method} {path} {}",
            &body[..body.len().min(40)]
        );
    }
    let wrong = served.ask("POST", "/v1/runs", "{\n  \"flow\": oops }").json();
    assert_eq!(
        (&wrong["error"]["details"]["line"], &wrong["error"]["details"]["column"]),
        (&2.into(), &11.into()),
        "{wrong}"
    );
    let typed = [("Content-Type", "text/plain"), ("Content-Length", "2")];
    let answer = crate::client::ask(served.address, "POST", "/v1/runs", &typed, "");
    assert_eq!(answer.status, 415, "{answer:?}");
}

#[test]
fn h4_connections_are_limited_and_silent_ones_are_closed() {
    let short = Duration::from_millis(300);
    let limits = Limits { connections: 1, head_time: short, body_time: short, ..Limits::default() };
    let served = Served::with(Arc::new(flowcell_server::identity::Local), limits);
    let idle = connect(served.address);
    send(&idle, served.address, "GET", "/healthz", &[], "");
    let mut idle = std::io::BufReader::new(idle);
    assert_eq!(read(&mut idle).status, 200);
    let mut busy = crate::client::begin_body(connect(served.address), served.address, "");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut idle, &mut rest).unwrap();
    assert!(rest.is_empty(), "one that waits for a request gives way to one that comes");
    let mut second = std::io::BufReader::new(connect(served.address));
    let turned_away = read(&mut second);
    assert_eq!(turned_away.fault(), (503, "too_many_connections".into()));
    assert_eq!(turned_away.header("retry-after"), Some("1"));
    // A silent client gets 408, and its permit is free again.
    assert_eq!(read(&mut busy).status, 408);
    let soon = (0..1_000).map(|_| served.get("/healthz").status).find(|status| *status == 200);
    assert!(soon.is_some(), "the place is not free");
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let served = Served::local();
    let long = "x".repeat(40 << 10);
    let answer = ask(served.address, "GET", "/healthz", &[("X-Long", &long)], "");
    assert_eq!(answer.fault(), (431, "head_too_large".into()), "{answer:?}");
}

/// Returns a version of a flow whose output is a member of its input.
fn tells(needs: &str) -> Value {
    json!({
        "flow": {
            "name": "tells",
            "inputSchema": { "type": "object", "required": [needs] },
            "outputs": { "told": "{{ say.value }}" },
        },
        "nodes": [{ "id": "say", "type": "control.noop", "input": { "value": "{{ flow.input.word }}" } }],
    })
}

#[test]
fn h1_without_run_read_no_answer_tells_of_a_run_that_the_token_did_not_start() {
    let served = served();
    let send = |token: &str, path: &str, body: &Value| {
        let bearer = format!("Bearer {token}");
        ask(served.address, "POST", path, &[("Authorization", &bearer)], &body.to_string())
    };
    for needs in ["word", "canary-member"] {
        assert_eq!(send("all-a", "/v1/flows", &json!({ "flow": tells(needs) })).status, 201);
    }
    let first = json!({ "flow": "tells", "version": 1, "runId": "r", "input": { "word": "canary" } });
    let seen = send("all-a", "/v1/runs?wait=true", &first).json();
    assert_eq!(seen["outputs"], json!({ "told": "canary" }), "{seen}");
    let retry = |token: &str, body: Value| send(token, "/v1/runs/r/retry?wait=true", &body);
    let (chosen, ended) = (json!({ "runId": "again" }), json!("succeeded"));
    let again = retry("run:create", chosen);
    let withheld = json!({ "runId": "again", "status": ended, "withheld": "run:read" });
    assert_eq!((again.status, again.json()), (201, withheld.clone()));
    assert_eq!(again.header("location"), Some("/v1/runs/again"));
    // The second request with the key answers with the view of the known run.
    for status in [201, 200] {
        let bearer = [("Authorization", "Bearer run:create"), ("Idempotency-Key", "k")];
        let answer = ask(served.address, "POST", "/v1/runs/r/retry?wait=true", &bearer, "{}");
        assert_eq!((answer.status, &answer.json()["withheld"]), (status, &json!("run:read")), "{answer:?}");
        assert_eq!(answer.json().as_object().unwrap().len(), 3, "{answer:?}");
    }
    let seen = retry("all-a", json!({ "runId": "seen" })).json();
    assert_eq!((&seen["outputs"]["told"], &seen["withheld"]), (&json!("canary"), &Value::Null), "{seen}");

    let plan = json!({ "flowVersion": 1, "check": true });
    let refused = retry("run:create", plan.clone());
    assert_eq!(refused.fault(), (403, "forbidden".to_owned()));
    assert_eq!(refused.json()["error"]["details"]["scope"], "run:read");
    assert_eq!(retry("all-a", plan).json()["kept"], json!(["say"]));
    let other = json!({ "flowVersion": 2 });
    for (token, tells) in [("run:create", false), ("all-a", true)] {
        let refused = retry(token, other.clone());
        assert_eq!(refused.fault(), (422, "invalid_input".to_owned()));
        assert_eq!(refused.json().to_string().contains("canary-member"), tells, "{refused:?}");
    }

    // The siblings: routes that answer with a run, or with its plan, and need another scope.
    let labelled = send("run:control", "/v1/runs/r/labels", &json!({ "set": { "team": "ops" } }));
    let withheld = json!({ "runId": "r", "status": ended, "withheld": "run:read" });
    assert_eq!((labelled.status, labelled.json()), (200, withheld));
    let parked = json!({ "flow": asks(), "runId": "p", "input": { "word": "canary" } });
    assert_eq!(send("all-a", "/v1/runs?wait=true", &parked).json()["status"], "parked");
    let resumed = send("run:control", "/v1/runs/p/resume", &json!({}));
    assert_eq!((resumed.status, resumed.json().as_object().unwrap().len()), (200, 3), "{resumed:?}");
    assert!(!format!("{resumed:?}").contains("canary"), "{resumed:?}");

    let migrate = |token: &str, body: &Value| send(token, "/v1/runs/r/migrate", body);
    assert_eq!(migrate("run:create", &json!({ "to": 2, "check": true })).fault(), (403, "forbidden".to_owned()));
    for (token, tells) in [("run:create", false), ("all-a", true)] {
        let refused = migrate(token, &json!({ "to": 2 }));
        assert_eq!(refused.fault(), (409, "migration_refused".to_owned()));
        assert_eq!(refused.json()["error"]["details"].is_object(), tells, "{refused:?}");
        assert_eq!(refused.json().to_string().contains("canary-member"), tells, "{refused:?}");
    }
}
