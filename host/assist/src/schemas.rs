//! Reads JSON Schemas: the members, the values and the description of a part of a document.

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use crate::{
    reading::{Kind, Member, Style, Value},
    scalar::Scalar,
};

/// Maximum number of alternatives of a part. Others are left out.
const MAX_ALTERNATIVES: usize = 64;
/// Maximum depth to which values are compared with a schema.
const MAX_COMPARED_DEPTH: usize = 8;
/// Maximum number of characters of a value in a text.
const MAX_SHOWN_CHARS: usize = 200;

/// A schema with its whole document, which resolves references.
#[derive(Clone, Copy)]
pub(crate) struct Schema<'s> {
    root: &'s Json,
    part: &'s Json,
}

/// A step from a value to a part of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Key(String),
    Item,
}

impl Step {
    /// Returns the step of a word in a reference of a flow of steps. A number selects an item.
    pub(crate) fn in_reference(word: &str) -> Step {
        let is_number = !word.is_empty() && word.bytes().all(|sign| sign.is_ascii_digit());
        if is_number { Step::Item } else { Step::Key(word.to_owned()) }
    }
}

/// A member that a schema names.
pub(crate) struct Property<'s> {
    pub(crate) name: &'s str,
    pub(crate) schema: Schema<'s>,
    pub(crate) is_required: bool,
}

impl<'s> Schema<'s> {
    pub(crate) fn new(root: &'s Json) -> Schema<'s> {
        Schema { root, part: root }
    }

    /// Returns the schemas that a value of this one may follow, without references and compositions.
    pub(crate) fn alternatives(self) -> Vec<Schema<'s>> {
        let mut found = Vec::new();
        let mut next = vec![(self.part, 0)];
        while let Some((part, depth)) = next.pop() {
            if depth > 8 || found.len() + next.len() > MAX_ALTERNATIVES {
                continue;
            }
            if let Some(reference) = part.get("$ref").and_then(Json::as_str) {
                let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
                next.extend(target.map(|target| (target, depth + 1)));
            }
            for keyword in ["oneOf", "anyOf", "allOf"] {
                let parts = part.get(keyword).and_then(Json::as_array);
                next.extend(parts.into_iter().flatten().rev().map(|part| (part, depth + 1)));
            }
            found.push(Schema { root: self.root, part });
        }
        found
    }

