//! Changes the schema of the arguments so that it accepts `prompt`. Every agentic flow accepts a prompt, even if its
//! schema does not declare one.

use std::collections::{BTreeSet, HashMap};

use flowcell_contract::Json;

use crate::{
    literal,
    yaml::{Entry, Kind, Span, Tree},
};

const PROMPT: &str = "prompt";
/// Schema keywords that forbid or restrict undeclared arguments.
const CLOSING: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];

/// The keys and indices that lead to a part of a schema.
type SchemaPath = Vec<String>;

/// Returns the schema of the arguments, changed so that it accepts an argument `prompt`. If the schema itself declares
/// `prompt`, that declaration still restricts the value of `prompt`.
pub(super) fn with_prompt(schema: &Tree) -> Tree {
    let paths = schemas_of_arguments(schema);
    let declares =
        |path: &SchemaPath| part_at(schema, path).and_then(|part| part.member("properties")?.member(PROMPT)).is_some();
    let is_declared = paths.iter().any(declares);
    let mut schema = schema.clone();
    for path in &paths {
        if let Some(part) = part_at_mut(&mut schema, path) {
            accept_prompt(part, is_declared);
        }
    }
    schema
}

/// Returns the paths of all subschemas that apply to the object of arguments as a whole, not to one of its members.
/// Follows references.
fn schemas_of_arguments(schema: &Tree) -> BTreeSet<SchemaPath> {
    let (mut found, mut open, mut anchors) = (BTreeSet::new(), vec![SchemaPath::new()], None);
    while let Some(path) = open.pop() {
        let Some(Kind::Map(entries)) = part_at(schema, &path).map(|part| &part.kind) else { continue };
        if !found.insert(path.clone()) {
            continue;
        }
        let below = |keys: &[&str]| path.iter().cloned().chain(keys.iter().map(|key| (*key).to_owned())).collect();
        for entry in entries {
            let key = &*entry.key;
            match (key, &entry.value.kind) {
                ("allOf" | "anyOf" | "oneOf", Kind::List(parts)) => {
                    open.extend((0..parts.len()).map(|index| below(&[key, &index.to_string()])));
                }
                ("if" | "then" | "else" | "not", Kind::Map(_)) => open.push(below(&[key])),
                ("dependentSchemas", Kind::Map(members)) => {
                    open.extend(members.iter().map(|member| below(&[key, &*member.key])));
                }
                ("$ref" | "$dynamicRef", Kind::Scalar(Json::String(target))) => {
                    let Some(target) = target.strip_prefix('#') else { continue };
                    match target.strip_prefix('/') {
                        Some(pointer) => open.push(pointer.split('/').map(unescape).collect()),
                        None if target.is_empty() => open.push(SchemaPath::new()),
                        None => {
                            let anchors = anchors.get_or_insert_with(|| anchors_of(schema));
                            open.extend(anchors.get(target).into_iter().flatten().cloned());
                        }
                    }
                }
                _ => {}
            }
        }
    }
    found
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// Returns the paths of all anchors of a schema, by their names.
fn anchors_of(schema: &Tree) -> HashMap<String, Vec<SchemaPath>> {
    let mut anchors = HashMap::<_, Vec<_>>::new();
    let mut open = vec![(SchemaPath::new(), schema)];
    while let Some((path, part)) = open.pop() {
        let below = |key: String| path.iter().cloned().chain([key]).collect::<SchemaPath>();
        match &part.kind {
            Kind::Map(entries) => {
                for entry in entries {
                    match (&*entry.key, entry.value.text()) {
                        ("$anchor" | "$dynamicAnchor", Some(name)) => {
                            anchors.entry(name.to_owned()).or_default().push(path.clone());
                        }
                        _ => open.push((below(entry.key.to_string()), &entry.value)),
                    }
                }
            }
            Kind::List(items) => open.extend(items.iter().enumerate().map(|(at, item)| (below(at.to_string()), item))),
            Kind::Scalar(_) => {}
        }
    }
    anchors
}

fn part_at<'t>(schema: &'t Tree, path: &SchemaPath) -> Option<&'t Tree> {
    path.iter().try_fold(schema, |at, key| match &at.kind {
        Kind::Map(_) => at.member(key),
        Kind::List(items) => items.get(key.parse::<usize>().ok()?),
        Kind::Scalar(_) => None,
    })
}

fn part_at_mut<'t>(schema: &'t mut Tree, path: &SchemaPath) -> Option<&'t mut Tree> {
    path.iter().try_fold(schema, |at, key| match &mut at.kind {
        Kind::Map(entries) => entries.iter_mut().find(|entry| *entry.key == *key).map(|entry| &mut entry.value),
        Kind::List(items) => items.get_mut(key.parse::<usize>().ok()?),
        Kind::Scalar(_) => None,
    })
}

/// Changes one schema so that it accepts and refuses the same objects as before when they also have a member `prompt`.
/// If `is_declared` is true, `prompt` is a declared argument, so limits of the number of members still count it.
fn accept_prompt(schema: &mut Tree, is_declared: bool) {
    let span = schema.span;
    let Kind::Map(entries) = &mut schema.kind else { return };
    if let Some(names) = entries.iter_mut().find(|entry| &*entry.key == "propertyNames") {
        let own = std::mem::replace(&mut names.value, literal::map(span, []));
        let prompt = literal::tree(&Json::object([("const", Json::from(PROMPT))]), span);
        let either = Tree { span, kind: Kind::List(vec![prompt, own]) };
        names.value = literal::map(span, [("anyOf", either)]);
    }
    if !is_declared {
        count_without_prompt(entries, span);
    }
    if !entries.iter().any(|entry| CLOSING.contains(&&*entry.key)) {
        return;
    }
    let any = || Entry { key: PROMPT.into(), key_span: span, value: literal::map(span, []) };
    match entries.iter_mut().find(|entry| &*entry.key == "properties").map(|entry| &mut entry.value.kind) {
        Some(Kind::Map(declared)) if declared.iter().any(|entry| &*entry.key == PROMPT) => {}
        Some(Kind::Map(declared)) => declared.push(any()),
        Some(_) => {}
        None => {
            let value = Tree { span, kind: Kind::Map(vec![any()]) };
            entries.push(Entry { key: "properties".into(), key_span: span, value });
        }
    }
}

