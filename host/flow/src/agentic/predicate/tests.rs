//! Tests of predicates.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;
use crate::limits;

fn holds(predicate: &str, args: &str) -> bool {
    let condition =
        parser::parse(predicate).unwrap_or_else(|error| panic!("{predicate}: {error:?}")).condition(POSTPONED);
    let roots = Json::object([("args", Json::parse(args).unwrap())]);
    Condition::compile(&condition).unwrap().evaluate(&roots).unwrap_or_else(|error| panic!("{predicate}: {error:?}"))
}

fn refusal(predicate: &str) -> (String, String) {
    match parser::parse(predicate) {
        Err(error) => error,
        Ok(parsed) => panic!("{predicate}: {parsed:?}"),
    }
}

const ARGS: &str = r#"{ "workflow": "IMPLEMENTATION", "n": 5, "f": 1.5, "yes": true, "none": null, "empty": "",
    "of": { "kind": "bug" }, "list": [1, "a"], "a-b": "c", "odd": "{{ x }} \"q\" \\ é\n", "ten": "10", "nine": "9",
    "minus": -3, "big": 9007199254740993, "exp": "1e3", "spaces": " 7 ", "no": false, "v": "v && w",
    "file": { "kind": "file", "fileId": "0", "size": 3, "mime": "text/plain", "name": "a" },
    "sign": "x && ${args.n} == 5 || true)" }"#;

#[test]
fn predicates_compare_texts() {
    let cases = [
        ("${args.workflow} == IMPLEMENTATION", true),
        ("${args.workflow}==IMPLEMENTATION", true),
        ("  ${ args.workflow }  ==   IMPLEMENTATION  ", true),
        ("${args.workflow} == implementation", false),
        ("${args.workflow} == \"IMPLEMENTATION\"", false),
        ("${args.workflow} != SKIP", true),
        ("${args.workflow} != IMPLEMENTATION", false),
        ("${args.workflow} =~ /IMPLEMENTATION|CORRECTION/", true),
        ("${args.workflow} =~ /^CORR/", false),
        ("${args.workflow} =~ /(?i)impl/", true),
        ("${args.workflow} =~ //", true),
        ("${args.n} == 5", true),
        ("${args.n} == 5.0", false),
        ("${args.n} != 5", false),
        ("${args.n} =~ /^[0-9]+$/", true),
        ("${args.f} == 1.5", true),
        ("${args.yes} == true", true),
        ("${args.yes} == True", false),
        ("${args.of.kind} == bug", true),
        ("${args.of} == {\"kind\":\"bug\"}", true),
        ("${args.list} == [1,\"a\"]", true),
        ("${args.a-b} == c", true),
        ("${args.odd} =~ /^\\{\\{ x \\}\\} \"q\" \\\\ é/", true),
        ("${args.empty} != x", true),
        ("${args.missing} == x", false),
        ("${args.missing} != x", false),
        ("${args.missing} =~ /.*/", false),
        ("${args.none} == null", false),
        ("${args.none} != x", false),
        ("${args.workflow.deeper} != x", false),
    ];
    for (predicate, expected) in cases {
        assert_eq!(holds(predicate, ARGS), expected, "{predicate}");
    }
}

/// The right side of a single comparison is plain text up to its end, as it was before there were `&&` and the like.
#[test]
fn a_single_comparison_keeps_its_text() {
    let args = r#"{ "a": "v && w", "b": "f(x) || !y", "c": "x)", "d": "<b>", "e": "!no", "f": "(", "g": "a/b/c",
        "h": "sizeof x" }"#;
    let cases = [
        ("${args.a} == v && w", true),
        ("${args.a} == v", false),
        ("${args.b} == f(x) || !y", true),
        ("${args.b} != f(x) || !y", false),
        ("${args.c} == x)", true),
        ("${args.d} == <b>", true),
        ("${args.e} == !no", true),
        ("${args.f} == (", true),
        ("${args.g} =~ /a/b/", true),
        ("${args.h} == sizeof x", true),
        ("${args.a} =~ /v && (w|x)/", true),
    ];
    for (predicate, expected) in cases {
        assert_eq!(holds(predicate, args), expected, "{predicate}");
    }
}

