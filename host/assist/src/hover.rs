//! Explanations of what stands at a place.

use std::ops::Range;

use flowcell_contract::{Json, NodeType, functions::functions_named};
use flowcell_expr::{Binding, metered};
use flowcell_flow::agentic::built_in_agent;
use serde_json::Value as Serde;

use crate::{
    Document,
    dialect::Dialect,
    expression::{Expression, NameUse, PathAt, TokenKind},
    flow::{Flow, IdUse, NameKind},
    is_too_large,
    locate::{Located, Role, Target, locate},
    names::{names, schemas_of},
    reading::{Value, read},
    schemas::{Schema, Step, shown, to_json},
    spots::{self, Spot},
};

/// Maximum number of fields that an explanation of a node type lists.
const MAX_FIELDS: usize = 20;

/// Maximum work for the value of an expression, in units of [`flowcell_expr::limits::WORK`].
const MAX_VALUE_WORK: u64 = 1 << 20;

/// An explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hover {
    /// The text, as Markdown.
    pub text: String,
    /// The bytes that it explains.
    pub range: Range<usize>,
}

/// Returns the explanation of what stands at a byte of a flow's text.
pub fn hover(document: &Document<'_>, at: usize) -> Option<Hover> {
    if is_too_large(document.text) {
        return None;
    }
    let at = document.text.floor_char_boundary(at);
    let root = read(document.text);
    let flow = Flow::at(document.text, &root, document.catalog, at);
    let mut found = in_reference(&flow, at);
    spots::each(&flow, Some(&(at..at)), &mut |spot| {
        let inside = spot.scalar.offset_of(at);
        if found.is_none() && spot.part.start <= inside && inside <= spot.part.end {
            found = in_expression(&flow, &spot, inside);
        }
    });
    if found.is_some() {
        return found;
    }
    let is_here = |found: &&IdUse| found.range.start <= at && at <= found.range.end && !found.is_definition;
    let id = flow.uses.iter().find(|found| is_here(found) && found.kind == NameKind::Node);
    if let Some(node) = id.and_then(|found| flow.find(&found.id)) {
        return Some(Hover { text: node_text(&flow, node), range: id?.range.clone() });
    }
    let located = locate(&flow, at)?;
    let range = located.target.range(document.text);
    let arguments = located.arguments(&flow);
    let schemas = match &arguments {
        Some((schema, steps)) => Schema::new(schema).follow(steps),
        None => located.schemas(&flow),
    };
    let text = match located.target {
        Target::Key(_, member) => {
            let below = Step::Key(member.name.clone());
            let mut known = schemas.iter().flat_map(|schema| schema.below(&below));
            // There can be no other members beside those of the schema.
            field_text(&member.name, known.find(|schema| schema.to_json() != false)?)
        }
        Target::Value(_) if range.is_empty() || located.steps.is_empty() => return None,
        Target::Value(value) => match (named_text(&flow, &located, value), located.role(&flow)) {
            (Some(text), _) => text,
            (None, Role::NodeType | Role::Tool | Role::Fragment) => return None,
            (None, _) => schemas.iter().find_map(|schema| schema.description())?.to_owned(),
        },
    };
    Some(Hover { text, range })
}

/// Explains what a text names: a node type, a tool, a fragment or a built-in agent.
fn named_text(flow: &Flow<'_>, located: &Located<'_>, value: &Value) -> Option<String> {
    match located.role(flow) {
        Role::NodeType | Role::Tool => located.node_type(flow).map(type_text),
        Role::Fragment => {
            let used = flow.used_fragment(located.node?)?;
            let schema = flow.parameters(&used.value);
            let mut text = format!("`{}`: a fragment\n", used.name);
            fields(&mut text, "Parameters", Schema::new(&schema), true);
            Some(text)
        }
        Role::Agent => {
            let (name, _) = flow.text(Some(value))?;
            let agent = built_in_agent(&name)?;
            Some(format!("`{name}`: the built-in agent, unless a file has this name\n\n{}", agent.description?))
        }
        _ => None,
    }
}

