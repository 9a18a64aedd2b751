//! Generates a small value that matches a JSON Schema.

use std::cell::Cell;

use flowcell_contract::Json;
use flowcell_schema::{Budget, Schema};
use serde_json::{Map, Number, Value, json};

use super::sample;

/// Maximum nesting of schemas.
const MAX_DEPTH: usize = 32;
/// Maximum items of a list.
const MAX_ITEMS: u64 = 1000;
/// Maximum characters of a string.
const MAX_CHARS: usize = 10_000;
/// Maximum cost of one value: [`COST_PER_SCHEMA`] for each schema, and 1 for each byte of text. The limit is needed
/// because even small schemas can have large values if they refer to each other.
const MAX_COST: usize = 100_000;
/// The cost of one schema.
const COST_PER_SCHEMA: usize = 10;

/// Returns a value that matches the schema. The error says why none was found.
pub(super) fn value(schema: &Value) -> Result<Value, String> {
    let compiled = Schema::compile(schema).map_err(|error| format!("cannot use `outputSchema`: {error}"))?;
    let value = Generator { root: schema, left: Cell::new(MAX_COST) }.value(schema, 0);
    let made = Json::from(value.clone());
    let errors = compiled.errors(&made, Budget::FULL);
    let errors = errors.map_err(|error| format!("cannot check `outputSchema`; write a script: {error}"))?;
    match errors.first() {
        None => Ok(value),
        Some(error) => Err(format!("cannot generate a value for `outputSchema`; write a script: {error}")),
    }
}

struct Generator<'a> {
    root: &'a Value,
    left: Cell<usize>,
}

