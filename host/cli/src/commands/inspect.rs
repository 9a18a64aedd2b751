//! `flowcell inspect`: prints the description, inputs and outputs that a script declares.

use std::{fmt::Write as _, path::PathBuf};

use clap::{Args, ValueHint};
use flowcell::{
    outline::{Outline, Port},
    script::script_label,
};
use serde_json::json;

use crate::{
    cli_error::{CliError, Exit},
    options::{BesideArgs, PackArgs},
    output::{put, put_json},
    terminal::inert,
};

/// Arguments of `flowcell inspect`.
#[derive(Args)]
pub(crate) struct InspectArgs {
    /// The file of the script, NAME.flow.js
    #[arg(value_hint = ValueHint::FilePath)]
    flow: PathBuf,
    /// Print the declarations as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

pub(super) fn execute(args: &InspectArgs) -> Result<Exit, CliError> {
    let flow = args.packs.checking_host(&args.beside)?.load_flow(&args.flow)?;
    let outline = script_label(flow.graph()).ok_or_else(|| {
        CliError::wrong(format!("{} is not a script", args.flow.display()))
            .hint("`flowcell graph FLOW` draws flows of all dialects")
    })?;
    if args.json {
        let mut object = json!(outline);
        object["name"] = json!(flow.name());
        put_json(&object)?;
    } else {
        put(&describe(flow.name(), &outline))?;
    }
    Ok(Exit::Good)
}

fn describe(name: &str, outline: &Outline) -> String {
    let mut text = inert(name).into_owned();
    if let Some(title) = &outline.title {
        text += &format!("  {}", inert(title));
    }
    text.push('\n');
    if let Some(description) = &outline.description {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{}", inert(description));
    }
    write_ports(&mut text, "inputs", &outline.inputs);
    write_ports(&mut text, "outputs", &outline.outputs);
    text
}

fn write_ports(text: &mut String, title: &str, ports: &[Port]) {
    if ports.is_empty() {
        return;
    }
    let width = ports.iter().map(|port| port.id.len()).max().unwrap_or(0);
    let _ = writeln!(text, "\n{title}");
    for Port { id, kind, label, optional } in ports {
        let optional = if *optional { " (optional)" } else { "" };
        let label = label.as_deref().map(inert).unwrap_or_default();
        let line = format!("  {:width$}  {}{optional}  {label}", inert(id), kind.name());
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