/// Explains a reference of a flow of steps, such as `${args.key}`, up to the word at a byte.
fn in_reference(flow: &Flow<'_>, at: usize) -> Option<Hover> {
    let mut found = None;
    flow.each_reference(&mut |step, reference| {
        let Some(last) = reference.word_at(at) else { return };
        let words = &reference.words[..=last];
        let values = flow.referred_values(step);
        let steps: Vec<_> = words.iter().map(|(word, _)| Step::in_reference(word)).collect();
        let schemas = Schema::new(&values).follow(&steps);
        let name = words.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join(".");
        found = schemas.first().map(|schema| {
            let text = field_text(&name, *schema);
            Hover { text, range: words[0].1.start..words[last].1.end }
        });
    });
    found
}

fn field_text(name: &str, schema: Schema<'_>) -> String {
    let mut text = format!("`{name}`: {}", schema.type_text());
    if let Some(default) = schema.keyword("default") {
        text += &format!(", by default `{}`", shown(default));
    }
    if let Some(description) = schema.description() {
        text += &format!("\n\n{description}");
    }
    let values: Vec<_> =
        schema.values().iter().filter(|value| value.is_string()).map(|value| format!("`{}`", shown(value))).collect();
    if !values.is_empty() {
        text += &format!("\n\nOne of {}.", values.join(", "));
    }
    text
}

/// Explains a node type: its purpose, its fields, and its output.
fn type_text(kind: &NodeType) -> String {
    let mut text = format!("**{}** `{}`\n\n{}\n", kind.title, kind.full_name(), kind.description.trim());
    fields(&mut text, "Input", Schema::new(&kind.input), true);
    fields(&mut text, "Output", Schema::new(&kind.output), false);
    if !kind.capabilities.is_empty() {
        text += "\nGrants:\n\n";
        for request in &kind.capabilities {
            let optional = if request.optional { " (optional)" } else { "" };
            text += &format!("- `{}`{optional}: {}\n", request.name, request.reason);
        }
    }
    if !kind.credentials.is_empty() {
        text += "\nCredentials:\n\n";
        for request in &kind.credentials {
            let optional = if request.optional { " (optional)" } else { "" };
            text += &format!("- `{}`{optional}\n", request.summary());
        }
    }
    if !kind.limits.is_empty() {
        text += &format!("\nLimits: {}\n", kind.limits.summary());
    }
    text
}

/// Adds the fields of a schema as a list. `is_given` is true if a flow writes the fields.
fn fields(text: &mut String, title: &str, schema: Schema<'_>, is_given: bool) {
    let properties = schema.properties();
    if properties.is_empty() {
        return;
    }
    *text += &format!("\n{title}:\n\n");
    for property in properties.iter().take(MAX_FIELDS) {
        let required = if property.is_required && is_given { ", required" } else { "" };
        let description = property.schema.description().map(|text| format!(". {text}")).unwrap_or_default();
        *text += &format!("- `{}`: {}{required}{description}\n", property.name, property.schema.type_text());
    }
    if properties.len() > MAX_FIELDS {
        *text += &format!("- and {} more\n", properties.len() - MAX_FIELDS);
    }
}

fn node_text(flow: &Flow<'_>, node: usize) -> String {
    let node = &flow.nodes[node];
    match &node.kind {
        Some(kind) => format!("`{}`: {}", node.id, type_text(kind)),
        None if flow.dialect == Dialect::Agentic => {
            format!("`{}`: a step of the agent `{}`", node.id, flow.agent_of_step(node.value))
        }
        None => match flow.text(node.value.member("use")) {
            Some((name, _)) => format!("`{}`: a use of the fragment `{name}`", node.id),
            None => format!("`{}`: a node of unknown type", node.id),
        },
    }
}

