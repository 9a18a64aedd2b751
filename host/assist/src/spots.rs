//! Finds the expressions of a flow, with the names that each of them may use.

use std::{collections::HashSet, ops::Range, sync::Arc};

use flowcell_contract::{Mark, MarkKind};
use flowcell_flow::ids::is_one_binding;

use crate::{
    dialect::Dialect,
    expression::{Expression, PathAt, braces},
    flow::{Flow, IdUse, NameKind},
    reading::{Kind, Value},
    scalar::Scalar,
};

/// The nodes of its own scope that an expression may name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Visible {
    /// The ancestors of a node.
    Before(usize),
    /// A node and its ancestors.
    Through(usize),
    /// A node that has succeeded and its ancestors, in the node that undoes it.
    Undone(usize),
    /// All nodes.
    All,
    /// No nodes and no vars.
    None,
}

/// A name that a node itself provides.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Local {
    pub(crate) name: String,
    /// The field of the input that contains this member.
    pub(crate) field: Option<String>,
}

/// The place of an expression in a flow.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The owner of the scope.
    pub(crate) scope: Option<usize>,
    pub(crate) visible: Visible,
    /// The node whose own variables the expression may use.
    pub(crate) own: Option<usize>,
    /// The names that the node itself provides.
    pub(crate) locals: Vec<Local>,
    /// True if the node evaluates the expression itself.
    pub(crate) is_captured: bool,
}

impl Place {
    /// Returns the place of an expression in the input of a node.
    pub(crate) fn of_input(flow: &Flow<'_>, node: usize) -> Place {
        let visible = flow.nodes[node].undoes.map_or(Visible::Before(node), Visible::Undone);
        Place { scope: flow.nodes[node].owner, visible, own: None, locals: Vec::new(), is_captured: false }
    }
}

/// An expression in a text.
pub(crate) struct Spot<'s> {
    pub(crate) scalar: &'s Scalar,
    /// The bytes of the expression in the text.
    pub(crate) part: Range<usize>,
    pub(crate) place: &'s Place,
    /// True if only a path may stand here.
    pub(crate) is_path: bool,
}

impl Spot<'_> {
    pub(crate) fn expression(&self) -> Expression<'_> {
        Expression::new(&self.scalar.text, self.part.clone())
    }
}

/// Calls `visit` with every expression of a flow, or only with those in values that touch the bytes `within`.
pub(crate) fn each(flow: &Flow<'_>, within: Option<&Range<usize>>, visit: &mut dyn FnMut(Spot<'_>)) {
    // Flows of steps have references of another form.
    if flow.dialect != Dialect::Graph {
        return;
    }
    let mut walk = Walk { flow, within, visit };
    let root = Place { scope: None, visible: Visible::All, own: None, locals: Vec::new(), is_captured: false };
    let (outputs, vars) = match flow.fragment {
        Some(fragment) => (fragment.member("output"), None),
        None => (flow.head().and_then(|head| head.member("outputs")), flow.head().and_then(|head| head.member("vars"))),
    };
    outputs.iter().for_each(|outputs| walk.bindings(outputs, &root));
    vars.iter().for_each(|vars| walk.bindings(vars, &Place { visible: Visible::None, ..root.clone() }));
    for (index, node) in flow.nodes.iter().enumerate() {
        if !walk.is_wanted(node.value) {
            continue;
        }
        let place = Place::of_input(flow, index);
        for member in node.value.members() {
            match member.name.as_str() {
                "input" => {
                    let marks: Vec<_> = node.kind.iter().flat_map(|kind| &kind.marks).collect();
                    let marks: Vec<_> = marks.iter().map(|mark| (*mark, mark.path.as_slice())).collect();
                    walk.marked(&member.value, &marks, (index, &place), &member.value);
                }
                "config" | "with" => walk.bindings(&member.value, &place),
                "when" => walk.condition(&member.value, &place),
                "bodyOutput" => walk.bindings(&member.value, &Place { scope: Some(index), ..root.clone() }),
                _ => {}
            }
        }
    }
    for edge in &flow.edges {
        if let Some(when) = edge.map.and_then(|map| map.member("when")).filter(|when| walk.is_wanted(when)) {
            let place =
                Place { scope: flow.nodes[edge.from].owner, visible: Visible::Through(edge.from), ..root.clone() };
            walk.condition(when, &place);
        }
    }
}

