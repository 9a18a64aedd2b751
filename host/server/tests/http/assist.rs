//! Assistance for editors over HTTP: diagnostics with corrections, completions and explanations, and what is refused.

use flowcell_platform::{
    policy::Policy,
    tenants::{NewToken, Tenants},
};
use serde_json::{Value, json};

use crate::{
    client::Served,
    samples::hello,
    tenants::{call, served},
};

/// A flow with an unknown node type, behind a character of two UTF-16 units and four bytes.
const BROKEN: &str = "flow: { name: a }\nnodes:\n  - { id: x, input: { value: \"😀é\" }, type: control.nop }\n";

/// Returns the number of UTF-16 units before a byte of a text.
fn units(text: &str, byte: usize) -> usize {
    text[..byte].encode_utf16().count()
}

/// Returns a text with a replacement of a range of the answer.
fn replaced(text: &str, range: &Value, with: &str) -> String {
    let all: Vec<u16> = text.encode_utf16().collect();
    let [start, end] = ["start", "end"].map(|end| range[end]["offset"].as_u64().unwrap() as usize);
    let with = with.encode_utf16();
    let units: Vec<u16> = all[..start].iter().copied().chain(with).chain(all[end..].iter().copied()).collect();
    String::from_utf16(&units).unwrap()
}

fn labels(answer: &Value) -> Vec<&str> {
    answer["completions"].as_array().unwrap().iter().map(|each| each["label"].as_str().unwrap()).collect()
}

/// Returns a text and the offset of the mark `§` in it.
fn marked(text: &str) -> (String, usize) {
    let at = text.find('§').unwrap();
    (text.replace('§', ""), units(text, at))
}

#[test]
fn a_mistake_has_its_place_and_corrections_that_hold() {
    let served = Served::local();
    let byte = BROKEN.find("control.nop").unwrap();
    let column = units(BROKEN.lines().last().unwrap(), BROKEN.lines().last().unwrap().find("control.nop").unwrap()) + 1;
    for at in [json!(units(BROKEN, byte)), json!({ "line": 3, "column": column + 2 })] {
        let answer = served.post("/v1/assist", &json!({ "text": BROKEN, "at": at, "want": ["fixes"] }));
        let answer = answer.json();
        assert_eq!((&answer["valid"], answer.get("completions")), (&json!(false), None), "{answer}");
        let found = &answer["diagnostics"][0];
        assert_eq!((&found["code"], &found["severity"]), (&json!("unknown_type"), &json!("error")), "{answer}");
        let start = json!({ "line": 3, "column": column, "offset": units(BROKEN, byte) });
        assert_eq!(found["range"]["start"], start);
        assert_eq!(found["range"]["end"]["column"], json!(column + "control.nop".len()));
        let fix = &found["fixes"][0];
        let mended = replaced(BROKEN, &fix["range"], fix["text"].as_str().unwrap());
        assert!(mended.contains("type: control.noop"), "{fix}");
        let checked = served.post("/v1/validate", &json!({ "flow": mended })).json();
        assert_eq!(checked, json!({ "valid": true, "diagnostics": [] }));
    }
    let plain = served.post("/v1/assist", &json!({ "text": BROKEN })).json();
    assert_eq!((plain.as_object().unwrap().len(), &plain["valid"]), (2, &json!(false)), "{plain}");
    let sound = served.post("/v1/assist", &json!({ "text": hello().to_string(), "name": "hello.json" })).json();
    assert_eq!(sound, json!({ "valid": true, "diagnostics": [] }));
}