impl Generator<'_> {
    /// Subtracts `cost` from the budget; returns false if too little is left.
    fn try_spend(&self, cost: usize) -> bool {
        let left = self.left.get().checked_sub(cost);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    fn value(&self, schema: &Value, depth: usize) -> Value {
        let Some(members) = schema.as_object().filter(|_| depth < MAX_DEPTH && self.try_spend(COST_PER_SCHEMA)) else {
            return Value::Null;
        };
        let members = self.flattened(members.clone());
        if let Some(value) = members.get("const").or(members.get("enum").and_then(|one_of| one_of.get(0))) {
            return value.clone();
        }
        match kind(&members) {
            "object" => self.object(&members, depth),
            "array" => self.array(&members, depth),
            "string" => {
                let text = text(&members);
                if self.try_spend(text.len()) { Value::from(text) } else { Value::Null }
            }
            "integer" => number(&members, true),
            "number" => number(&members, false),
            "boolean" => Value::Bool(false),
            _ => Value::Null,
        }
    }

    /// Returns the members of a schema, combined with those of the schemas in `$ref` and `allOf`, and of the first
    /// schema in `anyOf` and `oneOf`.
    fn flattened(&self, mut members: Map<String, Value>) -> Map<String, Value> {
        for _ in 0..MAX_DEPTH {
            let mut parts = Vec::new();
            if let Some(Value::String(target)) = members.remove("$ref") {
                let pointer = target.strip_prefix('#').unwrap_or_default();
                parts.extend(self.root.pointer(pointer).filter(|_| target.starts_with('#')).cloned());
            }
            if let Some(Value::Array(all)) = members.remove("allOf") {
                parts.extend(all);
            }
            for key in ["anyOf", "oneOf"] {
                if let Some(Value::Array(choices)) = members.remove(key) {
                    parts.extend(choices.into_iter().next());
                }
            }
            if parts.is_empty() || !self.try_spend(COST_PER_SCHEMA * parts.len()) {
                break;
            }
            parts.into_iter().for_each(|part| merge(&mut members, part));
        }
        members
    }

    fn object(&self, members: &Map<String, Value>, depth: usize) -> Value {
        let properties = members.get("properties").and_then(Value::as_object);
        let required =
            members.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let mut names: Vec<&str> = required.collect();
        let least = members.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
        for name in properties.into_iter().flat_map(Map::keys) {
            if (names.len() as u64) < least && !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let other = members.get("additionalProperties").filter(|schema| schema.is_object());
        let value_of = |name: &str| {
            let schema = properties.and_then(|properties| properties.get(name)).or(other);
            schema.map_or(Value::Null, |schema| self.value(schema, depth + 1))
        };
        let mut object: Map<String, Value> = names.into_iter().map(|name| (name.to_owned(), value_of(name))).collect();
        for number in 1.. {
            if object.len() as u64 >= least.min(MAX_ITEMS) {
                break;
            }
            object.insert(format!("key{number}"), value_of(""));
        }
        Value::Object(object)
    }

    fn array(&self, members: &Map<String, Value>, depth: usize) -> Value {
        let least = members.get("minItems").and_then(Value::as_u64).unwrap_or(0).min(MAX_ITEMS) as usize;
        let first = members.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rest = members.get("items");
        let unique = members.get("uniqueItems") == Some(&Value::Bool(true));
        let mut items = Vec::with_capacity(least);
        for index in 0..least {
            let schema = first.get(index).or(rest).cloned().unwrap_or(Value::Null);
            let item = self.value(&schema, depth + 1);
            items.push(if unique { distinct(item, index, &schema) } else { item });
        }
        Value::Array(items)
    }
}

/// Adds the members of the schema `part` to `members`. If both have a member: `properties`, `required` and `allOf` are
/// combined, and any other member keeps its value in `members`.
fn merge(members: &mut Map<String, Value>, part: Value) {
    let Value::Object(part) = part else { return };
    for (key, value) in part {
        match (members.get_mut(&key), value) {
            (Some(Value::Object(own)), Value::Object(more)) if key == "properties" => {
                more.into_iter().for_each(|(name, schema)| {
                    own.entry(name).or_insert(schema);
                });
            }
            (Some(Value::Array(own)), Value::Array(more)) if key == "required" || key == "allOf" => own.extend(more),
            (Some(_), _) => {}
            (None, value) => {
                members.insert(key, value);
            }
        }
    }
}

fn kind(members: &Map<String, Value>) -> &str {
    match members.get("type") {
        Some(Value::String(kind)) => return kind,
        Some(Value::Array(kinds)) => {
            let named = kinds.iter().filter_map(Value::as_str);
            return named.clone().find(|kind| *kind != "null").unwrap_or("null");
        }
        _ => {}
    }
    let has = |keys: &[&str]| keys.iter().any(|key| members.contains_key(*key));
    if has(&["properties", "required", "minProperties", "additionalProperties"]) {
        "object"
    } else if has(&["items", "prefixItems", "minItems"]) {
        "array"
    } else if has(&["minLength", "pattern", "format"]) {
        "string"
    } else if has(&["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"]) {
        "number"
    } else {
        "null"
    }
}

fn text(members: &Map<String, Value>) -> String {
    let pattern = members.get("pattern").and_then(Value::as_str).and_then(sample::text);
    let format = members.get("format").and_then(Value::as_str).and_then(of_format);
    let mut text = pattern.or(format.map(str::to_owned)).unwrap_or_default();
    let least = members.get("minLength").and_then(Value::as_u64).unwrap_or(0);
    let missing = usize::try_from(least).unwrap_or(usize::MAX).min(MAX_CHARS).saturating_sub(text.chars().count());
    let last = text.chars().last().unwrap_or('a');
    text.extend(std::iter::repeat_n(last, missing));
    text
}

fn of_format(format: &str) -> Option<&'static str> {
    Some(match format {
        "date-time" => "2000-01-01T00:00:00Z",
        "date" => "2000-01-01",
        "time" => "00:00:00Z",
        "duration" => "PT0S",
        "email" | "idn-email" => "a@example.com",
        "hostname" | "idn-hostname" => "example.com",
        "uri" | "iri" | "uri-reference" | "iri-reference" => "https://example.com/",
        "uuid" => "00000000-0000-0000-0000-000000000000",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        _ => return None,
    })
}

/// Returns zero, or the nearest permitted number.
fn number(members: &Map<String, Value>, whole: bool) -> Value {
    let bound = |key: &str| members.get(key).and_then(Value::as_f64);
    let step = bound("multipleOf").filter(|step| *step > 0.0).unwrap_or(if whole { 1.0 } else { 0.0 });
    let above = |least: f64, open: bool| match step > 0.0 {
        true => {
            let first = (least / step).ceil() * step;
            if open && first <= least { first + step } else { first }
        }
        false => least + if open { 1.0 } else { 0.0 },
    };
    let least = bound("exclusiveMinimum").map(|least| above(least, true)).into_iter();
    let least = least.chain(bound("minimum").map(|least| above(least, false))).fold(f64::NEG_INFINITY, f64::max);
    let most = bound("exclusiveMaximum").map(|most| -above(-most, true)).into_iter();
    let most = most.chain(bound("maximum").map(|most| -above(-most, false))).fold(f64::INFINITY, f64::min);
    let mut number = 0.0_f64.max(least).min(most.max(least));
    let open = bound("exclusiveMaximum").filter(|most| number >= *most);
    if let Some(most) = open.or(bound("maximum").filter(|most| number > *most)).filter(|_| step == 0.0) {
        // Handles two bounds that are closer than one.
        number = (bound("exclusiveMinimum").or(bound("minimum")).unwrap_or(most - 2.0) + most) / 2.0;
    }
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => json!(number as i64),
        false => Number::from_f64(number).map_or(Value::Null, Value::Number),
    }
}

