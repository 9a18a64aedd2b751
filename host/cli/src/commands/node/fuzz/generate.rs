//! Generates inputs from a JSON Schema. Most are valid. A constraint that this module does not know, such as `pattern`,
//! may make an input invalid; the host then refuses it before the node runs.

use serde_json::{Map, Number, Value, json};

use super::{
    random::Random,
    text::{FRACTIONS, KEYS, TEXTS, WHOLE},
};

/// Maximum number of values in an input.
const MAX_VALUES: usize = 2_000;
/// Maximum number of letters of all texts in an input together. Values that the schema names count with all of their JSON.
const MAX_LETTERS: usize = 256 << 10;
/// The number of letters of a huge text.
const HUGE_LETTERS: usize = 64 << 10;
/// The number of items of a huge list.
const HUGE_ITEMS: usize = 1_000;
/// Maximum depth of generated values. The values of a flow may be 127 deep, and the flow adds a level.
const MAX_DEPTH: usize = 120;
/// Maximum number of schemas that an input takes from the references and the choices in others. A schema that names itself
/// several times would have no end.
const MAX_RESOLVED: usize = 10_000;
/// The depth below which a value that the schema leaves open has no further values inside.
const OPEN_DEPTH: usize = 4;

/// The source of inputs.
pub(in crate::commands::node) struct Inputs<'a> {
    pub(in crate::commands::node) schema: &'a Value,
    /// Inputs that are known to be valid.
    pub(in crate::commands::node) models: Vec<Value>,
}

impl Inputs<'_> {
    /// Returns the input of a round, which is an object.
    pub(in crate::commands::node) fn input(&self, seed: u64, round: u64) -> Value {
        let mut random = Random::new(seed, round);
        let from_model = random.chance(30);
        // Half of the inputs have no edges, so that valid ones reach deep into the node.
        let edges = if random.chance(50) { 0 } else { 40 };
        let model = random.pick(&self.models).filter(|_| from_model).cloned();
        let mut generator = Generator {
            root: self.schema,
            random,
            edges,
            values_left: MAX_VALUES,
            letters_left: MAX_LETTERS,
            resolved_left: MAX_RESOLVED,
        };
        let input = match model {
            Some(mut model) => {
                generator.change(&mut model);
                model
            }
            None => generator.value(self.schema, 0),
        };
        if input.is_object() { input } else { json!({}) }
    }
}

struct Generator<'a> {
    root: &'a Value,
    random: Random,
    /// The percentage of values that are edges.
    edges: usize,
    values_left: usize,
    letters_left: usize,
    resolved_left: usize,
}

