//! Tests expensive schemas and values (the attacks Y3 and Y4 of `tests/README.md`), and schemas whose results must not
//! depend on the budget.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    thread,
    time::{Duration, Instant},
};

use flowcell_contract::Json;
use proptest::{collection::vec, prelude::*};
use serde_json::{Map, Value, json};

use super::*;

/// Maximum time that a check may take in a test, on a busy machine and without optimization.
const MAX_CHECK_TIME: Duration = Duration::from_secs(20);
/// Stack size in bytes of the threads of an async runtime.
const STACK_BYTES: usize = 2 << 20;

/// The result of compiling a schema and checking a value.
#[derive(Debug, PartialEq)]
enum Outcome {
    Valid,
    Wrong(Vec<String>),
    TooCostly(TooCostly),
    Unusable(String),
}

fn outcome_here(schema: &Value, value: &Json, budget: Budget) -> Outcome {
    let schema = match Schema::compile(schema) {
        Ok(schema) => schema,
        Err(SchemaError::TooCostly(error)) => return Outcome::TooCostly(error),
        Err(error) => return Outcome::Unusable(error.to_string()),
    };
    let outcome = match schema.errors(value, budget) {
        Ok(errors) if errors.is_empty() => Outcome::Valid,
        Ok(errors) => Outcome::Wrong(errors.iter().map(ToString::to_string).collect()),
        Err(error) => Outcome::TooCostly(error),
    };
    assert!(!matches!((schema.is_valid(value, budget), &outcome), (Ok(true), Outcome::Wrong(_))));
    outcome
}

/// Compiles a schema and checks a value, on a thread with as small a stack as the threads of a server have.
fn outcome(schema: Value, value: Value) -> Outcome {
    let begin = Instant::now();
    let work = move || outcome_here(&schema, &Json::from(value), Budget::FULL);
    let done = thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap().join().unwrap();
    assert!(begin.elapsed() < MAX_CHECK_TIME, "{:?} for {done:?}", begin.elapsed());
    done
}

