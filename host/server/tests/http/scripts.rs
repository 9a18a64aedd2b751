//! Scripts in requests, as `{ name, script }`, and the services that a tenant's scripts may call.

use flowcell_platform::policy::Policy;
use serde_json::{Value, json};

use crate::{
    client::Served,
    tenants::{call, served_with},
};

const GREET: &str = "export const setup = flow => flow.inText('who');
export const run = services => `Hello ${services.inputs.who}`;
";

fn greet() -> Value {
    json!({ "name": "greet", "script": GREET })
}

#[test]
fn a_script_is_checked_stored_and_run_like_every_flow() {
    let served = Served::local();
    let ada = json!({ "who": "Ada" });
    let run = |flow: &Value| served.post("/v1/runs?wait=true", &json!({ "flow": flow, "input": ada })).json();
    for flow in
        [greet(), json!(greet().to_string()), json!("name: greet\nscript: |\n  export const run = () => 'Hello Ada'\n")]
    {
        let checked = served.post("/v1/validate", &json!({ "flow": flow })).json();
        assert_eq!(checked, json!({ "valid": true, "diagnostics": [] }), "{flow}");
        assert_eq!(run(&flow)["outputs"], json!({ "result": "Hello Ada", "outputs": {} }), "{flow}");
    }
    let kept = served.post("/v1/flows", &json!({ "flow": greet() }));
    assert_eq!((kept.status, kept.header("location")), (201, Some("/v1/flows/greet")), "{kept:?}");
    assert_eq!(run(&json!("greet"))["outputs"]["result"], "Hello Ada");
    let next = json!({ "name": "greet", "script": GREET.replace("Hello", "Servus") });
    assert_eq!(served.post("/v1/flows", &json!({ "flow": next })).json()["version"], 2);
    assert_eq!(run(&json!("greet"))["outputs"]["result"], "Servus Ada");
    let missing = served.post("/v1/runs", &json!({ "flow": "greet" }));
    assert_eq!(missing.fault(), (422, "invalid_input".to_owned()), "what `setup` declares is asked for");
}

#[test]
fn a_script_is_created_and_run_through_the_routes_under_api() {
    let served = Served::local();
    let created = served.post("/api/create_flow", &json!({ "flow": greet() }));
    assert_eq!((created.status, &created.json()["success"]), (201, &json!(true)), "{created:?}");
    let ran = served.post("/api/run_flow", &json!({ "flow_name": "greet", "inputs": { "who": "Ada" } }));
    assert_eq!(ran.json()["data"]["result"]["result"], "Hello Ada", "{ran:?}");
    assert_eq!(served.get("/api/flow/greet").json()["data"]["flow"], greet());
}

#[test]
fn errors_in_a_posted_script_are_reported_with_their_place() {
    let served = Served::local();
    let broken = "function run() {\n  return 1 +;\n}";
    for (flow, code, line, column) in [
        (json!({ "name": "broken", "script": broken }), "bad_script", 2, 13),
        (json!({ "name": "no name", "script": GREET }), "bad_name", 1, 9),
        (json!({ "script": GREET }), "missing_key", 1, 1),
        (json!({ "name": "a", "script": 7 }), "wrong_type", 1, 22),
        (json!({ "name": "a", "script": "" }), "empty_value", 1, 22),
        (json!({ "name": "a", "script": GREET, "description": "x" }), "unknown_key", 1, 0),
    ] {
        let checked = served.post("/v1/validate", &json!({ "flow": flow })).json();
        let found = &checked["diagnostics"][0];
        assert_eq!((&checked["valid"], &found["code"]), (&json!(false), &json!(code)), "{flow}: {checked}");
        assert_eq!(found["line"], line, "{checked}");
        assert!(column == 0 || found["column"] == column, "{checked}");
        let kept = served.post("/v1/flows", &json!({ "flow": flow }));
        assert_eq!(kept.status, 422, "{flow}: {kept:?}");
    }
}

/// A script that calls two services, and returns their outcomes.
const ASKS: &str = "export async function run(services) {
  const told = async (name, args) => services[name](...args).then(() => 'answered', e => `${e.code}: ${e.message}`);
  return [await told('pick', [{ object: {}, keys: [] }]), await told('agent', ['Hello?'])];
}
";

#[test]
fn a_script_calls_only_the_services_that_its_tenants_policy_allows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services.yaml");
    std::fs::write(&file, "pick: { tool: data.pick }").unwrap();
    let grants = |services: &[&str]| {
        let services = services.iter().map(|&service| service.to_owned()).collect();
        Policy { grants: Some([("services".to_owned(), services)].into()), ..Policy::default() }
    };
    let flow = json!({ "flow": { "name": "asks", "script": ASKS } });
    let denied = |service: &str, why: &str| format!("denied: `script` has no grant for the service `{service}`; {why}");
    let (more, none) = (
        "`agent` exceeds the operator's limits for this tenant: ",
        "the operator does not allow this tenant to grant it",
    );
    for (policy, expected) in [
        (grants(&["pick"]), json!(["answered", denied("agent", &format!("{more}`pick`"))])),
        (grants(&["p*", "agen"]), json!(["answered", denied("agent", &format!("{more}`p*`, `agen`"))])),
        (grants(&[]), json!([denied("pick", none), denied("agent", none)])),
    ] {
        let (served, [a, _]) = served_with(&policy, |builder| builder.services_file(&file));
        let ended = call(&served, &a, "POST", "/v1/runs?wait=true", &flow).json();
        assert_eq!(ended["outputs"]["result"], expected, "{ended}");
        let refused = json!({ "flow": { "flow": { "name": "graph" }, "nodes": [{
            "id": "a", "type": "script.run", "input": { "source": ASKS }, "grants": { "services": ["*"] } }] } });
        let refused = call(&served, &a, "POST", "/v1/runs", &refused);
        assert_eq!(refused.fault(), (422, "invalid_flow".to_owned()), "what a flow writes is not changed");
    }
}