#[test]
fn words_and_explanations_are_those_of_the_place() {
    let served = Served::local();
    let (text, at) = marked("flow: { name: a } # 😀\nnodes:\n  - { id: x, type: control.no§ }\n");
    let answer = served.post("/v1/assist", &json!({ "text": text, "at": at })).json();
    let offer = &answer["completions"][0];
    assert_eq!((&offer["label"], &offer["kind"]), (&json!("control.noop"), &json!("type")), "{answer}");
    let written = replaced(&text, &offer["range"], offer["text"].as_str().unwrap());
    assert!(written.contains("type: control.noop }"), "{written}");
    assert_eq!(answer["more"], false);
    let (text, at) = marked("flow: { name: a }\nnodes:\n  - { id: x, type: control.no§op }\n");
    let hover = |text: &str, at: &Value| {
        served.post("/v1/assist", &json!({ "text": text, "at": at, "want": ["hover"] })).json()["hover"].clone()
    };
    let found = hover(&text, &json!(at));
    assert!(found["text"].as_str().unwrap().contains("control.noop"), "{found}");
    assert_eq!(replaced(&text, &found["range"], "?"), text.replace("control.noop", "?"));
    assert_eq!(hover("# comment\n", &json!(3)), Value::Null);
    // A script has diagnostics only.
    let script = json!({ "text": "function run() {\n  return 1 +;\n}", "name": "greet.flow.js", "at": 3 });
    let answer = served.post("/v1/assist", &script).json();
    assert_eq!(answer["diagnostics"][0]["code"], "bad_script", "{answer}");
    assert_eq!(answer["diagnostics"][0]["range"]["start"]["line"], 2, "{answer}");
    assert_eq!((&answer["completions"], &answer["hover"]), (&json!([]), &Value::Null));
}

#[test]
fn a_place_beyond_the_text_is_its_end_and_other_mistakes_are_refused() {
    let served = Served::local();
    let text = "flow: { name: a }\nnodes:\n  - { id: x, type: control.noop }\n";
    let ask = |members: Value| {
        let mut body = json!({ "text": text });
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        served.post("/v1/assist", &body)
    };
    let at_end = ask(json!({ "at": units(text, text.len()) })).json();
    for at in [json!(i32::MAX), json!({ "line": 999, "column": 1 }), json!({ "line": i32::MAX, "column": i32::MAX })] {
        assert_eq!(ask(json!({ "at": at })).json(), at_end, "{at}");
    }
    let end_of_line = ask(json!({ "at": { "line": 1, "column": 999 } })).json();
    assert_eq!(end_of_line, ask(json!({ "at": "flow: { name: a }".len() })).json());
    for wrong in [
        json!({ "at": { "line": 0, "column": 1 } }),
        json!({ "at": { "line": 1, "column": 0 } }),
        json!({ "at": { "line": 1 } }),
        json!({ "at": { "line": 1, "column": 1, "offset": 1 } }),
        json!({ "at": -1 }),
        json!({ "at": i64::from(i32::MAX) + 1 }),
        json!({ "at": { "line": 1, "column": i64::from(i32::MAX) + 1 } }),
        json!({ "at": 1.5 }),
        json!({ "at": "1" }),
        json!({ "want": ["completions"] }),
        json!({ "want": ["hover"] }),
        json!({ "want": ["rename"] }),
        json!({ "want": ["rename"], "at": 1, "newId": 7 }),
        json!({ "want": ["colours"], "at": 1 }),
        json!({ "colour": "red" }),
        json!({ "name": "../../etc/passwd.yaml" }),
        json!({ "name": "a.txt" }),
        json!({ "name": "a" }),
        json!({ "name": "a b.yaml" }),
        json!({ "text": 7 }),
    ] {
        assert_eq!(ask(wrong.clone()).fault(), (400, "bad_request".to_owned()), "{wrong}");
    }
}

