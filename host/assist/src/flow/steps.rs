//! Reads flows of steps: those of the agentic dialect, and those of the steps dialect. Finds every place that names a
//! step, the result of a step, an input or an argument.

use std::{collections::HashMap, ops::Range, sync::LazyLock};

use flowcell_contract::{Catalog, Lookup, NodeType, TypeRef};
use flowcell_flow::agentic::{DEFAULT_AGENT, built_in_agent, built_in_agents};
use serde_json::{Map, Value as Json, json};

use super::{Flow, IdUse, NameKind, Node, RawEdge};
use crate::{
    dialect::Dialect,
    reading::{Kind, Member, Value},
    scalar::Scalar,
    schemas::to_json,
};

/// The schemas of the outputs of the built-in agents.
static BUILT_IN_OUTPUTS: LazyLock<HashMap<&str, Json>> = LazyLock::new(|| {
    let output = |name| Some((name, built_in_agent(name)?.output?));
    built_in_agents().filter_map(output).collect()
});

/// A reference to a value: `${args.key}` of an agentic flow, or `$ctx.name.part` of a flow of tools.
pub(crate) struct Reference {
    /// The words between the dots, with their bytes in the file.
    pub(crate) words: Vec<(String, Range<usize>)>,
    /// True unless the brace of the reference is open.
    pub(crate) is_closed: bool,
}

impl Reference {
    /// Returns the index of the word at a byte of the file.
    pub(crate) fn word_at(&self, at: usize) -> Option<usize> {
        self.words.iter().position(|(_, range)| range.start <= at && at <= range.end)
    }

    fn word(&self, index: usize) -> Option<(&str, &Range<usize>)> {
        self.words.get(index).filter(|(word, _)| !word.is_empty()).map(|(word, range)| (word.as_str(), range))
    }

    /// Returns the name that the reference selects, and its kind.
    fn named(&self) -> Option<IdUse> {
        let kind = match self.word(0)?.0 {
            "args" => NameKind::Argument,
            "$inputs" => NameKind::Input,
            "$ctx" => NameKind::Result,
            _ => return None,
        };
        let (id, range) = self.word(1)?;
        Some(IdUse { id: id.to_owned(), range: range.clone(), kind, is_definition: false })
    }
}

