//! Finds members that an expression reads but that cannot exist, judged by schemas and defaults that are known before a
//! run.
//!
//! Only a closed schema shows which members exist: one with `additionalProperties: false`, or of a type without
//! members. For open schemas, and for keywords that this module does not read, nothing is reported.

use flowcell_contract::{Json, NodeType};
use flowcell_expr::{Path, Segment};
use serde_json::{Value, json};

use crate::{
    diagnostic::{did_you_mean, similar},
    fields::for_message,
};

/// Maximum number of references that are followed in one schema.
const MAX_REFERENCES: usize = 16;
/// Maximum number of members in a help text.
const MAX_LISTED_MEMBERS: usize = 12;
/// Names of members that other languages and tools use for the number of items.
const FOREIGN_LENGTH_MEMBERS: [&str; 5] = ["length", "size", "count", "len", "Count"];
/// Names that other tools give to the result of a node.
const FOREIGN_RESULTS: [&str; 7] = ["output", "outputs", "result", "value", "data", "json", "response"];
/// Members of this catalog's outputs, each with its names in other tools.
const FOREIGN_MEMBERS: [(&str, &[&str]); 5] = [
    ("status", &["statusCode", "status_code", "statuscode", "httpStatus"]),
    ("body", &["data", "json", "content", "text", "response", "payload", "result"]),
    ("result", &["output", "content", "message", "answer", "response", "completion"]),
    ("text", &["output", "content", "result", "value", "rendered"]),
    ("list", &["items", "rows", "results", "output", "data", "result"]),
];
/// Members of the output that the host records for a node that was skipped, was cancelled, or failed under
/// `continueOnError`.
const RECORDED: [&str; 5] = ["skipped", "cancelled", "failed", "error", "attempts"];
/// Members of a recorded error.
const ERROR_MEMBERS: [&str; 4] = ["code", "message", "retryable", "details"];
/// Keywords of a schema that may allow members beyond those in `properties`.
const COMPOSING_KEYWORDS: [&str; 9] = [
    "anyOf",
    "oneOf",
    "allOf",
    "if",
    "not",
    "patternProperties",
    "dependentSchemas",
    "$dynamicRef",
    "unevaluatedProperties",
];

/// A member or an item that a path names but that cannot exist.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MissingMember {
    /// Number of segments at the beginning of the path that can exist. The next segment cannot.
    at: usize,
    /// The value to which these segments lead.
    container: Container,
}

/// The kind of a value that lacks a member.
#[derive(Clone, Debug, PartialEq)]
enum Container {
    /// An object: the names of all of its members, and the names of the members that are lists.
    Object(Vec<String>, Vec<String>),
    List,
    /// A value without members, with the name of its type.
    Plain(&'static str),
}

impl MissingMember {
    /// Returns true if the missing segment comes after the first `known` segments of a path. The first `start` segments
    /// of the path lead to the value that was checked.
    pub(crate) fn is_after(&self, known: usize, start: usize) -> bool {
        start + self.at >= known
    }

