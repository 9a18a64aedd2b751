//! `flowcell fmt`: rewrites the edges of flows in their short form, or in their long form.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, ValueHint};
use flowcell::{
    Error, Host, Source,
    rewrite::{EdgeForm, Rewritten, is_same, rewrite_edges},
};

use crate::{
    cli_error::{CliError, Exit},
    options::{BesideArgs, PackArgs},
    output::{put, replace_file, unwritable},
    terminal::counted,
};

/// Maximum number of lines that the command lists of a file.
const MAX_SHOWN_LINES: usize = 10;

/// Arguments of `flowcell fmt`.
#[derive(Args)]
pub(crate) struct FmtArgs {
    /// The files of the flows
    #[arg(required = true, value_name = "FLOW", value_hint = ValueHint::FilePath)]
    flows: Vec<PathBuf>,
    /// Write edges as texts, such as `a -> b: error`; the default
    #[arg(long, conflicts_with = "long")]
    short: bool,
    /// Write edges as maps, such as `{ from: a, to: b, on: error }`, those of `after` too
    #[arg(long)]
    long: bool,
    /// Change no file, and exit with code 2 if a file would change
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

pub(super) fn execute(args: &FmtArgs) -> Result<Exit, CliError> {
    let host = args.packs.checking_host(&args.beside)?;
    let (form, name) = if args.short || !args.long { (EdgeForm::Short, "short") } else { (EdgeForm::Long, "long") };
    let mut exit = Exit::Good;
    for path in &args.flows {
        let Rewritten { text, changed, kept } = rewrite(&host, path, form)?;
        if changed > 0 && args.check {
            exit = Exit::Wrong;
        } else if changed > 0 {
            replace_file(path, |out| out.write_all(text.as_bytes()).map_err(|error| unwritable(path, &error)))?;
        }
        let verb = if args.check { "would be rewritten" } else { "rewritten" };
        let kept: Vec<_> = kept.iter().map(|kept| if args.check { kept.line } else { kept.new_line }).collect();
        let kept = if kept.is_empty() { String::new() } else { format!("; unchanged: {}", lines(&kept)) };
        put(&format!("{}: {} {verb} in the {name} form{kept}\n", path.display(), counted(changed, "edge")))?;
    }
    Ok(exit)
}

/// Rewrites the edges of a flow. Fails if the flow has errors, or if the new text gave another graph.
fn rewrite(host: &Host, path: &Path, form: EdgeForm) -> Result<Rewritten, CliError> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let source = Source { name: path.display().to_string(), text };
    let flow = host.load_source(source.clone())?;
    let rewritten = rewrite_edges(&source, form, flow.graph());
    let after = host.load_source(Source { text: rewritten.text.clone(), ..source });
    match after {
        Ok(after) if is_same(flow.graph(), after.graph()) => Ok(rewritten),
        _ => {
            let message = format!("{}: the rewritten edges do not give the same graph", path.display());
            Err(CliError::wrong(message).hint("the file stays as it is; rewrite its edges by hand"))
        }
    }
}

/// Returns the numbers of lines for a message.
fn lines(kept: &[usize]) -> String {
    let shown: Vec<_> = kept.iter().take(MAX_SHOWN_LINES).map(ToString::to_string).collect();
    let more = if kept.len() > MAX_SHOWN_LINES { ", …" } else { "" };
    let word = if kept.len() == 1 { "line" } else { "lines" };
    format!("{word} {}{more}", shown.join(", "))
}