#[test]
fn numbers_are_compared_as_numbers() {
    let cases = [
        ("${args.n} < 6", true),
        ("${args.n} < 5", false),
        ("${args.n} <= 5", true),
        ("${args.n} > 4.5", true),
        ("${args.n} >= 6", false),
        ("${args.n}>-1", true),
        ("${args.minus} < -2.5", true),
        ("${args.minus} > 0", false),
        // A text that is a number is compared as one, not sign by sign.
        ("${args.ten} < 9", false),
        ("${args.ten} > 9", true),
        ("${args.nine} >= 9", true),
        ("${args.exp} > 999", true),
        ("${args.big} > 9007199254740992", true),
        ("${args.big} <= 9007199254740992", false),
        ("${args.f} < 2e0", true),
        ("${args.f} < 1e300", true),
        // A value that is not a number is neither less nor greater.
        ("${args.workflow} < 5", false),
        ("${args.workflow} >= 5", false),
        ("${args.spaces} < 9", false),
        ("${args.empty} < 9", false),
        ("${args.yes} > 0", false),
        ("${args.list} > 0", false),
        ("${args.of} > 0", false),
        ("${args.none} < 9", false),
        ("${args.missing} < 9", false),
        ("${args.missing.deeper} >= 0", false),
        ("${args.file} >= 0", false),
    ];
    for (predicate, expected) in cases {
        assert_eq!(holds(predicate, ARGS), expected, "{predicate}");
    }
    // A text beyond the range of numbers is no number, however it is written.
    let digits = "9".repeat(400);
    for text in ["1e999", "-1e999", &digits, &format!("0.{digits}e99"), &format!("{}e99", "9".repeat(200))] {
        let args = Json::object([("k", Json::from(text))]).to_string();
        let expected = text.ends_with("e99");
        assert_eq!(holds("${args.k} > 1", &args) || holds("${args.k} <= 1", &args), expected, "{text}");
    }
    assert!(holds("${args.k} > 1e299", r#"{ "k": 1e300 }"#));
}

/// The text and the size of a file value are not in the value. No comparison guesses them.
#[test]
fn file_values_fail_with_an_explanation() {
    for predicate in ["${args.file} == a", "sizeof ${args.file} > 0", "!(${args.file} =~ /a/)"] {
        let condition = parser::parse(predicate).unwrap().condition(POSTPONED);
        let roots = Json::object([("args", Json::parse(ARGS).unwrap())]);
        let error = Condition::compile(&condition).unwrap().evaluate(&roots).unwrap_err();
        assert!(error.message.contains("file value"), "{predicate}: {error:?}");
    }
}

#[test]
fn sizes_are_compared() {
    let args = r#"{ "list": [1, 2, 3], "none": [], "map": { "a": 1, "b": 2 }, "text": "hällo", "empty": "", "n": 123,
        "yes": true, "null": null }"#;
    let cases = [
        ("sizeof ${args.list} == 3", true),
        ("sizeof ${args.list} != 3", false),
        ("sizeof   ${args.list} > 2", true),
        ("sizeof ${args.list} < 10", true),
        ("sizeof ${args.none} == 0", true),
        ("sizeof ${args.none} != 0", false),
        ("sizeof ${args.map} >= 2", true),
        ("sizeof ${args.text} == 5", true),
        ("sizeof ${args.empty} <= 0", true),
        ("sizeof ${args.list} =~ /^[0-9]+$/", true),
        ("sizeof ${args.n} == 3", false),
        ("sizeof ${args.n} != 3", false),
        ("sizeof ${args.yes} > 0", false),
        ("sizeof ${args.null} == 0", false),
        ("sizeof ${args.missing} == 0", false),
        ("sizeof ${args.missing} != 0", false),
        ("sizeof ${args.missing.deeper} >= 0", false),
    ];
    for (predicate, expected) in cases {
        assert_eq!(holds(predicate, args), expected, "{predicate}");
    }
}

#[test]
fn comparisons_are_joined() {
    let cases = [
        ("${args.n} == 5 && ${args.yes} == true", true),
        ("${args.n} == 5 && ${args.yes} == false", false),
        ("${args.n} == 4 || ${args.yes} == true", true),
        ("${args.n}==4||${args.yes}==true", true),
        // `&&` binds tighter than `||`.
        ("${args.n} == 5 || ${args.n} == 4 && ${args.n} == 3", true),
        ("${args.n} == 4 && ${args.n} == 5 || ${args.n} == 5", true),
        ("(${args.n} == 5 || ${args.n} == 4) && ${args.n} == 3", false),
        ("((${args.n} == 4 && ${args.yes} == true) || ${args.f} == 1.5) && sizeof ${args.list} == 2", true),
        ("!(${args.n} == 5)", false),
        ("! ( ${args.n} == 4 ) && !(!(${args.yes} == true))", true),
        ("!(${args.n} == 4 || ${args.n} == 3)", true),
        ("(${args.n} == 5)", true),
        ("( ${args.v} == v ) || ${args.n} < 1", false),
        // A comparison of a missing argument is false, so its negation holds.
        ("!(${args.missing} == x)", true),
        ("${args.missing} == x || ${args.n} == 5", true),
        ("${args.missing} != x && ${args.n} == 5", false),
        // Signs in patterns belong to them.
        ("${args.workflow} =~ /IMPL|REVIEW/ && ${args.n} == 5", true),
        ("${args.v} =~ /^v && w$/ && (${args.workflow} =~ /(IMPL|X)/)", true),
        ("${args.odd} =~ /\\/|x/ || ${args.n} == 0", true),
        ("${args.v} =~ /[)]/ || ${args.n} == 5", true),
        // So do others in texts.
        ("${args.v} == <b>!? && ${args.n} == 5", false),
        ("${args.n} != a|b & c && ${args.n} == 5", true),
    ];
    for (predicate, expected) in cases {
        assert_eq!(holds(predicate, ARGS), expected, "{predicate}");
    }
}

/// The values of arguments are never read as a part of a predicate, and neither are keys and right sides as expressions.
#[test]
fn values_and_texts_are_not_evaluated() {
    assert!(holds("${args.sign} =~ /^x && / && ${args.n} == 5", ARGS));
    assert!(!holds("${args.sign} == x && ${args.n} == 5", ARGS));
    let texts = [
        "\"} or true or {\"",
        "x\\\" or true or \\\"",
        "{{ true }}",
        "x}} {{ 1",
        "{% if true %}",
        "' or true or '",
        "x) or (true",
    ];
    for text in texts {
        assert!(!holds(&format!("${{args.n}} == {text}"), ARGS), "{text}");
        let args = Json::object([("k", Json::from(text))]).to_string();
        assert!(holds(&format!("${{args.k}} == {text}"), &args), "{text}");
    }
    for key in ["args.a\"]", "args.a]", "args['a']", "args.a b", "args.a)", "args.{{a}", "nodes.a", "args.a | length"] {
        assert!(refusal(&format!("${{{key}}} == v")).0.contains("does not select"), "{key}");
    }
}

#[test]
fn the_number_of_the_iteration_compares_as_a_number() {
    let cases = [
        ("${step.iteration} < 3", [true, true, false]),
        ("${step.iteration} >= 3", [false, false, true]),
        ("${step.iteration} == 2", [false, true, false]),
        ("${step.iteration} != 2", [true, false, true]),
        ("${ step.iteration } =~ /^[13]$/", [true, false, true]),
        ("${args.ok} != true && ${step.iteration} < 3", [true, true, false]),
        ("!(${step.iteration} > 1) || ${args.missing} == x", [true, false, false]),
    ];
    for (predicate, expected) in cases {
        let condition = parser::parse(predicate).unwrap().condition(POSTPONED);
        let condition = Condition::compile(&condition).unwrap();
        for (number, expected) in (1..).zip(expected) {
            let roots = format!(r#"{{ "args": {{ "ok": false }}, "step": {{ "iteration": {number} }} }}"#);
            let given = condition.evaluate(&Json::parse(&roots).unwrap()).unwrap();
            assert_eq!(given, expected, "{predicate} in iteration {number}");
        }
    }
}

#[test]
fn invalid_predicates_are_refused() {
    let cases = [
        ("", "must begin with `${args.key}`", "write `${args.key} == value`"),
        ("args.k == v", "must begin with `${args.key}`, not with `args.k == v`", ""),
        ("${args.k == v", "must begin with", "close it with `}`"),
        ("${args} == v", "not select a single argument", ""),
        ("${arg.k} == v", "not select a single argument", ""),
        ("${step.iterations} == 1", "not select a single argument", "write `${step.iteration}`"),
        ("sizeof ${step.iteration} == 1", "has no size", "remove `sizeof`"),
        ("${step.iteration} < three", "not a number", ""),
        ("${args.k} < ${step.iteration}", "a second `${`", ""),
        ("${args.k}", "no operator", "write `${args.key} == true`"),
        ("${args.k} is v", "no operator", "`<=`"),
        ("${args.k} = v", "unknown operator `=`", "write `==`"),
        ("${args.k} => 3", "unknown operator `=>`", "write `>=`"),
        ("${args.k} !~ /v/", "unknown operator `!~`", "write `!( "),
        ("${args.k} ==", "no value to compare with", ""),
        ("${args.k} =~ v", "between slashes", ""),
        ("${args.k} =~ /v", "between slashes", ""),
        ("${args.k} =~ /", "between slashes", ""),
        ("${args.k} =~ /v/i", "not supported", "(?i)"),
        ("${args.k} =~ /(/", "not valid", ""),
        ("${args.k} =~ /a(?=b)/", "not valid", ""),
        ("${args.a} == ${args.b}", "a second `${`", "let the agent do it"),
        ("${args.a} == x and ${args.b} == y", "a second `${`", "write `&&` instead of `and`"),
        ("${args.a} == x or ${args.b} == y", "a second `${`", "write `||` instead of `or`"),
        ("not (${args.a} == x)", "not with `not (", "write `!( … )` instead of `not`"),
        ("!${args.a} == x", "before parentheses", "write `!( "),
        ("!!(${args.a} == x)", "before parentheses", ""),
        ("${args.a} && ${args.b} == y", "no operator", "write `${args.key} == true`"),
        ("(${args.a})", "no operator", "write `${args.key} == true`"),
        ("${args.a} == 1 &&", "", ""),
        ("(${args.a} == 1 &&)", "must begin with", ""),
        ("|| (${args.a} == 1)", "must begin with", ""),
        ("()", "must begin with", ""),
        ("() && ${args.a} == 1", "must begin with", ""),
        ("&&", "must begin with", ""),
        ("(${args.a} == 1 && ${args.b} == 1", "a `(` is not closed", "add `)`"),
        ("(${args.a} == 1)) && ${args.b} == 1", "closes more parentheses", ""),
        ("(${args.a} == 1) ${args.b} == 1", "`${args.b}` follows a parenthesis", "write `&&` or `||`"),
        ("(${args.a} == 1) and (${args.b} == 1)", "`and` follows a parenthesis", "write `&&` instead of `and`"),
        ("((${args.a} == 1) or (${args.b} == 1))", "`or` follows a parenthesis", "write `||` instead of `or`"),
        ("sizeof", "must begin with", "write `sizeof ${args.key} == 0`"),
        ("sizeof args.k == 0", "must begin with", ""),
        ("sizeof sizeof ${args.k} == 0", "must begin with", ""),
        ("sizeof(${args.k}) == 0", "must begin with", "write `sizeof ${args.key} == 0`"),
        ("sizeof ${args.k} == many", "gives a whole number", ""),
        ("sizeof ${args.k} > -1", "gives a whole number", ""),
        ("sizeof ${args.k}", "no operator", "write `sizeof ${args.key} > 0`"),
        ("${args.k} < beta", "compares numbers, and `beta` is not a number", ""),
        ("${args.k} < \"9\"", "compares numbers", ""),
        ("${args.k} < 5 && w", "compares numbers", ""),
        ("${args.k} < 2026-01-01", "compares numbers", ""),
        ("${args.k} < 01", "compares numbers", ""),
        ("${args.k} < 1e999", "compares numbers", ""),
        ("${args.k} < 18446744073709551616", "compares numbers", ""),
        ("${args.k} < NaN", "compares numbers", ""),
        // Texts that `&&` or parentheses would cut.
        ("${args.a} == \"x && y\" && ${args.b} == y", "quotes do not keep", "=~ /^"),
        ("(${args.a} == 'x)') || ${args.b} == y", "quotes do not keep", "=~ /^"),
        ("${args.a} == f(x) && ${args.b} == y", "may not contain `(`", "=~ /^"),
        ("${args.a} == v && w && ${args.b} == y", "must begin with", ""),
        ("${args.a} =~ /x/y/ && ${args.b} == y", "follows the pattern", "`\\/` for a slash"),
        ("${args.a} =~ /x/i && ${args.b} == y", "follows the pattern", "(?i)"),
        ("${args.a} =~ /x && ${args.b} == y", "between slashes", ""),
    ];
    for (predicate, message, help) in cases {
        if predicate == "${args.a} == 1 &&" {
            // One placeholder: the right side is plain text, as before.
            assert!(!holds(predicate, r#"{ "a": 1 }"#));
            continue;
        }
        let refused = refusal(predicate);
        assert!(refused.0.contains(message) && refused.1.contains(help), "{predicate}: {refused:?}");
        assert!(!refused.1.is_empty(), "{predicate}");
    }
}

#[test]
fn predicates_are_bounded() {
    let comparison = "${args.n} == 5";
    let joined = |count: usize| vec![comparison; count].join(" && ");
    assert!(holds(&joined(limits::PREDICATE_COMPARISONS), ARGS));
    assert!(refusal(&joined(limits::PREDICATE_COMPARISONS + 1)).0.contains("more than 64 comparisons"));
    let nested = |depth: usize| format!("{}{comparison}{}", "(".repeat(depth), ")".repeat(depth));
    assert!(holds(&nested(limits::PREDICATE_DEPTH), ARGS));
    assert!(refusal(&nested(limits::PREDICATE_DEPTH + 1)).0.contains("deeper than 16"));
    let negated = |depth: usize| format!("{}{comparison}{}", "!(".repeat(depth), ")".repeat(depth));
    assert!(holds(&negated(limits::PREDICATE_DEPTH), ARGS));
    // The parser stops at a limit, however long the text is.
    for endless in ["(", "!(", "(${args.a} == 1 || ", "sizeof ${args.a} == 1 && "] {
        assert!(!refusal(&endless.repeat(limits::DOCUMENT_BYTES / endless.len())).1.is_empty());
    }
    let long = format!("({comparison}) || ${{args.a}} == {}", "x".repeat(limits::PREDICATE_BYTES));
    assert!(refusal(&long).0.contains("bytes"));
    // A single comparison keeps its longer limit, that of expressions.
    assert!(!holds(&format!("${{args.n}} == {}", "x".repeat(limits::PREDICATE_BYTES)), ARGS));
}
