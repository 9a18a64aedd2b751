//! Compiles a node's input. The node type's schema can mark a field with its kind, such as a condition or a script (see
//! [`Mark`]). Conditions and templates are captured: the host hands them to the component unevaluated, together with
//! the values that they read, because the component evaluates them itself.

use std::sync::Arc;

use flowcell_contract::{Json, Mark, MarkKind, NodeType};
use flowcell_expr::{
    Binding, CapturedKind, Condition, ExprError, NoRoots, Path, Reads, constant_operand, misread, without_ignored,
};

use crate::{
    CheckContext,
    diagnostic::Diagnostics,
    fields::for_message,
    graph::FACTS,
    literal::is_one_binding,
    outline,
    plain_text::{self, find_bare_paths, find_braced_paths},
    written_keys,
    yaml::{Entry, Kind, Span, Tree, place},
};

/// A compiled value with the paths that it reads.
pub(crate) struct Compiled {
    pub(crate) binding: Binding,
    pub(crate) reads: Vec<FieldReads>,
}

/// The paths that one field reads.
#[derive(Default)]
pub(crate) struct FieldReads {
    pub(crate) paths: Vec<PathUse>,
    /// Longer forms of the paths, which lead into the items of lists, such as the attribute of a filter. They only
    /// serve to check that the members which they name can exist.
    pub(crate) item_paths: Vec<PathUse>,
    pub(crate) locals: Locals,
    pub(crate) rebind: bool,
    /// Paths in braces that other languages would evaluate, such as `${flow.input.a}`, each with its text and position.
    /// Flowcell does not evaluate them.
    pub(crate) braced: Vec<(Path, String, Span)>,
    /// Texts that are a path and nothing else, such as `flow.input.a`. Flowcell does not evaluate them.
    pub(crate) bare: Vec<(Path, Span)>,
}

impl FieldReads {
    fn new(tree: &Tree, Reads { paths, item_paths }: Reads) -> FieldReads {
        FieldReads {
            paths: to_path_uses(tree, paths),
            item_paths: to_path_uses(tree, item_paths),
            ..FieldReads::default()
        }
    }
}

/// A path in a field, with its position.
pub(crate) struct PathUse {
    pub(crate) path: Path,
    pub(crate) span: Span,
    /// True if the value may be missing because the expression only tests whether it exists.
    pub(crate) is_tested: bool,
    /// True if the value may be the key of `hmac`.
    pub(crate) is_key: bool,
}

/// The names that a node itself provides when it evaluates a captured field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locals {
    pub(crate) names: Vec<Arc<str>>,
    /// True if the node may provide any other name, too.
    pub(crate) any: bool,
    /// True if the names are, among others, the members of another field of the input.
    pub(crate) from_input: bool,
}

impl Locals {
    /// Reads the local names that a mark lists: names, `*` for any name, and `field.*` for the members of another input
    /// field.
    pub(crate) fn new(mark: &Mark, input: &Tree) -> Locals {
        let mut locals = Locals::default();
        for local in &mark.locals {
            let Some(field) = local.strip_suffix('*') else {
                locals.names.push(local.clone());
                continue;
            };
            let Some(field) = field.strip_suffix('.') else {
                locals.any = true;
                continue;
            };
            locals.from_input = true;
            match input.member(field).map(|tree| &tree.kind) {
                None if matches!(input.kind, Kind::Map(_)) => {}
                Some(Kind::Map(entries)) => locals.names.extend(entries.iter().map(|entry| entry.key.clone())),
                _ => locals.any = true,
            }
        }
        locals
    }
}

