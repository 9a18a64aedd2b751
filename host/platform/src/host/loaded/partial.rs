//! Schemas for parts of a value, whose other members follow later.

use serde_json::{Map, Value};

/// Returns a schema that also accepts values with omitted members.
pub(super) fn with_optional_members(schema: &Value) -> Value {
    // The last one depends on the alternatives that a whole value fits.
    const KEYWORDS_ON_ABSENCE: [&str; 9] = [
        "required",
        "minProperties",
        "dependentRequired",
        "dependentSchemas",
        "not",
        "if",
        "then",
        "else",
        "unevaluatedProperties",
    ];
    const KEYWORDS_WITH_VALUES: [&str; 4] = ["const", "enum", "default", "examples"];
    match schema {
        Value::Array(schemas) => schemas.iter().map(with_optional_members).collect(),
        Value::Object(keywords) => {
            // A member may be called `required`, but then it has a schema.
            let is_kept = |(key, value): &(&String, &Value)| {
                !KEYWORDS_ON_ABSENCE.contains(&key.as_str()) || (*key == "required" && !value.is_array())
            };
            let keyword = |(key, value): (&String, &Value)| match key.as_str() {
                key if KEYWORDS_WITH_VALUES.contains(&key) => (key.to_owned(), value.clone()),
                // A partial value may match several alternatives.
                "oneOf" => ("anyOf".to_owned(), with_optional_members(value)),
                key => (key.to_owned(), with_optional_members(value)),
            };
            Value::Object(keywords.iter().filter(is_kept).map(keyword).collect())
        }
        value => value.clone(),
    }
}

/// Returns a schema for a part of a value. Like [`with_optional_members`], but it keeps the `not`, `if` and `oneOf` whose results
/// the members of the part decide, whatever members follow.
pub(super) fn for_part(schema: &Value, part: &Value) -> Value {
    let (Value::Object(keywords), Value::Object(mut kept)) = (schema, with_optional_members(schema)) else {
        return with_optional_members(schema);
    };
    let decides = |key: &str| keywords.get(key).is_some_and(|below| decides(below, part));
    let each = |schemas: &Value| -> Value {
        schemas.as_array().into_iter().flatten().map(|schema| for_part(schema, part)).collect()
    };
    for (key, value) in keywords {
        match key.as_str() {
            "properties" => {
                let members = value.as_object().into_iter().flatten();
                let members = members.map(|(name, member)| {
                    let own = part.get(name.as_str());
                    (name.clone(), own.map_or_else(|| with_optional_members(member), |own| for_part(member, own)))
                });
                kept.insert(key.clone(), Value::Object(members.collect::<Map<_, _>>()));
            }
            "allOf" | "anyOf" => {
                kept.insert(key.clone(), each(value));
            }
            "not" | "if" | "oneOf" if decides(key) => {
                kept.insert(key.clone(), value.clone());
            }
            "then" | "else" if decides("if") => {
                kept.insert(key.clone(), for_part(value, part));
            }
            _ => {}
        }
    }
    Value::Object(kept)
}

/// Returns whether no member can follow: the part has all that its schema lists, and the schema allows no others.
pub(super) fn is_complete(schema: &Value, part: &Value) -> bool {
    let Some(members) = part.as_object() else { return true };
    let Some(fields) = schema["properties"].as_object() else { return false };
    let is_closed = schema["additionalProperties"] == false && schema.get("patternProperties").is_none();
    is_closed && fields.iter().all(|(name, field)| members.get(name).is_some_and(|own| is_complete(field, own)))
}

/// Returns whether a schema, or each of a list of schemas, gives a part of a value the result of every whole value.
fn decides(schema: &Value, part: &Value) -> bool {
    match schema {
        Value::Bool(_) => true,
        Value::Array(schemas) => schemas.iter().all(|schema| decides(schema, part)),
        // The schemas that references name lose conditions, see `with_optional_members`.
        Value::Object(keywords) if !part.is_object() => !keywords.iter().any(|(key, value)| refers(key, value)),
        Value::Object(keywords) => keywords.iter().all(|(key, value)| match key.as_str() {
            "type" | "title" | "description" | "default" | "examples" | "$comment" => true,
            "required" => value.as_array().is_some_and(|names| names.iter().all(|name| has(part, name))),
            "properties" => value.as_object().is_some_and(|members| {
                members.iter().all(|(name, member)| part.get(name.as_str()).is_some_and(|own| decides(member, own)))
            }),
            "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => decides(value, part),
            _ => false,
        }),
        _ => false,
    }
}

