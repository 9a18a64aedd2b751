//! Converts the schema of a reply to forms that providers accept. The caller checks the reply against the original
//! schema.

use flowcell_contract::{Json, Object};

/// The name of a reply's schema, where a provider requires one.
pub(super) const NAME: &str = "reply";

/// Maximum nesting of objects; deeper schemas are sent unchanged.
const MAX_DEPTH: usize = 64;

/// String formats that Anthropic supports.
const ANTHROPIC_FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// Schema keywords that stay unchanged for Anthropic.
const KEPT_KEYWORDS: [&str; 8] = ["type", "enum", "const", "title", "description", "default", "required", "$ref"];

/// Returns a schema that Anthropic accepts. Objects allow no additional members, `oneOf` becomes `anyOf`, and
/// `minItems` is at most 1. Every unsupported constraint becomes a sentence of the description.
pub(super) fn for_anthropic(schema: &Json) -> Json {
    transform(schema, 0)
}

fn transform(schema: &Json, depth: usize) -> Json {
    let Some(members) = schema.as_object().filter(|_| depth < MAX_DEPTH) else { return schema.clone() };
    let inner = |schema: &Json| transform(schema, depth + 1);
    let mut kept = Object::default();
    let mut moved = Vec::new();
    for (key, value) in members {
        match (&**key, value) {
            (plain, value) if KEPT_KEYWORDS.contains(&plain) => {
                kept.insert(key.clone(), value.clone());
            }
            ("properties" | "$defs" | "definitions", Json::Object(named)) => {
                let named = named.iter().map(|(name, schema)| (name.clone(), inner(schema)));
                kept.insert(key.clone(), Json::object(named));
            }
            ("items", value) => {
                kept.insert(key.clone(), inner(value));
            }
            ("anyOf" | "oneOf", Json::Array(choices)) => {
                kept.insert("anyOf".into(), Json::array(choices.iter().map(inner)));
            }
            ("allOf", Json::Array(parts)) => {
                kept.insert(key.clone(), Json::array(parts.iter().map(inner)));
            }
            ("format", Json::String(format)) if ANTHROPIC_FORMATS.contains(&&**format) => {
                kept.insert(key.clone(), value.clone());
            }
            ("minItems", value) if value.as_u64().is_some_and(|least| least <= 1) => {
                kept.insert(key.clone(), value.clone());
            }
            ("additionalProperties" | "$schema" | "$id", _) => {}
            _ => moved.push(format!("{key}: {value}")),
        }
    }
    if is_object(members) {
        kept.insert("additionalProperties".into(), Json::from(false));
    }
    describe(&mut kept, &moved);
    Json::object(kept)
}

/// Adds constraints to the description of a schema.
fn describe(kept: &mut Object, moved: &[String]) {
    if moved.is_empty() {
        return;
    }
    let constraints = format!("{{{}}}", moved.join(", "));
    let text = match kept.get("description").and_then(Json::as_str) {
        Some(own) => format!("{own}\n\n{constraints}"),
        None => constraints,
    };
    kept.insert("description".into(), Json::from(text));
}

/// Returns true if OpenAI accepts the schema as strict: every object requires all its members and allows no others.
pub(super) fn is_strict(schema: &Json) -> bool {
    is_object_at_top(schema) && is_strict_at(schema, 0)
}

fn is_object_at_top(schema: &Json) -> bool {
    schema.as_object().is_some_and(is_object)
}

fn is_strict_at(schema: &Json, depth: usize) -> bool {
    let Some(members) = schema.as_object().filter(|_| depth < MAX_DEPTH) else { return false };
    let unknown = ["oneOf", "allOf", "not", "if", "patternProperties", "prefixItems", "dependentRequired"];
    if members.keys().any(|key| unknown.contains(&&**key)) {
        return false;
    }
    let named = |key: &str| members.get(key).and_then(Json::as_object).into_iter().flat_map(|named| named.values());
    let listed = members.get("anyOf").and_then(Json::as_array).unwrap_or_default();
    let inner = named("properties").chain(named("$defs")).chain(members.get("items")).chain(listed);
    (!is_object(members) || is_closed(members)) && inner.into_iter().all(|schema| is_strict_at(schema, depth + 1))
}

/// Returns true if the schema of an object requires all its members and allows no others.
fn is_closed(members: &Object) -> bool {
    let required = members.get("required").and_then(Json::as_array).unwrap_or_default();
    let named = members.get("properties").and_then(Json::as_object);
    let all = named.is_some_and(|named| named.keys().all(|name| required.iter().any(|one| one.as_str() == Some(name))));
    all && members.get("additionalProperties").and_then(Json::as_bool) == Some(false)
}

fn is_object(members: &Object) -> bool {
    let named = match members.get("type") {
        Some(Json::Array(kinds)) => kinds.iter().any(|kind| kind.as_str() == Some("object")),
        kind => kind.and_then(Json::as_str) == Some("object"),
    };
    named || members.contains_key("properties")
}

#[cfg(test)]
mod tests {
    use flowcell_contract::Json;

    use super::{for_anthropic, is_strict};

    #[test]
    fn unsupported_constraints_become_text_of_the_description() {
        let table = [
            (r#"{"type":"string"}"#, r#"{"type":"string"}"#),
            (
                r#"{"type":"object","properties":{"n":{"type":"number","minimum":1}},"additionalProperties":true}"#,
                r#"{"type":"object","properties":{"n":{"type":"number","description":"{minimum: 1}"}},"additionalProperties":false}"#,
            ),
            (
                r#"{"oneOf":[{"type":"object","properties":{}},{"type":"null"}]}"#,
                r#"{"anyOf":[{"type":"object","properties":{},"additionalProperties":false},{"type":"null"}]}"#,
            ),
            (r#"{"type":"array","minItems":1}"#, r#"{"type":"array","minItems":1}"#),
            (
                r#"{"type":"array","minItems":2,"maxItems":3,"description":"Few."}"#,
                r#"{"type":"array","description":"Few.\n\n{minItems: 2, maxItems: 3}"}"#,
            ),
            (r#"{"type":"string","format":"uuid"}"#, r#"{"type":"string","format":"uuid"}"#),
            (r#"{"type":"string","format":"color"}"#, r#"{"type":"string","description":"{format: \"color\"}"}"#),
            (
                r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}"##,
                r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"object","additionalProperties":false}}}"##,
            ),
        ];
        for (schema, expected) in table {
            assert_eq!(for_anthropic(&Json::parse(schema).unwrap()), Json::parse(expected).unwrap(), "{schema}");
        }
    }

    #[test]
    fn only_closed_schemas_are_strict() {
        let closed =
            r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#;
        let table = [
            (closed.to_owned(), true),
            (closed.replace(r#"["a"]"#, "[]"), false),
            (closed.replace("false", "true"), false),
            (closed.replace(r#"{"type":"string"}"#, r#"{"type":"object"}"#), false),
            (closed.replace(r#"{"type":"string"}"#, r#"{"oneOf":[]}"#), false),
            (r#"{"type":"string"}"#.to_owned(), false),
            ("true".to_owned(), false),
        ];
        for (schema, expected) in table {
            assert_eq!(is_strict(&Json::parse(&schema).unwrap()), expected, "{schema}");
        }
    }
}
