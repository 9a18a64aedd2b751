//! `flowcell nodes`: prints the catalog of node types.

use std::fmt::Write as _;

use clap::Args;
use flowcell::{
    Catalog, NodeType,
    contract::{About, Lookup, TypeRef},
    shape, similar,
};
use serde_json::Value;

use crate::{
    cli_error::{CliError, Exit},
    options::PackArgs,
    output::{put, put_json},
    terminal::inert,
};

/// Arguments of `flowcell nodes`.
#[derive(Args)]
pub(crate) struct NodesArgs {
    /// The node type to describe, such as `control.if`, or with a version `acme.greet@1.2`
    #[arg(value_name = "TYPE")]
    node_type: Option<String>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    packs: PackArgs,
}

pub(super) fn execute(args: &NodesArgs) -> Result<Exit, CliError> {
    let host = args.packs.types_host()?;
    let found = match &args.node_type {
        Some(wanted) => vec![find(&host.catalog(), wanted)?],
        None => host.catalog().types().map(|node| &**node).cloned().collect(),
    };
    if args.json {
        put_json(&found.iter().map(shape::node_type).collect::<Vec<_>>())?;
    } else if args.node_type.is_some() {
        put(&found.iter().map(describe).collect::<String>())?;
    } else {
        put(&list(&found))?;
    }
    Ok(Exit::Good)
}

pub(super) fn find(catalog: &Catalog, wanted: &str) -> Result<NodeType, CliError> {
    match catalog.lookup(&TypeRef::parse(wanted)) {
        Lookup::Found(node) => Ok(NodeType::clone(&node)),
        Lookup::OtherVersions(versions) => {
            let versions: Vec<_> = versions.iter().map(ToString::to_string).collect();
            Err(CliError::wrong(format!("unknown version `{wanted}`"))
                .hint(format!("there is {}", versions.join(", "))))
        }
        Lookup::Unknown => {
            let problem = CliError::wrong(format!("unknown node type `{wanted}`"));
            Err(match similar_types(catalog, wanted).as_slice() {
                [name] => problem.hint(format!("did you mean `{name}`?")),
                names @ [_, ..] => problem.hint(format!("there are {}", names.join(", "))),
                [] => problem.hint("`flowcell nodes` lists all types; `--packs DIR` adds more"),
            })
        }
    }
}

/// Returns the node types that the user may have meant: those of a pack with the name `wanted`, and those whose name
/// ends with `.` and `wanted`. If there are none, returns the type with the most similar name.
fn similar_types<'a>(catalog: &'a Catalog, wanted: &str) -> Vec<&'a str> {
    let part = |name: &&str| {
        let beside = name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'));
        beside || name.strip_suffix(wanted).is_some_and(|rest| rest.ends_with('.'))
    };
    let parts: Vec<_> = catalog.names().filter(part).collect();
    if parts.is_empty() { similar(wanted, catalog.names()).into_iter().collect() } else { parts }
}

fn list(nodes: &[NodeType]) -> String {
    let width = nodes.iter().map(|node| node.full_name().len()).max().unwrap_or(0);
    nodes.iter().fold(String::new(), |mut text, node| {
        let mark = if node.about.deprecated.is_some() { " (deprecated)" } else { "" };
        let _ = writeln!(text, "{:width$}  {}{mark}", inert(&node.full_name()), inert(&node.title));
        text
    })
}