/// Compiles a value without marks.
pub(crate) fn compile(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Compiled {
    let mut reads = Vec::new();
    let binding = plain(tree, &mut reads, diagnostics);
    Compiled { binding, reads }
}

/// Compiles a text with `{{ }}`, or one expression without them. `rebind` lets it read the variables of its own node.
pub(crate) fn compile_probe(text: &str, rebind: bool, diagnostics: &mut Diagnostics<'_>) -> Compiled {
    let span = Span { line: 1, column: 1, len: text.chars().count(), start: 0, copy: 0 };
    let tree = Tree { span, kind: Kind::Scalar(Json::from(text)) };
    let binding = compile_with(&tree, CapturedKind::Template, diagnostics, |value| match text.contains("{{") {
        true => Binding::compile(value),
        false => Binding::expression(text),
    });
    let reads = FieldReads::new(&tree, binding.as_ref().map(Binding::reads).unwrap_or_default());
    let binding = binding.unwrap_or_else(|| Binding::literal(Json::Null));
    Compiled { binding, reads: vec![FieldReads { rebind, ..reads }] }
}

/// Compiles an input. Captures marked conditions and templates, checks marked scripts, and reads marked files.
pub(crate) fn compile_marked(
    tree: &Tree,
    marks: &[Mark],
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Compiled {
    let marks: Vec<_> = marks.iter().map(|mark| (mark, mark.path.as_slice())).collect();
    let mut compiler = InputCompiler { context, input: tree, reads: Vec::new(), diagnostics };
    let binding = compiler.part(tree, &marks);
    Compiled { binding, reads: compiler.reads }
}

/// Returns true if a field with a mark of this kind is compiled in another way than a field without a mark.
fn changes_value(kind: MarkKind) -> bool {
    matches!(kind, MarkKind::Condition | MarkKind::Template | MarkKind::Script | MarkKind::File)
}

/// The marks that concern parts of a value. Each mark comes with the path from the value to the marked field.
pub(crate) type OpenMarks<'m> = Vec<(&'m Mark, &'m [Arc<str>])>;

struct InputCompiler<'a, 'f> {
    context: &'a dyn CheckContext,
    /// The whole input.
    input: &'a Tree,
    reads: Vec<FieldReads>,
    diagnostics: &'a mut Diagnostics<'f>,
}

impl InputCompiler<'_, '_> {
    fn part(&mut self, tree: &Tree, marks: &OpenMarks<'_>) -> Binding {
        let mut here = marks.iter().filter(|(_, rest)| rest.is_empty()).map(|(mark, _)| *mark);
        if let Some(mark) = here.find(|mark| changes_value(mark.kind)) {
            return self.compile_marked_field(tree, mark);
        }
        match &tree.kind {
            Kind::Map(entries) if !marks.is_empty() => {
                let member =
                    |entry: &Entry| (entry.key.clone(), self.part(&entry.value, &marks_below(marks, &entry.key)));
                let mut members: Vec<_> = entries.iter().map(member).collect();
                members.extend(self.facts(tree, marks));
                Binding::object(members)
            }
            Kind::List(items) if !marks.is_empty() => {
                Binding::array(items.iter().map(|item| self.part(item, &marks_below(marks, "*"))).collect())
            }
            _ => plain(tree, &mut self.reads, self.diagnostics),
        }
    }

    /// Returns the member for the facts about the run, unless no mark asks for it or the flow writes it.
    fn facts(&mut self, tree: &Tree, marks: &OpenMarks<'_>) -> Option<(Arc<str>, Binding)> {
        let wanted = marks.iter().find_map(|(mark, rest)| match (mark.kind, rest) {
            (MarkKind::Facts, [name]) => Some(name),
            _ => None,
        })?;
        if tree.member(wanted).is_some() {
            return None;
        }
        let path = PathUse { path: Path::new(FACTS, []), span: tree.span, is_tested: false, is_key: false };
        self.reads.push(FieldReads { paths: vec![path], ..FieldReads::default() });
        Some((wanted.clone(), Binding::root(FACTS)))
    }

    /// Compiles a marked field.
    fn compile_marked_field(&mut self, tree: &Tree, mark: &Mark) -> Binding {
        match mark.kind {
            MarkKind::Script if !tree.text().is_some_and(is_one_binding) => {
                Binding::literal(outline::inline(tree, self.context, self.diagnostics))
            }
            MarkKind::File => Binding::literal(outline::from_path(tree, self.context, self.diagnostics)),
            MarkKind::Condition | MarkKind::Template => {
                let binding = capture(tree, mark, Locals::new(mark, self.input), &mut self.reads, self.diagnostics);
                self.warn_of_written_keys(mark);
                binding
            }
            _ => plain(tree, &mut self.reads, self.diagnostics),
        }
    }

    /// Warns of keys of `hmac` in the captured field that are texts in the fields whose members it names.
    fn warn_of_written_keys(&mut self, mark: &Mark) {
        let Some(read) = self.reads.last() else { return };
        for field in mark.locals.iter().filter_map(|local| local.strip_suffix(".*")) {
            let Some(values) = self.input.member(field) else { continue };
            for used in read.paths.iter().filter(|used| used.is_key) {
                let values = if used.path.root() == field { self.input } else { values };
                written_keys::warn_of_value(values, &used.path, used.span, self.diagnostics);
            }
        }
    }
}

/// Returns the marks that concern parts of the member or item `step` of a value, with paths that start there.
pub(crate) fn marks_below<'m>(marks: &OpenMarks<'m>, step: &str) -> OpenMarks<'m> {
    let shorten = |(mark, rest): &(&'m Mark, &'m [Arc<str>])| {
        let (first, rest) = rest.split_first()?;
        (&**first == step || &**first == "*").then_some((*mark, rest))
    };
    marks.iter().filter_map(shorten).collect()
}

