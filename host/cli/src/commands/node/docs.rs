//! `flowcell node docs`: describes a node type in Markdown, or prints the README of a pack.

use std::{fmt::Write as _, fs, path::Path};

use clap::Args;
use flowcell::{Catalog, Host, NodeType, contract::Example, inspect};
use serde_json::Value;

use crate::{
    cli_error::{CliError, Exit},
    commands::nodes,
    options::PackArgs,
    output::put,
    terminal::inert,
};

/// Arguments of `flowcell node docs`.
#[derive(Args)]
pub(super) struct DocsArgs {
    /// The node type, such as `data.pick`, or with a version `acme.greet@1.2`; or a pack, whose README is printed: its
    /// file (acme.wasm), or its name (acme)
    #[arg(value_name = "TYPE|PACK")]
    subject: String,
    #[command(flatten)]
    packs: PackArgs,
}

pub(super) fn execute(args: &DocsArgs) -> Result<Exit, CliError> {
    let subject = &*args.subject;
    if Path::new(subject).extension().is_some_and(|extension| extension == "wasm") {
        put(&readme_of_file(Path::new(subject))?)?;
        return Ok(Exit::Good);
    }
    let host = args.packs.types_host()?;
    let catalog = host.catalog();
    put(&match pack_named(&catalog, subject) {
        Some(node) => readme_of_host(&host, subject, &node)?,
        None => page(&nodes::find(&catalog, subject)?),
    })?;
    Ok(Exit::Good)
}

/// Returns a node type of the pack with this name, in its highest version. Returns `None` if no pack has the name.
fn pack_named(catalog: &Catalog, name: &str) -> Option<NodeType> {
    let prefix = format!("{name}.");
    let node = catalog.names().find(|node| node.starts_with(&prefix) && !node[prefix.len()..].contains('.'))?;
    nodes::find(catalog, node).ok()
}

fn readme_of_host(host: &Host, name: &str, node: &NodeType) -> Result<String, CliError> {
    let readme = node.pack.as_ref().and_then(|pack| host.pack_readme(pack));
    readme.map(|text| inert_lines(&text)).ok_or_else(|| no_readme_error(name))
}

fn readme_of_file(file: &Path) -> Result<String, CliError> {
    let shown = file.display();
    let bytes = fs::read(file).map_err(|error| CliError::wrong(format!("cannot read {shown}")).because(&error))?;
    let inspection =
        inspect(&bytes).map_err(|error| CliError::wrong(format!("{shown} is not a pack")).because(&error))?;
    inspection.readme.map(|text| inert_lines(&text)).ok_or_else(|| no_readme_error(&shown.to_string()))
}

fn no_readme_error(pack: &str) -> CliError {
    CliError::wrong(format!("the pack {pack} has no README"))
        .hint("`flowcell node build` embeds README.md of its project; `flowcell node docs TYPE` describes a type")
}

/// Returns a README whose terminal commands are escaped. Line breaks and tabs stay.
fn inert_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", inert(line))).collect()
}

fn page(node: &NodeType) -> String {
    let mut text = format!("# {}\n\n{}\n", code(&node.full_name()), plain(&node.title));
    if let Some(reason) = &node.about.deprecated {
        text.extend(["\n**Deprecated**: ", &plain(reason), "\n"]);
    }
    if !node.description.trim().is_empty() {
        text.extend(["\n", &plain(node.description.trim()), "\n"]);
    }
    add_links(&mut text, node);
    for (title, schema) in [("Input", &node.input), ("Config", &node.config), ("Output", &node.output)] {
        add_schema(&mut text, title, schema);
    }
    let requests = node.capabilities.iter().map(|request| {
        let kind = if request.optional { " (optional)" } else { "" };
        [format!("{}{kind}", code(&request.name)), plain(&request.reason)]
    });
    add_table(&mut text, "Capabilities", ["capability", "reason"], requests);
    let credentials = node.credentials.iter().map(|request| {
        let kind = if request.optional { " (optional)" } else { "" };
        [format!("{}{kind}", code(&request.summary())), plain(request.reason.as_deref().unwrap_or_default())]
    });
    add_table(&mut text, "Credentials", ["credential", "reason"], credentials);
    let limits = Some(node.limits.summary()).filter(|limits| !limits.is_empty());
    add_table(&mut text, "Limits", ["limits of an attempt"], limits.into_iter().map(|limits| [limits]));
    let errors = node.errors.iter().map(|error| [code(&error.code), plain(&error.description)]);
    add_table(&mut text, "Failures", ["code", "cause"], errors);
    node.examples.iter().for_each(|example| add_example(&mut text, example));
    text
}

