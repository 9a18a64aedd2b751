//! Resolves the references of a flow to bindings of the graph dialect.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use flowcell_contract::{Json, Mark, MarkKind};

use super::{
    facts,
    read::{RawStep, RawSteps},
    reference::{self, Reference, Root},
};
use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::{for_message, is_name},
    input::{OpenMarks, marks_below},
    literal,
    yaml::{Entry, Kind, Span, Tree},
};

/// Maximum number of names that are compared with a misspelled one.
const MAX_COMPARED_NAMES: usize = 1_000;

/// For each name, the indices of the steps that save their result under this name, in ascending order.
pub(super) struct SavedNames<'a>(HashMap<&'a str, Vec<usize>>);

impl<'a> SavedNames<'a> {
    pub(super) fn new(flow: &'a RawSteps<'a>) -> SavedNames<'a> {
        let mut saved = HashMap::<_, Vec<_>>::new();
        for (index, step) in flow.steps.iter().enumerate() {
            saved.entry(step.saved_as()).or_default().push(index);
        }
        SavedNames(saved)
    }

    fn steps_that_save(&self, name: &str) -> &[usize] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The context in which the references of one step, or those of the flow's outputs, are resolved.
pub(super) struct Resolver<'a> {
    pub(super) flow: &'a RawSteps<'a>,
    pub(super) saved: &'a SavedNames<'a>,
    /// Number of steps before the reference. Only the results of these steps are available.
    pub(super) before: usize,
    /// The references that were resolved so far, by their positions in the text.
    pub(super) references: &'a RefCell<HashMap<Span, String>>,
}

/// Warns of a literal text with a part that was probably meant as a reference: a reference among other text, or
/// one with the root of another tool, such as `$input.a`.
fn warn_of_literal(text: &str, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let Some((found, help)) = reference::suggest(text) else { return };
    let message = format!("`{}` is plain text here, not a reference", for_message(found));
    diagnostics.warning("reference_as_text", span, message, Some(help));
}

/// Warns of references in a template, which the node evaluates with its own names. `names`: the names.
fn warn_in_template(tree: &Tree, names: &[Arc<str>], diagnostics: &mut Diagnostics<'_>) {
    match &tree.kind {
        Kind::Scalar(Json::String(text)) => {
            let Some((found, _)) = reference::suggest(text) else { return };
            let message = format!("`{}` is plain text here, not a reference", for_message(found));
            let name = found.trim_end_matches('}').rsplit('.').next().unwrap_or(found);
            let name = for_message(if is_name(name) { name } else { "value" });
            let help = match names.iter().find(|name| !name.contains('*')).filter(|name| &***name != "values") {
                Some(own) => format!("the tool evaluates this field with names of its own, such as `{{{{ {own} }}}}`"),
                None => format!("write `{{{{ {name} }}}}` here, and give it a value: `values: {{ {name}: $… }}`"),
            };
            diagnostics.warning("reference_as_text", tree.span, message, Some(help));
        }
        Kind::Scalar(_) => {}
        Kind::List(items) => items.iter().for_each(|item| warn_in_template(item, names, diagnostics)),
        Kind::Map(entries) => entries.iter().for_each(|entry| warn_in_template(&entry.value, names, diagnostics)),
    }
}

