//! Completions inside of expressions: names, members and functions.

use std::{cmp::Reverse, collections::HashSet, ops::Range};

use flowcell_contract::functions::{Function, FunctionKind, functions};

use super::{CompletionKind, Context, MARK, MAX_COMPLETIONS, Offer, compared};
use crate::{
    expression::{Expression, NameUse, PathAt, Step as PathStep, TokenKind, is_plain_name},
    flow::Flow,
    names::{Known, names, names_of_last_pass, schemas_of, to_step},
    reading::Style,
    schemas::{Schema, Step},
    spots::{self, Spot},
};

/// The functions that flows use most, the first ones first.
const COMMON: [&str; 14] = [
    "default",
    "length",
    "join",
    "map",
    "first",
    "required",
    "round",
    "defined",
    "none",
    "upper",
    "lower",
    "selectattr",
    "sum",
    "sort",
];

/// The members that the host records for a node that did not run or did not succeed.
const RECORDED: [&str; 5] = ["skipped", "cancelled", "failed", "attempts", "error"];

/// Returns what can be written in an expression, and the bytes of the word in the file that it replaces.
pub(super) fn offers(context: &Context<'_>, spot: &Spot<'_>) -> (Vec<Offer>, Range<usize>) {
    let expression = spot.expression();
    let nothing = (Vec::new(), context.marked.mark..context.marked.mark + MARK.len());
    let Some(index) = (0..expression.tokens.len()).find(|index| expression.word(*index).contains(MARK)) else {
        return nothing;
    };
    let token = &expression.tokens[index];
    let mut known = names(context.flow, spot.place);
    let in_path = expression.paths().into_iter().find_map(|path| {
        let step = path.steps.iter().position(|step| step.name.contains(MARK))?;
        Some((path, step))
    });
    if let Some((path, step)) = in_path {
        let is_quoted = token.kind == TokenKind::Text;
        let range = path.steps[step].range.clone();
        known.extend(names_of_last_pass(context.flow, spot.place));
        return (members(context, &known, &path, step, is_quoted), spot.scalar.range_to_file(&range));
    }
    if token.kind == TokenKind::Text {
        let quote = &expression.text[token.range.start..token.range.start + 1];
        let is_closed = token.range.len() > 1 && expression.word(index).ends_with(quote);
        let inside = token.range.start + 1..token.range.end - usize::from(is_closed);
        let mut found = attributes(context, &known, &expression, index);
        found.extend(compared::in_expression(context.flow, spot.place, &expression, index, true));
        return (found, spot.scalar.range_to_file(&inside));
    }
    if token.kind != TokenKind::Name {
        return nothing;
    }
    let range = spot.scalar.range_to_file(&token.range);
    let is_called = expression.word(index + 1) == "(";
    let argument = expression.word(index + 2);
    let offers = match expression.name_use(index) {
        NameUse::Filter => {
            let mut found = table(FunctionKind::Filter, is_called, argument);
            // A node of the pass before may have no output yet.
            let before = expression.paths().into_iter().rfind(|path| path.end() < token.range.start);
            let is_of_last_pass = before.is_some_and(|path| {
                context.flow.find(&path.root).is_some() && known.iter().all(|known| known.name != path.root)
            });
            if is_of_last_pass {
                found.retain(|offer| offer.label == "default");
            }
            found
        }
        NameUse::Test => table(FunctionKind::Test, is_called, argument),
        NameUse::Member => Vec::new(),
        NameUse::Argument => arguments(&expression, index),
        NameUse::Call => calls(spot, is_called, argument),
        NameUse::Root | NameUse::Word => {
            let path = expression.path_at(index);
            let after = expression.tokens.iter().position(|token| token.range.start >= path.end()).unwrap_or_default();
            if expression.word(after) == "|" && expression.word(after + 1) == "default" {
                known.extend(names_of_last_pass(context.flow, spot.place));
            }
            let mut found = match path.steps.is_empty() {
                true => compared::in_expression(context.flow, spot.place, &expression, index, false),
                false => Vec::new(),
            };
            found.extend(roots(&known, &path, spot.scalar.style));
            // The values of functions have no members.
            if path.steps.is_empty() {
                found.extend(calls(spot, is_called, argument));
            }
            found
        }
    };
    // In a text in quotes, the quotes of an argument are escaped.
    let style = spot.scalar.style;
    let escaped = |offer: Offer| match style {
        Style::Single | Style::Double => Offer { insert: super::quoted(&offer.insert, style), ..offer },
        _ => offer,
    };
    (offers.into_iter().map(escaped).collect(), range)
}

