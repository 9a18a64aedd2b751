//! Compiles and evaluates expressions.

use std::{error, ops::Range, slice, sync::Arc};

use minijinja::{Error, ErrorKind, Value, machinery::parse_expr};

use super::{
    budget::TOO_MUCH_WORK,
    environment::ENVIRONMENT,
    filters::Required,
    lookup::Missing,
    names,
    printer::{Lookup, Printer, Read},
    random::seed_at,
    syntax_errors::not_parsed,
    tokens,
    tree::static_path,
    values::{FileMisuse, Scope, from_value, root_to_value},
};
use crate::{
    allowance,
    error::ExprError,
    file,
    json::Json,
    limits,
    path::{Path, shorten},
    path_use::{PathUse, Reads},
    place::Place,
    rename::{NodeIds, apply_edits, rename_nodes, with_id},
    roots::Roots,
};

/// A compiled expression and its position in the text that contains it.
#[derive(Clone, Debug)]
pub(crate) struct Expression(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// A plain path, the most common expression, which needs no interpreter.
    Path(Read),
    Program(Arc<Program>),
}

/// An expression that MiniJinja evaluates.
#[derive(Debug)]
struct Program {
    source: Box<str>,
    place: Range<usize>,
    reads: Vec<Read>,
    item_paths: Vec<Read>,
    lookups: Vec<Lookup>,
    roots: Vec<Arc<str>>,
    expression: minijinja::Expression<'static, 'static>,
}

/// An expression that does not compile.
#[derive(Debug)]
pub(crate) struct InvalidExpression {
    pub(crate) errors: Vec<ExprError>,
    /// The paths of the expression, if it can be parsed.
    reads: Vec<Read>,
    item_paths: Vec<Read>,
}

impl InvalidExpression {
    /// Appends the paths of the expression. `pointer` is the JSON Pointer to its text.
    pub(crate) fn collect(&self, pointer: &str, reads: &mut Reads) {
        collect((&self.reads, &self.item_paths), pointer, reads);
    }
}

fn collect((paths, item_paths): (&[Read], &[Read]), pointer: &str, reads: &mut Reads) {
    reads.paths.extend(paths.iter().map(|read| read.at(pointer)));
    reads.item_paths.extend(item_paths.iter().map(|read| read.at(pointer)));
}

/// Two expressions are equal if they are the same path, or the same text.
impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        match (&self.0, &other.0) {
            (Kind::Path(read), Kind::Path(other)) => read.path == other.path,
            (Kind::Program(program), Kind::Program(other)) => program.source == other.source,
            _ => false,
        }
    }
}

impl Expression {
    /// Creates an expression that is a root.
    pub(crate) fn from_root(name: &str) -> Expression {
        Expression(Kind::Path(Read { path: Path::new(name, []), place: 0..0, is_tested: false, is_key: false }))
    }

    /// Compiles an expression that starts at byte `at` of its text.
    pub(crate) fn compile(source: &str, at: usize) -> Result<Expression, InvalidExpression> {
        let place = at..at + source.len();
        let fail = |error: ExprError| InvalidExpression {
            errors: vec![error.moved(at).at(place.clone())],
            reads: Vec::new(),
            item_paths: Vec::new(),
        };
        let tokens = tokens::read(source).map_err(fail)?;
        let tree = parse_expr(source).map_err(|error| fail(not_parsed(source, &tokens, &error)))?;
        if let Some((path, place)) = static_path(&tree) {
            return Ok(Expression(Kind::Path(Read {
                path,
                place: at + place.start..at + place.end,
                is_tested: false,
                is_key: false,
            })));
        }
        let mut printer = Printer::new(source, at);
        printer.expression(&tree);
        let Printer { printed, reads, item_paths, lookups, errors, .. } = printer;
        if !errors.is_empty() {
            let errors = errors.into_iter().map(|error| error.at(place.clone())).collect();
            return Err(InvalidExpression { errors, reads, item_paths });
        }
        if !tokens::is_lexed(&printed) {
            return Err(fail(ExprError::new("the expression cannot be compiled")));
        }
        let compiled = ENVIRONMENT.compile_expression_owned(printed);
        let expression = compiled.map_err(|error| fail(ExprError::new(error_message(&error))))?;
        let mut roots: Vec<Arc<str>> = Vec::new();
        for read in &reads {
            if !roots.iter().any(|root| **root == *read.path.root()) {
                roots.push(read.path.root().into());
            }
        }
        let source = source.into();
        let program = Program { source, place, reads, item_paths, lookups, roots, expression };
        Ok(Expression(Kind::Program(Arc::new(program))))
    }