impl Resolver<'_> {
    /// Converts a value: references become bindings, everything else becomes literal. Fields that the node type
    /// evaluates itself stay unchanged, with a warning of references in a template.
    pub(super) fn value(&self, tree: &Tree, marks: &OpenMarks<'_>, diagnostics: &mut Diagnostics<'_>) -> Tree {
        let is_evaluated = |(mark, rest): &(&Mark, &[_])| {
            rest.is_empty() && matches!(mark.kind, MarkKind::Condition | MarkKind::Template)
        };
        let keep = |diagnostics: &mut Diagnostics<'_>| {
            let template = marks.iter().find(|(mark, rest)| rest.is_empty() && mark.kind == MarkKind::Template);
            if let Some((mark, _)) = template {
                warn_in_template(tree, &mark.locals, diagnostics);
            }
            tree.kind.clone()
        };
        let kind = match &tree.kind {
            Kind::Scalar(Json::String(text)) => match reference::parse(text) {
                Some(reference) => Kind::Scalar(self.expression(&reference, text, tree.span, diagnostics)),
                None if marks.iter().any(is_evaluated) => keep(diagnostics),
                None => {
                    warn_of_literal(text, tree.span, diagnostics);
                    Kind::Scalar(literal::escaped(text).into())
                }
            },
            _ if marks.iter().any(is_evaluated) => keep(diagnostics),
            Kind::Scalar(_) => tree.kind.clone(),
            Kind::List(items) => {
                let marks = marks_below(marks, "*");
                Kind::List(items.iter().map(|item| self.value(item, &marks, diagnostics)).collect())
            }
            Kind::Map(entries) => {
                let member = |entry: &Entry| {
                    let value = self.value(&entry.value, &marks_below(marks, &entry.key), diagnostics);
                    Entry { key: entry.key.clone(), key_span: entry.key_span, value }
                };
                Kind::Map(entries.iter().map(member).collect())
            }
        };
        Tree { span: tree.span, kind }
    }

    /// Returns the binding of a reference. Reports an unknown reference and returns null for it.
    fn expression(&self, found: &Reference<'_>, text: &str, span: Span, diagnostics: &mut Diagnostics<'_>) -> Json {
        let (base, is_there) = match found.root {
            Root::Inputs => (input_path(found.name), self.input(found.name, span, diagnostics)),
            Root::Ctx => match self.find_saving_step(found.name, span, diagnostics) {
                Some(step) => (node_path(step), true),
                None => return Json::Null,
            },
            Root::Facts => {
                let ids = self.flow.steps.iter().map(|step| step.id.as_str());
                if !facts::check(found, ids, span, diagnostics) {
                    return Json::Null;
                }
                (found.name.to_owned(), true)
            }
        };
        let path = base + &found.subscripts();
        if is_there && found.path.is_empty() {
            return whole_binding(&path).into();
        }
        self.references.borrow_mut().insert(span, text.to_owned());
        // A null at the path is a valid value. A missing value fails with the reference as the flow writes it.
        whole_binding(&format!("{path} | required(\"{text}\", true)")).into()
    }

    /// Returns true if the flow declares the input, so that every run has it. Otherwise warns and returns false,
    /// because a run without this input will fail.
    fn input(&self, name: &str, span: Span, diagnostics: &mut Diagnostics<'_>) -> bool {
        let inputs = &self.flow.inputs;
        let is_there = inputs.iter().any(|input| input == name);
        if !is_there {
            let message = format!("`$inputs.{}` is not in the flow's `inputs`", for_message(name));
            let help = did_you_mean(name, inputs.iter().map(String::as_str));
            let help = help
                .unwrap_or_else(|| format!("add `{}` to `inputs`, so that every run requires it", for_message(name)));
            diagnostics.warning("undeclared_input", span, message, Some(help));
        }
        is_there
    }

    /// Returns the last earlier step that saves a result under the name. If there is none, reports the name and returns
    /// `None`.
    fn find_saving_step(&self, name: &str, span: Span, diagnostics: &mut Diagnostics<'_>) -> Option<&RawStep<'_>> {
        let by = self.saved.steps_that_save(name);
        if let Some(last) = by[..by.partition_point(|step| *step < self.before)].last() {
            return self.flow.steps.get(*last);
        }
        let (message, help) = match diagnostics.is_full() {
            true => Default::default(),
            false => self.explain_missing(name, by.first().copied()),
        };
        diagnostics.error("unknown_name", span, message, help);
        None
    }

    /// Returns the message and the help text about a name that no earlier step saves. `later` is the index of the first
    /// later step that saves it.
    fn explain_missing(&self, name: &str, later: Option<usize>) -> (String, Option<String>) {
        let (written, steps) = (for_message(name), &self.flow.steps);
        let before = &steps[..self.before];
        match (later, before.iter().find(|step| step.id == name)) {
            (Some(own), _) if own == self.before => (format!("`$ctx.{written}` is this step's own result"), None),
            (Some(later), _) => {
                let message = format!("`$ctx.{written}` is saved later, by the step `{}`", steps[later].id);
                (message, Some("move that step before this one".into()))
            }
            (None, Some(step)) => {
                let message =
                    format!("`$ctx.{written}`: the step `{written}` saves its result as `{}`", step.saved_as());
                (message, Some(format!("write `$ctx.{}`", step.saved_as())))
            }
            (None, None) => {
                let known = before.iter().take(MAX_COMPARED_NAMES).map(|step| step.saved_as());
                (format!("`$ctx.{written}`: no step saves `{written}`"), did_you_mean(name, known))
            }
        }
    }
}

/// Returns the binding of a step's whole result.
pub(super) fn result_of(step: &RawStep<'_>) -> String {
    whole_binding(&node_path(step))
}

fn node_path(step: &RawStep<'_>) -> String {
    format!("nodes[\"{}\"]", step.id)
}

fn input_path(name: &str) -> String {
    format!("flow.input[\"{name}\"]")
}

fn whole_binding(expression: &str) -> String {
    format!("{{{{ {expression} }}}}")
}