fn plain(tree: &Tree, reads: &mut Vec<FieldReads>, diagnostics: &mut Diagnostics<'_>) -> Binding {
    plain_text::warn(tree, diagnostics);
    let binding = compile_with(tree, CapturedKind::Template, diagnostics, Binding::compile);
    // Names are checked even if another part of the value does not compile.
    let named = binding.as_ref().map_or_else(|| Binding::reads_of(&tree.json()), Binding::reads);
    let (braced, bare) = (find_braced_paths(tree), find_bare_paths(tree));
    let read = FieldReads { braced, bare, ..FieldReads::new(tree, named) };
    if !read.paths.is_empty() || !read.braced.is_empty() || !read.bare.is_empty() {
        reads.push(read);
    }
    binding.unwrap_or_else(|| Binding::literal(Json::Null))
}

/// Compiles a value with the function `compile`. Earlier versions ignored some invalid text in expressions. Now such
/// text is an error in a new flow. In a flow that a library already has, it is only a warning, and the value is
/// compiled without this text, so that its meaning stays the same.
fn compile_with<T>(
    tree: &Tree,
    kind: CapturedKind,
    diagnostics: &mut Diagnostics<'_>,
    compile: impl Fn(&Json) -> Result<T, Vec<ExprError>>,
) -> Option<T> {
    let code = match kind {
        CapturedKind::Expr => "bad_condition",
        CapturedKind::Template => "bad_expression",
    };
    let value = tree.json();
    let mut result = compile(&value);
    // Earlier versions also rejected values that do not compile without the ignored text.
    if result.is_err()
        && let Some((blanked, ignored)) = without_ignored(&value, kind)
        && let Ok(old) = compile(&blanked)
    {
        for error in ignored {
            diagnostics.new_rule(code, place(tree, &error.pointer, error.offset), error.message, error.hint);
        }
        result = Ok(old);
    }
    report_misread(tree, kind, code, diagnostics);
    result.map_err(|errors| report(tree, code, errors, diagnostics)).ok()
}

/// Reports forms of other languages that have another meaning here.
fn report_misread(tree: &Tree, kind: CapturedKind, code: &'static str, diagnostics: &mut Diagnostics<'_>) {
    match &tree.kind {
        Kind::Scalar(json) => {
            for error in json.as_str().map(|text| misread(text, kind)).unwrap_or_default() {
                diagnostics.new_rule(code, place(tree, "", error.offset), error.message, error.hint);
            }
        }
        Kind::List(items) => items.iter().for_each(|item| report_misread(item, kind, code, diagnostics)),
        Kind::Map(entries) => {
            entries.iter().for_each(|entry| report_misread(&entry.value, kind, code, diagnostics));
        }
    }
}