impl Generator<'_> {
    fn is_edge(&mut self) -> bool {
        let edges = self.edges;
        self.random.chance(edges)
    }

    /// Generates a value for a schema.
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if depth >= MAX_DEPTH || self.values_left == 0 {
            return Value::Null;
        }
        self.values_left -= 1;
        let schema = self.resolved(schema, 0);
        if let Some(fixed) = self.fixed(&schema) {
            return self.within_room(fixed);
        }
        match self.kind(&schema).as_deref() {
            Some("object") => self.object(&schema, depth),
            Some("array") => self.array(&schema, depth),
            Some("string") => Value::String(self.text(&schema)),
            Some("integer") => self.whole(&schema),
            Some("number") => self.number(&schema),
            Some("boolean") => self.random.chance(50).into(),
            Some("null") => Value::Null,
            _ => self.open(depth),
        }
    }

    /// Returns the schema with its references and its choices replaced by one of their schemas.
    fn resolved(&mut self, schema: &Value, steps: usize) -> Value {
        let is_open = steps < 16 && self.resolved_left > 0;
        let Some(members) = schema.as_object().filter(|_| is_open) else { return schema.clone() };
        self.resolved_left -= usize::from(steps > 0);
        if let Some(target) = members.get("$ref").and_then(Value::as_str) {
            let found = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)).cloned();
            return self.with_rest(found.unwrap_or(Value::Bool(true)), members, "$ref", steps);
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(chosen) = members.get(choice).and_then(Value::as_array) {
                let chosen = self.random.pick(chosen).cloned().unwrap_or(Value::Bool(true));
                return self.with_rest(chosen, members, choice, steps);
            }
        }
        if let Some(all) = members.get("allOf").and_then(Value::as_array) {
            let all = all.iter().fold(Value::Bool(true), |sum, part| {
                let part = self.resolved(part, steps + 1);
                merged(sum, part)
            });
            return self.with_rest(all, members, "allOf", steps);
        }
        schema.clone()
    }

    /// Merges a schema with the members beside the keyword that named it.
    fn with_rest(&mut self, schema: Value, beside: &Map<String, Value>, keyword: &str, steps: usize) -> Value {
        let rest: Map<_, _> =
            beside.iter().filter(|(key, _)| *key != keyword).map(|(k, v)| (k.clone(), v.clone())).collect();
        self.resolved(&merged(Value::Object(rest), schema), steps + 1)
    }

    /// Returns the only value of a schema, one of its listed values, or sometimes its default or one of its examples.
    fn fixed(&mut self, schema: &Value) -> Option<Value> {
        if let Some(fixed) = schema.get("const") {
            return Some(fixed.clone());
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return self.random.pick(values).cloned();
        }
        let examples = schema.get("examples").and_then(Value::as_array).into_iter().flatten();
        let known: Vec<_> = schema.get("default").into_iter().chain(examples).collect();
        // Texts with a pattern are valid only if they are known.
        let percent = if schema.get("pattern").is_some() { 90 } else { 15 };
        if known.is_empty() || !self.random.chance(percent) {
            return None;
        }
        self.random.pick(&known).map(|known| Value::clone(known))
    }

    /// Returns a value if there is room for it, and otherwise `null`.
    fn within_room(&mut self, value: Value) -> Value {
        let left = self.letters_left.checked_sub(value.to_string().len());
        self.letters_left = left.unwrap_or(self.letters_left);
        left.map_or(Value::Null, |_| value)
    }

    /// Returns one of the types that a schema allows. Returns `None` if it allows all.
    fn kind(&mut self, schema: &Value) -> Option<String> {
        match schema.get("type") {
            Some(Value::String(kind)) => return Some(kind.clone()),
            Some(Value::Array(kinds)) => return self.random.pick(kinds)?.as_str().map(str::to_owned),
            _ => {}
        }
        let hints = [
            ("properties", "object"),
            ("required", "object"),
            ("items", "array"),
            ("prefixItems", "array"),
            ("pattern", "string"),
            ("format", "string"),
            ("maxLength", "string"),
            ("minLength", "string"),
            ("minimum", "number"),
            ("maximum", "number"),
        ];
        hints.iter().find(|(keyword, _)| schema.get(keyword).is_some()).map(|(_, kind)| (*kind).to_owned())
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut members = Map::new();
        let optional = if self.is_edge() { *self.random.pick(&[0, 100]).unwrap_or(&0) } else { 60 };
        for (key, property) in properties.into_iter().flatten() {
            let is_needed = required.contains(&key.as_str());
            if is_needed || (self.values_left > 0 && self.random.chance(optional)) {
                members.insert(key.clone(), self.value(property, depth + 1));
            }
        }
        for key in required {
            if !members.contains_key(key) {
                members.insert(key.to_owned(), self.open(depth + 1));
            }
        }
        let more = schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let is_map = more.is_object() || properties.is_none();
        if *more != Value::Bool(false) && (is_map || self.is_edge()) {
            for _ in 0..self.random.below(4) {
                let key = self.key();
                if self.values_left > 0 && !members.contains_key(&key) {
                    members.insert(key, self.value(more, depth + 1));
                }
            }
        }
        Value::Object(members)
    }

    fn key(&mut self) -> String {
        if self.is_edge() {
            return self.random.pick(&KEYS).copied().unwrap_or_default().to_owned();
        }
        format!("key{}", self.random.below(10))
    }

    fn array(&mut self, schema: &Value, depth: usize) -> Value {
        let least = size(schema, "minItems").unwrap_or(0);
        let most = size(schema, "maxItems").unwrap_or(HUGE_ITEMS).max(least);
        let usual = least.saturating_add(self.random.below(5));
        let edges = [least, least.saturating_add(1), most.min(HUGE_ITEMS)];
        let count = if self.is_edge() { *self.random.pick(&edges).unwrap_or(&least) } else { usual };
        let first = schema.get("prefixItems").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let items = schema.get("items").unwrap_or(&Value::Bool(true));
        let mut list = Vec::new();
        for index in 0..count.min(most) {
            if self.values_left == 0 {
                break;
            }
            list.push(self.value(first.get(index).unwrap_or(items), depth + 1));
        }
        Value::Array(list)
    }

    fn text(&mut self, schema: &Value) -> String {
        let least = size(schema, "minLength").unwrap_or(0);
        let most = size(schema, "maxLength").unwrap_or(HUGE_LETTERS).max(least).min(self.letters_left);
        let edge = self.is_edge();
        let text = match schema.get("format").and_then(Value::as_str).and_then(formatted) {
            Some(formatted) if !edge => formatted.to_owned(),
            _ if edge && self.random.chance(20) => {
                let unit = self.random.pick(&TEXTS).copied().unwrap_or_default();
                let unit = if unit.is_empty() { "a" } else { unit };
                unit.repeat(most.min(HUGE_LETTERS) / unit.chars().count())
            }
            _ if edge && self.random.chance(25) => String::new(),
            _ if edge => self.random.pick(&TEXTS).copied().unwrap_or_default().to_owned(),
            _ => {
                let letters = 1 + self.random.below(12);
                (0..letters).map(|_| char::from(b'a' + self.random.below(26) as u8)).collect()
            }
        };
        let mut text: String = text.chars().take(most).collect();
        let missing = least.min(self.letters_left).saturating_sub(text.chars().count());
        text.extend(std::iter::repeat_n('a', missing));
        self.letters_left = self.letters_left.saturating_sub(text.chars().count());
        text
    }

    fn whole(&mut self, schema: &Value) -> Value {
        let (least, most) = whole_bounds(schema);
        let step = schema.get("multipleOf").and_then(Value::as_i64).filter(|step| *step > 0).unwrap_or(1);
        let mut number = i64::try_from(self.random.below(200)).unwrap_or_default() - 50;
        if self.is_edge() {
            let near = [least, least.saturating_add(1), most, most.saturating_sub(1)];
            let edges: Vec<i64> = WHOLE.into_iter().chain(near).collect();
            number = self.random.pick(&edges).copied().unwrap_or_default();
        }
        let number = number.clamp(least, most.max(least));
        json!(number.saturating_sub(number.rem_euclid(step)))
    }

    fn number(&mut self, schema: &Value) -> Value {
        if schema.get("multipleOf").is_some() || self.random.chance(50) {
            return self.whole(schema);
        }
        let mut number = self.random.below(10_000) as f64 / 100.0;
        if self.is_edge() {
            number = self.random.pick(&FRACTIONS).copied().unwrap_or_default();
        }
        let bound = |keyword| schema.get(keyword).and_then(Value::as_f64);
        let number = bound("minimum").map_or(number, |least| number.max(least));
        let number = bound("maximum").map_or(number, |most| number.min(most));
        Number::from_f64(number).map_or(Value::Null, Value::Number)
    }

    /// Generates a value of any type.
    fn open(&mut self, depth: usize) -> Value {
        if self.is_edge() && self.random.chance(15) {
            return self.deep(depth);
        }
        let kinds = if depth < OPEN_DEPTH && self.values_left > 0 { 7 } else { 5 };
        match self.random.below(kinds) {
            0 => Value::Null,
            1 => self.random.chance(50).into(),
            2 => self.whole(&Value::Null),
            3 => self.number(&Value::Null),
            4 => Value::String(self.text(&Value::Null)),
            5 => self.array(&Value::Null, depth),
            _ => self.object(&Value::Null, depth),
        }
    }

    /// Generates lists and objects inside each other, as deep as an input may be.
    fn deep(&mut self, depth: usize) -> Value {
        let in_lists = self.random.chance(50);
        (depth..MAX_DEPTH).fold(Value::Null, |inner, _| if in_lists { json!([inner]) } else { json!({ "a": inner }) })
    }

    /// Changes one place of a valid value.
    fn change(&mut self, value: &mut Value) {
        let inner = match value {
            Value::Object(members) => {
                let keys: Vec<String> = members.keys().cloned().collect();
                let key = self.random.pick(&keys).cloned();
                key.and_then(|key| members.get_mut(&key))
            }
            Value::Array(items) => {
                let index = self.random.below(items.len());
                items.get_mut(index)
            }
            _ => None,
        };
        match inner {
            Some(inner) => self.change(inner),
            None => *value = self.like(value),
        }
    }

    /// Generates a value of the same type, or sometimes of another one.
    fn like(&mut self, value: &Value) -> Value {
        self.edges = 60;
        match value {
            _ if self.random.chance(10) => self.open(OPEN_DEPTH),
            Value::String(_) => Value::String(self.text(&Value::Null)),
            Value::Number(number) if number.is_f64() => self.number(&Value::Null),
            Value::Number(_) => self.whole(&Value::Null),
            Value::Bool(is_true) => Value::Bool(!is_true),
            _ => self.open(OPEN_DEPTH - 1),
        }
    }
}