    /// Evaluates the expression, which is in the text at a place. A missing value is `null`, or an error if the roots are strict.
    pub(crate) fn evaluate(&self, roots: &dyn Roots, at: Place<'_>) -> Result<Json, ExprError> {
        match &self.0 {
            Kind::Path(read) => read.value(roots).map(Option::unwrap_or_default),
            Kind::Program(program) => {
                let value = program.run(roots, at)?;
                from_value(&value).map_err(|message| ExprError::new(message).at(program.place.clone()))
            }
        }
    }

    /// Evaluates the expression, which is in the text at a place, and returns true if the result counts as true.
    pub(crate) fn holds(&self, roots: &dyn Roots, at: Place<'_>) -> Result<bool, ExprError> {
        match &self.0 {
            Kind::Path(read) => Ok(read.value(roots)?.is_some_and(|value| is_true(&value))),
            Kind::Program(program) => program.run(roots, at).map(|value| value.is_true()),
        }
    }

    /// Returns the paths that the expression reads, in their order.
    pub(crate) fn reads(&self) -> &[Read] {
        match &self.0 {
            Kind::Path(read) => slice::from_ref(read),
            Kind::Program(program) => &program.reads,
        }
    }

    /// Appends the paths of the expression. `pointer` is the JSON Pointer to its text.
    pub(crate) fn collect(&self, pointer: &str, reads: &mut Reads) {
        let item_paths = match &self.0 {
            Kind::Path(_) => &[][..],
            Kind::Program(program) => &program.item_paths,
        };
        collect((self.reads(), item_paths), pointer, reads);
    }

    /// Creates an error about a file value from this expression that is used as if it were its content.
    pub(crate) fn misuse_error(&self, message: String, roots: &dyn Roots) -> ExprError {
        match &self.0 {
            Kind::Path(read) => misuse_error(message, slice::from_ref(read), &read.place, roots),
            Kind::Program(program) => misuse_error(message, &program.reads, &program.place, roots),
        }
    }

    /// Returns true if both expressions are equal once each name of a node is replaced by the id that it stands for.
    pub(crate) fn is_same(&self, ids: NodeIds<'_>, other: &Expression, other_ids: NodeIds<'_>) -> bool {
        match (&self.0, &other.0) {
            (Kind::Path(read), Kind::Path(other)) => with_id(&read.path, ids) == with_id(&other.path, other_ids),
            (Kind::Program(program), Kind::Program(other)) => {
                let source = program.with_ids(ids);
                source.is_some() && source == other.with_ids(other_ids)
            }
            _ => false,
        }
    }

    /// Returns the path of an expression that is a plain path; `None` for any other expression.
    pub(crate) fn as_path(&self) -> Option<&Path> {
        match &self.0 {
            Kind::Path(read) => Some(&read.path),
            Kind::Program(_) => None,
        }
    }
}

impl Read {
    /// Returns the value; `None` if it is missing. In a strict evaluation a missing value is an error.
    fn value(&self, roots: &dyn Roots) -> Result<Option<Json>, ExprError> {
        match self.path.read(roots).map_err(|error| error.at(self.place.clone()))? {
            None if roots.is_strict() => Err(missing(Ok(&self.path), &self.place, roots)),
            value => Ok(value),
        }
    }
}

impl Program {
    /// Returns the text with ids in place of names. `None`: a form of a name cannot be replaced.
    fn with_ids(&self, ids: NodeIds<'_>) -> Option<String> {
        let start = self.place.start;
        let in_source = |read: &Read| {
            let bytes = read.place.start - start..read.place.end - start;
            PathUse { bytes: Some(bytes), ..read.at("") }
        };
        let paths: Vec<_> = self.reads.iter().map(in_source).collect();
        let (edits, refused) = rename_nodes(&Json::from(&*self.source), &paths, ids);
        refused.is_empty().then(|| apply_edits(&self.source, &edits))
    }

