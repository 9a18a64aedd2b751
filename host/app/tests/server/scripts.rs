//! Scripts that are posted, as `{ name, script }`.

use serde_json::{Value, json};

use crate::client::Served;

const GREET: &str = "export const setup = flow => flow.inText('who');
export const run = services => `Hello ${services.inputs.who}`;
";

fn greet() -> Value {
    json!({ "name": "greet", "script": GREET })
}

#[test]
fn a_script_is_checked_kept_and_run_as_every_flow() {
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
fn a_script_is_created_and_run_as_in_spec6() {
    let served = Served::local();
    let created = served.post("/api/create_flow", &json!({ "flow": greet() }));
    assert_eq!((created.status, &created.json()["success"]), (201, &json!(true)), "{created:?}");
    let ran = served.post("/api/run_flow", &json!({ "flow_name": "greet", "inputs": { "who": "Ada" } }));
    assert_eq!(ran.json()["data"]["result"]["result"], "Hello Ada", "{ran:?}");
    assert_eq!(served.get("/api/flow/greet").json()["data"]["flow"], greet());
}

#[test]
fn what_is_wrong_about_a_posted_script_is_told_with_its_place() {
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