/// Merges two schemas. The second one takes precedence. Their properties and required members are joined.
fn merged(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut one), Value::Object(other)) => {
            for (key, value) in other {
                let joined = match (key.as_str(), one.remove(&key)) {
                    ("properties", Some(old)) => merged(old, value),
                    ("required", Some(Value::Array(mut old))) => {
                        old.extend(value.as_array().into_iter().flatten().cloned());
                        Value::Array(old)
                    }
                    _ => value,
                };
                one.insert(key, joined);
            }
            Value::Object(one)
        }
        (Value::Object(one), _) => Value::Object(one),
        (_, other) => other,
    }
}

fn size(schema: &Value, keyword: &str) -> Option<usize> {
    schema.get(keyword)?.as_u64().and_then(|size| usize::try_from(size).ok())
}

/// Returns the smallest and the largest whole number that a schema allows.
fn whole_bounds(schema: &Value) -> (i64, i64) {
    // The conversion of a fraction or of a number that is too large gives the nearest number.
    let bound = |keyword: &str| schema.get(keyword)?.as_f64();
    let least = bound("minimum").map(|least| least.ceil() as i64);
    let above = bound("exclusiveMinimum").map(|least| (least.floor() as i64).saturating_add(1));
    let most = bound("maximum").map(|most| most.floor() as i64);
    let below = bound("exclusiveMaximum").map(|most| (most.ceil() as i64).saturating_sub(1));
    (least.into_iter().chain(above).max().unwrap_or(i64::MIN), most.into_iter().chain(below).min().unwrap_or(i64::MAX))
}

