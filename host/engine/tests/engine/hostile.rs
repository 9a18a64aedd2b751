//! Hostile guests: each fails alone, while other attempts go on.

use std::sync::Arc;

use flowcell_contract::{Attempt, Json, NodeRunner, Step, StepResult, Value, code};
use flowcell_engine::{Config, Engine, Limits, Pack};
use futures_util::future::{Either, select};
use serde_json::json;

use crate::{
    guests::{by_hand, with_manifest},
    support::{Memory, attempt, ends_after, engine, run},
};

/// Returns limits that guests reach quickly, so that the tests are fast.
fn limits() -> Limits {
    Limits { calls: 2_000, ..Limits::default() }
}

async fn echo(engine: &Engine, pack: &Pack) {
    let (result, _) = run(engine, attempt(pack, "hostile.echo", r#"{"a":[1]}"#)).await;
    assert_eq!(text(&result), r#"{"a":[1]}"#);
}

fn text(result: &StepResult) -> &str {
    match result {
        Ok(Step::Done(value)) => value.text(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn n3_n4_n5_n7_n8_n9_n10_n14_n15_n30_each_ends_with_its_code_and_the_neighbour_goes_on() {
    let (engine, pack) = engine(Config { limits: limits(), ..Config::default() });
    let cases = [
        ("N5", "recurse", code::STACK_OVERFLOW, "recursed"),
        ("N4", "hog", code::OUT_OF_MEMORY, "64 MiB"),
        ("N9", "huge", code::OUTPUT_TOO_LARGE, "larger than 4194304 bytes; return less"),
        ("N9", "huge-keys", code::OUTPUT_TOO_LARGE, "larger than 4194304 bytes; return less"),
        ("N9", "deep", code::INVALID_OUTPUT, "recursion limit"),
        ("", "bad-json", code::INVALID_OUTPUT, "not JSON"),
        ("", "twice", code::INVALID_OUTPUT, "the key `a` occurs twice"),
        ("", "missing", code::INVALID_OUTPUT, "`/not/there` of `input`"),
        ("", "trap", code::TRAP, "unreachable"),
        ("N30", "panic", code::TRAP, "xxx"),
        ("", "exit", code::TRAP, "status"),
        ("", "unknown", code::TRAP, "no node type `unknown`"),
        ("N3", "log-flood", code::LIMIT_EXCEEDED, "host calls"),
        ("N15", "print-flood", code::LIMIT_EXCEEDED, "standard output"),
        ("N8", "huge-call", code::LIMIT_EXCEEDED, "one host call"),
        ("N8", "huge-list", code::LIMIT_EXCEEDED, "one host call"),
        ("N14", "call-flood", code::LIMIT_EXCEEDED, "host calls"),
        ("", "log-unasked", code::DENIED, "- { name: log, reason: "),
        ("", "state-unasked", code::DENIED, "`hostile.state-unasked` used `state`"),
        ("", "http-unasked", code::DENIED, "`hostile.http-unasked` used `http`"),
        ("", "cache-unasked", code::DENIED, "`hostile.cache-unasked` used `cache`"),
        ("", "metrics-unasked", code::DENIED, "- { name: metrics, reason: "),
        ("", "model-unasked", code::DENIED, "- { name: model, reason: "),
        ("", "model-started", code::DENIED, "`hostile.model-started` used `model`"),
        ("", "tools-unasked", code::DENIED, "- { name: tools, reason: "),
        ("", "tools-called", code::DENIED, "`hostile.tools-called` used `tools`"),
        ("", "tools-started", code::DENIED, "`hostile.tools-started` used `tools`"),
        ("", "services-unasked", code::DENIED, "- { name: services, reason: "),
        ("", "services-odd", code::INVALID_INPUT, "`kind` must be `flow-service-call`"),
        ("", "agent-unasked", code::DENIED, "- { name: agent, reason: "),
        ("", "agent-told", code::DENIED, "`hostile.agent-told` used `agent`"),
        ("", "agent-closed", code::DENIED, "`hostile.agent-closed` used `agent`"),
        ("", "take-nothing", code::INVALID_INPUT, "call 7 has no answer"),
        ("N3", "listen-flood", code::LIMIT_EXCEEDED, "host calls"),
        ("N10", "random-huge", code::TRAP, "exceeds limit"),
        ("", "no-wake", code::INVALID_OUTPUT, "1 to 16 wakes, not 0"),
        ("", "forever", code::INVALID_OUTPUT, "is longer than 365 days"),
        ("", "crowd", code::INVALID_OUTPUT, "`now` cannot be combined"),
        ("", "bodiless", code::INVALID_OUTPUT, "the node has none"),
        ("", "big-state", code::OUTPUT_TOO_LARGE, "state"),
        ("N7", "handles", code::LIMIT_EXCEEDED, "handles"),
        ("", "absent", code::BAD_PACK, "does not offer"),
    ];
    for (id, name, code, message) in cases {
        let hostile = run(&engine, attempt(&pack, &format!("hostile.{name}"), r#"{"n":1}"#));
        let ((result, calls), ()) = tokio::join!(hostile, echo(&engine, &pack));
        if code == code::DENIED {
            let asked = ["log", "metrics", "state", "cache", "http", "model", "tools", "services", "agent"];
            assert!(asked.iter().all(|interface| calls.count(interface) == 0), "{id} {name}: a call came through");
        }
        let failure = result.expect_err(name);
        assert_eq!(failure.code, code, "{id} {name}: {failure}");
        assert!(failure.message.contains(message), "{id} {name}: {failure}");
        assert!(!failure.retryable, "{id} {name}");
        assert!(failure.message.len() < 1_300 && !failure.message.contains(char::is_control), "{id} {name}: {failure}");
    }
}

/// Returns a value with this many levels of nesting.
fn nested(depth: usize) -> Value {
    (0..depth).fold(Json::Null, |inner, _| Json::object([("a", inner)])).into()
}

#[tokio::test]
async fn values_in_an_answer_are_no_deeper_than_json_permits() {
    let (engine, pack) = engine(Config::default());
    let wrapped = async |depth| {
        let attempt = Attempt { input: nested(depth), ..attempt(&pack, "hostile.wrap", "null") };
        run(&engine, attempt).await.0
    };
    let Ok(Step::Done(deep)) = wrapped(126).await else { panic!("126 and one more are not too deep") };
    // Other nodes can read every value that a node outputs.
    assert_eq!(Value::parse(deep.text()).unwrap(), deep);
    let failure = wrapped(127).await.unwrap_err();
    assert_eq!(failure.code, code::INVALID_OUTPUT);
    assert!(failure.message.contains("nested deeper than 127; pass on less"), "{failure}");
    // Bindings may build a deeper value, which the sandbox cannot read.
    let read = Attempt { input: nested(128), ..attempt(&pack, "hostile.copy", "null") };
    let failure = run(&engine, read).await.0.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.message.contains("deeper than 127")), (code::INVALID_INPUT, true));
}

#[tokio::test]
async fn a_part_that_is_repeated_in_an_answer_counts_twice() {
    let (engine, pack) = engine(Config::default());
    let mut input = Value::from(Json::object([("a", Json::from("x".repeat(20 << 20)))]));
    for fits in [true, false] {
        let attempt = Attempt { input: input.clone(), ..attempt(&pack, "hostile.double", "null") };
        match run(&engine, attempt).await.0 {
            Ok(Step::Done(output)) if fits => input = output,
            Err(failure) if !fits => {
                assert_eq!(failure.code, code::OUTPUT_TOO_LARGE);
                assert!(failure.message.contains("larger than 64 MiB"), "{failure}");
            }
            other => panic!("fits {fits}: {:?}", other.map(|_| ())),
        }
    }
    let both = Json::object([("a", input.json().clone()), ("b", input.json().clone())]);
    let read = Attempt { input: both.into(), ..attempt(&pack, "hostile.copy", "null") };
    assert_eq!(run(&engine, read).await.0.unwrap_err().code, code::INVALID_INPUT);
}

#[tokio::test]
async fn a_fan_out_needs_a_list() {
    let (engine, pack) = engine(Config::default());
    let attempt = Attempt { has_body: true, ..attempt(&pack, "hostile.no-list", r#"{"n":1}"#) };
    let failure = run(&engine, attempt).await.0.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.message.contains("a number, not a list")), (code::INVALID_OUTPUT, true));
}

#[tokio::test]
async fn n1_n13_n32_an_endless_guest_delays_no_other_attempt_and_ends_when_dropped() {
    let (engine, pack) = engine(Config { threads: Some(1), ..Config::default() });
    for name in ["hostile.spin", "hostile.sleep"] {
        let calls = Arc::new(Memory::default());
        let held = Arc::downgrade(&calls);
        let endless = engine.run(attempt(&pack, name, "{}"), calls);
        let neighbours = async {
            for _ in 0..10 {
                echo(&engine, &pack).await;
            }
        };
        ends_after(endless, neighbours, &held).await;
        echo(&engine, &pack).await;
    }
}

#[tokio::test]
async fn the_log_is_cut_and_says_so() {
    let (engine, pack) = engine(Config::default());
    let (result, calls) = run(&engine, attempt(&pack, "hostile.log-text", "{}")).await;
    assert_eq!(text(&result), "null");
    let log = calls.log();
    assert!(log.iter().map(String::len).sum::<usize>() < 270 << 10);
    assert!(log.last().unwrap().contains("dropped") && log.len() < 30, "{}", log.len());
}

#[tokio::test]
async fn n16_n30_text_for_people_is_harmless_and_in_order() {
    let (engine, pack) = engine(Config::default());
    let (result, calls) = run(&engine, attempt(&pack, "hostile.escape", "{}")).await;
    assert_eq!(text(&result), "null");
    assert_eq!(calls.log(), ["info \u{fffd}[2J\u{fffd}out", "error \u{fffd}[2Jlog"]);

    let failure = run(&engine, attempt(&pack, "hostile.fail", "{}")).await.0.unwrap_err();
    assert!(failure.code.len() <= 64 && !failure.code.contains('\n'), "{}", failure.code);
    assert!(failure.message.len() < 9_000 && !failure.message.contains('\x1b'));
    assert_eq!((failure.retryable, failure.retry_after_ms), (true, Some(5)));
    assert_eq!(failure.details.unwrap().as_str(), Some("{ no"));
}

#[tokio::test]
async fn a_panic_is_in_the_log_too() {
    let (engine, pack) = engine(Config::default());
    let (_, calls) = run(&engine, attempt(&pack, "hostile.unknown", "{}")).await;
    assert!(calls.log().iter().any(|line| line.starts_with("warn") && line.contains("no node type `unknown`")));
}

#[tokio::test]
async fn inputs_and_outputs_must_match_their_schemas() {
    let (engine, pack) = engine(Config::default());
    for (input, code) in
        [(r#"{"n":"x"}"#, code::INVALID_INPUT), ("{}", code::INVALID_INPUT), (r#"{"n":1}"#, code::INVALID_OUTPUT)]
    {
        let failure = run(&engine, attempt(&pack, "hostile.typed", input)).await.0.unwrap_err();
        assert_eq!(failure.code, code, "{input}: {failure}");
    }
}

/// Returns a value for schemas that refer to themselves. The deeper the value, the more alternatives the check of such
/// a schema has to try.
fn many_ways(depth: usize) -> Value {
    (0..depth).fold(Json::from("s"), |inner, _| Json::object([("x", inner), ("y", Json::from(1u32))])).into()
}

/// Y3 is the attack of schemas that cost much to check. The attempt whose value is checked fails with
/// `schema_too_costly`. Meanwhile another attempt succeeds on the only thread of the engine.
#[tokio::test]
async fn y3_schemas_that_cost_much_fail_their_attempt_alone() {
    let (engine, pack) = engine(Config { threads: Some(1), ..Config::default() });
    let way = json!({ "type": "object", "required": ["y"], "properties": { "x": { "$ref": "#/$defs/t" } } });
    let cyclic = json!({ "$ref": "#/$defs/t", "$defs": { "t": { "oneOf": [way, way, way, { "type": "integer" }] } } });
    // Its references unfold to 2^40 schemas.
    let mut doubling = json!({ "$ref": "#/$defs/a0", "$defs": { "a40": { "type": "integer" } } });
    for index in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/a{}", index + 1) });
        doubling["$defs"][format!("a{index}")] = json!({ "anyOf": [next, next] });
    }
    let nodes = json!([
        { "type": "hand.cyclic-input", "title": "X", "input": cyclic },
        { "type": "hand.cyclic-config", "title": "X", "config": cyclic },
        { "type": "hand.doubling-input", "title": "X", "input": doubling },
        { "type": "hand.doubling-config", "title": "X", "config": doubling },
    ]);
    let manifest = json!({ "name": "hand", "version": "1.0.0", "nodes": nodes }).to_string();
    let hand = engine.add_pack(with_manifest(by_hand("", ""), &manifest), "hand").unwrap();
    let costly = [
        (&hand, "hand.cyclic-input", "input"),
        (&hand, "hand.cyclic-config", "config"),
        (&hand, "hand.doubling-input", "input"),
        (&hand, "hand.doubling-config", "config"),
        (&pack, "hostile.costly", "output"),
    ];
    for (pack_of, name, part) in costly {
        let config = if part == "config" { many_ways(100) } else { Value::null() };
        let attempt = Attempt { input: many_ways(100), config, ..attempt(pack_of, name, "null") };
        let ((result, _), ()) = tokio::join!(run(&engine, attempt), echo(&engine, &pack));
        let failure = result.expect_err(name);
        assert_eq!(failure.code, code::SCHEMA_TOO_COSTLY, "{name}: {failure}");
        assert!(failure.message.contains(&format!("the {part} of `{name}`")), "{name}: {failure}");
    }
}

#[tokio::test]
async fn a_capability_that_a_node_type_asks_for_is_live() {
    let (engine, pack) = engine(Config::default());
    let calls = Arc::new(Memory::default());
    for count in 1..4 {
        let result = engine.run(attempt(&pack, "hostile.state", r#"{"name":"b"}"#), calls.clone()).await;
        assert_eq!(text(&result), format!(r#"{{"name":"b","count":{count}}}"#));
    }
    assert_eq!(calls.count("state"), 6);
}

#[tokio::test]
async fn n6_components_made_by_hand_end_before_they_run() {
    let engine = Engine::new(Config::default()).unwrap();
    let many = |what: &str, count: usize| (0..count).map(|_| what).collect::<String>();
    let instances = format!("(core module $n) {}", many("(core instance (instantiate $n))", 40));
    let cases = [
        ("a run of another type", "", String::new(), code::BAD_PACK),
        ("grows a table in start", GROW_TABLE, String::new(), code::LIMIT_EXCEEDED),
        ("grows memory in start", GROW_MEMORY, String::new(), code::OUT_OF_MEMORY),
        ("recurses in start", "(func $f (call $f)) (start $f)", String::new(), code::STACK_OVERFLOW),
        ("begins with too much memory", "(memory 2000)", String::new(), code::BAD_PACK),
        ("begins with too large a table", "(table 30000 funcref)", String::new(), code::BAD_PACK),
        ("has too many memories", &many("(memory 1)", 9), String::new(), code::BAD_PACK),
        ("has too many tables", &many("(table 1 funcref)", 65), String::new(), code::BAD_PACK),
        ("has many instances, but not too many", "", instances, code::BAD_PACK),
    ];
    for (name, fields, more, code) in cases {
        let component = with_manifest(
            by_hand(fields, &more),
            "{ name: hand, version: 1.0.0, nodes: [{ type: hand.x, title: X }] }",
        );
        let pack = engine.add_pack(component, name).unwrap();
        let failure = run(&engine, attempt(&pack, "hand.x", "{}")).await.0.unwrap_err();
        assert_eq!(failure.code, code, "{name}: {failure}");
    }
}

const GROW_TABLE: &str = "(table 1 funcref)
    (func $f (loop (drop (table.grow (ref.null func) (i32.const 1000))) (br 0))) (start $f)";
const GROW_MEMORY: &str = "(memory 1) (func $f (loop (drop (memory.grow (i32.const 100))) (br 0))) (start $f)";

#[tokio::test]
async fn n2_a_start_function_that_spins_delays_no_other_attempt() {
    let (engine, pack) = engine(Config { threads: Some(1), ..Config::default() });
    let component = by_hand("(func $f (loop (br 0))) (start $f)", "");
    let manifest = "{ name: hand, version: 1.0.0, nodes: [{ type: hand.x, title: X }] }";
    let hand = engine.add_pack(with_manifest(component, manifest), "hand").unwrap();
    let spin = engine.run(attempt(&hand, "hand.x", "{}"), Arc::new(Memory::default()));
    match select(spin, std::pin::pin!(echo(&engine, &pack))).await {
        Either::Right(_) => {}
        Either::Left((result, _)) => panic!("{result:?}"),
    }
}