fn has(part: &Value, name: &Value) -> bool {
    name.as_str().is_some_and(|name| part.get(name).is_some())
}

/// Returns whether a keyword of a schema, or one below it, is a reference.
fn refers(key: &str, value: &Value) -> bool {
    match value {
        Value::Object(below) => below.iter().any(|(key, value)| refers(key, value)),
        Value::Array(below) => below.iter().any(|value| refers("", value)),
        _ => matches!(key, "$ref" | "$dynamicRef" | "$recursiveRef"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_schema::{Budget, Schema};
    use serde_json::json;

    use super::*;

    fn fits(schema: &Value, part: &Value) -> bool {
        let schema = Schema::compile(&for_part(schema, part)).unwrap();
        schema.is_valid(&part.clone().into(), Budget::FULL).unwrap()
    }

    #[test]
    fn a_part_breaks_the_conditions_that_no_further_member_mends() {
        let is = |name: &str, value: &str| json!({ "properties": { name: { "const": value } }, "required": [name] });
        let referred = json!({
            "$defs": { "x": { "not": { "const": 1 } } },
            "properties": { "a": { "not": { "$ref": "#/$defs/x" } } },
        });
        let table = [
            (json!({ "not": { "required": ["a", "b"] } }), json!({ "a": 1, "b": 2 }), false),
            (json!({ "not": { "required": ["a", "b"] } }), json!({ "a": 1 }), true),
            (json!({ "not": is("a", "x") }), json!({ "a": "x" }), false),
            (json!({ "not": is("a", "x") }), json!({ "a": "y" }), true),
            (json!({ "properties": { "a": { "not": { "const": "x" } } } }), json!({ "a": "x", "b": 1 }), false),
            (json!({ "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }), json!({ "a": 1, "b": 2 }), false),
            (json!({ "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }), json!({ "a": 1 }), true),
            (json!({ "oneOf": [is("a", "x"), is("a", "y")] }), json!({ "a": "z" }), false),
            // The conclusion of a condition that is met has to hold, except for members that may follow.
            (json!({ "if": is("a", "x"), "then": is("b", "y") }), json!({ "a": "x", "b": "z" }), false),
            (json!({ "if": is("a", "x"), "then": is("b", "y") }), json!({ "a": "x" }), true),
            (json!({ "if": is("a", "x"), "then": is("b", "y") }), json!({ "a": "z", "b": "z" }), true),
            (json!({ "if": is("a", "x"), "then": {}, "else": is("b", "y") }), json!({ "a": "z", "b": "z" }), false),
            (json!({ "if": is("a", "x"), "then": is("b", "y") }), json!({ "b": "z" }), true),
            (json!({ "allOf": [{ "not": is("a", "x") }] }), json!({ "a": "x" }), false),
            // A further member may lead out of these.
            (json!({ "not": { "maxProperties": 1 } }), json!({ "a": 1 }), true),
            (json!({ "not": { "properties": { "b": { "const": 1 } } } }), json!({ "a": 1 }), true),
            (json!({ "not": { "properties": { "a": { "required": ["b"] } } } }), json!({ "a": { "c": 1 } }), true),
            (json!({ "not": { "properties": { "a": { "required": ["b"] } } } }), json!({ "a": { "b": 1 } }), false),
            // A referenced schema loses its own conditions.
            (referred, json!({ "a": 1 }), true),
        ];
        for (schema, part, expected) in table {
            assert_eq!(fits(&schema, &part), expected, "{schema} {part}");
        }
    }

    #[test]
    fn a_part_is_complete_if_nothing_can_follow() {
        let schema = |closed: bool| {
            let to = json!({ "properties": { "city": {} }, "additionalProperties": false });
            json!({ "properties": { "a": {}, "to": to }, "additionalProperties": !closed })
        };
        let whole = json!({ "a": [1], "to": { "city": "Oslo" } });
        assert!(is_complete(&schema(true), &whole));
        for (schema, part) in [
            (schema(false), whole.clone()),
            (schema(true), json!({ "a": [1], "to": {} })),
            (schema(true), json!({ "to": { "city": "Oslo" } })),
            (json!({ "additionalProperties": false }), json!({})),
            (json!(true), json!({})),
        ] {
            assert!(!is_complete(&schema, &part), "{schema} {part}");
        }
    }
}