    fn run(&self, roots: &dyn Roots, at: Place<'_>) -> Result<Value, ExprError> {
        if !allowance::spend(limits::EVALUATION_WORK) {
            return Err(ExprError::new(allowance::EXHAUSTED).at(self.place.clone()));
        }
        let root = |name: &Arc<str>| match (&**name, roots.root(name)?) {
            (names::RANDOM, Json::String(seed)) => Some(Value::from(seed_at(&seed, &at.pointer()))),
            (_, value) => Some(root_to_value(name, &value)),
        };
        let named = self.roots.iter().filter_map(|name| Some((name.clone(), root(name)?)));
        let strict = roots.is_strict().then(|| (names::STRICT.into(), Value::from(true)));
        let scope = Value::from_object(Scope(named.chain(strict).collect()));
        self.expression.eval(scope).map_err(|error| {
            if error::Error::source(&error).is_some_and(|source| source.is::<FileMisuse>()) {
                return misuse_error(error_message(&error), &self.reads, &self.place, roots);
            }
            if let Some(Required(hint)) = error::Error::source(&error).and_then(|source| source.downcast_ref()) {
                return ExprError::new(error_message(&error)).hint(*hint).at(self.place.clone());
            }
            let source = error::Error::source(&error).and_then(|source| source.downcast_ref::<Missing>());
            match (source.map(|Missing(number)| number.and_then(|number| self.lookups.get(number))), error.kind()) {
                (Some(Some(found)), _) => missing(found.what.as_ref().map_err(|source| &**source), &found.place, roots),
                (Some(None), _) => ExprError::missing(error_message(&error)).hint(ITEMS_HINT).at(self.place.clone()),
                (None, ErrorKind::OutOfFuel) => {
                    let error = ExprError::new(error_message(&error)).at(self.place.clone());
                    if error.message == allowance::EXHAUSTED { error } else { error.hint(WORK_HINT) }
                }
                (None, kind) => self.evaluation_error(error_message(&error), kind == ErrorKind::UndefinedError, roots),
            }
        })
    }

    /// Creates an error of the evaluation. Adds to `message` the paths that the expression reads, with the types of
    /// their values. If the error is about null and some of these paths are missing or null, adds only those.
    fn evaluation_error(&self, mut message: String, is_of_null: bool, roots: &dyn Roots) -> ExprError {
        let mut read: Vec<(&Read, &str)> = Vec::new();
        for found in self.reads.iter().filter(|read| read.path.root() != names::RANDOM) {
            if !read.iter().any(|(other, _)| other.path == found.path) {
                read.push((found, found.path.resolve(roots).map_or("missing", |value| value.type_name())));
            }
        }
        let is_absent = |(_, what): &(&Read, &str)| matches!(*what, "missing" | "null");
        let place = read.iter().copied().find(is_absent).filter(|_| is_of_null).map(|(read, _)| read.place.clone());
        if place.is_some() {
            read.retain(is_absent);
        }
        for (read, what) in read.into_iter().take(MAX_NAMED_PATHS) {
            message.push_str(&format!("; `{}` is {what}", shorten(&read.path.to_string())));
        }
        ExprError::new(message).at(place.unwrap_or_else(|| self.place.clone()))
    }
}

/// Creates the error about a lookup without a value in a strict flow.
fn missing(what: Result<&Path, &str>, place: &Range<usize>, roots: &dyn Roots) -> ExprError {
    let (error, shown) = match what {
        Ok(path) => (path.missing(roots), shorten(&path.to_string())),
        Err(source) => (ExprError::missing(format!("`{source}` is missing")), source.to_string()),
    };
    let hint = format!("the flow is strict: write `{shown} | default(…)`, or test it first with `{shown} is defined`");
    error.hint(hint).at(place.clone())
}

/// Creates the error about file values used as if they were their content. Its message names the paths of the file
/// values.
fn misuse_error(message: String, reads: &[Read], whole: &Range<usize>, roots: &dyn Roots) -> ExprError {
    let files: Vec<_> = reads.iter().filter_map(|read| Some((read.path.find_file(roots)?, &read.place))).collect();
    let place = files.first().map_or(whole, |(_, place)| place);
    file::misuse_error(message, files.iter().map(|(path, _)| path)).at(place.clone())
}

/// The hint about items of a list that lack an attribute.
const ITEMS_HINT: &str = "the flow is strict: first keep the items that have it with `| selectattr('…', 'defined')`";

/// The hint about an expression that does too much work. The numbers are [`limits::FUEL`] and [`limits::WORK`].
const WORK_HINT: &str = "an expression has 100,000 steps and 16 MiB of work, where an item of a list counts as 16 bytes: \
     work on a part of the value, or use a node such as `data.map` or a script";

/// Maximum number of paths in an error message.
const MAX_NAMED_PATHS: usize = 3;

/// Returns true for every value except `false`, `null`, zero and empty values.
fn is_true(value: &Json) -> bool {
    match value {
        Json::Null => false,
        Json::Bool(value) => *value,
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(members) => !members.is_empty(),
    }
}

fn error_message(error: &Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, None) => TOO_MUCH_WORK.to_owned(),
        (_, Some(detail)) => detail.to_owned(),
        (kind, None) => kind.to_string(),
    }
}