#[test]
fn words_of_expressions_have_kinds_at_their_places() {
    let served = Served::local();
    let text = "flow: { name: a } # 😀\nnodes:\n  - id: x\n    type: control.noop\n    \
                input: { value: \"😀 {{ flow.input.who | upper }} {{ 12 }}\" }\n";
    let tokens = served.post("/v1/assist", &json!({ "text": text, "want": ["tokens"] })).json();
    assert_eq!(tokens.as_object().unwrap().len(), 1, "{tokens}");
    let numbers: Vec<_> =
        tokens["tokens"]["data"].as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect();
    let lines: Vec<Vec<u16>> = text.lines().map(|line| line.encode_utf16().collect()).collect();
    let (mut line, mut column, mut found) = (0, 0, Vec::new());
    for token in numbers.chunks(4) {
        column = if token[0] > 0 { token[1] } else { column + token[1] };
        line += token[0];
        let word = String::from_utf16(&lines[line][column..column + token[2]]).unwrap();
        found.push((word, tokens["tokens"]["kinds"][token[3]].as_str().unwrap()));
    }
    let of = |word: &str| found.iter().find(|(found, _)| found == word).map(|(_, kind)| *kind);
    assert_eq!((of("flow"), of("input"), of("who")), (Some("variable"), Some("property"), Some("property")));
    assert_eq!((of("upper"), of("12")), (Some("function"), Some("number")), "{found:?}");
    let script = json!({ "text": "const a = 1", "name": "greet.flow.js", "want": ["tokens"] });
    assert_eq!(served.post("/v1/assist", &script).json()["tokens"]["data"], json!([]));
}

#[test]
fn a_node_is_renamed_everywhere_and_plain_text_with_its_id_is_named() {
    let served = Served::local();
    let (text, at) = marked(
        "# 😀 say says it\nflow: { name: a, outputs: { it: \"{{ say.value }}\" } }\nnodes:\n  \
         - { id: s§ay, type: control.noop, input: { value: 1 } }\n  - { id: two, type: control.noop }\nedges: [say -> two]\n",
    );
    let ask = |at: usize, members: Value| {
        let mut body = json!({ "text": text, "at": at, "want": ["rename"] });
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        served.post("/v1/assist", &body).json()["rename"].clone()
    };
    let named = ask(at, json!({}));
    assert_eq!((&named["id"], named.get("edits")), (&json!("say"), None), "{named}");
    assert_eq!(replaced(&text, &named["range"], "?"), text.replace("id: say", "id: ?"));
    let renamed = ask(at, json!({ "newId": "tell" }));
    let edits = renamed["edits"].as_array().unwrap();
    let changed = edits
        .iter()
        .rev()
        .fold(text.clone(), |text, edit| replaced(&text, &edit["range"], edit["text"].as_str().unwrap()));
    let expected = text.replace("say", "tell").replace("# 😀 tell tells", "# 😀 say says");
    assert_eq!((changed, edits.len()), (expected, 3));
    assert_eq!((renamed["left"].as_array().unwrap().len(), &renamed["left"][0]["start"]["line"]), (1, &json!(1)));
    for (id, why) in [("two", "already"), ("a b", "a b"), ("", "id"), ("x\u{202e}", "id")] {
        let refused = ask(at, json!({ "newId": id }));
        assert!(refused["refused"].as_str().unwrap().contains(why) && refused.get("edits").is_none(), "{refused}");
    }
    assert_eq!(ask(1, json!({ "newId": "tell" })), Value::Null);
    let script = json!({ "text": "say", "name": "greet.flow.js", "at": 1, "want": ["rename"], "newId": "tell" });
    assert_eq!(served.post("/v1/assist", &script).json()["rename"], Value::Null);
}

#[test]
fn many_places_in_one_long_line_are_found_by_one_walk() {
    let served = Served::local();
    let nodes: Vec<_> = (0..1_500).map(|at| format!("{{ id: n{at}, type: control.noop, after: n }}")).collect();
    let text = format!(
        "flow: {{ name: a }}\nnodes: [{{ id: text, type: control.noop, input: {{ value: {} }} }}, {{ id: n, type: control.noop }}, {}]\n",
        "é".repeat(100_000),
        nodes.join(", "),
    );
    let at = units(&text, text.find("id: n,").unwrap() + 4);
    let body = json!({ "text": text, "at": at, "want": ["rename"], "newId": "first" });
    let answer = served.post("/v1/assist", &body).json();
    let edits = answer["rename"]["edits"].as_array().unwrap();
    assert_eq!(edits.len(), 1_501);
    let start = |edit: &Value| (edit["range"]["start"]["offset"].as_u64(), edit["range"]["start"]["line"].as_u64());
    let last = units(&text, text.rfind("after: n").unwrap() + 7) as u64;
    assert_eq!((start(&edits[0]), start(&edits[1_500])), ((Some(at as u64), Some(2)), (Some(last), Some(2))));
}

