//! Cases that the manifest's examples cannot show. The engine's tests run the costly queries in the sandbox.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use flowcell_sdk::{
    Given,
    testing::{self, Outcome},
};
use serde_json::{Value, json};

use crate::program::{MAX_QUERY_BYTES, MAX_QUERY_NESTING};

fn run(input: Value) -> Outcome {
    testing::run(crate::run_node, "data.query", Given { input, ..Given::default() })
}

fn values(input: &Value, query: &str) -> Value {
    match run(json!({ "input": input, "query": query, "vars": { "v": { "a": [1, 2] } } })) {
        Outcome::Output(output) => {
            let values = output["values"].as_array().unwrap();
            assert_eq!(output["value"], values.first().cloned().unwrap_or_default(), "{query}");
            output["values"].clone()
        }
        other => panic!("{query}: {other:?}"),
    }
}

fn failure(input: &Value, query: &str) -> flowcell_sdk::Failure {
    match run(json!({ "input": input, "query": query })) {
        Outcome::Failure(failure) => failure,
        other => panic!("{query}: {other:?}"),
    }
}

#[test]
fn queries_give_what_jq_gives() {
    let order =
        json!({ "lines": [{ "sku": "b", "n": 2, "price": 1.5 }, { "sku": "a", "n": 1, "price": 3 }], "to": null });
    let rows = [
        ("[.lines[].n] | add", json!([3])),
        (".lines | map(.n * .price) | add", json!([6])),
        (".lines | sort_by(.sku) | map(.sku) | join(\"-\")", json!(["a-b"])),
        (".lines | group_by(.n > 1) | map(length)", json!([[1, 1]])),
        ("[.. | numbers] | length", json!([4])),
        (".lines[] | {(.sku): .n}", json!([{ "b": 2 }, { "a": 1 }])),
        (".to // \"nobody\"", json!(["nobody"])),
        ("[paths] | length", json!([10])),
        (".lines[0] |= (.n += 1) | .lines[0].n", json!([3])),
        ("del(.lines) | keys", json!([["to"]])),
        ("reduce .lines[] as $l (0; . + $l.n)", json!([3])),
        ("[limit(3; repeat(1))]", json!([[1, 1, 1]])),
        ("first(range(10; 0; -1))", json!([10])),
        ("try error(\"x\") catch .", json!(["x"])),
        (".lines[0].sku as $s | \"\\($s)!\"", json!(["b!"])),
        ("$v.a[1]", json!([2])),
        ("\"a1b22\" | [scan(\"[0-9]+\")]", json!([["1", "22"]])),
        ("\"2026-11-26\" | test(\"^\\\\d{4}-\")", json!([true])),
        ("\"a,b\" | split(\",\")", json!([["a", "b"]])),
        ("[1, \"a\\\"b\", null, true] | @csv", json!(["1,\"a\"\"b\",,true"])),
        ("[\"a\\tb\", 2] | @tsv", json!(["a\\tb\t2"])),
        ("\"a b&c\" | @uri", json!(["a%20b%26c"])),
        ("\"hi\" | @base64 | ., @base64d", json!(["aGk=", "hi"])),
        ("[1, 2] | IN([1, 2], [3])", json!([true])),
        ("INDEX(.lines[]; .sku) | keys", json!([["a", "b"]])),
        ("\"ba\" | [match(\"(?:(?<x>a)|(b))*\").captures[] | [.offset, .name]]", json!([[[1, "x"], [0, null]]])),
        ("\"äöä\" | [match(\"ö\").offset, sub(\"ö\"; \"o\")]", json!([[1, "äoä"]])),
        ("\"A-b\" | gsub(\"(?<l>[a-z])\"; .l + .l; \"i\")", json!(["AA-bb"])),
        ("\"<a & 'b'>\" | @html, (@html | @htmld)", json!(["&lt;a &amp; &#39;b&#39;&gt;", "<a & 'b'>"])),
        ("[9 | sqrt, pow(2; 10), (10 | log10)]", json!([[3, 1024, 1]])),
        ("ltrimstr(\"x\")? // \"other\"", json!(["other"])),
        ("\"xxa\" | ltrimstr(\"x\"), rtrimstr(\"a\"), trimstr(\"x\")", json!(["xa", "xx", "xa"])),
        ("[\"it's\", 1] | @sh", json!(["'it'\\''s' 1"])),
        ("getpath([\"lines\", 0, \"sku\"])", json!(["b"])),
        ("[limit(0; 1, 2)], [limit(-1; 1, 2)]", json!([[], []])),
        ("[65, 228, 128512] | implode", json!(["Aä😀"])),
        ("[-2147483648, -5, \"äb\", null, [1], {}] | map(length)", json!([[2_147_483_648_u64, 5, 2, 0, 1, 0]])),
    ];
    for (query, expected) in rows {
        assert_eq!(values(&order, query), expected, "{query}");
    }
}