fn costly(schema: Value, value: Value) -> TooCostly {
    match outcome(schema, value) {
        Outcome::TooCostly(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Creates a schema that refers to the first of `count` schemas in `$defs`. Each of these is the result of `part` for a
/// reference to the next one. After them comes `last`.
fn chain(count: usize, part: impl Fn(String) -> Value, last: Value) -> Value {
    let name = |index: usize| format!("a{index}");
    let defs = (0..count).map(|index| (name(index), part(format!("#/$defs/{}", name(index + 1)))));
    let defs: Map<String, Value> = defs.chain([(name(count), last)]).collect();
    json!({ "$ref": "#/$defs/a0", "$defs": defs })
}

fn nested(depth: usize, innermost: Value) -> Value {
    (0..depth).fold(innermost, |inner, _| json!({ "x": inner }))
}

#[test]
fn y3_doubling_references_are_rejected_before_compiling() {
    for keyword in ["anyOf", "allOf", "oneOf"] {
        for last in [json!({ "type": "integer" }), json!(false), json!(true), json!({})] {
            let schema = chain(40, |next| json!({ keyword: [{ "$ref": next }, { "$ref": next }] }), last);
            assert_eq!(costly(schema, json!("s")), TooCostly::Nodes, "{keyword}");
        }
    }
}

#[test]
fn y3_a_long_chain_of_references_is_rejected() {
    let schema = chain(60_000, |next| json!({ "$ref": next }), json!(true));
    let begin = Instant::now();
    assert_eq!(costly(schema, json!(1)), TooCostly::Depth);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn schemas_of_the_maximum_depth_need_a_small_stack() {
    let part = |next: String| json!({ "not": { "$ref": next } });
    let inline = (0..100).fold(json!(true), |inner, _| json!({ "not": inner }));
    for schema in [chain(50, part, json!(true)), inline, chain(100, |next| json!({ "$ref": next }), json!(true))] {
        assert!(matches!(outcome(schema, json!(1)), Outcome::Valid | Outcome::Wrong(_)));
    }
}

#[test]
fn y3_ambiguous_references_stop_on_a_deep_value() {
    let either = |required: &str| json!({ "required": [required], "properties": { "x": { "$ref": "#/$defs/t" } } });
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let schema =
            json!({ "$ref": "#/$defs/t", "$defs": { "t": { keyword: [either("x"), either("x"), either("x")] } } });
        // Any result is correct; only the time matters.
        outcome(schema, nested(100, json!({ "x": 1 })));
    }
    let scalar = json!({ "$ref": "#/$defs/a", "$defs": {
        "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "$ref": "#/$defs/c" }, false] },
        "b": { "oneOf": [{ "$ref": "#/$defs/c" }, { "$ref": "#/$defs/a" }, false] },
        "c": { "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/b" }, false] },
    } });
    outcome(scalar, json!("s"));
}

#[test]
fn y3_a_deep_value_does_not_fill_the_stack() {
    let schema = chain(110, |next| json!({ "$ref": next }), json!({ "properties": { "x": { "$ref": "#" } } }));
    let outcome = outcome(schema, nested(120, json!(1)));
    assert!(matches!(outcome, Outcome::Valid | Outcome::TooCostly(TooCostly::Stack)), "{outcome:?}");
}

#[test]
fn y4_a_large_pattern_with_a_large_text_is_rejected() {
    let pattern = "^[ab]*a[ab]{5000}c";
    let text = "ab".repeat(1 << 19);
    assert_eq!(costly(json!({ "pattern": pattern }), json!(text)), TooCostly::Pattern);
    assert_eq!(costly(json!({ "patternProperties": { pattern: true } }), json!({ text: 1 })), TooCostly::Pattern);
    assert_eq!(
        costly(json!({ "propertyNames": { "pattern": pattern } }), json!({ "ab".repeat(1 << 19): 1 })),
        TooCostly::Pattern
    );
    // A limit on the length reports the error instead.
    let limited = json!({ "pattern": pattern, "maxLength": 100 });
    assert!(matches!(outcome(limited, json!("ab".repeat(1 << 19))), Outcome::Wrong(_)));
    // Simple patterns accept long texts.
    for pattern in ["^[a-z]+$", "b$", "^\\S*$", "^(ab)+$", "^\\w[\\w ]*$"] {
        assert_eq!(outcome(json!({ "pattern": pattern }), json!("ab".repeat(1 << 21))), Outcome::Valid, "{pattern}");
    }
    let hash = json!({ "properties": { "id": { "pattern": "^[0-9a-f]{64}$" }, "text": { "type": "string" } } });
    assert_eq!(outcome(hash, json!({ "id": "0".repeat(64), "text": "x".repeat(1 << 23) })), Outcome::Valid);
}

#[test]
fn y4_patterns_with_a_large_total_size_are_rejected() {
    let named = |index: usize| (format!("k{index}"), json!({ "pattern": format!("{index}\\p{{L}}{{50}}") }));
    let schema = json!({ "properties": (0..1_000).map(named).collect::<Map<_, _>>() });
    assert_eq!(costly(schema, json!({})), TooCostly::Patterns);
    let keys = (0..1_000).map(|index| (format!("{index}\\p{{L}}{{50}}"), json!(true)));
    assert_eq!(costly(json!({ "patternProperties": keys.collect::<Map<_, _>>() }), json!({})), TooCostly::Patterns);
    let one = Schema::compile(&json!({ "pattern": "(a{1000}){1000}" })).err().unwrap();
    assert!(matches!(one, SchemaError::Invalid(_)), "{one}");
}

#[test]
fn y3_other_expensive_checks_stop() {
    let numbers: Value = (0..1_000_000).collect();
    let alternatives: Vec<_> = (0..4_000).map(|least| json!({ "maximum": -1 - least })).collect();
    let falses = (0..12).fold(json!(false), |inner, _| json!({ "anyOf": [inner, inner] }));
    let objects: Vec<_> =
        (0..2_000).map(|index| json!({ "a": [index, { "b": index }], "c": "x".repeat(50) })).collect();
    let unevaluated = |next: String| json!({ "anyOf": [{ "$ref": next }, { "properties": { "x": true } }], "unevaluatedProperties": false });
    let table = [
        (json!({ "contains": { "anyOf": alternatives } }), numbers.clone()),
        (json!({ "items": { "anyOf": alternatives } }), numbers.clone()),
        (json!({ "items": falses }), numbers.clone()),
        (json!({ "items": { "enum": objects } }), json!(vec![objects[1_999].clone(); 2_000])),
        (
            json!({ "items": { "allOf": vec![json!({ "uniqueItems": true }); 1_000] } }),
            json!(vec![vec![0; 100]; 2_000]),
        ),
        (chain(60, unevaluated, json!({ "properties": { "y": true } })), json!({ "x": 1, "y": 2, "z": 3 })),
        (
            json!({ "items": { "format": "regex" }, "$schema": "http://json-schema.org/draft-07/schema#" }),
            json!(vec!["((a{100}){100}){100}"; 2_000]),
        ),
    ];
    for (schema, value) in table {
        // Only the time matters; cheap cases may be valid.
        outcome(schema, value);
    }
}

#[test]
fn errors_of_a_long_list_need_little_memory() {
    let wrong: Value = (0..1_000_000).collect();
    let Outcome::Wrong(errors) = outcome(json!({ "items": { "type": "string" } }), wrong) else { panic!() };
    assert_eq!(errors, ["0 is not of type \"string\""]);
    let Outcome::Wrong(errors) = outcome(json!({ "items": { "type": "string" } }), json!([1, "a", 2])) else {
        panic!()
    };
    assert_eq!(errors.len(), 2);
    let alternatives: Vec<_> = (0..1_000).map(|index| json!({ "const": index })).collect();
    let large = json!({ "text": "x".repeat(4 << 20) });
    let Outcome::Wrong(errors) = outcome(json!({ "anyOf": alternatives }), large) else { panic!() };
    assert!(errors[0].len() < 2_000, "{}", errors[0].len());
}

#[test]
fn large_values_are_checked() {
    let rows: Vec<_> =
        (0..50_000).map(|id| json!({ "id": id, "name": format!("row {id}"), "tags": ["a", "b"] })).collect();
    let row = json!({ "type": "object", "required": ["id", "name"], "additionalProperties": false, "properties": {
        "id": { "type": "integer" }, "name": { "type": "string", "pattern": "^row \\d+$" },
        "tags": { "type": "array", "items": { "enum": ["a", "b"] }, "uniqueItems": true } } });
    let numbers: Value = (0..500_000).collect();
    let table = [
        (json!({ "type": "array", "items": row }), json!(rows)),
        (json!({ "type": "array", "items": { "type": "integer" }, "uniqueItems": true }), numbers),
        (json!({ "type": "string", "minLength": 1 }), json!("ä".repeat(8 << 20))),
    ];
    for (schema, value) in table {
        assert_eq!(outcome(schema, value), Outcome::Valid);
    }
}

#[test]
fn a_short_budget_stops_early() {
    let schema = Schema::compile(&json!({ "items": { "type": "integer" } })).unwrap();
    let large = Json::from((0..100_000).collect::<Value>());
    assert_eq!(schema.is_valid(&large, Budget::SHORT), Err(TooCostly::Visits));
    assert_eq!(schema.is_valid(&large, Budget::FULL), Ok(true));
    assert_eq!(schema.is_valid(&Json::from(json!([1, 2])), Budget::SHORT), Ok(true));
}

#[test]
fn new_schemas_have_a_size_limit() {
    // The root, and one schema per item.
    let of = |nodes: u64| Schema::compile(&json!({ "prefixItems": vec![json!(true); nodes as usize - 1] })).unwrap();
    assert!((of(NODES).nodes(), of(NODES).check_new().is_ok()) == (NODES, true));
    assert!(matches!(of(NODES + 1).check_new(), Err(SchemaError::TooCostly(TooCostly::Nodes))));
    let twice = |next: String| json!({ "anyOf": [{ "$ref": next }, { "$ref": next }] });
    assert!(Schema::compile(&chain(14, twice, json!(true))).unwrap().check_new().is_err());
    assert!(Schema::compile(&chain(10, twice, json!(true))).unwrap().check_new().is_ok());
}

#[test]
fn references_of_all_forms_are_followed() {
    let wrong = |outcome: &Outcome| matches!(outcome, Outcome::Wrong(_));
    let text = json!({ "type": "string" });
    let named = |name: &str| json!({ "type": "string", "$anchor": name });
    let table = [
        json!({ "$ref": "#/$defs/a%20b", "$defs": { "a b": text } }),
        json!({ "$ref": "#/$defs/a~1b", "$defs": { "a/b": text } }),
        json!({ "$ref": "#here", "$defs": { "x": named("here") } }),
        json!({ "$id": "https://example.com/a.json", "$ref": "https://example.com/a.json#/$defs/t", "$defs": { "t": text } }),
        json!({ "$id": "https://example.com/a.json", "$ref": "b.json", "$defs": { "b": { "$id": "b.json", "type": "string" } } }),
        json!({ "$dynamicRef": "#node", "$defs": { "n": { "$dynamicAnchor": "node", "type": "string" } } }),
        json!({ "$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/t", "definitions": { "t": text } }),
        json!({ "$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#here", "definitions": { "t": { "$id": "#here", "type": "string" } } }),
    ];
    for schema in table {
        let done = outcome(schema.clone(), json!(1));
        assert!(wrong(&done), "{schema}: {done:?}");
        assert_eq!(outcome(schema.clone(), json!("s")), Outcome::Valid, "{schema}");
    }
    for lost in [
        "#/$defs/none",
        "#none",
        "other.json",
        "file:///etc/passwd",
        "http://127.0.0.1/a.json",
        "http://json-schema.org/draft-07/schema#",
    ] {
        let done = outcome(json!({ "$ref": lost }), json!(1));
        assert!(matches!(done, Outcome::Unusable(_)), "{lost}: {done:?}");
    }
}

#[test]
fn messages_describe_the_error() {
    let table = [
        (json!({ "pattern": "^a" }), json!("b"), "\"b\" does not match \"^a\""),
        (json!({ "propertyNames": { "pattern": "^a" } }), json!({ "b": 1 }), "\"b\" does not match \"^a\""),
        (json!({ "enum": [1, { "a": [null] }] }), json!(2), "2 is not one of"),
        (json!({ "const": { "a": 1.0 } }), json!({ "a": 2 }), "was expected"),
        (json!({ "uniqueItems": true }), json!([1, 2, 1.0]), "non-unique"),
    ];
    for (schema, value, expected) in table {
        match outcome(schema.clone(), value) {
            Outcome::Wrong(errors) if errors[0].contains(expected) => {}
            other => panic!("{schema}: {other:?}"),
        }
    }
    for (schema, value) in [(json!({ "const": 1 }), json!(1.0)), (json!({ "enum": [{ "a": 1 }] }), json!({ "a": 1.0 }))]
    {
        assert_eq!(outcome(schema, value), Outcome::Valid);
    }
}

/// Generates schemas that refer to each other in any way, with simple subschemas such as `true` at the ends.
fn random_references() -> impl Strategy<Value = Value> {
    let reference = (0..12_usize).prop_map(|index| json!({ "$ref": format!("#/$defs/d{index}") }));
    let leaf = prop_oneof![Just(json!(false)), Just(json!(true)), Just(json!({})), Just(json!({ "type": "integer" }))];
    let part = prop_oneof![6 => reference, 1 => leaf];
    let keyword = prop_oneof![Just("anyOf"), Just("allOf"), Just("oneOf")];
    let schema = prop_oneof![
        5 => (keyword, vec(part.clone(), 1..4)).prop_map(|(keyword, parts)| json!({ keyword: parts })),
        1 => part.clone().prop_map(|part| json!({ "not": part })),
        1 => vec(part.clone(), 3).prop_map(|part| json!({ "if": part[0], "then": part[1], "else": part[2] })),
        1 => part.prop_map(|part| json!({ "properties": { "x": part } })),
    ];
    vec(schema, 12).prop_map(|schemas| {
        let defs = schemas.into_iter().enumerate().map(|(index, schema)| (format!("d{index}"), schema));
        json!({ "$ref": "#/$defs/d0", "$defs": defs.collect::<Map<_, _>>() })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn y3_random_references_stop_in_time(schema in random_references(), depth in 0..4_usize) {
        outcome(schema, nested(depth, json!("s")));
    }
}
