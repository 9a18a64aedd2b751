//! `flowcell graph`: draws a flow.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use flowcell::draw;

use crate::{
    cli_error::{CliError, Exit},
    options::{BesideArgs, PackArgs},
    output::put,
};

/// Arguments of `flowcell graph`.
#[derive(Args)]
pub(crate) struct GraphArgs {
    /// The file of the flow
    #[arg(value_hint = ValueHint::FilePath)]
    flow: PathBuf,
    /// The format of the drawing
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// For Markdown
    Mermaid,
    /// For Graphviz
    Dot,
    /// An image
    Svg,
    /// The places of nodes and edges, for programs that draw
    Json,
    /// For a terminal
    Text,
}

pub(super) fn execute(args: &GraphArgs) -> Result<Exit, CliError> {
    let flow = args.packs.checking_host(&args.beside)?.load_flow(&args.flow)?;
    let format = match args.format {
        Format::Mermaid => draw::Format::Mermaid,
        Format::Dot => draw::Format::Dot,
        Format::Svg => draw::Format::Svg,
        Format::Json => draw::Format::Json,
        Format::Text => draw::Format::Text,
    };
    let drawing = draw::draw(flow.graph(), format);
    put(&format!("{}\n", drawing.trim_end()))?;
    Ok(Exit::Good)
}