/// jq gives the same results, but for the keys `k` and `K` of entries and for letters beyond ASCII in patterns.
#[test]
fn deletions_texts_and_groups_are_those_of_jq() {
    let rows = [
        // Deletions use the places before the first deletion.
        ("[1, 2, 3] | del(.[0, 1])", json!([[3]])),
        ("[1, null, 2, null, 3, 9] | delpaths([paths(. == null)])", json!([[1, 2, 3, 9]])),
        ("[1, 2, 3, 4] | del(.[0], .[-1], .[3])", json!([[2, 3]])),
        ("[1, 2, 3, 4, 5] | del(.[0:2], .[2], .[-1:])", json!([[4]])),
        ("[1, 2, 3] | del(.[1:]), del(.[]), del(.[9]), del(.[-4])", json!([[1], [], [1, 2, 3], [1, 2, 3]])),
        ("[[1, 2, 3], [4]] | del(.[0][0, 1], .[1])", json!([[[3]]])),
        ("[[1, 2, 3], [4]] | del(.[0][0], .[0])", json!([[[4]]])),
        ("[1, [2, 3]] | del(.[1:][0][0])", json!([[1, [3]]])),
        ("{} | del(.a.b), del(.a), delpaths([[\"a\", 0, \"b\"]])", json!([{}, {}, {}])),
        ("{\"a\": 1, \"b\": 2, \"c\": 3} | del(.a) | tojson, keys_unsorted", json!(["{\"b\":2,\"c\":3}", ["b", "c"]])),
        ("{\"a\": [1, null], \"b\": null} | del(.. | select(. == null))", json!([{ "a": [1] }])),
        ("{\"a\": 1, \"b\": {\"c\": 2}} | del(.a, .b.c), del(.[])", json!([{ "b": {} }, {}])),
        ("[range(6)] | del(.[] | select(. % 2 == 0))", json!([[1, 3, 5]])),
        ("1 | delpaths([]), delpaths([[]]), del(.)", json!([1, null, null])),
        ("null | del(.a), del(.[0])", json!([null, null])),
        (
            "[5, 6] | to_entries, ({\"a\": 1} | with_entries(.value += 1)), with_entries(.value += 1)?",
            json!([[{ "key": 0, "value": 5 }, { "key": 1, "value": 6 }], { "a": 2 }]),
        ),
        ("[[{\"a\": 1}] | paths]", json!([[[0], [0, "a"]]])),
        // Whole numbers have no point in texts.
        (
            "6 / 2 | \"\\(.)\", tostring, tojson, @text, @json, @uri, @html, @sh, @base64",
            json!(["3", "3", "3", "3", "3", "3", "3", "3", "Mw=="]),
        ),
        (
            "[6 / 2, 1 / 4] | @csv, @tsv, @sh, join(\"-\"), tojson, tostring, \"\\(.)\"",
            json!(["3,0.25", "3\t0.25", "3 0.25", "3-0.25", "[3,0.25]", "[3,0.25]", "[3,0.25]"]),
        ),
        ("{\"a\": [4 / 2], \"b\": {\"c\": -6 / 2}} | tojson", json!(["{\"a\":[2],\"b\":{\"c\":-3}}"])),
        ("9 | sqrt | \"\\(.)\", \"a\\(\"b\\(. * 1.0)\")c\"", json!(["3", "ab3c"])),
        (
            "def f: \"x\\(. / 2)\"; 4 | f, [f], {\"k\\(. / 2)\": 1}, {a: \"\\(. / 2)\"}",
            json!(["x2", ["x2"], { "k2": 1 }, { "a": "2" }]),
        ),
        (
            "{\"k2\": 5} | .\"k\\(4 / 2)\", .[\"k\\(4 / 2)\"], (. | .\"k\\(2)\"), {\"k\\(4 / 2)\"}",
            json!([5, 5, 5, { "k2": 5 }]),
        ),
        ("{\"a\": {\"k2\": 5}} | .a.\"k\\(4 / 2)\", .a[\"k\\(4 / 2)\"]", json!([5, 5])),
        ("4 / 2 | @json \"v\\(.)\", @base64 \"\\(.)\", @text \"\\(.)\"", json!(["v2", "Mg==", "2"])),
        ("reduce (1, 2) as $x (\"\"; . + \"\\($x / 1)\"), (label $l | \"\\(1, break $l)\")", json!(["12", "1"])),
        ("[{\"id\": 4}] | INDEX(.id / 2)", json!([{ "2": { "id": 4 } }])),
        ("[1.5, 100 / 3 | tostring | length > 3]", json!([[false, true]])),
        ("\"A\\(1, 2)\" // error | ascii_downcase", json!(["a1", "a2"])),
        // join, flatten, from_entries
        ("[\"a\", null, \"b\"] | join(\",\")", json!(["a,,b"])),
        ("[1, true, \"x\", false, 0.5] | join(\"-\")", json!(["1-true-x-false-0.5"])),
        ("[] | join(\",\"), flatten, flatten(1)", json!(["", [], []])),
        ("[null] | join(\",\")", json!([""])),
        ("[1, 2] | join(null), ([1] | join(2))", json!(["12", "1"])),
        ("{\"a\": \"x\", \"b\": 2} | join(\"/\")", json!(["x/2"])),
        ("[\"a\", \"b\"] | join(\",\", \"/\")", json!(["a,b", "a/b"])),
        (
            "[1, [2, [3, [4]]]] | flatten(0), flatten(1), flatten",
            json!([[1, [2, [3, [4]]]], [1, 2, [3, [4]]], [1, 2, 3, 4]]),
        ),
        (
            "[{\"k\": \"a\", \"v\": 1}, {\"name\": \"b\", \"Value\": 2}, {\"Name\": \"c\", \"value\": null}, {\"K\": \"d\"}, {\"Key\": \"e\", \"value\": false}] | from_entries",
            json!([{ "a": 1, "b": 2, "c": null, "d": null, "e": false }]),
        ),
        // Groups without a match
        ("\"b\" | [scan(\"(a)?b\")]", json!([[[null]]])),
        (
            "\"ab b\" | [scan(\"(a)?(b)\")], [scan(\"b\")], [scan(\"B\"; \"i\")]",
            json!([[["a", "b"], [null, "b"]], ["b", "b"], ["b", "b"]]),
        ),
        ("\"b\" | capture(\"(?<x>a)|(?<y>b)\")", json!([{ "x": null, "y": "b" }])),
        (
            "\"b\" | match(\"(?<x>a)?b\").captures",
            json!([[{ "offset": -1, "length": 0, "string": null, "name": "x" }]]),
        ),
        (
            "\"ab\" | sub(\"(?<x>c)?a\"; \"[\\(.x)]\"), test(\"(c)?a\"), [splits(\"(c)?a\")]",
            json!(["[null]b", true, ["", "b"]]),
        ),
        // Patterns know ASCII only. Those of jq know all letters.
        (
            "\"Ää\" | [test(\"^ä\"; \"i\"), test(\"(?i)^ä\"), test(\"\\\\w\"), test(\"[ä]$\")]",
            json!([[false, false, false, true]]),
        ),
        // Base64
        ("\"aGk\", \"aGk=\", \"aGl\", \"\" | @base64d", json!(["hi", "hi", "hi", ""])),
    ];
    for (query, expected) in rows {
        assert_eq!(values(&json!(1), query).to_string(), expected.to_string(), "{query}");
    }
    let rows = [
        ("[[1]] | join(\",\")", "cannot calculate"),
        ("[{}] | join(\",\")", "cannot calculate"),
        ("[1, 2] | join(1)", "cannot calculate \"1\" + 1"),
        ("[{\"key\": null, \"value\": 1}] | from_entries", "cannot use null as the key"),
        ("[{\"key\": false, \"value\": 1}] | from_entries", "cannot use null as the key"),
        ("[{\"key\": (6 / 2), \"value\": 1}] | from_entries", "cannot use 3 as the key"),
        ("[1] | flatten(-1)", "flatten depth must not be negative"),
        ("1 | delpaths([[\"a\"]])", "cannot index 1"),
        ("[1] | delpaths([[\"a\"]])", "cannot index"),
        ("[1] | delpaths([1])", "cannot use 1 as array"),
        ("\"a\\(1 / 0)\" | error", "aInfinity"),
    ];
    for (query, message) in rows {
        let failure = failure(&json!(1), query);
        assert_eq!(failure.code, "query_failed", "{query}");
        assert!(failure.message.contains(message), "{query}: {failure}");
    }
    // Mistakes in queries with `\(…)` keep their places.
    let rows = [
        ("\"\\(1)\" | foo", 10, "there is no function `foo/0`"),
        ("\"\\($x)\"", 4, "there is no variable `$x`"),
        ("1 \"\\(1)\"", 3, "expected the end of the query, found `\""),
        ("\"\\(1 + )\"", 8, "expected a term"),
        ("import \"a\" as a; \"\\(1)\"", 9, "there is no module"),
    ];
    for (query, column, message) in rows {
        let failure = failure(&json!(1), query);
        assert!(failure.message.contains(message), "{query}: {failure}");
        assert_eq!(failure.details, Some(json!({ "line": 1, "column": column })), "{query}: {failure}");
    }
}