/// Replaces limits of the number of members by limits that do not count `prompt`.
fn count_without_prompt(entries: &mut Vec<Entry>, span: Span) {
    let mut limits = Vec::new();
    entries.retain(|entry| {
        let key = &*entry.key;
        if !matches!(key, "maxProperties" | "minProperties") {
            return true;
        }
        let Some(own) = entry.value.json().as_u64() else { return true };
        let limit = |limit: u64| Json::object([(key, Json::from(limit))]);
        let given = Json::object([("required", Json::array([Json::from(PROMPT)]))]);
        limits.push(Json::object([("if", given), ("then", limit(own.saturating_add(1))), ("else", limit(own))]));
        false
    });
    let limits: Vec<_> = limits.iter().map(|limit| literal::tree(limit, span)).collect();
    match entries.iter_mut().find(|entry| &*entry.key == "allOf").map(|entry| &mut entry.value.kind) {
        _ if limits.is_empty() => {}
        Some(Kind::List(parts)) => parts.extend(limits),
        _ => {
            entries.push(Entry { key: "allOf".into(), key_span: span, value: Tree { span, kind: Kind::List(limits) } })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_schema::{Budget, Schema};

    use super::*;

    /// Returns two results: true if the schema as written accepts the arguments, and true if the schema from
    /// [`with_prompt`] accepts them.
    fn accepts(schema: &str, args: &str) -> (bool, bool) {
        let tree = crate::yaml::parse(schema).unwrap_or_else(|_| panic!("{schema}"));
        let accepts = |tree: &Tree| {
            let schema = Schema::compile(&serde_json::from_str(&tree.json().to_text()).unwrap()).unwrap();
            schema.check_new().unwrap();
            schema.is_valid(&Json::parse(args).unwrap(), Budget::FULL).unwrap()
        };
        (accepts(&tree), accepts(&with_prompt(&tree)))
    }

    #[test]
    fn closed_schemas_let_the_prompt_in_and_nothing_else() {
        let closed = "required: [issue], additionalProperties: false, properties: { issue: { type: integer } }";
        let schemas = [
            format!("{{ {closed} }}"),
            format!("{{ allOf: [{{ anyOf: [{{ oneOf: [{{ {closed} }}] }}] }}] }}"),
            format!("{{ $ref: '#/$defs/a~1b', $defs: {{ a/b: {{ $ref: '#/$defs/c' }}, c: {{ {closed} }} }} }}"),
            format!("{{ $ref: '#args', $defs: {{ a: {{ $anchor: args, {closed} }} }} }}"),
            format!("{{ $dynamicRef: '#args', $defs: {{ a: {{ $dynamicAnchor: args, {closed} }} }} }}"),
            format!("{{ dependentSchemas: {{ issue: {{ {closed} }} }}, required: [issue] }}"),
            format!("{{ if: {{ {closed} }}, else: false }}"),
            format!("{{ if: {{ required: [issue] }}, then: {{ {closed} }}, else: false }}"),
            format!("{{ not: {{ not: {{ {closed} }} }} }}"),
            "{ required: [issue], propertyNames: { enum: [issue] } }".to_owned(),
            "{ required: [issue], propertyNames: { $ref: '#/$defs/name' }, $defs: { name: { const: issue } } }".to_owned(),
            "{ required: [issue], maxProperties: 1 }".to_owned(),
            "{ required: [issue], allOf: [{ $ref: '#max' }, { $ref: '#/$defs/m' }], $defs: { m: { $anchor: max, maxProperties: 1 } } }"
                .to_owned(),
            "{ required: [issue], unevaluatedProperties: false, properties: { issue: true } }".to_owned(),
        ];
        for schema in &schemas {
            assert_eq!(accepts(schema, r#"{"issue":5}"#), (true, true), "{schema}");
            assert_eq!(accepts(schema, r#"{"issue":5,"prompt":"x"}"#), (false, true), "{schema}");
            for args in [r#"{"issue":5,"other":1}"#, r#"{"issue":5,"prompt":"x","other":1}"#, r#"{"prompt":"x"}"#] {
                assert_eq!(accepts(schema, args), (false, false), "{schema} {args}");
            }
        }
    }

    #[test]
    fn a_declared_prompt_counts_and_has_its_own_schema() {
        let declared =
            "{ maxProperties: 1, additionalProperties: false, properties: { prompt: { maxLength: 2 }, a: true } }";
        assert_eq!(accepts(declared, r#"{"prompt":"xy"}"#), (true, true));
        assert_eq!(accepts(declared, r#"{"prompt":"xyz"}"#), (false, false));
        assert_eq!(accepts(declared, r#"{"prompt":"xy","a":1}"#), (false, false));
        // A prompt is not among the members that a minimum counts.
        assert_eq!(accepts("{ minProperties: 1 }", r#"{"prompt":"x"}"#), (true, false));
        assert_eq!(accepts("{ minProperties: 1 }", r#"{"a":1,"prompt":"x"}"#), (true, true));
    }
}
