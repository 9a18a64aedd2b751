//! Test cases over HTTP, and the files that come with a flow: what passes, and hostile cases within their limits.

use std::fs;

use flowcell_platform::policy::Policy;
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served},
    samples::{asks, hello},
    tenants::{call, served},
};

/// A flow that asks with the text of a file.
const PROMPTS: &str = "flow: { name: prompts }\nnodes:\n  - { id: ask, type: control.gate, promptFile: ./prompts/ask.md, \
                       input: { choices: [\"yes\"] } }\n";

fn run(served: &Served, flow: &Value, cases: &str) -> Answer {
    served.post("/v1/test/cases", &json!({ "flow": flow, "cases": cases }))
}

#[test]
fn cases_pass_or_say_how_their_outcome_differs() {
    let served = Served::local();
    let cases = "cases:\n\
        - { name: greets, input: { who: Ada }, expect: { outputs: { say: { text: Hello Ada } }, route: [say] } }\n\
        - { name: differs, expect: { outputs: { say: { text: Servus } } } }\n\
        - { name: stubbed, given: { say: { output: { text: Hi } } }, expect: { outputs: { say: { text: Hi } } } }\n\
        - { name: unknown, given: { sya: { output: {} } } }\n";
    let ran = run(&served, &hello(), cases);
    assert_eq!(ran.status, 200, "{ran:?}");
    let mut ran = ran.json();
    for case in ran["cases"].as_array_mut().unwrap() {
        assert!(case["tookMs"].is_u64(), "{case}");
        case["tookMs"].take();
    }
    let passed = |name: &str| json!({ "name": name, "passed": true, "tookMs": null, "differences": [] });
    let failed = |name: &str, why: &str| json!({ "name": name, "passed": false, "tookMs": null, "differences": [why] });
    assert_eq!(
        ran,
        json!({ "passed": 2, "failed": 2, "notRun": 0, "cases": [
            passed("greets"),
            failed("differs", "outputs.say.text is \"Hello world\", not \"Servus\""),
            passed("stubbed"),
            failed("unknown", "`sya` under `given`: unknown node; did you mean `say`?"),
        ] })
    );
    let asked =
        run(&served, &asks(), "cases: [{ name: a, answers: { ok: \"no\" }, expect: { outputs: { said: \"no\" } } }]");
    assert_eq!(asked.json()["passed"], 1, "{asked:?}");
    let only = json!({ "flow": hello(), "cases": cases, "only": "stub" });
    let ran = served.post("/v1/test/cases", &only).json();
    assert_eq!((&ran["passed"], ran["cases"].as_array().unwrap().len()), (&json!(1), 1), "{ran}");
    assert_eq!(served.get("/v1/runs").json()["runs"], json!([]), "no case leaves a run");
    // A stored flow has the cases of the file beside it.
    assert_eq!(served.post("/v1/flows", &json!({ "flow": hello() })).status, 201);
    let none = served.post("/v1/test/cases", &json!({ "flow": "hello" }));
    assert_eq!(none.fault(), (422, "invalid_cases".to_owned()));
    assert!(none.body.contains("hello.test.yaml"), "{none:?}");
    fs::write(served.folder().join("flows/hello.test.yaml"), cases).unwrap();
    let ran = served.post("/v1/test/cases", &json!({ "flow": "hello" })).json();
    assert_eq!((&ran["passed"], &ran["failed"]), (&json!(2), &json!(2)), "{ran}");
    let beside = served.get("/v1/flows/hello/files").json();
    let file = json!({ "path": "hello.test.yaml", "bytes": cases.len() });
    assert_eq!(beside, json!({ "name": "hello", "version": 1, "source": "folder", "files": [file] }));
}

#[test]
fn a_test_of_a_flow_has_the_random_values_of_the_seed_0() {
    let served = Served::local();
    let flow = "flow: { name: draws, outputs: { u: \"{{ uuid() }}\", r: \"{{ random(1000000) }}\" } }\n\
                nodes: [{ id: n, type: control.noop }]\n";
    let test = || served.post("/v1/test", &json!({ "flow": flow })).json();
    let (first, second) = (test(), test());
    assert!(first["outputs"]["u"].is_string(), "{first}");
    assert_eq!(first["outputs"], second["outputs"]);
}