impl<'v> Flow<'v> {
    /// Returns the steps of a flow of steps.
    pub(crate) fn steps(&self) -> &'v [Value] {
        let list = match self.dialect {
            Dialect::Graph => None,
            Dialect::Agentic => self.head().and_then(|head| head.member("steps")),
            Dialect::Steps => self.root.member("steps"),
        };
        list.map(Value::items).unwrap_or_default()
    }

    pub(super) fn read_steps(&mut self, catalog: &Catalog, edges: &mut Vec<RawEdge<'v>>) {
        self.define_members(self.head().and_then(|head| head.member("args")));
        let inputs = self.root.member("inputs").filter(|_| self.dialect == Dialect::Steps);
        for input in inputs.map(Value::items).unwrap_or_default() {
            self.add_use(Some(input), NameKind::Input, true);
        }
        for step in self.steps() {
            let kind = self.text(step.member("tool")).and_then(|(tool, _)| tool_type(&tool, catalog));
            let saved = self.text(step.member("save_as")).filter(|(name, _)| name != "null");
            let is_result = self.dialect == Dialect::Steps && saved.is_none();
            let id = self.add_use(step.member("id"), if is_result { NameKind::Result } else { NameKind::Node }, true);
            if saved.is_some() && self.dialect == Dialect::Steps {
                self.add_use(step.member("save_as"), NameKind::Result, true);
            }
            let id_range = self.text(step.member("id")).map_or(step.range.start..step.range.start, |(_, range)| range);
            let id = id.unwrap_or_default();
            if self.dialect == Dialect::Agentic {
                self.define_members(step.member("output").and_then(|output| output.member("schema")));
                self.read_links_of_step(step, &id, edges);
            }
            self.nodes.push(Node { id, id_range, value: step, kind, owner: None, undoes: None, alias: None });
        }
        let mut named = Vec::new();
        self.each_reference(&mut |_, reference| named.extend(reference.named()));
        self.uses.extend(named);
    }

    /// Adds the members of a schema as arguments of an agentic flow.
    fn define_members(&mut self, schema: Option<&Value>) {
        let members =
            schema.filter(|_| self.dialect == Dialect::Agentic).and_then(|schema| schema.member("properties"));
        for Member { name, key, .. } in members.map(Value::members).unwrap_or_default() {
            let (id, range) = (name.clone(), key.clone());
            self.uses.push(IdUse { id, range, kind: NameKind::Argument, is_definition: true });
        }
    }

    /// Adds the rules of a step, and its fallback, as edges.
    fn read_links_of_step(&mut self, step: &'v Value, id: &str, edges: &mut Vec<RawEdge<'v>>) {
        let rules = step.member("rules").map(Value::items).unwrap_or_default();
        let rules = rules.iter().map(|rule| (rule, rule.member("then"), false));
        let fallback = step.member("fallback").map(|fallback| (fallback, fallback.member("to"), true));
        for (map, target, after_failure) in rules.chain(fallback) {
            if let Some(to) = self.add_use(target, NameKind::Node, false) {
                edges.push(RawEdge { from: id.to_owned(), to, after_failure, label: None, map: Some(map) });
            }
        }
    }

    /// Calls `visit` with every reference to a value, and with the index of the step around it.
    pub(crate) fn each_reference(&self, visit: &mut dyn FnMut(Option<usize>, &Reference)) {
        let mut read = |step, value: Option<&Value>| {
            each_text(value, &mut |value| {
                let Some(scalar) = Scalar::new(self.file, value) else { return };
                references(self.dialect, &scalar).iter().for_each(|reference| visit(step, reference));
            });
        };
        for (index, step) in self.steps().iter().enumerate() {
            match self.dialect {
                Dialect::Agentic => {
                    read(Some(index), step.member("prompt"));
                    let rules = step.member("rules").map(Value::items).unwrap_or_default();
                    rules.iter().for_each(|rule| read(Some(index), rule.member("if")));
                }
                _ => read(Some(index), step.member("params")),
            }
        }
        if self.dialect == Dialect::Steps {
            read(None, self.root.member("output"));
        }
    }

    /// Returns the schema of the structured output of an agentic step: its own, or that of its built-in agent.
    fn output_of_step(&self, step: &Value) -> Option<Json> {
        if let Some(schema) = step.member("output").and_then(|output| output.member("schema")) {
            return Some(to_json(self.file, schema));
        }
        BUILT_IN_OUTPUTS.get(self.agent_of_step(step).as_str()).cloned()
    }

    /// Returns the agent of a step of an agentic flow.
    pub(crate) fn agent_of_step(&self, step: &Value) -> String {
        self.text(step.member("agent")).map_or_else(|| DEFAULT_AGENT.to_owned(), |(name, _)| name)
    }

    /// Returns the schema of the values that a step may refer to; without a step, those of the flow's output.
    pub(crate) fn referred_values(&self, step: Option<usize>) -> Json {
        let object = |members: Map<String, Json>| json!({ "type": "object", "properties": members });
        let text = json!({ "type": "string" });
        if self.dialect == Dialect::Agentic {
            let head = self.head().and_then(|head| head.member("args"));
            let (before, after) = self.steps().split_at(step.map_or(0, |step| step + 1).min(self.steps().len()));
            let output = |step: &Value| self.output_of_step(step);
            // The arguments of the flow come first, and then the outputs of the nearest steps before.
            let head = head.map(|schema| to_json(self.file, schema));
            let schemas = head.into_iter().chain(before.iter().rev().chain(after).filter_map(output));
            let mut args = Map::new();
            for mut schema in schemas {
                let members = schema.get_mut("properties").and_then(Json::as_object_mut).map(std::mem::take);
                for (name, schema) in members.unwrap_or_default() {
                    args.entry(name).or_insert(schema);
                }
            }
            let iteration = json!({ "type": "integer", "description": "The number of the iteration, from 1" });
            let step = json!({ "type": "object", "properties": { "iteration": iteration } });
            return object(Map::from_iter([("args".into(), object(args)), ("step".into(), step)]));
        }
        let inputs = self.uses.iter().filter(|found| found.kind == NameKind::Input && found.is_definition);
        let inputs = inputs.map(|input| (input.id.clone(), json!({}))).collect();
        let before = &self.nodes[..step.unwrap_or(self.nodes.len()).min(self.nodes.len())];
        let saved = |node: &Node<'_>| {
            let saved = self.text(node.value.member("save_as")).filter(|(name, _)| name != "null");
            saved.map_or_else(|| node.id.clone(), |(name, _)| name)
        };
        let output = |kind: Option<&NodeType>| kind.map_or(json!({}), |kind| kind.output.clone());
        let results = before.iter().map(|node| (saved(node), output(node.kind.as_deref()))).collect();
        let run =
            json!({ "type": "object", "properties": { "id": text, "started": text, "labels": { "type": "object" } } });
        let head =
            json!({ "type": "object", "properties": { "name": text, "version": { "type": ["integer", "null"] } } });
        let task = json!({ "type": "object", "properties": { "id": text } });
        let facts = json!({ "run": run, "flow": head, "task": task, "tenant": text, "now": text });
        json!({ "type": "object", "properties": {
            "$inputs": object(inputs),
            "$ctx": object(results),
            "$facts": { "type": "object", "properties": facts },
        } })
    }
}

