//! Measures a schema before it is compiled.

use std::{collections::HashMap, rc::Rc};

use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::{DEPTH, SchemaError, meter, meter::TooCostly, pattern};

/// Keywords with a schema, a list of schemas, or either.
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
/// Keywords with schemas by name.
const NAMED: [&str; 4] = ["dependencies", "dependentSchemas", "patternProperties", "properties"];
/// Keywords that refer to schemas.
const REFERENCES: [&str; 3] = ["$dynamicRef", "$recursiveRef", "$ref"];
/// Maximum memory of all patterns of a schema, in units of [`pattern::Size::weight`].
const WEIGHT: u64 = 1_000_000;
/// Maximum weight of a single pattern. A heavier pattern does not compile.
const WEIGHT_OF_ONE: u64 = 40_000;

/// The size of a schema.
pub(crate) struct Measured {
    /// Number of schemas, with references unfolded.
    pub(crate) nodes: u64,
    /// Positions of the largest pattern for keys.
    pub(crate) key_positions: u64,
    /// A reference without a target.
    pub(crate) lost: Option<String>,
}

/// Measures a schema. Each part counts as a visit.
pub(crate) fn measure(schema: &Value) -> Result<Measured, SchemaError> {
    let mut document = Document::default();
    document.read(schema, 0)?;
    let mut unfolding = Unfolding {
        document: &document,
        whole: schema,
        followed: HashMap::new(),
        path: Vec::new(),
        nodes: 0,
        lost: None,
    };
    unfolding.unfold(schema, schema)?;
    let Unfolding { nodes, lost, .. } = unfolding;
    Ok(Measured { nodes, key_positions: document.key_positions, lost })
}

/// The anchors and ids of a schema, and the sizes of its patterns.
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
                self.note(key, member, value)?;
                self.read(member, depth + 1)
            }),
            _ => Ok(()),
        }
    }

    /// Records the anchor, id or patterns in a member of a possible schema.
    fn note(&mut self, key: &str, member: &'s Value, schema: &'s Value) -> Result<(), TooCostly> {
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

    /// Adds the weight of a pattern and returns its positions.
    fn weigh(&mut self, source: &str) -> Result<u64, TooCostly> {
        meter::spend(1 + source.len() as u64 / 16);
        let size = pattern::size(source).unwrap_or_default();
        self.weight += size.weight.min(WEIGHT_OF_ONE);
        if self.weight > WEIGHT { Err(TooCostly::Patterns) } else { Ok(size.positions) }
    }

    /// Returns the possible targets of a reference.
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

/// Returns true if a relative or absolute reference may refer to an id.
fn is_same(id: &str, base: &str) -> bool {
    let last = |text: &str| text.trim_end_matches('#').rsplit('/').next().map(str::to_owned);
    last(id) == last(base)
}

struct Unfolding<'d, 's> {
    document: &'d Document<'s>,
    whole: &'s Value,
    /// The targets of references, by reference and base schema.
    followed: HashMap<(&'s str, *const Value), Rc<[&'s Value]>>,
    /// The schemas around the current one.
    path: Vec<&'s Value>,
    nodes: u64,
    lost: Option<String>,
}

impl<'s> Unfolding<'_, 's> {
    /// Unfolds a schema. A schema inside itself is a cycle; the validator follows it only as deep as the value.
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
            self.lost.get_or_insert_with(|| reference.to_owned());
        }
        targets.iter().try_for_each(|target| self.unfold(target, root))
    }
}