/// Whole numbers keep all digits that fit into 64 bits. Further ones are refused, and not rounded.
#[test]
fn numbers_are_exact_or_refused() {
    let large = json!([9_007_199_254_740_993_u64, u64::MAX, i64::MIN, 1.0, 0.1, -0.5, 1e300]);
    assert_eq!(values(&large, ".").to_string(), format!("[{large}]"));
    let rows = [
        (".[0] + 1", "[9007199254740994]"),
        (".[1] - 1", "[18446744073709551614]"),
        (".[0] == 9007199254740992", "[false]"),
        ("6 / 2, 1 / 4, 1.50, 1e2", "[3,0.25,1.5,100.0]"),
        (".[3] + 1", "[2]"),
        ("3000000000 * 3", "[9000000000]"),
        ("[.[0], .[1]] | sort | reverse | .[0]", "[18446744073709551615]"),
        ("{\"9007199254740993\": 1}[.[0] | tostring]", "[1]"),
    ];
    for (query, expected) in rows {
        assert_eq!(values(&large, query).to_string(), expected, "{query}");
    }
    for query in [".[1] + 1", "123456789012345678901", "[.[1] * .[1]]"] {
        let failure = failure(&large, query);
        assert_eq!(failure.code, "query_failed", "{query}");
        assert!(failure.message.contains("more digits than can be kept exactly"), "{query}: {failure}");
    }
}

