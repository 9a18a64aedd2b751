//! Random requests of two tenants: each tenant receives only its own data.

use flowcell_server::Limits;
use serde_json::{Value, json};

use super::household::Household;
use crate::samples::{asks, hello};

/// Calls `each` for every string in a document, with the name of the member that contains it.
fn texts<'a>(value: &'a Value, name: &'a str, each: &mut dyn FnMut(&'a str, &'a str)) {
    match value {
        Value::String(text) => each(name, text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, name, each)),
        Value::Object(members) => members.iter().for_each(|(name, member)| texts(member, name, each)),
        _ => {}
    }
}

/// Returns a generator of pseudo-random numbers. The same seed gives the same numbers.
fn dice(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |sides| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    }
}

#[test]
fn t12_a_tenant_receives_only_its_own_rows() {
    let house = Household::new(Limits::default());
    let tokens = [("a", house.a.as_str()), ("b", house.b.as_str())];
    let mut roll = dice(12);
    let mut ids: [Vec<String>; 2] = Default::default();
    for round in 0..40 {
        let who = roll(2) as usize;
        let (tenant, token) = tokens[who];
        // About half of the ids are used by both tenants.
        let id = if roll(2) == 0 { format!("r{}", roll(30)) } else { format!("{tenant}{round}") };
        let mut flow = if roll(3) == 0 { asks() } else { hello() };
        let mark = format!("canary-of-{tenant}-{round}");
        flow["flow"]["description"] = mark.clone().into();
        let body = json!({ "flow": flow, "runId": id, "input": { "who": mark } });
        let run = house.call(token, "POST", "/v1/runs?wait=true", &body);
        assert!([201, 409].contains(&run.status), "{run:?}");
        ids[who].push(id);
        let (secret, value) = (format!("/v1/secrets/s{}", roll(5)), json!({ "value": format!("{mark}-secret") }));
        let done = match roll(4) {
            0 => house.call(token, "POST", "/v1/flows", &json!({ "flow": flow })),
            1 => house.call(token, "PUT", &secret, &value),
            _ => continue,
        };
        assert!(done.status < 300, "{done:?}");
    }
    let mut rows = 0;
    for (who, (tenant, token)) in tokens.into_iter().enumerate() {
        let foreign = format!("canary-of-{}", tokens[1 - who].0);
        let get = |path: &str| {
            let answer = house.call(token, "GET", path, &Value::Null);
            assert!(!answer.body.contains(&foreign), "{tenant} {path}: {answer:?}");
            answer
        };
        let mut paths: Vec<String> =
            ["runs?limit=500", "flows", "flows/hello", "flows/asks", "secrets", "triggers", "usage"]
                .iter()
                .map(|path| format!("/v1/{path}"))
                .collect();
        paths.extend(["/api/flows", "/api/flow/hello", "/api/flow_runs/hello"].map(String::from));
        for id in ids.iter().flatten() {
            paths.extend(["", "/tree", "/gates", "/events?limit=1000"].map(|end| format!("/v1/runs/{id}{end}")));
        }
        for path in paths {
            let answer = get(&path);
            let document: Value = serde_json::from_str(&answer.body).unwrap();
            texts(&document, "", &mut |name, text| match name {
                "tenant" => assert_eq!(text, tenant, "{path}"),
                "runId" => assert!(ids[who].iter().any(|id| id == text), "{tenant} {path}: {text}"),
                _ => rows += usize::from(text.contains("canary-of-")),
            });
        }
    }
    assert!(rows > 50, "nothing was told: {rows}");
}
