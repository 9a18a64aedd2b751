//! The arguments of a use: the values of the fragment's parameters, as far as they are known before the run.

use std::sync::Arc;

use flowcell_contract::Json;
use flowcell_expr::{Binding, Path, Segment};
use indexmap::IndexMap;

use super::{PARAMS, definition::Fragment, size::Budget};
use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::{entries, for_message},
    literal, members,
    schema_check::{is_bound, misfits},
    yaml::{Entry, Kind, Span, Tree},
};

/// The key of a use with its arguments.
const WITH_KEY: &str = "with";

/// The arguments of a use.
pub(super) struct Arguments<'f> {
    /// The node that uses the fragment.
    using: &'f Tree,
    fragment: &'f Fragment<'f>,
    /// By parameter: the value as the use writes it, and the literal value if it is known.
    values: IndexMap<Arc<str>, (Tree, Option<Json>)>,
}

impl<'f> Arguments<'f> {
    /// Reads the arguments of a use, and reports those that are missing, unknown, or do not fit. `outer` has the arguments
    /// of the fragment around the use.
    pub(super) fn read(
        node: &'f Tree,
        fragment: &'f Fragment<'f>,
        outer: Option<&Arguments<'_>>,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Arguments<'f> {
        let mut arguments = Arguments { using: node, fragment, values: IndexMap::new() };
        let written = node.member(WITH_KEY);
        let members = written.map(|tree| entries(tree, "`with`", diagnostics)).unwrap_or_default();
        for entry in members.iter().filter(|entry| !fragment.params.contains_key(&*entry.key)) {
            arguments.report_unknown(&entry.key, "wrong_argument", entry.key_span, diagnostics);
        }
        let span = written.map_or(node.span, |tree| tree.span);
        for (name, param) in &fragment.params {
            let given = members.iter().find(|entry| *entry.key == **name).map(|entry| &entry.value);
            let Some(value) = given.or(param.default) else {
                let message = format!("the fragment `{}` needs the parameter `{name}`", fragment.entry.key);
                let help = format!("write `with: {{ {name}: … }}`, or give the parameter a `default`");
                diagnostics.error("wrong_argument", span, message, Some(help));
                continue;
            };
            let literal = match is_bound(value) {
                false => Some(value.json()),
                true => path_of(value).zip(outer).and_then(|(path, outer)| outer.literal(&path)),
            };
            // A parameter of the fragment around the use may have a literal argument.
            let passed =
                literal.as_ref().filter(|_| is_bound(value)).map(|known| literal::unescaped(known, value.span));
            let what = format!("the schema of the parameter `{name}`");
            let checked = given.map(|given| passed.as_ref().unwrap_or(given));
            let found = checked.map(|checked| misfits(checked, param.schema.as_ref(), &what, diagnostics));
            for (span, cause) in found.unwrap_or_default() {
                let message = format!("the argument `{name}` does not match the schema of the parameter: {cause}");
                diagnostics.error("wrong_argument", span, message, None);
            }
            arguments.values.insert(param.entry.key.clone(), (value.clone(), literal));
        }
        arguments
    }

    /// Returns the arguments as a map.
    pub(super) fn tree(&self, span: Span) -> Tree {
        let entry = |(name, (value, _)): (&Arc<str>, &(Tree, Option<Json>))| Entry {
            key: name.clone(),
            key_span: span,
            value: value.clone(),
        };
        Tree { span, kind: Kind::Map(self.values.iter().map(entry).collect()) }
    }

    /// Returns the literal value at a path that begins with `params`.
    fn literal(&self, path: &Path) -> Option<Json> {
        let (Segment::Key(name), rest) = path.segments().split_first()? else { return None };
        let (_, value) = self.values.get(name)?;
        rest.iter().try_fold(value.clone()?, |value, segment| match segment {
            Segment::Key(key) => value.get(key).cloned(),
            Segment::Index(index) => value.at(usize::try_from(*index).ok()?).cloned(),
        })
    }

    /// Returns true if a path names a parameter that has an argument. Other parameters have diagnostics of their own.
    fn is_given(&self, path: &Path) -> bool {
        matches!(path.segments().first(), Some(Segment::Key(name)) if self.values.contains_key(name))
    }

    /// Replaces parameters in a part of a node that has to be literal, as long as the budget lasts. Reports those whose
    /// arguments are computed.
    pub(super) fn substitute(&self, tree: &Tree, budget: &mut Budget, diagnostics: &mut Diagnostics<'_>) -> Tree {
        let kind = match &tree.kind {
            Kind::List(items) => {
                Kind::List(items.iter().map(|item| self.substitute(item, budget, diagnostics)).collect())
            }
            Kind::Map(entries) => {
                let mut entries = entries.clone();
                entries.iter_mut().for_each(|entry| entry.value = self.substitute(&entry.value, budget, diagnostics));
                Kind::Map(entries)
            }
            Kind::Scalar(_) if !is_bound(tree) => return tree.clone(),
            Kind::Scalar(_) => {
                let path = path_of(tree);
                if let Some(value) = path.as_ref().and_then(|path| self.literal(path)) {
                    let fits = budget.spend(&value, self.using, diagnostics);
                    return fits.map_or_else(|| tree.clone(), |()| literal::unescaped(&value, tree.span));
                }
                let (message, help) = match path {
                    Some(path) if !self.is_given(&path) => {
                        self.check_path(&path, tree.span, diagnostics);
                        return tree.clone();
                    }
                    Some(path) => (
                        format!(
                            "`{}` is computed, but this part of a node must be literal",
                            for_message(&path.to_string())
                        ),
                        "give the parameter a literal value in `with`",
                    ),
                    None => (
                        format!("`{}` must be literal", for_message(tree.text().unwrap_or_default())),
                        "write a literal value, or one whole parameter: `\"{{ params.… }}\"`",
                    ),
                };
                diagnostics.error("literal_needed", tree.span, message, Some(help.into()));
                return tree.clone();
            }
        };
        Tree { span: tree.span, kind }
    }

    /// Reports a parameter that the fragment does not have, or a member of one that cannot exist.
    pub(super) fn check_path(&self, path: &Path, span: Span, diagnostics: &mut Diagnostics<'_>) {
        let Some(Segment::Key(name)) = path.segments().first() else { return };
        let Some(param) = self.fragment.params.get(&**name) else {
            return self.report_unknown(name, "unknown_name", span, diagnostics);
        };
        if let Some(absent) = members::in_schema(&param.written, &path.segments()[1..]) {
            let (message, help) = absent.describe(path, 1, None);
            diagnostics.error("unknown_member", span, message, Some(help));
        }
    }

    fn report_unknown(&self, name: &str, code: &'static str, span: Span, diagnostics: &mut Diagnostics<'_>) {
        let known = || self.fragment.params.keys().copied();
        let help = did_you_mean(name, known()).unwrap_or_else(|| match self.fragment.params.is_empty() {
            true => format!("add it under `params` of `{}`", self.fragment.entry.key),
            false => format!("the parameters are {}", known().map(for_message).collect::<Vec<_>>().join(", ")),
        });
        let message = format!("the fragment `{}` has no parameter `{}`", self.fragment.entry.key, for_message(name));
        diagnostics.error(code, span, message, Some(help));
    }
}

/// Returns the path of a text that is one whole `{{ params.… }}`.
fn path_of(tree: &Tree) -> Option<Path> {
    let binding = Binding::compile(&tree.json()).ok()?;
    binding.as_path().filter(|path| path.root() == PARAMS).cloned()
}