struct Walk<'a, 'v> {
    flow: &'a Flow<'v>,
    within: Option<&'a Range<usize>>,
    visit: &'a mut dyn FnMut(Spot<'_>),
}

impl Walk<'_, '_> {
    fn is_wanted(&self, value: &Value) -> bool {
        self.within.is_none_or(|within| value.range.start <= within.end && within.start <= value.range.end)
    }

    fn visit(&mut self, scalar: &Scalar, part: Range<usize>, place: &Place, is_path: bool) {
        (self.visit)(Spot { scalar, part, place, is_path });
    }

    /// Visits the `{{ }}` in all texts of a value.
    fn bindings(&mut self, value: &Value, place: &Place) {
        if !self.is_wanted(value) {
            return;
        }
        match &value.kind {
            Kind::List(items) => items.iter().for_each(|item| self.bindings(item, place)),
            Kind::Map(members) => members.iter().for_each(|member| self.bindings(&member.value, place)),
            _ => {
                let Some(scalar) = Scalar::new(self.flow.file, value) else { return };
                for part in braces(&scalar.text) {
                    self.visit(&scalar, part, place, false);
                }
            }
        }
    }

    /// Visits a text that is an expression as a whole, with or without `{{ }}`.
    fn whole(&mut self, value: &Value, place: &Place, is_path: bool) {
        let Some(scalar) = Scalar::new(self.flow.file, value).filter(|_| self.is_wanted(value)) else {
            return self.bindings(value, place);
        };
        let part = match scalar.text.trim_start().starts_with("{{") {
            true => braces(&scalar.text).into_iter().next().unwrap_or_default(),
            false => 0..scalar.text.len(),
        };
        self.visit(&scalar, part, place, is_path);
    }

    /// Visits the expressions of a condition.
    fn condition(&mut self, value: &Value, place: &Place) {
        for member in value.members() {
            match member.name.as_str() {
                "not" => self.condition(&member.value, place),
                "and" | "or" => member.value.items().iter().for_each(|item| self.condition(item, place)),
                "exists" => self.whole(&member.value, place, true),
                _ => {
                    for operand in member.value.members() {
                        match operand.name.as_str() {
                            "var" => self.whole(&operand.value, place, true),
                            _ => self.bindings(&operand.value, place),
                        }
                    }
                }
            }
        }
        if value.members().is_empty() {
            self.whole(value, place, false);
        }
    }

    /// Visits the expressions of an input whose fields have these marks. Each mark comes with its path from the value.
    fn marked(&mut self, value: &Value, marks: &[OpenMark<'_>], (node, place): (usize, &Place), input: &Value) {
        if !self.is_wanted(value) {
            return;
        }
        let here = marks.iter().find(|(mark, rest)| rest.is_empty() && changes_value(mark.kind)).map(|(mark, _)| *mark);
        if let Some(mark) = here {
            let captured = || Place {
                locals: locals(mark, input),
                own: mark.rebind.then_some(node),
                is_captured: true,
                ..place.clone()
            };
            return match mark.kind {
                MarkKind::Condition => self.condition(value, &captured()),
                MarkKind::Template => self.bindings(value, &captured()),
                // A script is a text without expressions, unless it is one whole `{{ }}`.
                MarkKind::Script if self.flow.text(Some(value)).is_some_and(|(text, _)| is_one_binding(&text)) => {
                    self.bindings(value, place)
                }
                _ => {}
            };
        }
        match &value.kind {
            Kind::Map(members) if !marks.is_empty() => {
                members.iter().for_each(|member| {
                    self.marked(&member.value, &marks_below(marks, &member.name), (node, place), input)
                });
            }
            Kind::List(items) if !marks.is_empty() => {
                items.iter().for_each(|item| self.marked(item, &marks_below(marks, "*"), (node, place), input));
            }
            _ => self.bindings(value, place),
        }
    }
}

/// A mark with the path from a value to the marked field.
type OpenMark<'m> = (&'m Mark, &'m [Arc<str>]);

/// Returns the marks that concern a member or the items of a value.
fn marks_below<'m>(marks: &[OpenMark<'m>], step: &str) -> Vec<OpenMark<'m>> {
    let shorten = |(mark, rest): &OpenMark<'m>| {
        let (first, rest) = rest.split_first()?;
        (&**first == step || &**first == "*").then_some((*mark, rest))
    };
    marks.iter().filter_map(shorten).collect()
}