/// Returns an item that differs from the items before it, for a list with `uniqueItems`. Items other than numbers and
/// texts are changed only if the schema has an `enum`.
fn distinct(item: Value, index: usize, schema: &Value) -> Value {
    if let Some(value) = schema.get("enum").and_then(|one_of| one_of.get(index)) {
        return value.clone();
    }
    match item {
        Value::Number(number) => json!(number.as_f64().unwrap_or(0.0) as i64 + index as i64),
        Value::String(text) => Value::from(format!("{text}{index}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::value;

    #[test]
    fn values_are_valid_and_small() {
        let table = [
            (json!({}), json!(null)),
            (json!({ "type": "string" }), json!("")),
            (json!({ "type": "string", "minLength": 3 }), json!("aaa")),
            (json!({ "type": "string", "pattern": "^[A-Z]{2}\\d$" }), json!("AA0")),
            (json!({ "type": "string", "format": "date" }), json!("2000-01-01")),
            (json!({ "type": ["null", "integer"], "minimum": 1.5 }), json!(2)),
            (json!({ "type": "integer", "exclusiveMinimum": 3 }), json!(4)),
            (json!({ "type": "integer", "maximum": -3 }), json!(-3)),
            (json!({ "type": "integer", "minimum": 7, "multipleOf": 5 }), json!(10)),
            (json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }), json!(1)),
            (json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 }), json!(0.5)),
            (json!({ "type": "boolean" }), json!(false)),
            (json!({ "enum": ["x", "y"] }), json!("x")),
            (json!({ "const": 4 }), json!(4)),
            (json!({ "type": "array", "items": { "type": "integer" }, "minItems": 2 }), json!([0, 0])),
            (
                json!({ "type": "array", "items": { "enum": [3, 4] }, "minItems": 2, "uniqueItems": true }),
                json!([3, 4]),
            ),
            (json!({ "type": "array", "prefixItems": [{ "type": "string" }], "minItems": 1 }), json!([""])),
            (
                json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": {} }, "required": ["a", "c"] }),
                json!({ "a": "", "c": null }),
            ),
            (
                json!({ "minProperties": 2, "additionalProperties": { "type": "integer" } }),
                json!({ "key1": 0, "key2": 0 }),
            ),
            (json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }] }), json!(0)),
            (json!({ "oneOf": [{ "const": "a" }, { "const": "b" }] }), json!("a")),
            (
                json!({ "allOf": [{ "properties": { "a": { "type": "integer" } }, "required": ["a"] }, { "required": ["b"] }] }),
                json!({ "a": 0, "b": null }),
            ),
            (
                json!({ "$ref": "#/$defs/node", "$defs": { "node": { "type": "object", "required": ["n"],
                    "properties": { "n": { "type": "integer" }, "next": { "$ref": "#/$defs/node" } } } } }),
                json!({ "n": 0 }),
            ),
        ];
        for (schema, expected) in table {
            assert_eq!(value(&schema), Ok(expected), "{schema}");
        }
    }

    #[test]
    fn small_schemas_with_huge_values_stay_within_the_budget() {
        let twice = |name: &str| json!({ "allOf": [{ "$ref": name }, { "$ref": name }] });
        let mut parts = serde_json::Map::from_iter([("x31".to_owned(), json!({ "type": "integer" }))]);
        parts.extend((0..31).map(|at| (format!("x{at}"), twice(&format!("#/$defs/x{}", at + 1)))));
        let members = json!({ "a": { "$ref": "#" }, "b": { "$ref": "#" } });
        let table = [
            json!({ "type": "object", "required": ["a", "b"], "properties": members }),
            json!({ "type": "array", "minItems": 1000, "items": { "type": "array", "minItems": 1000, "items": { "type": "string", "minLength": 9000 } } }),
        ];
        let begin = std::time::Instant::now();
        for schema in table {
            assert!(value(&schema).is_err());
        }
        let generator =
            super::Generator { root: &json!({ "$defs": parts }), left: std::cell::Cell::new(super::MAX_COST) };
        generator.value(&json!({ "$ref": "#/$defs/x0" }), 0);
        assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
    }

    #[test]
    fn schemas_without_a_value_are_errors() {
        let endless = json!({ "type": "object", "required": ["a"], "properties": { "a": { "$ref": "#" } } });
        let table: [Value; 4] =
            [json!({ "type": "string", "pattern": "(?=x)y" }), json!(false), endless, json!({ "type": "nonsense" })];
        for schema in table {
            assert!(value(&schema).is_err(), "{schema}");
        }
    }
}
