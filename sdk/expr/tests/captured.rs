//! Captured fields have the same meaning with their captured values as with all values.

use flowcell_expr::{Binding, Captured, CapturedKind, Condition, ExprError, Json, NoRoots, Roots, Strict};
use proptest::prelude::*;

use crate::world::{condition, expression, path, roots_and_locals};

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
fn captures_only_the_values_that_are_read() {
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
fn templates_are_captured_unevaluated() {
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
fn pointers_lead_into_the_raw_field() {
    let raw = json(r#"{ "and": [{ "equals": { "var": "a.b", "value": 1 } }] }"#);
    let member = Binding::captured(CapturedKind::Expr, raw, &[]).unwrap();
    let input = Binding::object(vec![("condition".into(), member)]);
    let place = input.path_uses().remove(0);
    assert_eq!(
        (place.path.to_string().as_str(), place.pointer.as_str(), place.bytes),
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

#[test]
fn strictness_is_captured_with_the_field() {
    let roots = json(r#"{ "a": { "skipped": true }, "b": { "c": 1 }, "nodes": { "x-y": { "skipped": true } } }"#);
    let source = Json::from("a.value or b.c or b.d or nodes['x-y'].value");
    let field = Binding::captured(CapturedKind::Expr, source, &[]).unwrap();
    let vars = r#"{"a.skipped":true,"b.c":1,"nodes[\"x-y\"].skipped":true}"#;
    let expected = format!(r#""vars":{vars},"strict":true}}"#);
    assert!(field.render(&Strict(&roots)).unwrap().to_text().ends_with(&expected));
    assert!(round_trip(&field, &Strict(&roots)).roots().is_strict());
    assert!(!round_trip(&field, &roots).roots().is_strict());
    for text in [r#"{"expr":"a","vars":{},"strict":false}"#, r#"{"expr":"a","vars":{},"strict":true,"x":1}"#] {
        assert_eq!(Captured::parse(&json(text)).raw(), &json(text));
    }
}

/// A captured value takes precedence over captured parts of it, whether the parts come before or after it.
#[test]
fn whole_values_override_their_parts() {
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

/// Returns a field as a component receives it, after a round trip through JSON text.
fn round_trip(field: &Binding, roots: &dyn Roots) -> Captured {
    Captured::parse(&json(&field.render(roots).unwrap().to_text()))
}

/// A pattern for random texts with and without braces. Few of these texts are valid.
const TEXT: &str = r#"(\{\{|\}\}|[a-c .\[\]"'+~|(){}é]|if|else|not|[0-9]){0,24}"#;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conditions_mean_the_same_when_captured(condition in condition(), (roots, locals) in roots_and_locals()) {
        let compiled = Condition::compile(&condition).unwrap();
        let field = Binding::captured(CapturedKind::Expr, condition, &["item".into()]).unwrap();
        let evaluate = |captured: Captured| compiled.evaluate(&captured.with_locals(locals.clone()));
        prop_assert_eq!(compiled.evaluate(&(&locals, &roots)), evaluate(round_trip(&field, &roots)));
        prop_assert_eq!(compiled.evaluate(&(&locals, Strict(&roots))), evaluate(round_trip(&field, &Strict(&roots))));
    }

    #[test]
    fn expressions_mean_the_same_when_captured(source in expression(), (roots, locals) in roots_and_locals()) {
        let compiled = Binding::expression(&source).unwrap();
        let field = Binding::captured(CapturedKind::Expr, Json::from(source.as_str()), &["item".into()]).unwrap();
        let render = |captured: Captured| compiled.render(&captured.with_locals(locals.clone()));
        prop_assert_eq!(compiled.render(&(&locals, &roots)), render(round_trip(&field, &roots)));
        prop_assert_eq!(compiled.render(&(&locals, Strict(&roots))), render(round_trip(&field, &Strict(&roots))));
    }

    /// A plain path, which is evaluated without the interpreter, gives the same result as in an interpreted expression.
    #[test]
    fn plain_paths_mean_the_same_as_expressions(
        path in path(),
        (roots, locals) in roots_and_locals(),
        strict in any::<bool>(),
    ) {
        let (everything, strictly) = ((&locals, &roots), Strict((&locals, &roots)));
        let roots: &dyn Roots = if strict { &strictly } else { &everything };
        let plain = Binding::expression(&path).unwrap();
        prop_assert!(plain.as_path().is_some());
        let interpreted = Binding::expression(&format!("{path} if true else 0")).unwrap();
        prop_assert!(interpreted.as_path().is_none());
        prop_assert_eq!(plain.render(roots), interpreted.render(roots));
        let holds = |source: &str| Condition::compile(&Json::from(source)).unwrap().evaluate(roots);
        prop_assert_eq!(holds(&path), holds(&format!("{path} if true else 0")));
    }

    /// White space before a text shifts the position of every error by its length and changes nothing else.
    #[test]
    fn leading_space_shifts_the_positions_of_errors(text in TEXT, space in "[ \t\n]{1,3}") {
        let compile = [|text: &str| Binding::compile(&Json::from(text)), Binding::expression];
        for compile in compile {
            let Err(errors) = compile(&text) else { continue };
            let moved = compile(&format!("{space}{text}")).unwrap_err();
            let places = |errors: &[ExprError], by| errors.iter().map(|error| {
                let place = error.offset.clone().unwrap();
                (place.start + by, place.end + by, error.to_string())
            }).collect::<Vec<_>>();
            prop_assert_eq!(places(&moved, 0), places(&errors, space.len()));
        }
    }

    /// No text makes the compiler panic, and the position of every error is inside the text.
    #[test]
    fn any_text_compiles_or_gives_errors(text in TEXT) {
        for result in [Binding::compile(&Json::from(text.as_str())), Binding::expression(&text)] {
            match result {
                Ok(binding) => drop(binding.render(&NoRoots)),
                Err(errors) => for error in errors {
                    let offset = error.offset.clone().unwrap();
                    prop_assert!(text.get(offset.clone()).is_some(), "{offset:?}: {error}");
                },
            }
        }
    }
}