/// Finds the node type that a tool means: its own name, or its short name.
fn tool_type(tool: &str, catalog: &Catalog) -> Option<std::sync::Arc<NodeType>> {
    let find = |wanted: &TypeRef| match catalog.lookup(wanted) {
        Lookup::Found(kind) => Some(kind),
        _ => None,
    };
    let wanted = TypeRef::parse(tool);
    find(&wanted).or_else(|| match catalog.called(&wanted.name).as_slice() {
        [name] => find(&TypeRef::parse(&format!("{name}{}", &tool[wanted.name.len()..]))),
        _ => None,
    })
}

fn each_text(value: Option<&Value>, visit: &mut dyn FnMut(&Value)) {
    let Some(value) = value else { return };
    match &value.kind {
        Kind::List(items) => items.iter().for_each(|item| each_text(Some(item), visit)),
        Kind::Map(members) => members.iter().for_each(|member| each_text(Some(&member.value), visit)),
        Kind::Scalar(_) => visit(value),
        Kind::Missing => {}
    }
}

fn is_word(sign: char) -> bool {
    sign.is_alphanumeric() || matches!(sign, '_' | '-')
}

/// Returns the references in a text.
fn references(dialect: Dialect, scalar: &Scalar) -> Vec<Reference> {
    let (text, mut found) = (scalar.text.as_str(), Vec::new());
    if dialect == Dialect::Steps {
        let is_one = |rest: &str| rest.chars().all(|sign| is_word(sign) || sign == '.');
        if text.strip_prefix('$').is_some_and(is_one) {
            found.push(reference(scalar, 0..text.len(), true));
        }
        return found;
    }
    let mut at = 0;
    while let Some(open) = text[at..].find("${").map(|open| at + open + 2) {
        let rest = &text[open..];
        let end = rest.find(['}', '\n', '$']).unwrap_or(rest.len());
        let is_closed = rest[end..].starts_with('}');
        // An open reference ends with its words.
        let length = if is_closed { end } else { rest.find(|sign| !is_word(sign) && sign != '.').unwrap_or(end) };
        let inside = &rest[..length];
        let start = open + (inside.len() - inside.trim_start().len());
        found.push(reference(scalar, start..start + inside.trim().len(), is_closed));
        at = open + length;
    }
    found
}

fn reference(scalar: &Scalar, inside: Range<usize>, is_closed: bool) -> Reference {
    let mut start = inside.start;
    let word = |word: &str| {
        let range = start..start + word.len();
        start = range.end + 1;
        (word.to_owned(), scalar.range_to_file(&range))
    };
    Reference { words: scalar.text[inside].split('.').map(word).collect(), is_closed }
}