    /// Returns the schemas of a part of a value.
    pub(crate) fn below(self, step: &Step) -> Vec<Schema<'s>> {
        let below = |schema: Schema<'s>| {
            let part = match step {
                Step::Item => schema.part.get("items"),
                Step::Key(key) => {
                    let named = schema.part.get("properties").and_then(|properties| properties.get(key));
                    named.or_else(|| schema.part.get("additionalProperties"))
                }
            };
            part.map(|part| Schema { part, ..schema })
        };
        self.alternatives().into_iter().filter_map(below).collect()
    }

    /// Returns the schemas of the value to which steps lead. Of very many alternatives, only some count.
    pub(crate) fn follow(self, steps: &[Step]) -> Vec<Schema<'s>> {
        let below = |schemas: Vec<Schema<'s>>, step: &Step| {
            let below = schemas.into_iter().flat_map(|schema| schema.below(step));
            below.take(MAX_ALTERNATIVES).collect()
        };
        steps.iter().fold(vec![self], below)
    }

    /// Returns the named members, those of the first alternatives first.
    pub(crate) fn properties(self) -> Vec<Property<'s>> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        for schema in self.alternatives() {
            let required = schema.part.get("required").and_then(Json::as_array);
            let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
            for (name, part) in schema.part.get("properties").and_then(Json::as_object).into_iter().flatten() {
                if seen.insert(name) {
                    let schema = Schema { part, ..schema };
                    found.push(Property { name, schema, is_required: is_required(name) });
                }
            }
        }
        found
    }

    /// Returns the members that exclude each other; one of them is required.
    pub(crate) fn one_of(self) -> Vec<&'s str> {
        let listed = |schema: Schema<'s>| schema.part.get("oneOf").and_then(Json::as_array);
        let required =
            |part: &'s Json| part.get("required").filter(|_| part.as_object().is_some_and(|part| part.len() == 1));
        let parts = self.alternatives().into_iter().filter_map(listed).flatten();
        parts.filter_map(required).filter_map(Json::as_array).flatten().filter_map(Json::as_str).collect()
    }

    /// Returns true if no value fits.
    pub(crate) fn is_never(self) -> bool {
        *self.part == Json::Bool(false)
    }

    /// Returns true if a member that the schema does not name cannot exist.
    pub(crate) fn is_closed(self) -> bool {
        let alternatives = self.alternatives();
        let is_closed = |schema: &Schema<'s>| schema.part.get("additionalProperties") == Some(&Json::Bool(false));
        alternatives.iter().any(is_closed)
    }

    /// Returns the values that the schema lists, with `true` and `false` for a Boolean.
    pub(crate) fn values(self) -> Vec<Json> {
        let mut found: Vec<Json> = Vec::new();
        for schema in self.alternatives() {
            found.extend(schema.part.get("enum").and_then(Json::as_array).into_iter().flatten().cloned());
            found.extend(schema.part.get("const").cloned());
            if schema.part.get("type").is_some_and(|name| name == "boolean") {
                found.extend([json!(true), json!(false)]);
            }
        }
        found
    }

    /// Returns the names of the types that a value may have; none if the schema does not tell.
    pub(crate) fn types(self) -> Vec<&'s str> {
        let mut found = Vec::new();
        for schema in self.alternatives() {
            match schema.part.get("type") {
                Some(Json::String(name)) => found.push(name.as_str()),
                Some(Json::Array(names)) => found.extend(names.iter().filter_map(Json::as_str)),
                None if schema.part.get("properties").is_some() => found.push("object"),
                None if schema.part.get("enum").is_some() => found.push("string"),
                _ => {}
            }
        }
        found
    }

    /// Returns a keyword of the first alternative that has it.
    pub(crate) fn keyword(self, name: &str) -> Option<&'s Json> {
        self.alternatives().into_iter().find_map(|schema| schema.part.get(name))
    }

    /// Returns the schema as JSON. References to other parts of its document are lost.
    pub(crate) fn to_json(self) -> Json {
        self.part.clone()
    }

    pub(crate) fn description(self) -> Option<&'s str> {
        self.keyword("description").and_then(Json::as_str)
    }

    /// Returns the type in words, such as `text or list`.
    pub(crate) fn type_text(self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for name in self.types() {
            let name = type_word(name);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { "any value".to_owned() } else { names.join(" or ") }
    }

    /// Returns true if a value of a flow may fit. A text with `{{ }}` fits every schema, and so do values deep inside.
    pub(crate) fn may_be(self, file: &str, value: &Value) -> bool {
        self.may_be_to(file, value, MAX_COMPARED_DEPTH)
    }

    fn may_be_to(self, file: &str, value: &Value, depth: usize) -> bool {
        let types = self.types();
        let has = |name: &str| types.is_empty() || types.contains(&name);
        let Some(depth) = depth.checked_sub(1) else { return true };
        let below = |step: Step, part: &Value| {
            let below = self.below(&step);
            below.is_empty() || below.iter().any(|schema| schema.may_be_to(file, part, depth))
        };
        match &value.kind {
            Kind::Missing => true,
            Kind::List(items) => has("array") && items.iter().all(|item| below(Step::Item, item)),
            Kind::Map(members) => {
                let known = self.properties();
                let fits = |member: &Member| match known.iter().find(|property| property.name == member.name) {
                    Some(property) => property.schema.may_be_to(file, &member.value, depth),
                    None => !self.is_closed() && below(Step::Key(member.name.clone()), &member.value),
                };
                has("object") && members.iter().all(fits)
            }
            Kind::Scalar(style) => {
                let Some(scalar) = Scalar::new(file, value) else { return true };
                if scalar.text.contains("{{") {
                    return true;
                }
                let written = plain(&scalar.text, *style);
                let fits = match &written {
                    Json::Null => has("null"),
                    Json::Bool(_) => has("boolean"),
                    Json::Number(number) => has("number") || (has("integer") && !number.is_f64()),
                    _ => has("string"),
                };
                let listed = self.keyword("enum").and_then(Json::as_array).filter(|_| self.alternatives().len() == 1);
                fits && listed.is_none_or(|listed| listed.contains(&written))
            }
        }
    }
}

/// Returns the word of the manual for a type of JSON Schema.
fn type_word(name: &str) -> &str {
    match name {
        "string" => "text",
        "array" => "list",
        other => other,
    }
}

/// Returns the value of a scalar as YAML reads it.
fn plain(text: &str, style: Style) -> Json {
    match (style, text) {
        (Style::Plain, "" | "~" | "null") => Json::Null,
        (Style::Plain, "true") => json!(true),
        (Style::Plain, "false") => json!(false),
        (Style::Plain, number) if number.starts_with(|sign: char| sign.is_ascii_digit() || sign == '-') => {
            serde_json::from_str(number).unwrap_or_else(|_| json!(number))
        }
        _ => json!(text),
    }
}

/// Returns a value of a flow as JSON. Missing values are null.
pub(crate) fn to_json(file: &str, value: &Value) -> Json {
    match &value.kind {
        Kind::Missing => Json::Null,
        Kind::Scalar(style) => Scalar::new(file, value).map_or(Json::Null, |scalar| plain(&scalar.text, *style)),
        Kind::List(items) => items.iter().map(|item| to_json(file, item)).collect(),
        Kind::Map(members) => {
            Json::Object(members.iter().map(|member| (member.name.clone(), to_json(file, &member.value))).collect())
        }
    }
}

/// Returns a schema for values like this one. It names the members of objects, and those of the first item of lists. It
/// says nothing about texts with `{{ }}`, which may have any value.
pub(crate) fn schema_like(value: &Json) -> Json {
    match value {
        Json::Null => json!({}),
        Json::String(text) if text.contains("{{") => json!({}),
        Json::Bool(_) => json!({ "type": "boolean" }),
        Json::Number(number) => json!({ "type": if number.is_f64() { "number" } else { "integer" } }),
        Json::String(_) => json!({ "type": "string" }),
        Json::Array(items) => json!({ "type": "array", "items": items.first().map_or(json!({}), schema_like) }),
        Json::Object(members) => {
            let members: serde_json::Map<_, _> =
                members.iter().map(|(name, member)| (name.clone(), schema_like(member))).collect();
            json!({ "type": "object", "properties": members })
        }
    }
}

/// Returns a value as a text of limited length.
pub(crate) fn shown(value: &Json) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