fn capture(
    tree: &Tree,
    mark: &Mark,
    locals: Locals,
    reads: &mut Vec<FieldReads>,
    diagnostics: &mut Diagnostics<'_>,
) -> Binding {
    let kind = if mark.kind == MarkKind::Condition { CapturedKind::Expr } else { CapturedKind::Template };
    if kind == CapturedKind::Template {
        plain_text::warn(tree, diagnostics);
    }
    let captured = compile_with(tree, kind, diagnostics, |raw| {
        let named = match kind {
            CapturedKind::Expr => Condition::compile(raw)?.reads(),
            CapturedKind::Template => Binding::compile(raw)?.reads(),
        };
        Ok((Binding::captured(kind, raw.clone(), &locals.names)?, named))
    });
    // Names are checked even if another part of the field does not compile.
    let (binding, named) = captured.unwrap_or_else(|| {
        let named = match kind {
            CapturedKind::Expr => Condition::reads_of(&tree.json()),
            CapturedKind::Template => Binding::reads_of(&tree.json()),
        };
        (Binding::literal(Json::Null), named)
    });
    let name = mark.path.last().map_or("", |name| &**name);
    let must_read_value = name == "condition";
    // Other fields, such as `by`, take the value of the expression, which may be that of its last operand.
    if kind == CapturedKind::Expr && matches!(name, "condition" | "until" | "when" | "while") {
        warn_of_constant_operands(tree, diagnostics);
    }
    if kind == CapturedKind::Expr
        && named.paths.is_empty()
        && let Ok(condition) = Condition::compile(&tree.json())
    {
        warn_of_constant(tree, &condition, must_read_value, diagnostics);
    }
    let (braced, bare) = match kind {
        CapturedKind::Template => (find_braced_paths(tree), find_bare_paths(tree)),
        CapturedKind::Expr => Default::default(),
    };
    reads.push(FieldReads { locals, rebind: mark.rebind, braced, bare, ..FieldReads::new(tree, named) });
    binding
}

/// Evaluates a condition that reads no value, and returns its result. Returns `None` for any other condition, and for
/// one that may be slow to evaluate.
pub(crate) fn constant_value(tree: &Tree, condition: &Condition) -> Option<bool> {
    let written = tree.json().to_text();
    let is_cheap = written.len() <= MAX_CONSTANT_BYTES && !written.contains(['*', '|']) && !written.contains("matches");
    if !is_cheap || !condition.paths().is_empty() {
        return None;
    }
    condition.evaluate(&NoRoots).ok()
}

/// Maximum size in bytes of a condition that is evaluated at check time.
const MAX_CONSTANT_BYTES: usize = 256;

/// Returns the expression of a condition that is a text, without its braces.
fn expression_text(tree: &Tree) -> Option<&str> {
    tree.text().map(|text| text.trim_matches(['{', '}', ' ']))
}

/// Returns true if a condition is a literal Boolean.
pub(crate) fn is_bool(tree: &Tree) -> bool {
    tree.json().as_bool().is_some() || matches!(expression_text(tree), Some("true" | "false"))
}

/// Warns of a condition that reads no value, so that it is always true or always false. A literal Boolean is allowed
/// unless `must_read_value` is true, as it is for the field `condition`, which must test a value.
pub(crate) fn warn_of_constant(
    tree: &Tree,
    condition: &Condition,
    must_read_value: bool,
    diagnostics: &mut Diagnostics<'_>,
) {
    let Some(constant) = constant_value(tree, condition).filter(|_| must_read_value || !is_bool(tree)) else { return };
    let message = format!("the condition is always {constant} because it reads no value");
    diagnostics.warning("constant_condition", tree.span, message, Some(constant_condition_help(tree)));
}