/// Returns the names of values. Those whose members fit the steps that follow come first; others are left out if some
/// fit.
fn roots(known: &[Known], path: &PathAt, style: Style) -> Vec<Offer> {
    let mut found: Vec<(u8, Offer)> = Vec::new();
    // In a text without quotes, brackets may end the text.
    let fits = |name: &&Known| !name.name.contains(MARK) && (style != Style::Plain || is_plain_name(&name.name));
    for name in known.iter().filter(fits) {
        let misfit = misfit(vec![Schema::new(&name.schema)], &path.steps);
        let quote = if style == Style::Double { '\'' } else { '"' };
        let insert = match is_plain_name(&name.name) {
            true => name.name.clone(),
            false => format!("nodes[{quote}{}{quote}]", name.name),
        };
        let offer = Offer::new(&name.name, CompletionKind::Name, &name.detail).with_insert(insert);
        found.push((misfit, offer));
    }
    if found.iter().any(|(misfit, _)| *misfit < 2) {
        found.retain(|(misfit, _)| *misfit < 2);
    }
    found.sort_by_key(|(misfit, _)| *misfit);
    found.into_iter().map(|(_, offer)| offer).collect()
}

/// Returns how badly steps fit values of these schemas: 0 if the schemas name all of them, 1 if they do not tell, 2 if
/// a member cannot exist.
fn misfit(mut schemas: Vec<Schema<'_>>, steps: &[PathStep]) -> u8 {
    for step in steps {
        let properties: Vec<_> = schemas.iter().flat_map(|schema| schema.properties()).collect();
        let types: Vec<_> = schemas.iter().flat_map(|schema| schema.types()).collect();
        let is_named = step.is_index || properties.iter().any(|property| property.name == step.name);
        let is_never = schemas.iter().any(|schema| schema.is_never() && !RECORDED.contains(&step.name.as_str()));
        let cannot = is_never || !properties.is_empty() || (!types.is_empty() && !types.contains(&"object"));
        if !is_named {
            return if cannot { 2 } else { 1 };
        }
        schemas = schemas.into_iter().flat_map(|schema| schema.below(&to_step(step))).collect();
    }
    0
}

/// Returns the members of the value to which the first `step` steps of a path lead.
fn members(context: &Context<'_>, known: &[Known], path: &PathAt, step: usize, is_quoted: bool) -> Vec<Offer> {
    if path.root == "nodes" && step == 0 {
        let is_node =
            |name: &&Known| context.flow.find(&name.name).is_some() && (is_quoted || is_plain_name(&name.name));
        return known
            .iter()
            .filter(is_node)
            .map(|name| Offer::new(&name.name, CompletionKind::Name, &name.detail))
            .collect();
    }
    let (mut found, mut seen) = (Vec::<(u8, Offer)>::new(), HashSet::new());
    // A name that ends the quotes around it would be another name.
    let is_writable = |name: &str| is_plain_name(name) || (is_quoted && !name.contains(['"', '\'', '\\', '\n']));
    let schemas = schemas_of(known, context.flow, path, step);
    for schema in &schemas {
        for property in schema.properties() {
            if property.name.contains(MARK) || !is_writable(property.name) || !seen.insert(property.name) {
                continue;
            }
            // The steps behind the typed one.
            let rest = misfit(vec![property.schema], &path.steps[step + 1..]);
            let misfit = rest * 2 + u8::from(!property.is_required);
            let offer = Offer::new(property.name, CompletionKind::Member, property.schema.type_text())
                .with_documentation(property.schema.description().unwrap_or_default());
            found.push((misfit, offer));
        }
    }
    if found.iter().any(|(misfit, _)| *misfit < 4) {
        found.retain(|(misfit, _)| *misfit < 4);
    }
    let is_object = |schema: &Schema<'_>| schema.types().is_empty() || schema.types().contains(&"object");
    if found.is_empty() && schemas.iter().all(|schema| is_object(schema) && !schema.is_closed()) {
        return members_read_elsewhere(context.flow, path, step)
            .into_iter()
            .filter(|offer| is_writable(&offer.label))
            .collect();
    }
    found.sort_by_key(|(misfit, _)| *misfit);
    found.into_iter().map(|(_, offer)| offer).collect()
}

/// Returns the members that other expressions of the flow read of the value to which the first `step` steps of a path
/// lead, those that are read most first. No schema names them.
fn members_read_elsewhere(flow: &Flow<'_>, path: &PathAt, step: usize) -> Vec<Offer> {
    let is_same_step =
        |(one, other): (&PathStep, &PathStep)| (one.is_index && other.is_index) || one.name == other.name;
    let is_same =
        |other: &PathAt| other.root == path.root && other.steps[..step].iter().zip(&path.steps).all(is_same_step);
    let mut read: Vec<(String, usize)> = Vec::new();
    spots::each(flow, None, &mut |spot| {
        for other in spot.expression().paths().iter().filter(|other| other.steps.len() > step && is_same(other)) {
            let member = &other.steps[step];
            match read.iter().position(|(name, _)| *name == member.name) {
                Some(known) => read[known].1 += 1,
                None if member.is_index || member.name.is_empty() || member.name.contains(MARK) => {}
                None if read.len() < MAX_COMPLETIONS => read.push((member.name.clone(), 1)),
                None => {}
            }
        }
    });
    read.sort_by_key(|(_, count)| Reverse(*count));
    let offer = |(name, _)| Offer::new(name, CompletionKind::Member, "read elsewhere in the flow");
    read.into_iter().map(offer).collect()
}

