//! Measures a schema before it is compiled: the number of its subschemas after unfolding, and the sizes of its
//! patterns.

use std::{collections::HashMap, rc::Rc};

use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::{DEPTH, SchemaError, meter, meter::TooCostly, pattern};

/// Keywords whose value is a schema or a list of schemas.
const SCHEMAS: [&str; 17] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "extends",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is an object with a schema for each name.
const NAMED: [&str; 4] = ["dependencies", "dependentSchemas", "patternProperties", "properties"];
/// Keywords whose value is a reference to a schema.
const REFERENCES: [&str; 3] = ["$dynamicRef", "$recursiveRef", "$ref"];
/// Maximum sum of the weights of a schema's patterns, in units of [`pattern::Size::weight`].
const MAX_TOTAL_WEIGHT: u64 = 1_000_000;
/// Maximum weight that one pattern adds to the sum. A heavier pattern adds only this much, because it fails anyway when
/// it is compiled.
const MAX_COUNTED_WEIGHT: u64 = 40_000;

/// The size of a schema.
pub(crate) struct Measured {
    /// Number of subschemas after unfolding.
    pub(crate) nodes: u64,
    /// Number of positions of the largest pattern in `patternProperties`; 0 if there is none.
    pub(crate) key_positions: u64,
    /// The first reference without a target in the schema; `None` if every reference has one.
    pub(crate) unresolved_reference: Option<String>,
}

/// Measures a schema. Each JSON value in it and each subschema after unfolding costs one visit of the current budget.
pub(crate) fn measure(schema: &Value) -> Result<Measured, SchemaError> {
    let mut document = Document::default();
    document.read(schema, 0)?;
    let mut unfolding = Unfolding {
        document: &document,
        whole: schema,
        followed: HashMap::new(),
        path: Vec::new(),
        nodes: 0,
        unresolved_reference: None,
    };
    unfolding.unfold(schema, schema)?;
    let Unfolding { nodes, unresolved_reference, .. } = unfolding;
    Ok(Measured { nodes, key_positions: document.key_positions, unresolved_reference })
}

/// The anchors and ids in a schema with the subschemas that they name, and the sizes of its patterns.
#[derive(Default)]
struct Document<'s> {
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    ids: Vec<(&'s str, &'s Value)>,
    weight: u64,
    key_positions: u64,
}

