//! Tests `flowcell node bench`: its measurements, and that its calls stay in the sandbox.

use std::{fs, path::Path, process::Output};

use serde_json::{Value, json};

use crate::{authors::language::flowcell, guests, kit};

fn bench(folder: &Path, arguments: &[&str]) -> Output {
    flowcell(folder).args(["node", "bench", "--seconds", "1"]).args(arguments).output().unwrap()
}

fn measured(folder: &Path, arguments: &[&str]) -> Value {
    let output = bench(folder, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", kit::stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_node_is_measured_beside_the_smallest_one() {
    let folder = tempfile::tempdir().unwrap();
    let built = guests::build("hostile", "");
    let packs = built.to_str().unwrap();
    let of = measured(folder.path(), &["hostile.echo", "-i", "text=Ada", "--packs", packs]);
    assert_eq!(
        (&of["type"], &of["input"], &of["attemptsPerCall"]),
        (&json!("hostile.echo@0.1.0"), &json!("as given"), &json!(1))
    );
    let file = fs::metadata(built.join("hostile.wasm")).unwrap().len();
    assert_eq!(of["componentBytes"], file, "{of}");
    assert!(of["memoryBytes"].as_u64().is_some_and(|bytes| bytes > 0 && bytes % (64 << 10) == 0), "{of}");
    assert!(of["calls"].as_u64().is_some_and(|calls| calls > 1), "{of}");
    let micros = |of: &Value, part: &str, rank: &str| of["micros"][part][rank].as_f64().unwrap();
    for side in [&of, &of["baseline"]] {
        for part in ["instantiation", "call", "total"] {
            let (median, p99) = (micros(side, part, "median"), micros(side, part, "p99"));
            assert!(0.0 < median && median <= p99, "{of}");
        }
        assert!(micros(side, "call", "median") <= micros(side, "total", "p99"), "{of}");
    }
    let ratio = of["ratio"]["call"].as_f64().unwrap();
    assert!((ratio - micros(&of, "call", "median") / micros(&of["baseline"], "call", "median")).abs() < 1e-6, "{of}");
    let text = bench(folder.path(), &["control.noop", "-i", "value=1"]);
    let text = kit::stdout(&text);
    assert!(["instantiation", "median", "p99", "component", "memory"].iter().all(|word| text.contains(word)), "{text}");
}

/// A case of a node that asks a person, and one of a node that sends a request.
const CASES: &str = "cases:
  - name: a person agrees
    type: control.gate
    input: { prompt: Shall we go on? }
    answer: 'yes'
  - name: a request
    type: http.request
    input: { url: 'https://api.example.com/v1' }
    grants: { http: ['https://api.example.com'] }
    calls: [{ times: any, reply: { status: 200, json: { id: 7 } } }]
";

#[test]
fn fixtures_answer_and_nothing_leaves_the_host() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("cases")).unwrap();
    fs::write(folder.path().join("cases/all.yaml"), CASES).unwrap();
    let of = measured(folder.path(), &["http.request", "--case", "a request"]);
    assert_eq!(of["attemptsPerCall"], 1, "{of}");
    let asked = measured(folder.path(), &["control.gate", "--case", "a person agrees"]);
    assert_eq!(asked["attemptsPerCall"], 2, "one before the answer, one after it: {asked}");
    let waited = measured(folder.path(), &["control.wait", "-i", "ms=86400000"]);
    assert_eq!(waited["attemptsPerCall"], 2, "time jumps: {waited}");
    let grant = ["--grant", r#"http=["https://api.example.com"]"#, "-i", "url=https://api.example.com/v1"];
    let alone = bench(folder.path(), &[&["http.request"][..], &grant].concat());
    assert_eq!(alone.status.code(), Some(1));
    assert!(kit::stderr(&alone).contains("no_reply_given"), "{}", kit::stderr(&alone));
    let unknown = bench(folder.path(), &["http.request", "--case", "another"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(kit::stderr(&unknown).contains("there are `a request`"), "{}", kit::stderr(&unknown));
}

#[test]
fn a_node_that_fails_or_waits_is_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    let built = guests::build("hostile", "");
    let packs = built.to_str().unwrap();
    for (node, expected) in [("hostile.trap", "trap"), ("hostile.typed", "invalid_input")] {
        let output = bench(folder.path(), &[node, "--packs", packs]);
        let told = kit::stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{node}: {told}");
        assert!(told.contains("fails with this input") && told.contains(expected), "{node}: {told}");
    }
    let unknown = bench(folder.path(), &["hostile.nothing", "--packs", packs]);
    assert_eq!(unknown.status.code(), Some(2));
    let endless = bench(folder.path(), &["control.noop", "--seconds", "61"]);
    assert_eq!(endless.status.code(), Some(2), "{}", kit::stderr(&endless));
}