#[test]
fn a_whole_flow_reads_the_files_of_its_request_and_no_others() {
    let served = Served::local();
    fs::create_dir_all(served.folder().join("flows/prompts")).unwrap();
    fs::write(served.folder().join("flows/prompts/ask.md"), "of the server").unwrap();
    let files = |path: &str| json!({ path: "Of the request?" });
    let send = |path: &str, files: &Value| served.post(path, &json!({ "flow": PROMPTS, "files": files }));
    assert_eq!(send("/v1/validate", &json!({})).json()["valid"], false);
    for path in ["/v1/validate", "/v1/graph", "/v1/inspect", "/v1/explain", "/v1/test"] {
        assert_eq!(send(path, &files("prompts/ask.md")).status, 200, "{path}");
        for hostile in ["../ask.md", "/etc/hostname", ".hidden/ask.md", "prompts/.ask.md", "a\u{202e}dm.md", "a\\b", ""]
        {
            assert_eq!(send(path, &files(hostile)).fault(), (422, "invalid_file".to_owned()), "{path} {hostile:?}");
        }
    }
    let many: Value = (0..257).map(|at| (format!("f{at}.md"), json!("x"))).collect();
    assert_eq!(send("/v1/validate", &many).fault(), (422, "invalid_file".to_owned()));
    let tested = send("/v1/test", &files("./prompts/ask.md"));
    assert!(tested.body.contains("Of the request?") && !tested.body.contains("of the server"), "{tested:?}");
    let draft = json!({ "text": PROMPTS, "files": files("prompts/ask.md") });
    assert_eq!(served.post("/v1/assist", &draft).json()["valid"], true);
    let cases = "cases: [{ name: asks, expect: { status: parked } }]";
    for path in ["prompts.test.yaml", "./prompts.test.yaml"] {
        let whole = json!({ "flow": PROMPTS, "files": { "prompts/ask.md": "?", path: cases } });
        assert_eq!(served.post("/v1/test/cases", &whole).json()["passed"], 1, "{path}");
    }
    // A stored flow has its own files.
    assert_eq!(served.post("/v1/flows", &json!({ "flow": hello() })).status, 201);
    let named = served.post("/v1/inspect", &json!({ "flow": "hello", "files": files("a.md") }));
    assert_eq!(named.fault(), (400, "bad_request".to_owned()));
    for (path, body) in [
        ("/v1/validate", json!({ "flow": PROMPTS, "files": null })),
        ("/v1/test/cases", json!({ "flow": hello(), "files": null })),
    ] {
        assert_eq!(served.post(path, &body).fault(), (400, "bad_request".to_owned()), "{body}");
    }
    // Only a shared store takes files.
    let changed = served.post("/v1/flows/hello/files", &json!({ "set": files("a.md") }));
    assert_eq!(changed.fault(), (422, "invalid_file".to_owned()));
}

#[test]
fn hostile_cases_end_within_their_limits() {
    let served = Served::local();
    let hello = hello();
    let refused = |cases: &str, why: &str| {
        let answer = run(&served, &hello, cases);
        assert_eq!(answer.fault(), (422, "invalid_cases".to_owned()), "{answer:?}");
        assert!(answer.body.contains(why), "{why}: {answer:?}");
    };
    refused("", "cannot be read");
    refused("cases: []", "is empty");
    refused("cases: [{ nmae: a }]", "did you mean `name`?");
    refused("cases: [{ name: a, expect: { status: done } }]", "unknown status");
    refused(&format!("cases:\n{}", "- { name: a }\n".repeat(10_000)), "10000 cases, and a request runs at most 200");
    refused(&format!("cases: [{{ name: '{}' }}]", "x".repeat(1 << 20)), "may have at most 1048576");
    refused("cases: [{ name: a, input: \"\u{202e}\", given: { say: \"\u{1b}[2J\" } }]", "cannot be read");
    refused("cases: [{ name: ok }, { name: a, given: { say: 7 } }]", "case 2");
    let nested = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    refused(&format!("cases: [{{ name: a, input: {{ a: {nested} }} }}]"), "cannot be read");
    // An alias that grows with each use.
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for at in 1..20 {
        bomb += &format!("a{at}: &a{at} [{}]\n", vec![format!("*a{}", at - 1); 8].join(", "));
    }
    refused(&format!("{bomb}cases: [{{ name: a, input: {{ a: *a19 }} }}]"), "cannot be read");
    // Patterns that take exponential time in a matcher that backtracks.
    let pattern = "cases: [{ name: slow, input: { who: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa! }, \
                   expect: { outputs: { say: { text: { $regex: '^(Hello )?(a+)+$' } } } } }]";
    let ran = run(&served, &hello, pattern).json();
    assert!(ran["cases"][0]["differences"][0].as_str().unwrap().contains("does not match"), "{ran}");
    // Thousands of names that the flow lacks.
    let names: Vec<_> = (0..20_000).map(|at| format!("sayy{at}: {{ output: {{}} }}")).collect();
    let ran = run(&served, &hello, &format!("cases: [{{ name: many, given: {{ {} }} }}]", names.join(", "))).json();
    let told = ran["cases"][0]["differences"].as_array().unwrap();
    assert_eq!((told.len(), told.last().unwrap()), (21, &json!("and 19980 more unknown nodes")));
}

#[test]
fn t3_cases_and_files_of_a_tenant_are_unknown_to_another() {
    let (served, [a, b]) = served(&Policy::default());
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": hello() })).status, 201);
    let own = call(&served, &a, "GET", "/v1/flows/hello/files", &Value::Null);
    assert_eq!((own.status, &own.json()["files"]), (200, &json!([])));
    let cases = json!({ "flow": "hello", "cases": "cases: [{ name: a }]" });
    assert_eq!(call(&served, &a, "POST", "/v1/test/cases", &cases).json()["passed"], 1);
    for answer in [
        call(&served, &b, "GET", "/v1/flows/hello/files", &Value::Null),
        call(&served, &b, "GET", "/v1/flows/hello/files?path=hello.test.yaml", &Value::Null),
        call(&served, &b, "POST", "/v1/test/cases", &cases),
    ] {
        assert_eq!(answer.fault(), (404, "flow_not_found".to_owned()));
    }
    let missing = call(&served, &a, "GET", "/v1/flows/hello/files?path=a%E2%80%AE.md", &Value::Null);
    assert_eq!(missing.fault(), (404, "file_not_found".to_owned()));
    assert!(!missing.body.contains('\u{202e}'), "{missing:?}");
    assert_eq!(call(&served, &a, "GET", "/v1/flows/hello/files?version=7", &Value::Null).status, 404);
}