fn describe(node: &NodeType) -> String {
    let mut text = format!("{}  {}\n", inert(&node.full_name()), inert(&node.title));
    text.push_str(&about(&node.about));
    // Writing to a string does not fail.
    let _ = writeln!(text, "\n{}", inert(node.description.trim()));
    write_fields(&mut text, "input", &node.input);
    write_fields(&mut text, "config", &node.config);
    write_fields(&mut text, "output", &node.output);
    if let Some(body) = &node.body {
        let names = body.variables.iter().map(|name| &**name).chain(node.has_last().then_some("last"));
        let names: Vec<_> = names.map(|name| format!("<id>.{name}")).collect();
        let _ = writeln!(text, "\nbody: its nodes may name {}", names.join(", "));
    }
    if !node.capabilities.is_empty() {
        text.push_str("\ncapabilities\n");
    }
    for request in &node.capabilities {
        let optional = if request.optional { " (optional)" } else { "" };
        let _ = writeln!(text, "  {}{optional}  {}", inert(&request.name), inert(&request.reason));
    }
    if !node.credentials.is_empty() {
        text.push_str("\ncredentials\n");
    }
    for request in &node.credentials {
        let optional = if request.optional { " (optional)" } else { "" };
        let reason = inert(request.reason.as_deref().unwrap_or_default());
        let _ = writeln!(text, "  {}{optional}  {reason}", inert(&request.summary()));
    }
    if !node.limits.is_empty() {
        let _ = writeln!(text, "\nlimits\n  {}", node.limits.summary());
    }
    if !node.errors.is_empty() {
        text.push_str("\nfailures\n");
    }
    for error in &node.errors {
        let _ = writeln!(text, "  {}  {}", inert(&error.code), inert(&error.description));
    }
    for example in &node.examples {
        let _ = writeln!(text, "\nexample: {}\n  input   {}", inert(&example.title), example.input);
        let gives = match (&example.output, &example.failure, &example.pause) {
            (Some(output), ..) => format!("output  {output}"),
            (_, Some(code), _) => format!("fails   {code}"),
            (.., Some(wakes)) => format!("waits   {}", wakes.join(", ")),
            _ => continue,
        };
        let _ = writeln!(text, "  {}", inert(&gives));
    }
    text
}

/// Describes the members of [`About`] that are set, except the icon, one line for each. Empty without any.
pub(super) fn about(about: &About) -> String {
    let words = |words: &[String]| Some(words.join(", ")).filter(|words| !words.is_empty());
    let lines = [
        ("deprecated", about.deprecated.clone()),
        ("docs", about.docs.clone()),
        ("homepage", about.homepage.clone()),
        ("repository", about.repository.clone()),
        ("categories", words(&about.categories)),
        ("keywords", words(&about.keywords)),
    ];
    let lines = lines.into_iter().filter_map(|(name, value)| Some((name, value?)));
    lines.fold(String::new(), |mut text, (name, value)| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<11} {}", inert(&value));
        text
    })
}

/// Writes a title, and one line for every property of an object's schema. Writes nothing for a schema without
/// properties.
fn write_fields(text: &mut String, title: &str, schema: &Value) {
    let Some(properties) = schema.get("properties").and_then(|properties| properties.as_object()) else { return };
    if properties.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    let required = schema.get("required").and_then(|required| required.as_array());
    for (name, property) in properties {
        let needed = required.is_some_and(|required| required.iter().any(|key| key == name));
        let mark = if needed { " (required)" } else { "" };
        let about = property.get("description").and_then(|about| about.as_str()).unwrap_or_default();
        let line = format!("  {}{}{mark}  {}", inert(name), inert(&kind(property)), inert(about.trim()));
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Returns the type of a property and its default, such as `: integer = 8`. Empty for a property of any type.
pub(super) fn kind(property: &Value) -> String {
    let marked = property.get("x-flowcell").and_then(|mark| mark.get("as"));
    let marked = marked.filter(|mark| matches!(mark.as_str(), Some("condition" | "template")));
    let kind = match (property.get("enum"), marked.or_else(|| property.get("type"))) {
        (Some(Value::Array(values)), _) => Some(either(values)),
        (_, Some(Value::Array(types))) => Some(either(types)),
        (_, Some(Value::String(name))) => Some(name.clone()),
        _ => None,
    };
    let default = property.get("default").map(|value| format!(" = {}", plain(value)));
    kind.map(|kind| format!(": {kind}")).into_iter().chain(default).collect()
}

fn either(values: &[Value]) -> String {
    values.iter().map(plain).collect::<Vec<_>>().join("|")
}

/// Returns a text without its quotes, and other values as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
