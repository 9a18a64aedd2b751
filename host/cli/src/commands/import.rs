//! `flowcell import`: writes the flow, the test cases and the report for a workflow of another engine.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum, ValueHint};
use flowcell::Error;
use flowcell_import::{Finding, Format, ImportError, Imported, Verdict, is_flow_name};
use serde_json::json;

use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    output::{put, put_json, replace_file, unwritable},
    terminal::{Terminal, counted},
};

/// Arguments of `flowcell import`.
#[derive(Args)]
pub(crate) struct ImportArgs {
    /// The file of the workflow
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The format of the file; by default it is detected
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Option<SourceFormat>,
    /// The name of the flow; by default that of the file
    #[arg(long)]
    name: Option<String>,
    /// The folder for the flow and its tests
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// A format of workflows.
#[derive(Clone, Copy, ValueEnum)]
enum SourceFormat {
    /// Amazon States Language
    Asl,
    /// An export of n8n
    #[value(name = "n8n")]
    N8n,
    /// Serverless Workflow
    Serverless,
}

impl SourceFormat {
    fn format(self) -> Format {
        match self {
            SourceFormat::Asl => Format::Asl,
            SourceFormat::N8n => Format::N8n,
            SourceFormat::Serverless => Format::ServerlessWorkflow,
        }
    }
}

pub(super) fn execute(args: &ImportArgs, terminal: Terminal) -> Result<Exit, CliError> {
    if let Some(name) = args.name.as_deref().filter(|name| !is_flow_name(name)) {
        let message = format!("{name:?} is not a valid name of a flow");
        return Err(CliError::wrong(message).hint("use 1 to 64 ASCII letters, digits, `_` and `-`"));
    }
    let text = read(&args.file)?;
    let stem = args.file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("imported");
    let stem = stem.strip_suffix(".asl").unwrap_or(stem);
    let name = args.name.as_deref().unwrap_or(stem);
    let refused =
        |error: ImportError| CliError::wrong(format!("{}: {}", args.file.display(), error.message)).hint(error.help);
    let imported = flowcell_import::import(&text, name, args.from.map(SourceFormat::format)).map_err(refused)?;
    let files = [(".yaml", &imported.flow), (".test.yaml", &imported.tests)]
        .map(|(end, text)| (args.out.join(format!("{}{end}", imported.name)), text));
    if let Some((taken, _)) = files.iter().find(|(path, _)| path.exists() && !args.force) {
        let message = format!("{} exists already", taken.display());
        return Err(
            CliError::wrong(message).hint("choose another `--name` or `--out`, or add `--force` to overwrite it")
        );
    }
    fs::create_dir_all(&args.out).map_err(|error| unwritable(&args.out, &error))?;
    for (path, text) in &files {
        replace_file(path, |out| out.write_all(text.as_bytes()).map_err(|error| unwritable(path, &error)))?;
    }
    let paths = files.map(|(path, _)| path.display().to_string());
    if args.json {
        put_json(&json!({
            "format": imported.format.name(),
            "flow": paths[0],
            "tests": paths[1],
            "marks": imported.marks,
            "findings": imported.findings,
        }))?;
    } else {
        put(&report(&imported, &paths))?;
    }
    if imported.marks > 0 {
        let next = format!(
            "next: `flowcell validate {}` lists {} to look at",
            shell_word(&paths[0].to_string()),
            counted(imported.marks, "mark")
        );
        terminal.say(&terminal.paint().faint(&next));
    }
    Ok(Exit::Good)
}

/// Reads a file, but not more than the import accepts.
fn read(path: &Path) -> Result<String, CliError> {
    let unreadable = |source| CliError::from(Error::Read { path: path.to_owned(), source });
    let mut text = String::new();
    let most = flowcell_import::BYTES as u64 + 1;
    File::open(path).and_then(|file| file.take(most).read_to_string(&mut text)).map_err(unreadable)?;
    Ok(text)
}

/// Returns the report for people: a line for each construct, the refused ones first.
fn report(imported: &Imported, paths: &[String; 2]) -> String {
    let mut text = format!("imported from {}: {} and {}\n", imported.format.title(), paths[0], paths[1]);
    for verdict in [Verdict::Refused, Verdict::Approximated, Verdict::Exact] {
        let found: Vec<&Finding> = imported.findings.iter().filter(|finding| finding.verdict == verdict).collect();
        if found.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{} ({}):\n", verdict.word(), found.len()));
        for Finding { path, construct, node, note, .. } in found {
            let node = node.as_ref().map(|node| format!(" -> {node}")).unwrap_or_default();
            let note = if note.is_empty() { String::new() } else { format!(": {note}") };
            let path = if path.is_empty() { "/" } else { path.as_str() };
            text.push_str(&format!("  {path}  {construct}{node}{note}\n"));
        }
    }
    text
}
