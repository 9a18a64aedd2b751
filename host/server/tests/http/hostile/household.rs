//! A server with two tenants, and the objects of one of them.

use std::{
    io::BufReader,
    sync::{Arc, Mutex},
};

use flowcell_platform::tenants::Tenants;
use flowcell_server::{
    Limits,
    identity::{Identify, Scope},
    route::Route,
};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served, connect_from, read, send},
    samples::{asks, hello},
};

/// The name of all objects of the tenant `a`: a flow, a run with an open gate, a secret and a trigger.
pub(super) const MINE: &str = "mine";

/// A server with the tenants `a` and `b`.
pub(super) struct Household {
    pub(super) served: Served,
    pub(super) tenants: Arc<Tenants>,
    /// A token with all scopes of `a`.
    pub(super) a: String,
    /// A token with all scopes of `b`.
    pub(super) b: String,
}

pub(super) fn all_scopes() -> Vec<String> {
    Scope::of_tenants().map(|scope| scope.name().to_owned()).collect()
}

impl Household {
    pub(super) fn new(limits: Limits) -> Household {
        let known = Mutex::new(None);
        let served = Served::of(
            |host| {
                let tenants = Arc::new(Tenants::of(host));
                ["a", "b"].iter().for_each(|name| tenants.create(name).unwrap());
                *known.lock().unwrap() = Some(tenants.clone());
                tenants as Arc<dyn Identify>
            },
            limits,
        );
        let tenants = known.into_inner().unwrap().unwrap();
        let token = |name| tenants.create_token(name, &all_scopes(), "", None).unwrap().token;
        let (a, b) = (token("a"), token("b"));
        Household { served, tenants, a, b }
    }

    /// Starts a server whose tenant `a` has one object of each kind.
    pub(super) fn furnished() -> Household {
        let house = Household::new(Limits::default());
        let mut flow = hello();
        flow["flow"]["name"] = MINE.into();
        let trigger = json!({ "flow": MINE, "trigger": { "id": MINE, "cron": "0 0 29 2 *" } });
        let secret = json!({ "value": "a-secret-of-many-characters", "for": ["https://a.test"] });
        let done = [
            house.call(&house.a, "POST", "/v1/flows", &json!({ "flow": flow })),
            house.call(&house.a, "POST", "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": MINE })),
            house.call(&house.a, "PUT", &format!("/v1/secrets/{MINE}"), &secret),
            house.call(&house.a, "PUT", &format!("/v1/credentials/{MINE}"), &credential()),
            house.call(&house.a, "POST", "/v1/triggers", &trigger),
        ];
        done.iter().for_each(|answer| assert!(answer.status < 300, "{answer:?}"));
        house
    }

    /// Sends a request with a token.
    pub(super) fn call(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        crate::tenants::call(&self.served, token, method, path, body)
    }

    /// Runs a flow as the other tenant, and checks that it succeeds.
    pub(super) fn canary(&self) {
        let run = self.call(&self.b, "POST", "/v1/runs?wait=true", &json!({ "flow": hello() }));
        assert_eq!((run.status, &run.json()["status"]), (201, &json!("succeeded")), "{run:?}");
    }

    /// Returns all objects of `a`, as the API shows them.
    pub(super) fn belongings(&self) -> Vec<String> {
        let paths = [
            "/v1/runs",
            "/v1/runs/mine",
            "/v1/runs/mine/events",
            "/v1/runs/mine/gates",
            "/v1/flows",
            "/v1/flows/mine/versions",
            "/v1/secrets",
            "/v1/credentials",
            "/v1/triggers",
        ];
        let told = paths.map(|path| self.call(&self.a, "GET", path, &Value::Null));
        told.iter().for_each(|answer| assert_eq!(answer.status, 200, "{answer:?}"));
        told.map(|answer| answer.body).to_vec()
    }
}

fn credential() -> Value {
    json!({ "kind": "bearer", "secrets": { "token": "a-secret-of-many-characters" }, "for": ["https://api.example.com"] })
}

/// Returns the path and the body of a request that would have an effect if it were permitted. Except for gates, tasks,
/// nodes, versions and tenants, every parameter of the path has the value `name`.
pub(super) fn request(route: &Route, name: &str) -> (String, Value) {
    let part = |part: &str| match part {
        "{gate}" | "{task}" | "{node}" => "ok".to_owned(),
        "{version}" => "1".to_owned(),
        "{tenant}" => "a".to_owned(),
        changing if changing.starts_with('{') => name.to_owned(),
        fixed => fixed.to_owned(),
    };
    let path = route.path.split('/').map(part).collect::<Vec<_>>().join("/");
    let mut flow = hello();
    flow["flow"]["name"] = "new".into();
    let steps = json!({ "name": "s", "inputs": [], "steps": [{ "id": "a", "tool": "control.noop", "params": {} }] });
    let body = match (route.method.as_str(), route.path.as_str()) {
        ("GET" | "DELETE", _) => Value::Null,
        (_, "/v1/runs") => json!({ "flow": name }),
        (_, "/v1/flows" | "/v1/validate") => json!({ "flow": flow }),
        (_, "/v1/triggers") => json!({ "flow": name, "trigger": { "id": "t", "cron": "0 0 29 2 *" } }),
        (_, "/api/create_flow") => json!({ "flow": steps }),
        (_, "/api/run_flow") => json!({ "flow_name": name }),
        ("PUT", path) if path.starts_with("/v1/credentials/") => credential(),
        ("PUT", _) => json!({ "value": "another-secret-of-many-characters" }),
        (_, path) if path.ends_with("/migrate") => json!({ "to": "latest" }),
        (_, path) if path.ends_with("/send") => json!({ "content": "x" }),
        (_, path) if path.ends_with("/reply") => json!({ "answer": "yes" }),
        (_, path) if path.ends_with("/resolve") => json!({ "output": 1 }),
        (_, path) if path.contains("/events/") => json!({ "payload": 1 }),
        _ => json!({}),
    };
    (path, body)
}

/// Sends a request with these headers. A request for a WebSocket gets the headers of an upgrade.
pub(super) fn ask_with(served: &Served, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    ask_from("127.0.0.1", served, method, path, headers, body)
}

/// Sends such a request from a local address.
pub(super) fn ask_from(
    from: &str,
    served: &Served,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Answer {
    let mut headers = headers.to_vec();
    if path.ends_with("/socket") {
        headers.extend([("Upgrade", "websocket"), ("Connection", "upgrade"), ("Sec-WebSocket-Version", "13")]);
        headers.push(("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="));
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let stream = connect_from(from, served.address);
    send(&stream, served.address, method, path, &headers, &body);
    read(&mut BufReader::new(stream))
}