fn in_expression(flow: &Flow<'_>, spot: &Spot<'_>, at: usize) -> Option<Hover> {
    let expression = spot.expression();
    let index = expression
        .tokens
        .iter()
        .position(|token| token.range.start <= at && at <= token.range.end && token.kind != TokenKind::Sign)?;
    let hover = |text: String, range: &Range<usize>| Some(Hover { text, range: spot.scalar.range_to_file(range) });
    let path = expression.paths().into_iter().find(|path| path.root_range.start <= at && at <= path.end());
    if let Some(path) = path {
        // The part of the path up to the cursor.
        let steps = path.steps.iter().take_while(|step| step.range.start <= at).count();
        let end = steps
            .checked_sub(1)
            .and_then(|last| path.steps.get(last))
            .map_or(path.root_range.end, |step| step.range.end);
        let range = path.root_range.start..end;
        return hover(path_text(flow, spot, &path, steps), &range);
    }
    let kind = match expression.name_use(index) {
        NameUse::Filter => flowcell_contract::functions::FunctionKind::Filter,
        NameUse::Test => flowcell_contract::functions::FunctionKind::Test,
        NameUse::Call => flowcell_contract::functions::FunctionKind::Call,
        _ => return value_text(flow, &expression, &spot.part).and_then(|text| hover(text, &spot.part)),
    };
    let function = functions_named(expression.word(index)).find(|function| function.kind == kind)?;
    let mut text = format!(
        "`{}`\n\n{}\n\n`{}` gives `{}`",
        function.signature, function.summary, function.example, function.result
    );
    if let Some(value) = value_text(flow, &expression, &spot.part) {
        text += &format!("\n\n{value}");
    }
    hover(text, &expression.tokens[index].range)
}

/// Explains the value of a path: its type, and its value if it comes from the flow's example input.
fn path_text(flow: &Flow<'_>, spot: &Spot<'_>, path: &PathAt, steps: usize) -> String {
    let known = names(flow, spot.place);
    let mut text = format!("`{}`", path.shown(steps));
    let schemas = schemas_of(&known, flow, path, steps);
    let types: Vec<_> = schemas.iter().map(|schema| schema.type_text()).filter(|text| text != "any value").collect();
    text += &format!(": {}", types.first().map_or("any value", String::as_str));
    if steps == 0
        && let Some(name) = known.iter().find(|name| name.name == path.root)
    {
        text += &format!(", {}", name.detail);
    }
    if let Some(description) = schemas.iter().find_map(|schema| schema.description()) {
        text += &format!("\n\n{description}");
    }
    let source = path.shown(steps);
    if let Some(value) = value_text(flow, &Expression::new(&source, 0..source.len()), &(0..source.len())) {
        text += &format!("\n\n{value}");
    }
    text
}