/// Returns true if a field with a mark of this kind is read in another way than a field without a mark.
fn changes_value(kind: MarkKind) -> bool {
    matches!(kind, MarkKind::Condition | MarkKind::Template | MarkKind::Script | MarkKind::File)
}

/// Returns the names that a mark lists, with the members of the input fields that it names.
fn locals(mark: &Mark, input: &Value) -> Vec<Local> {
    let mut found = Vec::new();
    for local in &mark.locals {
        match local.strip_suffix(".*") {
            Some(field) => {
                let members = input.member(field).map(Value::members).unwrap_or_default();
                let local = |name: &String| Local { name: name.clone(), field: Some(field.to_owned()) };
                found.extend(members.iter().map(|member| local(&member.name)));
            }
            None if &**local == "*" => {}
            None => found.push(Local { name: local.to_string(), field: None }),
        }
    }
    found
}

/// A node whose output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReadOf {
    pub(crate) node: usize,
    /// The node that reads it, or whose edge or `bodyOutput` does; `None` for an output of the graph.
    pub(crate) by: Option<usize>,
    /// True if the expression has a value in case that the output is missing, or only tests for it.
    pub(crate) is_guarded: bool,
}

/// Returns the nodes whose outputs expressions read, each once for each reader.
pub(crate) fn reads(flow: &Flow<'_>) -> HashSet<ReadOf> {
    let mut found = HashSet::new();
    each(flow, None, &mut |spot| {
        let by = match spot.place.visible {
            Visible::Before(node) | Visible::Through(node) | Visible::Undone(node) => Some(node),
            Visible::All | Visible::None => spot.place.scope,
        };
        let expression = spot.expression();
        for path in expression.paths() {
            let named = named_node(flow, spot.place, &path).and_then(|(id, _)| flow.find(&id));
            let mut after = (0..expression.tokens.len())
                .filter(|index| expression.tokens[*index].range.start >= path.end())
                .map(|index| expression.word(index))
                .skip_while(|word| *word == "]");
            let is_guarded = matches!((after.next(), after.next()), (Some("|"), Some("default")) | (Some("is"), _));
            found.extend(named.filter(|node| Some(*node) != by).map(|node| ReadOf { node, by, is_guarded }));
        }
    });
    found
}

/// Returns every place in expressions that names a node.
pub(crate) fn id_uses(flow: &Flow<'_>) -> Vec<IdUse> {
    let mut found = Vec::new();
    each(flow, None, &mut |spot| {
        for path in spot.expression().paths() {
            if let Some((id, range)) = named_node(flow, spot.place, &path) {
                let range = spot.scalar.range_to_file(&range);
                found.push(IdUse { id, range, kind: NameKind::Node, is_definition: false });
            }
        }
    });
    found
}

/// Returns the id of the node that a path names, and the bytes of the id.
pub(crate) fn named_node(flow: &Flow<'_>, place: &Place, path: &PathAt) -> Option<(String, Range<usize>)> {
    if place.locals.iter().any(|local| local.name == path.root) {
        return None;
    }
    if matches!(path.root.as_str(), "nodes" | "inbounds") {
        let step = path.steps.first()?;
        flow.find(&step.name)?;
        return Some((step.name.clone(), step.range.clone()));
    }
    let is_alias = |owner: &usize| flow.nodes[*owner].alias.as_deref() == Some(&path.root);
    if path.root == "flow" || flow.owners_from(place.scope).iter().any(is_alias) {
        return None;
    }
    flow.find(&path.root)?;
    Some((path.root.clone(), path.root_range.clone()))
}