/// Returns a text in a format, or `None` for a format that this module does not know.
fn formatted(format: &str) -> Option<&'static str> {
    Some(match format {
        "date-time" => "2030-01-31T23:59:59Z",
        "date" => "2030-01-31",
        "time" => "23:59:59Z",
        "duration" => "P1DT1H",
        "email" => "ada@example.com",
        "hostname" => "example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" | "iri" => "https://example.com/a?b=c#d",
        "uri-reference" => "/a/b",
        "uuid" => "123e4567-e89b-42d3-a456-426614174000",
        "regex" => "^a+$",
        "json-pointer" => "/a/0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(schema: &Value, models: Vec<Value>) -> Vec<Value> {
        let inputs = Inputs { schema, models };
        (0..400).map(|round| inputs.input(3, round)).collect()
    }

    #[test]
    fn inputs_are_valid_for_the_keywords_that_are_known() {
        let schema = json!({
            "type": "object",
            "required": ["name", "n", "tags"],
            "additionalProperties": false,
            "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": 5 },
                "n": { "type": "integer", "minimum": 3, "exclusiveMaximum": 30, "multipleOf": 1 },
                "tags": { "type": "array", "maxItems": 3, "items": { "$ref": "#/$defs/tag" } },
                "choice": { "oneOf": [{ "const": 1 }, { "type": "object", "required": ["a"], "properties": { "a": { "type": "boolean" } } }] },
                "both": { "allOf": [{ "type": "object", "required": ["x"] }, { "properties": { "x": { "type": "null" } } }] },
            },
            "$defs": { "tag": { "enum": ["red", "blue"] } },
        });
        let all = inputs(&schema, Vec::new());
        for input in &all {
            let fits = |key: &str, value: &Value| match key {
                "name" => value.as_str().is_some_and(|name| (1..=5).contains(&name.chars().count())),
                "n" => value.as_i64().is_some_and(|number| (3..30).contains(&number)),
                "tags" => value
                    .as_array()
                    .is_some_and(|tags| tags.len() <= 3 && tags.iter().all(|tag| *tag == "red" || *tag == "blue")),
                "choice" => *value == 1 || value["a"].is_boolean(),
                "both" => value.get("x") == Some(&Value::Null),
                _ => false,
            };
            let members = input.as_object().into_iter().flatten();
            assert!(members.into_iter().all(|(key, value)| fits(key, value)), "{input}");
            assert!(["name", "n", "tags"].iter().all(|key| input.get(key).is_some()), "{input}");
        }
        for member in ["choice", "both"] {
            let with = all.iter().filter(|input| input.get(member).is_some()).count();
            assert!((50..400).contains(&with), "{with} have `{member}`");
        }
        let numbers: Vec<_> = all.iter().filter_map(|input| input["n"].as_i64()).collect();
        assert!(numbers.contains(&3) && numbers.contains(&29), "{numbers:?}");
    }

    #[test]
    fn inputs_have_edges_and_are_bounded() {
        let schema = json!({ "type": "object", "properties": { "text": { "type": "string" }, "any": true } });
        let all = inputs(&schema, Vec::new());
        let texts: Vec<&str> = all.iter().filter_map(|input| input["text"].as_str()).collect();
        assert!(texts.contains(&""), "no empty text");
        assert!(texts.iter().any(|text| text.chars().count() > HUGE_LETTERS / 2), "no huge text");
        assert!(texts.iter().any(|text| text.contains('\u{202e}')), "no text of two directions");
        assert!(all.iter().any(|input| input.to_string().contains(&"[".repeat(100))), "no deep value");
        assert!(all.contains(&json!({})), "no empty input");
        for input in all {
            assert!(input.to_string().len() < 4 * MAX_LETTERS);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_another_one_others() {
        let schema = json!({ "type": "object" });
        let inputs = Inputs { schema: &schema, models: vec![json!({ "text": "model" })] };
        let all = |seed| (0..50).map(|round| inputs.input(seed, round)).collect::<Vec<_>>();
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }

    #[test]
    fn models_are_changed_in_one_place() {
        let model = json!({ "text": "model", "list": [1, { "deep": true }] });
        let changed = inputs(&json!({ "const": {} }), vec![model.clone()]);
        let near = changed.iter().filter(|input| input.get("text").is_some() && **input != model).count();
        assert!(near > 50, "{near}");
    }

    #[test]
    fn schemas_without_end_and_hostile_ones_end() {
        let endless = json!({ "$ref": "#" });
        let tree = json!({
            "type": "object",
            "required": ["left", "right"],
            "properties": { "left": { "$ref": "#" }, "right": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] } },
        });
        let huge = json!({ "type": "object", "required": ["a", "b"], "properties": {
            "a": { "type": "string", "minLength": 18_446_744_073_709_551_615_u64 },
            "b": { "type": "array", "minItems": 18_446_744_073_709_551_615_u64 },
        } });
        let names_itself = json!({ "allOf": vec![json!({ "$ref": "#" }); 30] });
        for schema in [endless, tree, huge, names_itself] {
            let inputs = Inputs { schema: &schema, models: Vec::new() };
            for round in 0..20 {
                assert!(inputs.input(0, round).is_object());
            }
        }
    }
}