/// Returns the value of an expression that reads nothing but the flow's input, with its defaults.
fn value_text(flow: &Flow<'_>, expression: &Expression<'_>, part: &Range<usize>) -> Option<String> {
    let paths = expression.paths();
    let is_input = |path: &PathAt| path.root == "flow" && path.steps.first().is_some_and(|step| step.name == "input");
    let is_random = (0..expression.tokens.len()).any(|index| expression.name_use(index) == NameUse::Call);
    if paths.is_empty() || !paths.iter().all(is_input) || is_random {
        return None;
    }
    let defaults = to_json(flow.file, flow.head()?.member("input")?);
    let roots = Json::parse(&Serde::from_iter([("flow", Serde::from_iter([("input", defaults)]))]).to_string()).ok()?;
    let binding = Binding::expression(&expression.text[part.clone()]).ok()?;
    let value = metered(MAX_VALUE_WORK, || binding.render(&roots)).result.ok()?;
    Some(format!("With the example input: `{}`", shown(&value.to_serde())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::kit::{at_cursor, document};

    /// Returns the explanation at `§`, and the explained text.
    fn explained(text: &str) -> Option<(String, String)> {
        let (text, at) = at_cursor(text);
        hover(&document(&text), at).map(|found| (found.text, text[found.range].to_owned()))
    }

    #[test]
    fn types_fields_paths_and_functions_are_explained() {
        let has = |text: &str, marked: &str, parts: &[&str]| {
            let (found, range) = explained(text).unwrap_or_else(|| panic!("nothing: {text}"));
            assert_eq!(range, marked, "{text}");
            for part in parts {
                assert!(found.contains(part), "`{part}` is not in {found}");
            }
        };
        has("nodes: [{ id: a, type: contr§ol.if }]", "control.if", &["`condition`", "required", "Output:"]);
        has(
            "nodes: [{ id: a, type: control.foreach, input: { conc§urrency: 2 } }]",
            "concurrency",
            &["integer", "by default `8`", "Passes at a time"],
        );
        has("flow: { str§ict: true }\nnodes: []", "strict", &["boolean"]);
        let input = "flow: { name: a, input: { who: { first: Ada } } }\nnodes: [{ id: a, type: control.noop, input: { value: \"{{ EXPR }}\" } }]";
        has(
            &input.replace("EXPR", "flow.input.who.fi§rst | upper"),
            "flow.input.who.first",
            &["text", "With the example input: `\"Ada\"`"],
        );
        has(&input.replace("EXPR", "flow.input.w§ho.first"), "flow.input.who", &["object", "`{\"first\":\"Ada\"}`"]);
        has(&input.replace("EXPR", "flow.input.who.first | up§per"), "upper", &["upper case", "`\"ADA\"`"]);
        let edges = "nodes: [{ id: a, type: control.if }, { id: b, type: control.noop, when: 'a.condi§tion' }]\nedges: [a -> b]";
        has(edges, "a.condition", &["boolean"]);
        has("nodes: [{ id: a, type: control.if }]\nedges: [a§ -> b]", "a", &["control.if"]);
    }

    #[test]
    fn uses_of_fragments_and_their_arguments_are_explained() {
        let text = |with: &str| {
            format!(
                "fragments: {{ tell: {{ params: {{ who: {{ type: string, description: A person }}, n: {{ type: integer, default: 3 }} }}, \
                 nodes: [] }} }}\nnodes: [{{ id: a, {with} }}]"
            )
        };
        let (found, range) = explained(&text("use: tell, with: { w§ho: Ada }")).unwrap();
        assert_eq!((found.as_str(), range.as_str()), ("`who`: text\n\nA person", "who"));
        assert_eq!(explained(&text("use: tell, with: { n§: 4 }")).unwrap().0, "`n`: integer, by default `3`");
        // A value has the explanation of its parameter.
        assert_eq!(explained(&text("use: tell, with: { who: A§da }")).unwrap().0, "A person");
        let (found, _) = explained(&text("use: te§ll")).unwrap();
        assert!(found.contains("- `who`: text, required. A person\n- `n`: integer\n"), "{found}");
        assert_eq!(explained(&text("use: tell, with: { other§: 4 }")), None);
        assert_eq!(explained(&text("use: unkn§own, with: { other: 4 }")), None);
    }

    #[test]
    fn nothing_is_explained_where_nothing_is_known_and_random_values_are_not_computed() {
        assert_eq!(explained("# co§mment\n"), None);
        assert_eq!(explained("nodes: [{ id: a, type: un§known }]"), None);
        let text = "flow: { name: a, input: { n: 6 } }\nnodes: [{ id: a, type: control.noop, input: { value: '{{ random(flow.input.n) | ro§und }}' } }]";
        assert!(!explained(text).unwrap().0.contains("With the example input"));
        let costly = "flow: { name: a, input: { n: 99999999999 } }\nnodes: [{ id: a, type: control.noop, input: { value: \"{{ 'x' * flow.input.n | le§ngth }}\" } }]";
        assert!(!explained(costly).unwrap().0.contains("With the example input"));
        let sorted = |items: usize| {
            let list = vec!["1"; items].join(", ");
            let text = format!(
                "flow: {{ name: a, input: {{ l: [{list}] }} }}\nnodes: [{{ id: a, type: control.noop, input: {{ value: \"{{{{ flow.input.l | sort | le§ngth }}}}\" }} }}]"
            );
            explained(&text).unwrap().0
        };
        assert!(sorted(1_000).contains("With the example input: `1000`"));
        // The list alone is too much work.
        assert!(!sorted(MAX_VALUE_WORK as usize / flowcell_expr::limits::ITEM_WORK + 1).contains("With the example"));
    }
}
