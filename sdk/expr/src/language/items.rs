//! Finds the members of list items that an expression reads, such as `price` in `orders | sum(attribute='price')`. A
//! checker compares their paths with the schema of the list.

use minijinja::machinery::ast::{CallArg, Expr, Filter};

use super::{
    names,
    tree::{is_null, static_path, static_segment},
};
use crate::path::{Path, Segment};

/// Filters that return a list of some or all items of their operand.
const KEEPING: [&str; 9] =
    ["list", "reject", "rejectattr", "required", "reverse", "select", "selectattr", "sort", "unique"];
/// Filters that return one item of their operand.
const CHOOSING: [&str; 4] = ["first", "last", "max", "min"];
/// The segment that stands for any item of a list.
const ANY: Segment = Segment::Index(0);

/// A path as the expression writes it, and the segments that filters and subscripts append to it.
type ItemPath = (Path, Vec<Segment>);

/// Returns the path of the value that an expression selects; `None` if the expression computes a new value.
pub(super) fn path_of(expr: &Expr<'_>) -> Option<Path> {
    value(expr).map(to_path)
}

/// Returns three things about the attributes that a filter reads from list items: the paths of the attributes, the
/// argument that names them, and true if an item may lack them. Returns `None` if the filter reads no attribute whose
/// path is known before the evaluation.
pub(super) fn attributes<'e, 'x>(filter: &'e Filter<'x>) -> Option<(Vec<Path>, &'e Expr<'x>, bool)> {
    let argument = argument(filter)?;
    let items = item(filter.expr.as_ref()?)?;
    let is_tested = filter.args.iter().any(|argument| matches!(argument, CallArg::Kwarg("default", _)))
        || filter.name.ends_with("attr") && is_test_for_missing(filter.args.get(1..).unwrap_or_default());
    let written = literal_text(argument)?;
    let names = if filter.name == "sort" { written.split(',').map(str::trim).collect() } else { vec![written] };
    let path = |name: &str| to_path((items.0.clone(), items.1.iter().cloned().chain(segments(name)).collect()));
    Some((names.into_iter().map(path).collect(), argument, is_tested))
}

/// Returns the argument with which a filter names the attribute that it reads.
fn argument<'e, 'x>(filter: &'e Filter<'x>) -> Option<&'e Expr<'x>> {
    let first = || match filter.args.first()? {
        CallArg::Pos(argument) => Some(argument),
        _ => None,
    };
    let named = || {
        filter.args.iter().find_map(|argument| match argument {
            CallArg::Kwarg("attribute", value) => Some(value),
            _ => None,
        })
    };
    match filter.name {
        "join" | "map" | "max" | "min" | "sort" | "sum" | "unique" => named(),
        "groupby" => first().or_else(named),
        "rejectattr" | "selectattr" => first(),
        _ => None,
    }
}

/// Returns true for a test that asks whether a value is missing, such as `'defined'`. `test` has the arguments that
/// follow the name of the attribute.
fn is_test_for_missing(test: &[CallArg<'_>]) -> bool {
    let [CallArg::Pos(Expr::Const(name)), rest @ ..] = test else { return false };
    let name = name.value.as_str().unwrap_or_default();
    names::TESTS_OF_MISSING.contains(&name)
        || names::EQUALITY_TESTS.contains(&name) && matches!(rest, [CallArg::Pos(other)] if is_null(other))
}

fn literal_text<'e>(argument: &'e Expr<'_>) -> Option<&'e str> {
    match argument {
        Expr::Const(name) => name.value.as_str(),
        _ => None,
    }
}

/// Splits the argument `attribute` of a filter at its dots: `a.0` is the key `a` and the index 0.
fn segments(attribute: &str) -> impl Iterator<Item = Segment> {
    attribute.split('.').map(|name| name.parse().map_or_else(|_| Segment::Key(name.into()), Segment::Index))
}

/// Returns true if every item of the list that a filter returns is an item of the filter's operand.
fn returns_only_items(filter: &Filter<'_>) -> bool {
    let is_empty = |argument: &CallArg<'_>| matches!(argument, CallArg::Pos(Expr::List(list)) if list.items.is_empty());
    match filter.name {
        "d" | "default" => filter.args.iter().all(is_empty),
        name => KEEPING.contains(&name),
    }
}

fn value(expr: &Expr<'_>) -> Option<ItemPath> {
    if let Some((path, _)) = static_path(expr) {
        return Some((path, Vec::new()));
    }
    match expr {
        Expr::GetAttr(attribute) => append_step(value(&attribute.expr)?, Segment::Key(attribute.name.into())),
        Expr::GetItem(item) => append_step(value(&item.expr)?, static_segment(&item.subscript_expr).unwrap_or(ANY)),
        Expr::Slice(slice) => value(&slice.expr),
        Expr::Filter(filter) if returns_only_items(filter) => value(filter.expr.as_ref()?),
        Expr::Filter(filter) if CHOOSING.contains(&filter.name) => item(filter.expr.as_ref()?),
        _ => None,
    }
}

/// Returns the path of any item of the list that an expression selects; `None` if the expression computes new items.
fn item(expr: &Expr<'_>) -> Option<ItemPath> {
    match expr {
        Expr::Filter(filter) if filter.name == "map" => {
            let (path, mut way) = item(filter.expr.as_ref()?)?;
            way.extend(segments(literal_text(argument(filter)?)?));
            Some((path, way))
        }
        Expr::Filter(filter) if returns_only_items(filter) => item(filter.expr.as_ref()?),
        Expr::Slice(slice) => item(&slice.expr),
        _ => append_step(value(expr)?, ANY),
    }
}

fn append_step((path, mut way): ItemPath, step: Segment) -> Option<ItemPath> {
    way.push(step);
    Some((path, way))
}

fn to_path((path, way): ItemPath) -> Path {
    Path::new(path.root(), path.segments().iter().cloned().chain(way))
}