    /// Returns the message and the help text of the diagnostic. The first `start` segments of `path` lead to the value
    /// that was checked. `reference` is the text of the steps dialect that the path was made from, such as
    /// `$ctx.report.text`.
    pub(crate) fn describe(&self, path: &Path, start: usize, reference: Option<&str>) -> (String, String) {
        let at = start + self.at;
        let (whole, rest) = path.segments().split_at(at.min(path.segments().len()));
        let before = match reference {
            None => Path::new(path.root(), whole.iter().cloned()).to_string(),
            Some(reference) => without_last(reference, rest.len()).to_owned(),
        };
        let (value, key) = (for_message(&before), rest.first().map(segment_text).unwrap_or_default());
        let length = |value: &str| match reference {
            None => format!("write `{value} | length`"),
            Some(_) => "pass the whole value to `data.template`, and write `{{ value | length }}` there".to_owned(),
        };
        let counts = FOREIGN_LENGTH_MEMBERS.contains(&key.as_str());
        match &self.container {
            Container::Object(members, lists) => {
                let inner = rest.get(1).map(segment_text).filter(|next| members.contains(next));
                let help = match (did_you_mean(&key, members.iter().map(String::as_str)), lists.as_slice(), inner) {
                    (Some(meant), ..) => meant,
                    (None, [list], _) if counts => length(&format!("{value}.{list}")),
                    (None, _, Some(next)) => format!("remove `{key}`: `{value}.{next}`"),
                    (None, ..) => match meant_member(&key, members).filter(|_| path.root() != "flow") {
                        Some(meant) => format!("write `{value}.{}`", for_message(meant)),
                        None => member_list(members),
                    },
                };
                (format!("`{value}` has no member `{}`", for_message(&key)), help)
            }
            Container::List if counts => {
                (format!("`{value}` is a list, and a list has no member `{key}`"), length(&value))
            }
            Container::List => {
                let item = if reference.is_some() { ".0" } else { "[0]" };
                let help = format!("name an item, such as `{value}{item}`");
                (format!("`{value}` is a list, and a list has no member `{}`", for_message(&key)), help)
            }
            Container::Plain(kind) if counts && *kind == "a text" => {
                (format!("`{value}` is a text, and a text has no member `{key}`"), length(&value))
            }
            Container::Plain(kind) => {
                (format!("`{value}` is {kind} and has no member `{}`", for_message(&key)), format!("write `{value}`"))
            }
        }
    }
}

/// Returns the member that other tools call `key`: by its names there, or because it is the only one of a result.
fn meant_member<'m>(key: &str, members: &'m [String]) -> Option<&'m str> {
    let has = |name: &str| members.iter().find(|member| *member == name).map(String::as_str);
    let renamed = FOREIGN_MEMBERS.iter().find_map(|(name, others)| has(name).filter(|_| others.contains(&key)));
    let only = || match members {
        [only] if FOREIGN_RESULTS.contains(&key) => Some(only.as_str()),
        _ => None,
    };
    renamed.or_else(only)
}

/// Returns a reference without its last `words` parts, which dots separate.
fn without_last(reference: &str, words: usize) -> &str {
    (0..words).fold(reference, |left, _| left.rsplit_once('.').map_or(left, |(left, _)| left))
}

fn segment_text(segment: &Segment) -> String {
    match segment {
        Segment::Key(key) => key.to_string(),
        Segment::Index(index) => index.to_string(),
    }
}

fn member_list(members: &[String]) -> String {
    let mut names: Vec<_> = members.iter().take(MAX_LISTED_MEMBERS).map(|name| for_message(name)).collect();
    if members.len() > MAX_LISTED_MEMBERS {
        names.push("…".to_owned());
    }
    match names.is_empty() {
        true => "it has no members".to_owned(),
        false => format!("known members: {}", names.join(", ")),
    }
}

/// Finds a member that the recorded output of a node cannot have.
pub(crate) fn in_output(kind: &NodeType, segments: &[Segment]) -> Option<MissingMember> {
    let absent = in_schema(&kind.output, segments)?;
    let Some(Segment::Key(first)) = segments.first() else { return Some(absent) };
    if RECORDED.contains(&&**first) {
        let recorded = match &**first {
            "error" => in_schema(&error_schema(), &segments[1..]),
            "attempts" => in_schema(&json!({ "type": "integer" }), &segments[1..]),
            _ => in_schema(&json!({ "type": "boolean" }), &segments[1..]),
        };
        return recorded.map(|absent| MissingMember { at: absent.at + 1, ..absent });
    }
    // The help text lists a recorded member only if its name is similar.
    match absent {
        MissingMember { at: 0, container: Container::Object(mut members, lists) } => {
            if similar(first, members.iter().map(String::as_str)).is_none() {
                members.extend(similar(first, RECORDED).map(str::to_owned));
            }
            Some(MissingMember { at: 0, container: Container::Object(members, lists) })
        }
        absent => Some(absent),
    }
}