#[test]
fn results_that_json_lacks_are_refused() {
    let rows = [
        ("nan", "NaN is no number of JSON"),
        ("1, infinite", "result 1: Infinity is no number"),
        ("1e1000", "1e1000 is no number of JSON"),
        ("{(1): 2}", "the key 1 of an object is no text"),
        ("\"a\" | tobytes", "bytes that are no text"),
        ("[-255] | implode", "a text that is not UTF-8"),
        ("reduce range(200) as $i (0; [.])", "nested more than 127 deep"),
    ];
    for (query, message) in rows {
        let failure = failure(&json!(1), query);
        assert_eq!(failure.code, "query_failed", "{query}");
        assert!(failure.message.contains(message), "{query}: {failure}");
    }
}

/// An error of the syntax names its line and column, in characters from 1.
#[test]
fn errors_in_queries_have_a_place() {
    let rows = [
        (". |", 1, 4, "expected a term, found the end of the query"),
        (".a\n | foo(1)", 2, 4, "there is no function `foo/1`"),
        ("\"äö\" | §", 1, 8, "expected a token, found `§`"),
        ("[1, 2", 1, 6, "expected a closing bracket, found the end of the query"),
        ("if . then 1", 1, 12, "expected else or end"),
        ("$x", 1, 1, "there is no variable `$x`"),
        ("1 | break $out", 1, 11, "there is no label `$out`"),
        ("", 1, 1, "expected a term, found the end of the query"),
        ("1 2", 1, 3, "expected the end of the query, found `2`"),
        ("{a: 1", 1, 6, "closing brace"),
        ("\"\\x\"", 1, 3, "string escape sequence"),
        ("def f: 1;", 1, 10, "expected a term"),
    ];
    for (query, line, column, message) in rows {
        let failure = failure(&json!(1), query);
        assert_eq!(failure.code, "invalid_query", "{query}: {failure}");
        assert_eq!(failure.details, Some(json!({ "line": line, "column": column })), "{query}: {failure}");
        let place = format!("line {line}, column {column} of the query: ");
        assert!(failure.message.starts_with(&place) && failure.message.contains(message), "{query}: {failure}");
    }
}