impl<'s> Document<'s> {
    fn read(&mut self, value: &'s Value, depth: usize) -> Result<(), TooCostly> {
        meter::spend(1);
        if depth > DEPTH {
            return Err(TooCostly::Depth);
        }
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.read(item, depth + 1)),
            Value::Object(members) => members.iter().try_for_each(|(key, member)| {
                self.record_member(key, member, value)?;
                self.read(member, depth + 1)
            }),
            _ => Ok(()),
        }
    }

    /// Records the anchor, the id or the patterns in one member of an object. The object need not be a schema.
    fn record_member(&mut self, key: &str, member: &'s Value, schema: &'s Value) -> Result<(), TooCostly> {
        match (key, member) {
            ("$anchor" | "$dynamicAnchor", Value::String(name)) => {
                self.anchors.entry(name).or_default().push(schema);
            }
            ("$id" | "id", Value::String(id)) => match id.strip_prefix('#') {
                Some(name) => self.anchors.entry(name).or_default().push(schema),
                None => self.ids.push((id, schema)),
            },
            ("pattern", Value::String(source)) => {
                self.weigh(source)?;
            }
            ("patternProperties", Value::Object(named)) => {
                for source in named.keys() {
                    let positions = self.weigh(source)?;
                    self.key_positions = self.key_positions.max(positions);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds the weight of a pattern to the sum of all patterns. Returns the number of the pattern's positions; 0 if the
    /// pattern cannot be parsed.
    fn weigh(&mut self, source: &str) -> Result<u64, TooCostly> {
        meter::spend(1 + source.len() as u64 / 16);
        let size = pattern::size(source).unwrap_or_default();
        self.weight += size.weight.min(MAX_COUNTED_WEIGHT);
        if self.weight > MAX_TOTAL_WEIGHT { Err(TooCostly::Patterns) } else { Ok(size.positions) }
    }

    /// Returns the subschemas to which a reference may refer; an empty list if there are none. `root` is the nearest
    /// enclosing schema with an id, `whole` is the outermost schema.
    fn targets(&self, reference: &str, root: &'s Value, whole: &'s Value) -> Vec<&'s Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = percent_decode_str(fragment).decode_utf8_lossy();
        let roots: Vec<_> = match base {
            "" => vec![root, whole],
            base => self.ids.iter().filter(|(id, _)| is_same(id, base)).map(|(_, schema)| *schema).collect(),
        };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchors.get(&*fragment).cloned().unwrap_or_default();
        }
        let mut found: Vec<&Value> = roots.into_iter().filter_map(|root| root.pointer(&fragment)).collect();
        found.dedup_by(|one, other| std::ptr::eq(*one, *other));
        found
    }
}

/// Returns true if the base URI of a reference may denote the schema with this id. Only the last segments of the two
/// paths are compared, because one path may be relative and the other absolute.
fn is_same(id: &str, base: &str) -> bool {
    let last = |text: &str| text.trim_end_matches('#').rsplit('/').next().map(str::to_owned);
    last(id) == last(base)
}

struct Unfolding<'d, 's> {
    document: &'d Document<'s>,
    whole: &'s Value,
    /// The targets of the references that were followed so far. The key has the reference, and the address of the
    /// nearest enclosing schema with an id.
    followed: HashMap<(&'s str, *const Value), Rc<[&'s Value]>>,
    /// The schemas that enclose the current one, the outermost first.
    path: Vec<&'s Value>,
    nodes: u64,
    unresolved_reference: Option<String>,
}

impl<'s> Unfolding<'_, 's> {
    /// Counts a schema, and then all schemas that it contains or refers to. If a schema contains itself, its inner
    /// occurrence is counted but not followed, because the validator follows a cycle only as deep as the value is
    /// nested.
    fn unfold(&mut self, schema: &'s Value, root: &'s Value) -> Result<(), TooCostly> {
        meter::spend(1);
        self.nodes += 1;
        let Value::Object(members) = schema else { return Ok(()) };
        if self.path.iter().any(|outer| std::ptr::eq(*outer, schema)) {
            return Ok(());
        }
        if self.path.len() >= DEPTH {
            return Err(TooCostly::Depth);
        }
        let is_root = members.get("$id").and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
        let root = if is_root { schema } else { root };
        self.path.push(schema);
        for (key, member) in members {
            match (key.as_str(), member) {
                (key, Value::String(reference)) if REFERENCES.contains(&key) => self.follow(reference, root)?,
                (key, Value::Object(named)) if NAMED.contains(&key) => {
                    named.values().try_for_each(|schema| self.unfold_schema(schema, root))?;
                }
                (key, Value::Array(list)) if SCHEMAS.contains(&key) => {
                    list.iter().try_for_each(|schema| self.unfold_schema(schema, root))?;
                }
                (key, schema) if SCHEMAS.contains(&key) => self.unfold_schema(schema, root)?,
                _ => {}
            }
        }
        self.path.pop();
        Ok(())
    }

    fn unfold_schema(&mut self, schema: &'s Value, root: &'s Value) -> Result<(), TooCostly> {
        if schema.is_object() || schema.is_boolean() { self.unfold(schema, root) } else { Ok(()) }
    }

    fn follow(&mut self, reference: &'s str, root: &'s Value) -> Result<(), TooCostly> {
        let (document, whole) = (self.document, self.whole);
        let targets = self.followed.entry((reference, std::ptr::from_ref(root)));
        let targets = targets.or_insert_with(|| document.targets(reference, root, whole).into()).clone();
        if targets.is_empty() {
            self.unresolved_reference.get_or_insert_with(|| reference.to_owned());
        }
        targets.iter().try_for_each(|target| self.unfold(target, root))
    }
}