/// Finds the first member of a path that `inbound` cannot have if an edge after a failure started the node.
pub(crate) fn in_failure(segments: &[Segment]) -> Option<MissingMember> {
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": { "failed": { "type": "boolean" }, "error": error_schema(), "input": true },
    });
    in_schema(&schema, segments)
}

fn error_schema() -> Value {
    let members: serde_json::Map<_, _> =
        ERROR_MEMBERS.iter().map(|name| ((*name).to_owned(), Value::Bool(true))).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": members })
}

/// Finds the first member of a path that the values of a schema cannot have.
pub(crate) fn in_schema(schema: &Value, segments: &[Segment]) -> Option<MissingMember> {
    let (mut at, mut here, mut followed) = (0, schema, 0);
    loop {
        let segment = segments.get(at)?;
        if here == &Value::Bool(false) {
            return Some(MissingMember { at, container: Container::Object(Vec::new(), Vec::new()) });
        }
        let members = here.as_object()?;
        if let Some(target) = members.get("$ref").and_then(Value::as_str) {
            followed += 1;
            here = target.strip_prefix('#').and_then(|pointer| schema.pointer(pointer))?;
            if followed > MAX_REFERENCES {
                return None;
            }
            continue;
        }
        if COMPOSING_KEYWORDS.iter().any(|keyword| members.contains_key(*keyword)) {
            return None;
        }
        here = match step(members, segment) {
            Step::To(next) => next,
            Step::Open => return None,
            Step::MissingMember(container) => return Some(MissingMember { at, container }),
        };
        at += 1;
    }
}

enum Step<'s> {
    To(&'s Value),
    Open,
    MissingMember(Container),
}

/// Follows one segment of a path: from the schema of a value to the schema of a member or an item.
fn step<'s>(schema: &'s serde_json::Map<String, Value>, segment: &Segment) -> Step<'s> {
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let may_be = |name: &str| types.is_empty() || types.contains(&name);
    match segment {
        Segment::Key(key) if may_be("object") => member(schema, key),
        Segment::Key(_) if may_be("array") => Step::MissingMember(Container::List),
        Segment::Key(_) => types.iter().find_map(|name| plain(name)).map_or(Step::Open, Step::MissingMember),
        Segment::Index(_) if may_be("array") && !schema.contains_key("prefixItems") => {
            schema.get("items").map_or(Step::Open, Step::To)
        }
        Segment::Index(_) => Step::Open,
    }
}

fn member<'s>(schema: &'s serde_json::Map<String, Value>, key: &str) -> Step<'s> {
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(found) = properties.and_then(|properties| properties.get(key)) {
        return Step::To(found);
    }
    match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => {
            let is_list = |schema: &Value| schema.get("type").and_then(Value::as_str) == Some("array");
            let lists = properties.into_iter().flatten().filter(|(_, schema)| is_list(schema));
            let lists = lists.map(|(name, _)| name.clone()).collect();
            Step::MissingMember(Container::Object(
                properties.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
                lists,
            ))
        }
        Some(more @ Value::Object(_)) => Step::To(more),
        _ => Step::Open,
    }
}

/// Returns the container for a JSON Schema type whose values have no members; `None` for other types.
fn plain(name: &str) -> Option<Container> {
    Some(Container::Plain(match name {
        "string" => "a text",
        "integer" | "number" => "a number",
        "boolean" => "a boolean",
        _ => return None,
    }))
}