/// Returns the help text for a condition that reads no value.
pub(crate) fn constant_condition_help(tree: &Tree) -> String {
    let quoted =
        expression_text(tree).filter(|text| text.starts_with(['\'', '"'])).map(|text| text.trim_matches(['\'', '"']));
    match quoted {
        Some(bool @ ("true" | "false")) => {
            format!("a non-empty text counts as true: name a value to test, or write `{bool}` without the inner quotes")
        }
        _ => "name a value to test, for example `flow.input.kind == 'bug'`".to_owned(),
    }
}

/// Warns of an operand of `and` or `or` that is a text or a number, as in `a == 'x' or 'y'`.
fn warn_of_constant_operands(tree: &Tree, diagnostics: &mut Diagnostics<'_>) {
    match &tree.kind {
        Kind::Scalar(json) => {
            let text = json.as_str().unwrap_or_default();
            let Some(offset) = constant_operand(text) else { return };
            let written = text.get(offset.clone()).unwrap_or_default();
            let message = format!("`{}` reads no value, and is not compared with the one before", for_message(written));
            let help = "compare the value each time, as in `a == 'x' or a == 'y'`, or write `a in ['x', 'y']`";
            diagnostics.warning("constant_condition", place(tree, "", Some(offset)), message, Some(help.into()));
        }
        Kind::List(_) => {}
        Kind::Map(entries) => {
            for Entry { key, value, .. } in entries {
                match &**key {
                    "and" | "or" => value.items().iter().for_each(|item| warn_of_constant_operands(item, diagnostics)),
                    "not" => warn_of_constant_operands(value, diagnostics),
                    _ => {}
                }
            }
        }
    }
}

/// Compiles a `when`. Returns its paths even if a part of it does not compile.
pub(crate) fn compile_condition(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> (Option<Condition>, FieldReads) {
    let condition = compile_with(tree, CapturedKind::Expr, diagnostics, Condition::compile);
    let named = condition.as_ref().map_or_else(|| Condition::reads_of(&tree.json()), Condition::reads);
    warn_of_constant_operands(tree, diagnostics);
    (condition, FieldReads::new(tree, named))
}

fn to_path_uses(tree: &Tree, found: Vec<flowcell_expr::PathUse>) -> Vec<PathUse> {
    let named = |flowcell_expr::PathUse { path, pointer, bytes, is_tested, is_key }| {
        let span = place(tree, &pointer, bytes);
        PathUse { path, span, is_tested, is_key }
    };
    found.into_iter().map(named).collect()
}

fn report(tree: &Tree, code: &'static str, errors: Vec<ExprError>, diagnostics: &mut Diagnostics<'_>) {
    for error in errors {
        let key = if error.is_key { tree.key_span(&error.pointer) } else { None };
        let span = key.unwrap_or_else(|| place(tree, &error.pointer, error.offset));
        diagnostics.error(code, span, error.message, error.hint);
    }
}

/// Returns the text of the input field that the node type marks with `kind`, and the field's tree. If the flow does not
/// set the field, returns the default in its schema, without a tree. Returns `None` if no field has such a mark, or if
/// the value is not a text.
pub(crate) fn marked_text<'t>(
    tree: Option<&'t Tree>,
    node_type: &NodeType,
    kind: MarkKind,
) -> Option<(String, Option<&'t Tree>)> {
    let mark = node_type.marks.iter().find(|mark| mark.kind == kind)?;
    let at = tree.and_then(|tree| mark.path.iter().try_fold(tree, |at, step| at.member(step)));
    if let Some(found) = at {
        return found.text().map(|text| (text.to_owned(), Some(found)));
    }
    let schema = mark.path.iter().try_fold(&node_type.input, |at, step| at.get("properties")?.get(&**step))?;
    Some((schema.get("default")?.as_str()?.to_owned(), None))
}