/// Returns the members of the items of the list before a filter, for its argument `attribute`.
fn attributes(context: &Context<'_>, known: &[Known], expression: &Expression<'_>, index: usize) -> Vec<Offer> {
    let before = |back: usize| index.checked_sub(back).map_or("", |index| expression.word(index));
    let is_attribute = before(1) == "=" && before(2) == "attribute";
    let is_first = before(1) == "(" && matches!(before(2), "groupby" | "selectattr" | "rejectattr" | "attr");
    if !(is_attribute || is_first) {
        return Vec::new();
    }
    let start = expression.tokens[index].range.start;
    let paths = expression.paths();
    let Some(path) = paths.iter().rfind(|path| path.end() <= start) else { return Vec::new() };
    let lists = schemas_of(known, context.flow, path, path.steps.len());
    let items = lists.iter().flat_map(|schema| schema.below(&Step::Item).into_iter().chain([*schema]));
    let mut seen = HashSet::new();
    let properties: Vec<_> =
        items.flat_map(|item| item.properties()).filter(|property| seen.insert(property.name)).collect();
    properties
        .into_iter()
        .map(|property| Offer::new(property.name, CompletionKind::Member, property.schema.type_text()))
        .collect()
}

/// Returns the functions of a kind. `is_called` tells that `(` follows, and `argument` is the word behind it.
fn table(kind: FunctionKind, is_called: bool, argument: &str) -> Vec<Offer> {
    let mut found: Vec<&Function> = functions().filter(|function| function.kind == kind).collect();
    found.retain(|function| is_plain_name(function.name()));
    if is_called {
        let fits = |function: &&Function| match argument {
            ")" => !function.needs_arguments(),
            _ => function.needs_arguments() || function.optional_arguments().next().is_some(),
        };
        found.retain(fits);
        // A text is the name of another function.
        if argument.starts_with(['"', '\'']) {
            let named = argument.trim_matches(['"', '\'']);
            let is_kind = |kind| flowcell_contract::functions::functions_named(named).any(|named| named.kind == kind);
            found.retain(|function| match function.name() {
                "map" => is_kind(FunctionKind::Filter),
                "select" | "reject" => is_kind(FunctionKind::Test),
                _ => true,
            });
        }
    }
    found.sort_by_key(|function| {
        let is_named = function.optional_arguments().any(|name| name == argument)
            || (function.name() == "map" && argument == "attribute");
        let common = COMMON.iter().position(|name| *name == function.name()).unwrap_or(COMMON.len());
        let is_unlikely = if is_called { !function.signature.contains('(') } else { function.needs_arguments() };
        (is_called && !is_named && is_plain_name(argument), is_unlikely, common)
    });
    let offer = |function: &Function| {
        let insert = if is_called { function.name().to_owned() } else { with_arguments(function) };
        let example = format!("{}\n\n`{}` gives `{}`", function.summary, function.example, function.result);
        Offer::new(function.name(), CompletionKind::Function, function.signature)
            .with_documentation(example)
            .with_insert(insert)
    };
    found.into_iter().map(offer).collect()
}

/// Returns the functions that are called. A field that a node evaluates itself has no random values.
fn calls(spot: &Spot<'_>, is_called: bool, argument: &str) -> Vec<Offer> {
    // A condition that reads no value is always true or always false.
    let is_whole = spot.part == (0..spot.scalar.text.len());
    if spot.is_path || (is_whole && spot.expression().paths().iter().all(|path| path.root.contains(MARK))) {
        return Vec::new();
    }
    let mut found = table(FunctionKind::Call, is_called, argument);
    if spot.place.is_captured {
        found.retain(|offer| offer.label == "range");
    }
    found
}

/// Returns the use of a function, with the arguments of its example if it needs some.
fn with_arguments(function: &Function) -> String {
    let name = function.name();
    let after = || {
        let at = function.example.find(&format!("{name}("))? + name.len();
        let rest = &function.example[at..];
        let expression = Expression::new(rest, 0..rest.len());
        let close = (0..expression.tokens.len()).find(|index| expression.word(*index) == ")")?;
        let written = &rest[..expression.tokens[close].range.end];
        // A name in the example is not known here.
        let inside = Expression::new(written, 0..written.len());
        let is_nested = (1..close).any(|index| inside.word(index) == "(");
        (inside.paths().is_empty() && !is_nested).then_some(written)
    };
    match function.needs_arguments() || function.kind == FunctionKind::Call {
        true => format!("{name}{}", after().unwrap_or("()")),
        false => name.to_owned(),
    }
}

/// Returns the named arguments of the function around a token.
fn arguments(expression: &Expression<'_>, index: usize) -> Vec<Offer> {
    let mut depth = 0;
    for at in (0..index).rev() {
        match expression.word(at) {
            ")" => depth += 1,
            "(" if depth > 0 => depth -= 1,
            "(" => {
                let name = at.checked_sub(1).map_or("", |at| expression.word(at));
                let of_name = flowcell_contract::functions::functions_named(name);
                let names = of_name.flat_map(Function::optional_arguments);
                return names.map(|name| Offer::new(name, CompletionKind::Value, "an argument")).collect();
            }
            _ => {}
        }
    }
    Vec::new()
}