/// Nothing of jq that reaches out of the query exists, and the error says so.
#[test]
fn queries_reach_nothing_but_their_values() {
    let rows = [
        ("now", "no clock"),
        ("now | todate", "no clock"),
        ("localtime", "no dates"),
        ("strflocaltime(\"%H\")", "no dates"),
        ("0 | todate", "no dates"),
        ("input", "one input"),
        ("[inputs]", "one input"),
        ("input_filename", "one input"),
        ("input_line_number", "one input"),
        ("env", "no environment"),
        ("env.PATH", "no environment"),
        ("$ENV.PATH", "no environment"),
        ("debug", "no effect"),
        ("debug(\"a\")", "there is no function `debug/1`: a query has no effect"),
        ("stderr", "no effect"),
        ("1 | debug_empty", "no effect"),
        ("halt", "cannot end the process"),
        ("halt(1)", "cannot end the process"),
        ("halt_error", "cannot end the process"),
        ("import \"a\" as a; 1", "there is no module `a`"),
        ("include \"/etc/passwd\"; 1", "cannot read modules or other files"),
        ("import \"/etc/passwd\" as $d; $d", "cannot read modules or other files"),
        ("a::b", "there is no module `a`"),
        ("$__prog_args", "there is no variable `$__prog_args`"),
        ("$__loc__", "there is no variable `$__loc__`: a query does not see its own lines"),
        ("@base32", "use `@base64`"),
        ("tostream", "there is no function `tostream/0`: a query reads whole values"),
        ("fromstream(1)", "a query reads whole values"),
        ("significand", "there is no function `significand/0`: not all systems have it"),
        ("65 | ascii", "write `[.] | implode`"),
        ("modulemeta", "there is no function `modulemeta/0`"),
        ("get_search_list", "there is no function `get_search_list/0`"),
        ("builtins", "there is no function `builtins/0`"),
    ];
    for (query, message) in rows {
        let failure = failure(&json!(1), query);
        assert_eq!(failure.code, "invalid_query", "{query}: {failure}");
        assert!(failure.message.contains(message), "{query}: {failure}");
    }
}

#[test]
fn errors_of_queries_are_told_in_short() {
    let rows = [
        ("error(\"the rate is missing\")", "the rate is missing"),
        ("error({code: 7})", "{\"code\":7}"),
        ("error(null)", "the query called `error` without a message"),
        (".a", "cannot index 1 with \"a\""),
        ("\"a\" | test(\"(\")", "this is not a pattern: "),
        ("\"[\" | fromjson", "cannot parse \"[\" as JSON"),
        ("{} | sort", "cannot use {} as array"),
        ("[1, [2]] | @csv", "a cell is a text, a number, a boolean or null, and not array"),
    ];
    for (query, message) in rows {
        let failure = failure(&json!(1), query);
        assert_eq!(failure.code, "query_failed", "{query}");
        assert!(failure.message.contains(message), "{query}: {failure}");
    }
    let long = failure(&json!("x".repeat(100_000)), ".a");
    assert_eq!(long.message.chars().count(), 501);
}