#[test]
fn huge_and_deep_texts_cost_no_more_than_a_check() {
    let served = Served::local();
    let huge = json!({ "text": "é".repeat(2_500_000), "at": 5 });
    let answer = served.post("/v1/assist", &huge).json();
    assert_eq!((&answer["valid"], &answer["completions"], &answer["hover"]), (&json!(false), &json!([]), &Value::Null));
    let large = json!({ "text": "x".repeat(9 << 20) });
    assert_eq!(served.post("/v1/assist", &large).fault(), (413, "too_large".to_owned()));
    for text in ["[".repeat(100_000), "{a: ".repeat(50_000), "- ".repeat(50_000), "\u{0}\u{202e}\u{feff}".to_owned()] {
        let answer = served.post("/v1/assist", &json!({ "text": text, "at": 1_000 }));
        assert_eq!((answer.status, &answer.json()["valid"]), (200, &json!(false)), "{}", &text[..4]);
    }
    // Many mistakes in one long line: the corrections of a few of them are tried.
    let node = |at| format!(r#"{{ id: n{at}, type: control.noop, input: {{ value: "${{flow.input.a}}" }} }}"#);
    let nodes: Vec<_> = (0..150).map(node).collect();
    let text = format!("flow: {{ name: a, input: {{ a: 1 }} }}\nnodes: [{}]\n", nodes.join(", "));
    let answer = served.post("/v1/assist", &json!({ "text": text, "want": ["fixes"] })).json();
    let found = answer["diagnostics"].as_array().unwrap();
    let with_fixes = found.iter().filter(|found| found["fixes"] != json!([])).count();
    assert!(found.len() >= 150 && (1..=5).contains(&with_fixes), "{with_fixes}: {answer}");
}

#[test]
fn names_are_those_that_the_caller_may_see() {
    let (served, [a, b]) = served(&Policy::default());
    let mut flow = hello();
    flow["flow"]["name"] = "plan-of-a".into();
    assert_eq!(call(&served, &a, "POST", "/v1/flows", &json!({ "flow": flow })).status, 201);
    let key = json!({ "value": "a-secret-of-a", "for": ["https://api.example.com"] });
    assert_eq!(call(&served, &a, "PUT", "/v1/secrets/KEY_OF_A", &key).status, 200);
    let ask = |token: &str, text: &str| {
        let (text, at) = marked(text);
        let body = json!({ "text": text, "at": at, "want": ["completions"] });
        let answer = call(&served, token, "POST", "/v1/assist", &body).json();
        labels(&answer).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let calls = "flow: { name: x }\nnodes:\n  - { id: c, type: control.subflow, input: { name: pl§ } }\n";
    assert_eq!((ask(&a, calls), ask(&b, calls)), (vec!["plan-of-a".to_owned()], Vec::new()));
    let sends = "flow: { name: x }\nnodes:\n  - { id: c, type: http.request, grants: { secrets: [{ name: KE§ }] } }\n";
    assert_eq!((ask(&a, sends), ask(&b, sends)), (vec!["KEY_OF_A".to_owned()], Vec::new()));
    // A token that may not list the secrets gets none of their names.
    let tenants = Tenants::of(&served.host());
    let token = |scope: &str| -> NewToken { tenants.create_token("a", &[scope.to_owned()], "", None).unwrap() };
    let reader = token("flow:read").token;
    assert_eq!((ask(&reader, calls), ask(&reader, sends)), (vec!["plan-of-a".to_owned()], Vec::new()));
    let other = call(&served, &token("run:read").token, "POST", "/v1/assist", &json!({ "text": "" }));
    assert_eq!(
        (other.fault(), &other.json()["error"]["details"]["scope"]),
        ((403, "forbidden".to_owned()), &json!("flow:read"))
    );
}
