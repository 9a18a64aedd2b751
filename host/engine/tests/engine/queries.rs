//! Costly and deep queries in the language jq: each ends within the limits of its attempt, and says why.

use std::sync::Arc;

use flowcell_contract::{NodeRunner, Step, StepResult, code};
use flowcell_engine::{Engine, Pack, digest};
use serde_json::json;

use crate::{
    guests::catalog_pack,
    support::{Memory, attempt, caching_engine, ends_after, run},
};

fn queries() -> (Engine, Pack) {
    let engine = caching_engine();
    let bytes = catalog_pack("query");
    let digest = digest(&bytes);
    let pack = engine.add_built_in(bytes, digest, "query").unwrap();
    (engine, pack)
}

async fn query(engine: &Engine, pack: &Pack, query: &str) -> StepResult {
    let input = json!({ "input": "x", "query": query }).to_string();
    run(engine, attempt(pack, "data.query", &input)).await.0
}

#[tokio::test]
async fn n1_n33_queries_end_within_the_limits_of_their_attempt() {
    let (engine, pack) = queries();
    nested(&engine, &pack).await;
    costly(&engine, &pack).await;
    endless(&engine, &pack).await;
}

/// Checks that the deepest queries that are allowed fit into the stack of a sandbox.
async fn nested(engine: &Engine, pack: &Pack) {
    for (open, close) in [("[", "]"), ("(", ")"), ("{a: ", "}"), ("[.[", "]?]"), ("\"\\(", ")\"")] {
        let depth = if open.starts_with('"') || open.starts_with("[.") { 50 } else { 100 };
        let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
        let result = query(engine, pack, &text).await;
        assert!(matches!(result, Ok(Step::Done(_))), "{open}: {result:?}");
    }
    // Each part of a text, each `|` and each operator takes stack, too.
    for (part, end) in [(".|", "."), ("1 + ", "1"), ("., ", "."), ("\"\\n\" + ", "\"\"")] {
        let result = query(engine, pack, &(part.repeat(200) + end)).await;
        assert!(matches!(result, Ok(Step::Done(_))), "{part}: {result:?}");
    }
    let result = query(engine, pack, &format!("\"{}\"", "a\\n".repeat(200))).await;
    assert!(matches!(result, Ok(Step::Done(_))), "{result:?}");
}

/// Checks that costly and deep queries fail, with a code that says why.
async fn costly(engine: &Engine, pack: &Pack) {
    let long = |part: &str, end: &str| part.repeat((65_000 - end.len()) / part.len()) + end;
    let overflow: &[&str] = &[code::STACK_OVERFLOW, code::TRAP];
    let refused: &[&str] = &["invalid_query", code::STACK_OVERFLOW, code::TRAP];
    let cases: [(String, &[&str]); 26] = [
        ("[range(1000000000)]".into(), &[code::OUT_OF_MEMORY]),
        ("[repeat(.)]".into(), &[code::OUT_OF_MEMORY]),
        ("reduce range(40) as $i (.; . + .)".into(), &[code::OUT_OF_MEMORY]),
        ("reduce range(40) as $i (.; [., .])".into(), &["output_too_large"]),
        ("reduce range(40) as $i (.; [., .]) | tojson".into(), &[code::OUT_OF_MEMORY]),
        (". * 1000000000".into(), &[code::OUT_OF_MEMORY, code::TRAP]),
        ("[limit(100000000; repeat(1))] | sort".into(), &[code::OUT_OF_MEMORY]),
        ("repeat(.)".into(), &["output_too_large"]),
        ("range(1e18)".into(), &["output_too_large"]),
        ("[range(1e18)]".into(), &[code::OUT_OF_MEMORY]),
        ("[range(1e9)] | implode".into(), &[code::OUT_OF_MEMORY]),
        ("[] | .[1e9] = 1".into(), &[code::OUT_OF_MEMORY, code::TRAP, "query_failed"]),
        ("reduce range(40) as $i (.; [., .]) | error".into(), &[code::OUT_OF_MEMORY]),
        ("[limit(1e18; repeat(1))]".into(), &[code::OUT_OF_MEMORY]),
        ("\"[\" * 10000 + \"]\" * 10000 | fromjson".into(), &["query_failed", code::STACK_OVERFLOW, code::TRAP]),
        (
            "null | setpath([range(10000)]; 1)".into(),
            &["query_failed", code::OUT_OF_MEMORY, code::STACK_OVERFLOW, code::TRAP],
        ),
        ("def f: 1 + f; f".into(), overflow),
        ("reduce range(100000) as $i (0; [.])".into(), &["query_failed"]),
        ("reduce range(100000) as $i (0; [.]) | tojson".into(), overflow),
        ("\"[\" * 100000 | fromjson".into(), overflow),
        (long("-", "1"), refused),
        (long("try ", "1"), refused),
        (long(".|", "1"), refused),
        (long("if ", "1"), refused),
        (long("def f: ", "1"), refused),
        (long(". as $x|", "1"), refused),
    ];
    for (text, codes) in cases {
        let result = query(engine, pack, &text).await;
        let shown: String = text.chars().take(40).collect();
        eprintln!("{shown}: {:?}", result.as_ref().err());
        let failure = result.expect_err(&shown);
        assert!(codes.contains(&failure.code.as_str()), "{shown}: {failure}");
        assert!(failure.message.len() < 1_300, "{shown}: {failure}");
        assert!(!failure.retryable, "{shown}");
    }
    // A pattern that takes other engines exponential time.
    let slow = query(engine, pack, r#". * 5000 + "!" | test("^(x+)+$")"#).await;
    let Ok(Step::Done(output)) = slow else { panic!("{slow:?}") };
    assert_eq!(output.text(), r#"{"value":false,"values":[false]}"#);
}

/// Checks that endless queries delay no other attempt, and end when they are dropped.
async fn endless(engine: &Engine, pack: &Pack) {
    let queries = [
        "last(range(infinite))",
        "def f: f; f",
        "first(repeat(.) | select(. == 2))",
        "until(false; .)",
        // Each product has twice as many digits.
        "reduce range(60) as $i (3; . * .)",
    ];
    for endless in queries {
        let input = json!({ "input": 1, "query": endless }).to_string();
        let calls = Arc::new(Memory::default());
        let held = Arc::downgrade(&calls);
        let endless = engine.run(attempt(pack, "data.query", &input), calls);
        let neighbours = async {
            for _ in 0..5 {
                let result = query(engine, pack, ". + .").await;
                assert!(matches!(&result, Ok(Step::Done(output)) if output.text().contains("\"xx\"")), "{result:?}");
            }
        };
        ends_after(endless, neighbours, &held).await;
    }
}