/// Adds the addresses of a manifest. They begin with `https://` and have no characters that Markdown reads as more.
fn add_links(text: &mut String, node: &NodeType) {
    let about = &node.about;
    let links = [("documentation", &about.docs), ("homepage", &about.homepage), ("source", &about.repository)];
    let links = links.into_iter().filter_map(|(name, address)| Some((name, address.as_deref()?)));
    let links: Vec<_> = links.map(|(name, address)| format!("{name}: {}", code(address))).collect();
    if !links.is_empty() {
        text.extend(["\n", &*links.join(", "), "\n"]);
    }
}

/// Adds a table of the properties of a schema, or the whole schema if it has none.
fn add_schema(text: &mut String, title: &str, schema: &Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        let is_open = schema.as_object().is_none_or(|members| members.keys().all(|key| key == "type"));
        let is_empty = schema.get("additionalProperties") == Some(&Value::Bool(false));
        if !is_open && !is_empty {
            add_json(text, &format!("\n## {title}\n"), schema);
        }
        return;
    };
    let required = schema.get("required").and_then(Value::as_array);
    let is_needed = |name: &str| required.is_some_and(|required| required.iter().any(|key| key == name));
    let rows = properties.iter().map(|(name, property)| {
        let mark = if is_needed(name) { " (required)" } else { "" };
        let about = property.get("description").and_then(Value::as_str).unwrap_or_default();
        [format!("{}{mark}", code(name)), code(nodes::kind(property).trim_start_matches([':', ' '])), plain(about)]
    });
    add_table(text, title, ["member", "type", "meaning"], rows);
}

/// Adds a table with a title. Adds nothing if there are no rows.
fn add_table<const N: usize>(
    text: &mut String,
    title: &str,
    heads: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    let rows: Vec<_> =
        rows.map(|row| format!("| {} |\n", row.map(|cell| cell.replace('|', "\\|")).join(" | "))).collect();
    if rows.is_empty() {
        return;
    }
    // Writing to a string does not fail.
    let _ = writeln!(text, "\n## {title}\n\n| {} |\n|{}", heads.join(" | "), "---|".repeat(N));
    text.push_str(&rows.concat());
}

fn add_example(text: &mut String, example: &Example) {
    let _ = writeln!(text, "\n## Example: {}", plain(&example.title));
    add_json(text, "\nInput:\n", &example.input);
    match (&example.output, &example.failure, &example.pause) {
        (Some(output), ..) => add_json(text, "\nOutput:\n", output),
        (_, Some(failure), _) => text.extend(["\nIt fails with ", &code(failure), ".\n"]),
        (.., Some(wakes)) => text.extend(["\nIt waits for ", &code(&wakes.join(", ")), ".\n"]),
        _ => {}
    }
}

fn add_json(text: &mut String, title: &str, value: &Value) {
    // Four spaces make a block that no text inside can end.
    let json = format!("{value:#}");
    let lines: Vec<_> = json.lines().map(|line| format!("    {}\n", inert(line))).collect();
    text.extend([title, "\n", &*lines.concat()]);
}

/// Returns a text as code. Empty for an empty text.
fn code(text: &str) -> String {
    let text = inert(text).replace('`', "'").replace('\n', " ");
    if text.is_empty() { text } else { format!("`{text}`") }
}

/// Returns a text without meaning in Markdown: no HTML, links or other marks.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for letter in inert(text).replace('\n', " ").chars() {
        if matches!(letter, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '!' | '&') {
            plain.push('\\');
        }
        plain.push(letter);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_readme_has_nothing_that_a_terminal_obeys() {
        assert_eq!(inert_lines("# A\r\n\n\tb\u{1b}[2J\u{202e}c"), "# A\n\n\tb\\u{1b}[2J\\u{202e}c\n");
    }

    #[test]
    fn texts_of_a_manifest_have_no_meaning_in_markdown() {
        assert_eq!(plain("a <b> [c](d)\n# e"), r"a \<b\> \[c\](d)     \# e");
        assert_eq!(code("a`b\u{1b}"), r"`a'b\u{1b}`");
        let mut text = String::new();
        add_table(&mut text, "T", ["a"], [[code("x|y")]].into_iter());
        assert!(text.contains(r"| `x\|y` |"), "{text}");
    }
}
