//! The paths in values and conditions, which a checker compares with schemas.

use flowcell_expr::{Binding, Condition, Json, PathUse, Reads};

fn shown(places: Vec<PathUse>) -> Vec<String> {
    let tested = |place: &PathUse| if place.is_tested { "?" } else { "" };
    let mut shown: Vec<_> = places.iter().map(|place| format!("{}{}", place.path, tested(place))).collect();
    shown.sort();
    shown
}

#[test]
fn attributes_are_paths_into_the_items_of_a_list() {
    for (source, expected) in [
        ("a.list | map(attribute='x')", &["a.list[0].x"][..]),
        ("a | sort(attribute='x, y.z') | map(attribute='b') | join(',')", &["a[0].b", "a[0].x", "a[0].y.z"]),
        ("a | map(attribute='x.0') | selectattr('y')", &["a[0].x[0]", "a[0].x[0].y"]),
        (
            "a | selectattr('x', 'defined') | rejectattr('y', '==', null) | groupby('z')",
            &["a[0].x?", "a[0].y?", "a[0].z"],
        ),
        ("a | map(attribute='x', default='') | unique", &["a[0].x?"]),
        ("a | sum(attribute='x') + (a[1:] | join(',', attribute='y'))", &["a[0].x", "a[0].y"]),
        ("(a | first).x.y", &["a[0].x.y"]),
        ("a[b].x | default(1)", &["a[0].x?"]),
        ("(a | default([]) | last).x", &["a[0].x"]),
        ("(a | map(attribute='x') | max).y", &["a[0].x", "a[0].x.y"]),
        // The items of these lists are unknown.
        ("(a | default(b) | last).x", &[]),
        ("a | groupby('x') | map(attribute='grouper')", &["a[0].x"]),
        ("[a] | map(attribute='x')", &[]),
        ("a + b | map(attribute='x')", &["b[0].x"]),
        ("a | map(attribute=b)", &[]),
        ("a | map('upper')", &[]),
    ] {
        let reads = Binding::expression(source).unwrap().reads();
        assert_eq!(shown(reads.item_paths), expected, "{source}");
    }
}

#[test]
fn paths_are_returned_if_another_part_does_not_compile() {
    let value = |text: &str| Json::parse(text).unwrap();
    let cases: [(Reads, &[&str]); 6] = [
        (Binding::reads_of(&value(r#"["{{ a }} {{ b c }} {{ }} {{ d | uper }} {{ e", {"k": "{{ f"}]"#)), &["a", "d"]),
        (Binding::reads_of(&value(r#""{{ len(a.b) }} {{ c.trim(d) }}""#)), &["a.b", "c", "d"]),
        (Condition::reads_of(&value(r#"{"and": [{"equals": {"var": "a.b", "value": 1}}, "c d"]}"#)), &["a.b"]),
        (Condition::reads_of(&value(r#"{"gt": {"var": "a", "value": "{{ b }} {{ c d }}"}}"#)), &["a?", "b"]),
        (Condition::reads_of(&value(r#"{"lt": {"var": "a", "vaule": 1}, "not": "b | uper"}"#)), &["a?", "b"]),
        (
            Condition::reads_of(&value(r#"{"or": [{"exists": "a"}, 7, {"in": {"var": "b", "values": 1}}]}"#)),
            &["a?", "b?"],
        ),
    ];
    for (at, (reads, expected)) in cases.into_iter().enumerate() {
        assert_eq!(shown(reads.paths), expected, "{at}");
    }
}

#[test]
fn positions_select_the_path_in_its_text() {
    let value = Json::parse(r#"{"k": ["x {{ a | map(attribute='b') }} {{ c d }}"]}"#).unwrap();
    let reads = Binding::reads_of(&value);
    let place = &reads.item_paths[0];
    let text = value.pointer(&place.pointer).and_then(Json::as_str).unwrap();
    assert_eq!(&text[place.bytes.clone().unwrap()], "'b'");
}

#[test]
fn bindings_and_conditions_are_equal_if_they_are_written_the_same() {
    let binding = |text: &str| Binding::compile(&Json::parse(text).unwrap()).unwrap();
    let texts = [
        r#"{"a": 1}"#,
        r#"{"a": 2}"#,
        r#"{"a": "{{ x }}"}"#,
        r#"{"a": "{{ y }}"}"#,
        r#"{"a": "{{ x | default(1) }}"}"#,
        r#"{"a": "{{ x | default(2) }}"}"#,
        r#"{"a": "{{ x }} "}"#,
        r#"["{{ x }}"]"#,
        r#"["{{ x }}", 1]"#,
    ];
    let condition = |text: &str| Condition::compile(&Json::parse(text).unwrap()).unwrap();
    let conditions = [r#""x""#, r#""y""#, r#"{"exists": "x"}"#, r#"{"equals": {"var": "x", "value": "{{ y + 1 }}"}}"#];
    for (at, text) in texts.iter().enumerate() {
        let equal = texts.iter().map(|other| binding(text) == binding(other));
        assert!(equal.enumerate().all(|(other, equal)| equal == (other == at)), "{text}");
    }
    for (at, text) in conditions.iter().enumerate() {
        let equal = conditions.iter().map(|other| condition(text) == condition(other));
        assert!(equal.enumerate().all(|(other, equal)| equal == (other == at)), "{text}");
    }
    let captured = |kind, text: &str| Binding::captured(kind, Json::parse(text).unwrap(), &[]).unwrap();
    use flowcell_expr::CapturedKind::{Expr, Template};
    assert_eq!(captured(Expr, r#""x > 1""#), captured(Expr, r#""x > 1""#));
    assert_ne!(captured(Expr, r#""x > 1""#), captured(Expr, r#""x > 2""#));
    assert_ne!(captured(Expr, r#""x""#), captured(Template, r#""x""#));
}