#[test]
fn queries_and_names_are_bounded() {
    let long = format!("1{}", " ".repeat(MAX_QUERY_BYTES));
    assert!(failure(&json!(1), &long).message.contains("the query has 65537 bytes; the limit is 65536"));
    assert!(failure(&json!(1), &" ".repeat(1 << 20)).message.contains("the limit is 65536"));
    let refused = failure(&json!(1), &"[".repeat(MAX_QUERY_NESTING + 1));
    assert_eq!(refused.details, Some(json!({ "line": 1, "column": MAX_QUERY_NESTING + 1 })), "{refused}");
    // Brackets in texts and comments are none, and those in `\(…)` are.
    let texts = format!("\"\\\"{0}\\(\"{0}\")\" # {0}\n | length", "[(".repeat(200));
    assert_eq!(values(&json!(1), &texts), json!([801]));
    let inside = "\"\\(".repeat(60);
    assert!(failure(&json!(1), &inside).message.contains("nested more than 100 deep"));
    for name in ["", "a-b", "1a", "ä", "$a", "a b"] {
        let input = json!({ "input": 1, "query": ".", "vars": { name: 1 } });
        let Outcome::Failure(failure) = run(input) else { panic!("{name}") };
        assert!(failure.code == "invalid_input" && failure.message.contains("is not a name"), "{failure}");
    }
}

/// The output has the first result twice, and both count.
#[test]
fn outputs_are_bounded() {
    let most = values(&json!(1), "range(999980) | 1");
    assert_eq!(most.as_array().unwrap().len(), 999_980);
    let many = "the query gives more than 1000000 results; select less, or use `first(…)`";
    let full = "the output has more than 1000000 values, where a list or an object counts as 6";
    let large = "bytes with result 0; the limit is 4194304, and the first result counts twice";
    let rows = [
        ("range(1000001) | 1", many),
        ("repeat(1)", many),
        ("range(infinite) | 1", many),
        ("range(1000000) | 1", full),
        ("range(200000) | []", full),
        ("[range(500000) | 1]", full),
        ("\"x\" * 2097140", "the output has at least 4194306 bytes with result 0"),
        ("\"x\" * 4000000", large),
        ("1, \"x\" * 4194300", "with result 1; the limit is 4194304"),
        ("\"x\" * 1048576 | repeat(.)", "with result 2; the limit is 4194304"),
    ];
    for (query, message) in rows {
        let failure = failure(&json!(1), query);
        assert_eq!(failure.code, "output_too_large", "{query}: {failure}");
        assert!(failure.message.contains(message), "{query}: {failure}");
    }
    // 22 bytes of the object, and two copies of 2 MiB less 11 bytes, quotes included.
    assert_eq!(values(&json!(1), "\"x\" * 2097139")[0].as_str().unwrap().len(), 2_097_139);
}

/// Values with names that are special elsewhere are plain values, and no value becomes a part of the query.
#[test]
fn values_are_no_code() {
    let input = json!({ "__proto__": { "x": 1 }, "constructor": "\\(env)", "q": "\") | error(\"" });
    assert_eq!(values(&input, "."), json!([input]));
    assert_eq!(values(&input, ".__proto__.x, .q"), json!([1, "\") | error(\""]));
    assert_eq!(
        values(&json!({}), ".__proto__ = { polluted: 1 } | ., {}"),
        json!([{ "__proto__": { "polluted": 1 } }, {}])
    );
    let file = json!({ "kind": "file", "fileId": "abc", "size": 9 });
    let refused = failure(&file, ".total");
    assert!(refused.code == "invalid_input" && refused.message.contains("file.content"), "{refused}");
    assert_eq!(values(&json!({ "a": file }), ".a"), json!([file]));
}

/// The same query gives the same results, also where it uses a hash table.
#[test]
fn results_do_not_depend_on_the_process() {
    let input: Value = (0..2_000).map(|n| (format!("k{n}"), json!(n % 7))).collect::<serde_json::Map<_, _>>().into();
    let query = "(to_entries | group_by(.value) | map(map(.key))), (with_entries(.value += 1) | keys_unsorted)";
    assert_eq!(values(&input, query), values(&input, query));
}
