//! Generates random values, and expressions and conditions that refer to them.

use std::sync::Arc;

use flowcell_expr::Json;
use proptest::prelude::*;

/// Generates values with few names, so that paths often exist.
fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (0_u64..3).prop_map(Json::from),
        "[ab]{0,2}".prop_map(Json::from),
        "[ab]".prop_map(|id| Json::object([("kind", Json::from("file")), ("fileId", Json::from(id))])),
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

/// Generates a path that may exist.
pub(crate) fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        3 => key().prop_map(|key| format!("[\"{key}\"]")),
        2 => (-2_i64..3).prop_map(|index| format!("[{index}]")),
    ];
    (prop::sample::select(vec!["a", "b", "c", "item"]), prop::collection::vec(segment, 0..4))
        .prop_map(|(root, segments)| root.to_owned() + &segments.concat())
}

/// Generates an expression.
pub(crate) fn expression() -> impl Strategy<Value = String> {
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
            (
                inner.clone(),
                prop::sample::select(vec![
                    "length",
                    "first",
                    "last",
                    "map(attribute='a')",
                    "default(1)",
                    "tojson",
                    "required",
                    "list"
                ])
            )
                .prop_map(|(a, filter)| format!("({a} | {filter})")),
            (inner.clone(), prop::sample::select(vec!["defined", "none", "string", "mapping"]))
                .prop_map(|(a, test)| format!("({a} is {test})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} if {b} else {c})")),
            (inner.clone(), path()).prop_map(|(a, b)| format!("({a} | default({b}))")),
            (inner, key()).prop_map(|(a, key)| format!("({a}).{}", key.replace('-', "_"))),
        ]
    })
}

/// Generates a condition, as a text or as an object.
pub(crate) fn condition() -> impl Strategy<Value = Json> {
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

/// Generates roots and local roots.
pub(crate) fn roots_and_locals() -> impl Strategy<Value = (Json, Json)> {
    let roots = prop::collection::vec((prop::sample::select(vec!["a", "b"]), value()), 0..4);
    (roots.prop_map(Json::object), value().prop_map(|item| Json::object([("item", item)])))
}
