//! Captured fields mean the same from their captured values as from everything.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use flowcell_expr::{Binding, Captured, CapturedKind, Condition, Json, NoRoots, Roots};
use proptest::prelude::*;

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

#[test]
fn members_that_cannot_be_computed_are_left_out() {
    let roots = json(r#"{ "a": 1 }"#);
    let cases = [
        (r#"{ "x": "{{ a }}", "y": "{{ b | required }}", "z": [2] }"#, r#"{"x":1,"z":[2]}"#),
        (r#"{ "inner": { "y": "{{ b | required }}" } }"#, "{}"),
        (r#"[ "{{ a }}" ]"#, "{}"),
    ];
    for (text, expected) in cases {
        let binding = Binding::compile(&json(text)).unwrap();
        assert_eq!(binding.render_members(&roots).to_text(), expected, "{text}");
    }
}

#[test]
fn carries_what_is_read_and_nothing_else() {
    let roots = json(r#"{ "a": { "b": [1, [2]], "secret": 5 }, "c": { "d": "k" }, "item": "outer", "nothing": null }"#);
    let cases = [
        ("\"a.b[0] == 1\"", r#"{"a.b[0]":1}"#),
        ("\"a.b[-1] == item\"", r#"{"a.b":[1,[2]]}"#),
        ("\"a[c.d] or missing.x or nothing\"", r#"{"a":{"b":[1,[2]],"secret":5},"c.d":"k","nothing":null}"#),
        (r#"{"equals":{"var":"item.x","value":"{{ c.d }}"}}"#, r#"{"c.d":"k"}"#),
        (r#"{"not":{"exists":"a.missing"}}"#, "{}"),
    ];
    for (raw, vars) in cases {
        let field = Binding::captured(CapturedKind::Expr, json(raw), &["item".into()]).unwrap();
        assert_eq!(field.render(&roots).unwrap().to_text(), format!(r#"{{"expr":{raw},"vars":{vars}}}"#));
        assert!(field.paths().iter().all(|path| path.root() != "item"), "{raw}");
        assert!(!field.is_literal());
    }
}

#[test]
fn templates_travel_as_written() {
    let raw = json(r#"{ "t": "{{ item.name }} of {{ flow.input.list[2].x }}" }"#);
    let field = Binding::captured(CapturedKind::Template, raw.clone(), &["item".into()]).unwrap();
    let roots = json(r#"{ "flow": { "input": { "list": [0, 1, { "x": "all" }] } } }"#);
    let rendered = field.render(&roots).unwrap();
    assert_eq!(rendered.get("vars").unwrap().to_text(), r#"{"flow.input.list[2].x":"all"}"#);
    let captured = Captured::parse(&rendered);
    assert_eq!(captured.raw(), &raw);
    let inside = captured.with_locals(json(r#"{ "item": { "name": "first" } }"#));
    let text = Binding::compile(captured.raw()).unwrap().render(&inside).unwrap();
    assert_eq!(text, json(r#"{ "t": "first of all" }"#));
}

#[test]
fn places_lead_into_the_raw_field() {
    let raw = json(r#"{ "and": [{ "equals": { "var": "a.b", "value": 1 } }] }"#);
    let member = Binding::captured(CapturedKind::Expr, raw, &[]).unwrap();
    let input = Binding::object(vec![("condition".into(), member)]);
    let (path, pointer, place) = input.paths_with_places().remove(0);
    assert_eq!(
        (path.to_string().as_str(), pointer.as_str(), place),
        ("a.b", "/condition/and/0/equals/var", Some(0..3))
    );
}

#[test]
fn other_values_are_raw_themselves() {
    for text in ["\"a.b\"", r#"{"equals":{"var":"a","value":1}}"#, r#"{"expr":"a"}"#, r#"{"expr":1,"vars":{},"x":2}"#] {
        let captured = Captured::parse(&json(text));
        assert_eq!(captured.raw(), &json(text));
        assert!(captured.roots().root("a").is_none());
    }
}

/// A longer path may be read before the value that it leads into.
#[test]
fn whole_values_win_over_their_parts() {
    let roots = json(r#"{ "a": { "b": 1, "c": 2 } }"#);
    let field = Binding::captured(CapturedKind::Expr, Json::from("a.b == 1 and a.c == 2 and a"), &[]).unwrap();
    let captured = Captured::parse(&field.render(&roots).unwrap());
    assert_eq!(captured.roots().root("a"), roots.root("a"));
    let parts_last = json(r#"{ "expr": "a", "vars": { "a.b": 1, "a": { "b": 1, "c": 2 } } }"#);
    assert_eq!(Captured::parse(&parts_last).roots().root("a"), roots.root("a"));
}

#[test]
fn hostile_vars_are_left_out() {
    let field =
        json(r#"{"expr":"a","vars":{"a[999999999]":1,"b[-1]":2,"c":3,"c.d":4,"e.f":5,"e[0]":6,"not a path":7}}"#);
    let captured = Captured::parse(&field);
    let root = |name: &str| captured.roots().root(name).map(|value| value.to_text());
    assert_eq!([root("a"), root("b")].map(Option::unwrap_or_default), ["[]", "[]"]);
    assert_eq!(root("c").unwrap(), "3");
    assert_eq!(root("e").unwrap(), r#"{"f":5}"#);
}

/// Values with few names, so that paths meet them.
fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (0_u64..3).prop_map(Json::from),
        "[ab]{0,2}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::array),
            prop::collection::vec((key(), inner), 0..4).prop_map(|members| {
                Json::object(members.into_iter().map(|(key, value)| (Arc::<str>::from(key), value)))
            }),
        ]
    })
}

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "x-y"])
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        3 => key().prop_map(|key| format!("[\"{key}\"]")),
        2 => (-2_i64..3).prop_map(|index| format!("[{index}]")),
    ];
    (prop::sample::select(vec!["a", "b", "c", "item"]), prop::collection::vec(segment, 0..4))
        .prop_map(|(root, segments)| root.to_owned() + &segments.concat())
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => path(),
        1 => (path(), path()).prop_map(|(a, b)| format!("{a}[{b}]")),
        1 => (0..3).prop_map(|number: i32| number.to_string()),
        1 => Just("null".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            (pair.clone(), prop::sample::select(vec!["==", "!=", "and", "or", "~", "in", "+", "<"]))
                .prop_map(|((a, b), operator)| format!("({a} {operator} {b})")),
            (inner.clone(), prop::sample::select(vec!["length", "first", "default(1)", "tojson", "required", "list"]))
                .prop_map(|(a, filter)| format!("({a} | {filter})")),
            (inner, prop::sample::select(vec!["defined", "none", "string", "mapping"]))
                .prop_map(|(a, test)| format!("({a} is {test})")),
        ]
    })
}

fn condition() -> impl Strategy<Value = Json> {
    let operand = prop_oneof![value(), path().prop_map(|path| Json::from(format!("{{{{ {path} }}}}")))];
    let ask = |operator: &'static str, key: &'static str| {
        move |(path, operand): (String, Json)| {
            Json::object([(operator, Json::object([("var", Json::from(path)), (key, operand)]))])
        }
    };
    let leaf = prop_oneof![
        expression().prop_map(Json::from),
        path().prop_map(|path| Json::object([("exists", Json::from(path))])),
        (path(), operand.clone()).prop_map(ask("equals", "value")),
        (path(), operand.clone()).prop_map(ask("lt", "value")),
        (path(), operand.prop_map(|operand| Json::array([operand]))).prop_map(ask("in", "values")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Json::object([("not", inner)])),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|inner| Json::object([("and", Json::array(inner))])),
            prop::collection::vec(inner, 0..3).prop_map(|inner| Json::object([("or", Json::array(inner))])),
        ]
    })
}

fn world() -> impl Strategy<Value = (Json, Json)> {
    let roots = prop::collection::vec((prop::sample::select(vec!["a", "b"]), value()), 0..4);
    (roots.prop_map(Json::object), value().prop_map(|item| Json::object([("item", item)])))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conditions_mean_the_same_when_captured(condition in condition(), (roots, locals) in world()) {
        let everywhere = Condition::compile(&condition).unwrap().evaluate(&(&locals, &roots));
        let field = Binding::captured(CapturedKind::Expr, condition, &["item".into()]).unwrap();
        // Through JSON text, as it travels.
        let captured = Captured::parse(&json(&field.render(&roots).unwrap().to_text()));
        let inside = Condition::compile(captured.raw()).unwrap().evaluate(&captured.with_locals(locals));
        prop_assert_eq!(everywhere, inside);
    }

    #[test]
    fn expressions_mean_the_same_when_captured(source in expression(), (roots, locals) in world()) {
        let everywhere = Binding::expression(&source).unwrap().render(&(&locals, &roots));
        let field = Binding::captured(CapturedKind::Expr, Json::from(source.as_str()), &["item".into()]).unwrap();
        let captured = Captured::parse(&json(&field.render(&roots).unwrap().to_text()));
        let inside = Binding::expression(captured.raw().as_str().unwrap()).unwrap().render(&captured.with_locals(locals));
        prop_assert_eq!(everywhere, inside);
    }

    /// The shortcut for plain paths gives what the interpreter gives.
    #[test]
    fn plain_paths_mean_the_same_as_expressions(path in path(), (roots, locals) in world()) {
        let roots = (&locals, &roots);
        let plain = Binding::expression(&path).unwrap();
        prop_assert!(plain.as_path().is_some());
        let interpreted = Binding::expression(&format!("{path} if true else 0")).unwrap();
        prop_assert!(interpreted.as_path().is_none());
        prop_assert_eq!(plain.render(&roots), interpreted.render(&roots));
        let holds = |source: &str| Condition::compile(&Json::from(source)).unwrap().evaluate(&roots);
        prop_assert_eq!(holds(&path), holds(&format!("{path} if true else 0")));
    }

    /// No text makes the compiler panic, and every error is inside the text.
    #[test]
    fn any_text_compiles_or_is_refused(text in r#"(\{\{|\}\}|[a-c .\[\]"'+~|(){}é]|if|else|not|[0-9]){0,24}"#) {
        for result in [Binding::compile(&Json::from(text.as_str())), Binding::expression(&text)] {
            match result {
                Ok(binding) => drop(binding.render(&NoRoots)),
                Err(errors) => for error in errors {
                    let offset = error.offset.unwrap();
                    prop_assert!(text.get(offset).is_some());
                },
            }
        }
    }
}
