//! `flowcell node inspect`: prints the node types, imports and exports of a pack.

use std::{fmt::Write as _, path::PathBuf};

use clap::{Args, ValueHint};
use flowcell::inspect;
use serde_json::json;

use crate::{
    cli_error::{CliError, Exit},
    commands::nodes,
    output::{put, put_json},
    terminal::inert,
};

/// Arguments of `flowcell node inspect`.
#[derive(Args)]
pub(super) struct InspectArgs {
    /// The file of the pack
    #[arg(value_name = "FILE.wasm", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Print the description as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn execute(args: &InspectArgs) -> Result<Exit, CliError> {
    let shown = args.file.display();
    let bytes =
        std::fs::read(&args.file).map_err(|error| CliError::wrong(format!("cannot read {shown}")).because(&error))?;
    let inspection = inspect(&bytes).map_err(|error| {
        CliError::wrong(format!("{shown} is not a pack")).because(&error).hint(
            "build packs with `flowcell node build`: components for wasm32-wasip2 that export `flowcell:node/node` \
             and embed their manifest",
        )
    })?;
    if args.json {
        put_json(&as_json(&inspection))?;
    } else {
        put(&as_text(&inspection))?;
    }
    Ok(Exit::Good)
}

fn as_json(inspection: &flowcell::Inspection) -> serde_json::Value {
    json!({
        "name": inspection.manifest.name,
        "version": inspection.manifest.version,
        "license": inspection.manifest.license,
        "description": inspection.manifest.description,
        "about": inspection.manifest.about(),
        "readme": inspection.readme,
        "digest": inspection.digest.to_string(),
        "size": inspection.size,
        "imports": inspection.imports,
        "exports": inspection.exports,
        "nodes": inspection.manifest.nodes.iter().map(flowcell::shape::node_type).collect::<Vec<_>>(),
    })
}

/// Describes a pack as text for people.
fn as_text(inspection: &flowcell::Inspection) -> String {
    let manifest = &inspection.manifest;
    let mut text = format!("{} {}\n", inert(&manifest.name), manifest.version);
    text.push_str(&details(inspection));
    for (title, names) in [("imports", &inspection.imports), ("exports", &inspection.exports)] {
        let _ = writeln!(text, "\n{title}");
        names.iter().for_each(|name| text.extend(["  ", &*inert(name), "\n"]));
    }
    text.push_str(&node_types(inspection));
    text
}

/// Describes a pack without its interfaces and node types.
pub(super) fn details(inspection: &flowcell::Inspection) -> String {
    let manifest = &inspection.manifest;
    let description = manifest.description.iter();
    let mut text: String = description.map(|description| format!("{}\n", inert(description))).collect();
    // Writing to a string does not fail.
    let _ = writeln!(text, "\nlicense     {}", inert(manifest.license.as_deref().unwrap_or("none given")));
    let _ = writeln!(text, "digest      {}", inspection.digest);
    let _ = writeln!(text, "size        {} bytes", inspection.size);
    if let Some(readme) = &inspection.readme {
        let _ = writeln!(text, "readme      {} bytes; `flowcell node docs FILE` prints it", readme.len());
    }
    text.push_str(&nodes::about(&manifest.about()));
    text
}

/// Describes the node types of a pack and what each asks for.
pub(super) fn node_types(inspection: &flowcell::Inspection) -> String {
    let manifest = &inspection.manifest;
    let mut text = "\nnode types\n".to_owned();
    for node in &manifest.nodes {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {}  {}", inert(&node.name), inert(&node.title));
        for request in &node.capabilities {
            let asks = if request.optional { "may use" } else { "asks for" };
            let _ = writeln!(text, "    {asks} `{}`: {}", inert(&request.name), inert(&request.reason));
        }
        for request in &node.credentials {
            let asks = if request.optional { "may use" } else { "asks for" };
            let reason = request.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let _ = writeln!(text, "    {asks} the credential {}{}", inert(&request.summary()), inert(&reason));
        }
        if !node.limits.is_empty() {
            let _ = writeln!(text, "    asks for {}", node.limits.summary());
        }
    }
    text
}