/// Finds the first member of a path that a default value does not have. Null and an empty object give no
/// information, so nothing below them is reported, and neither is anything below an item of an empty list.
pub(crate) fn in_default(value: &Json, segments: &[Segment]) -> Option<MissingMember> {
    let mut here = value;
    for (at, segment) in segments.iter().enumerate() {
        let container = match (here, segment) {
            (Json::Object(members), Segment::Key(key)) => match members.get(key) {
                Some(member) => {
                    here = member;
                    continue;
                }
                None if members.is_empty() => return None,
                None => {
                    let lists = members.iter().filter(|(_, member)| member.as_array().is_some());
                    let lists = lists.map(|(name, _)| name.to_string()).collect();
                    Container::Object(members.keys().map(|name| name.to_string()).collect(), lists)
                }
            },
            (Json::Array(_), Segment::Key(_)) => Container::List,
            (Json::Array(items), Segment::Index(_)) => {
                here = items.first()?;
                continue;
            }
            (Json::String(_), Segment::Key(_)) => Container::Plain("a text"),
            (Json::Number(_), Segment::Key(_)) => Container::Plain("a number"),
            (Json::Bool(_), Segment::Key(_)) => Container::Plain("a boolean"),
            _ => return None,
        };
        return Some(MissingMember { at, container });
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn only_closed_schemas_report_unknown_members() {
        let schema = json!({
            "type": "object", "additionalProperties": false,
            "properties": {
                "open": { "type": "object" },
                "any": {},
                "list": { "type": "array", "items": { "$ref": "#/$defs/row" } },
                "either": { "anyOf": [{ "type": "string" }, { "type": "object" }] },
                "null": { "type": ["string", "null"] },
                "map": { "type": "object", "additionalProperties": { "type": "string" } },
                "ring": { "$ref": "#/$defs/ring" },
            },
            "$defs": {
                "row": { "type": "object", "properties": { "id": { "type": "integer" } }, "additionalProperties": false },
                "ring": { "$ref": "#/$defs/ring" },
            },
        });
        let cases = [
            ("v.open.x", "open"),
            ("v.any.x.y", "open"),
            ("v.either.x", "open"),
            ("v.ring.x", "open"),
            ("v.null[0]", "open"),
            ("v.list[0].id", "open"),
            ("v.map.any", "open"),
            ("v.lits", "`v` has no member `lits`: did you mean `list`?"),
            ("v.length", "`v` has no member `length`: write `v.list | length`"),
            ("v.output.list", "`v` has no member `output`: remove `output`: `v.list`"),
            ("v.list.length", "`v.list` is a list, and a list has no member `length`: write `v.list | length`"),
            ("v.list.id", "`v.list` is a list, and a list has no member `id`: name an item, such as `v.list[0]`"),
            ("v.list[3].name", "`v.list[3]` has no member `name`: known members: id"),
            ("v.list[-1].id.x", "`v.list[-1].id` is a number and has no member `x`: write `v.list[-1].id`"),
            ("v.null.length", "`v.null` is a text, and a text has no member `length`: write `v.null | length`"),
            ("v.map.any.x", "`v.map.any` is a text and has no member `x`: write `v.map.any`"),
        ];
        for (path, expected) in cases {
            let path = Path::parse(path).unwrap();
            let absent = in_schema(&schema, path.segments());
            let told = absent.map_or("open".to_owned(), |absent| {
                let (message, help) = absent.describe(&path, 0, None);
                format!("{message}: {help}")
            });
            assert_eq!(told, expected, "{path}");
        }
    }

    #[test]
    fn defaults_report_unknown_members() {
        let value = Json::parse(r#"{"user":{"name":"Ada"},"rows":[{"id":1}],"none":null,"empty":{},"no":[]}"#).unwrap();
        let cases = [
            ("v.user.name", true),
            ("v.usr", false),
            ("v.user.nam", false),
            ("v.rows[7].id", true),
            ("v.rows[0].nam", false),
            ("v.rows.length", false),
            ("v.none.x", true),
            ("v.empty.x", true),
            ("v.no[0].x", true),
            ("v.user.name[0]", true),
        ];
        for (path, fits) in cases {
            let path = Path::parse(path).unwrap();
            assert_eq!(in_default(&value, path.segments()).is_none(), fits, "{path}");
        }
    }
}
