//! `flowcell init`: creates a folder with an example flow.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, ValueHint};
use flowcell::similar;
use include_dir::{Dir, include_dir};

use super::schema;
use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    output::put_line,
    terminal::Terminal,
};

/// The examples of this repository, with their tests and data.
static FLOWS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/carried/flows");
const SCHEMA: &str = "flow.schema.json";
const DEFAULT_EXAMPLE: &str = "hello";
/// The file with notes for coding agents. An existing one stays as it is.
const AGENTS: &str = "AGENTS.md";

/// An example flow that is compiled into the program.
struct Example {
    name: &'static str,
    about: &'static str,
    /// The folder of its files, below the folder of all examples.
    folder: &'static str,
    /// Its files. The first is the flow.
    files: &'static [&'static str],
    /// The options of `flowcell run` that it needs.
    options: &'static str,
}

impl Example {
    const fn new(
        name: &'static str,
        folder: &'static str,
        files: &'static [&'static str],
        options: &'static str,
        about: &'static str,
    ) -> Example {
        Example { name, about, folder, files, options }
    }
}

/// All examples, the simplest first.
const EXAMPLES: &[Example] = &[
    Example::new("hello", "graph", &["hello.yaml", "hello.test.yaml"], "", "makes a text from a value"),
    Example::new("triage", "graph", &["triage.yaml", "triage.test.yaml"], "", "takes one of three paths"),
    Example::new("short", "graph", &["short.yaml", "short.test.yaml"], "", "writes its edges in short forms"),
    Example::new("vars", "graph", &["vars.yaml"], "", "computes named values once"),
    Example::new("fragments", "graph", &["fragments.yaml"], "", "uses a part with parameters twice"),
    Example::new("parallel", "graph", &["parallel.yaml"], "", "runs three nodes at the same time and joins them"),
    Example::new("orders", "graph", &["orders.yaml"], "", "sorts, groups and merges the orders of two shops"),
    Example::new("race", "graph", &["race.yaml"], "", "takes the first answer and cancels the slow branch"),
    Example::new("query", "graph", &["query.yaml"], "", "finds and counts with queries in jq"),
    Example::new(
        "invoice",
        "graph",
        &["invoice.yaml", "invoice.test.yaml"],
        "-i key=secret",
        "writes amounts, numbers, digests and links",
    ),
    Example::new("foreach", "graph", &["foreach.yaml"], "", "runs nodes for each item of a list"),
    Example::new(
        "batches",
        "graph",
        &["batches.yaml", "batches.test.yaml"],
        "",
        "imports a list in batches, of which some may fail",
    ),
    Example::new("loop", "graph", &["loop.yaml"], "", "repeats nodes until a condition holds"),
    Example::new("review", "graph", &["review.yaml", "review.test.yaml"], "", "repeats a draft until it is approved"),
    Example::new("pages", "graph", &["pages.yaml"], "", "reads pages until one is not full"),
    Example::new(
        "scope",
        "graph",
        &["scope.yaml", "scope.test.yaml"],
        "",
        "runs nodes as one, and catches their failures",
    ),
    Example::new("undo", "graph", &["undo.yaml"], "", "undoes its steps when a later one fails"),
    Example::new("retry", "graph", &["retry.yaml"], "", "tries again, and falls back if that fails too"),
    Example::new("request", "graph", &["request.yaml", "request.test.yaml"], "--simulate http", "calls a server"),
    Example::new("defaults", "graph", &["defaults.yaml"], "--simulate http", "grants and retries for all of its nodes"),
    Example::new("state", "graph", &["state.yaml"], "", "keeps a counter from run to run"),
    Example::new("raffle", "graph", &["raffle.yaml", "raffle.test.yaml"], "", "draws winners with random values"),
    Example::new("facts", "graph", &["facts.yaml", "facts.test.yaml"], "", "tells the run and the time"),
    Example::new("gate", "graph", &["gate.yaml"], "", "asks a person before it publishes"),
    Example::new(
        "reminder",
        "graph",
        &["reminder.yaml", "reminder.test.yaml"],
        "",
        "waits for an event, at most a day",
    ),
    Example::new("subflow", "graph", &["subflow.yaml", "hello.yaml"], "", "runs another flow as a node"),
    Example::new("triggered", "graph", &["triggered.yaml"], "", "starts by a schedule, a post and another run"),
    Example::new(
        "respond",
        "graph",
        &["respond.yaml", "respond.test.yaml"],
        "",
        "answers the post that has started it",
    ),
    Example::new(
        "files",
        "graph",
        &["files.yaml", "data/notes.json", "data/notes/today.txt", "data/notes/tomorrow.txt"],
        "--files data",
        "reads and writes files of a folder",
    ),
    Example::new("grades", "script", &["grades.yaml", "lib/passed.js"], "", "computes in JavaScript nodes"),
    Example::new("links", "script", &["links.yaml"], "", "writes links and digests in JavaScript"),
    Example::new(
        "captions",
        "script",
        &["captions.flow.js"],
        "--simulate img,agent -i topic=rain",
        "is a flow in JavaScript, with agents and pictures",
    ),
    Example::new(
        "statistics",
        "script",
        &["statistics.flow.js"],
        r#"-i 'orders=[{"city":"Oslo","total":7.5}]'"#,
        "sums orders up in JavaScript",
    ),
    Example::new("research", "agents", &["research.yaml"], "--simulate model", "gives an agent tools"),
    Example::new(
        "assistant",
        "agents",
        &["assistant.yaml", "providers.yaml"],
        "--providers providers.yaml",
        "lets people write to an agent and approve its calls",
    ),
    Example::new(
        "resolve-issue",
        "agentic",
        &["resolve-issue.yaml"],
        "--simulate model -i prompt='Be brief'",
        "lets agents sort and fix an issue",
    ),
    Example::new(
        "review-change",
        "agentic",
        &["review-change.yaml"],
        "--simulate model -i prompt='Be brief'",
        "reviews a change three times at once",
    ),
    Example::new(
        "release-notes",
        "agentic",
        &["release-notes.yaml"],
        "--simulate model -i prompt='Be brief' -i version=1.2.1",
        "postpones a step to the next run",
    ),
    Example::new(
        "watch-issue",
        "agentic",
        &["watch-issue.yaml"],
        "--simulate model -i prompt='Be brief' -i issue=ABC-1",
        "weighs findings with joined rules and limits its steps",
    ),
    Example::new(
        "improve-text",
        "agentic",
        &["improve-text.yaml"],
        "--simulate model -i prompt='Rain'",
        "lets a writer and a critic take turns",
    ),
];

/// Arguments of `flowcell init`.
#[derive(Args)]
pub(crate) struct InitArgs {
    /// The folder; it is created if it does not exist
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// The example to start from; `--examples` lists them
    #[arg(long, value_name = "NAME", default_value = DEFAULT_EXAMPLE)]
    example: String,
    /// List the examples, and create nothing
    #[arg(long, conflicts_with_all = ["dir", "example"])]
    examples: bool,
}

pub(super) fn execute(args: &InitArgs, terminal: Terminal) -> Result<Exit, CliError> {
    if args.examples {
        EXAMPLES.iter().try_for_each(|example| put_line(&format!("{:<15}{}", example.name, example.about)))?;
        return Ok(Exit::Good);
    }
    let example = find(&args.example)?;
    let mut contents = contents(example);
    if args.dir.join(AGENTS).exists() {
        terminal.say(&format!("{AGENTS} exists, and stays as it is"));
        contents.retain(|(path, _)| path != AGENTS);
    }
    let taken: Vec<_> =
        contents.iter().map(|(path, _)| path.as_str()).filter(|path| args.dir.join(path).exists()).collect();
    if !taken.is_empty() {
        let problem = format!("{} already has {}", args.dir.display(), taken.join(", "));
        return Err(CliError::wrong(problem).hint("choose another folder: `flowcell init DIR`"));
    }
    let written = contents.iter().try_for_each(|(path, text)| write(&args.dir.join(path), text));
    let failed =
        |error: io::Error| CliError::wrong(format!("cannot write into {}", args.dir.display())).because(&error);
    written.map_err(failed)?;
    contents.iter().try_for_each(|(path, _)| put_line(&args.dir.join(path).display().to_string()))?;
    terminal.say(&terminal.paint().faint(&next_steps(example, &args.dir)));
    Ok(Exit::Good)
}

/// Returns the text that `flowcell` without arguments prints in a folder without flows, or `None` in other folders.
pub(super) fn first_steps() -> Option<String> {
    let is_flow =
        |name: &str| name == "flows" || [".yaml", ".yml", ".json", ".js"].iter().any(|end| name.ends_with(end));
    let mut names = fs::read_dir(env::current_dir().ok()?).ok()?.flatten().map(|entry| entry.file_name());
    if names.any(|name| is_flow(&name.to_string_lossy())) {
        return None;
    }
    let step = |command: &str, about: &str| format!("  {command:<26}{about}\n");
    Some(format!(
        "This folder has no flows. Next steps:\n\n{}{}{}\n`flowcell --help` lists all commands.",
        step("flowcell init", "create a flow with a test and a README"),
        step("flowcell run hello.yaml", "run it"),
        step("flowcell help tutorial", "read how to write one"),
    ))
}

fn find(name: &str) -> Result<&'static Example, CliError> {
    let known = || EXAMPLES.iter().map(|example| example.name);
    EXAMPLES.iter().find(|example| example.name == name).ok_or_else(|| {
        let hint = match similar(name, known()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`flowcell init --examples` lists them".to_owned(),
        };
        CliError::wrong(format!("the program has no example `{name}`")).hint(hint)
    })
}

/// Returns the files of an example, each with its path in the new folder.
fn contents(example: &Example) -> Vec<(String, String)> {
    let read = |path: &str| {
        let file = FLOWS.get_file(format!("{}/{path}", example.folder));
        file.and_then(|file| file.contents_utf8()).unwrap_or_default().to_owned()
    };
    // Comments and references in the files contain the paths of the repository. In the new folder, all files are
    // together.
    let moved = |text: String| {
        ["flows/graph/", "flows/agents/", "flows/script/", "../graph/"]
            .iter()
            .fold(text, |text, from| text.replace(from, ""))
    };
    let mut files: Vec<_> =
        example.files.iter().map(|path| ((*path).to_owned(), with_types(path, moved(read(path))))).collect();
    if example.files.iter().any(|path| is_script(path)) {
        files.push((schema::FILE.to_owned(), schema::declarations()));
    }
    if files.iter().any(|(_, text)| text.contains(SCHEMA)) {
        let schema = match example.folder {
            "agentic" => flowcell::agentic_schema(),
            _ => flowcell::schema(),
        };
        files.push((SCHEMA.to_owned(), format!("{schema:#}\n")));
    }
    files.push(("README.md".to_owned(), readme(example)));
    files.push((AGENTS.to_owned(), agents(example)));
    files
}

/// Returns true if a file is a script, or a script of a node.
fn is_script(path: &str) -> bool {
    path.ends_with(".js")
}

/// Returns a script with the line that lets editors know its types, and other files as they are.
fn with_types(path: &str, text: String) -> String {
    if !is_script(path) {
        return text;
    }
    let up = "../".repeat(path.matches('/').count());
    format!("/// <reference path=\"{}{}\" />\n{text}", if up.is_empty() { "./" } else { &up }, schema::FILE)
}

/// Returns the commands for an example, each with its purpose.
fn commands(example: &Example) -> Vec<(String, String)> {
    let flow = shell_word(example.files[0]);
    let options = if example.options.is_empty() { String::new() } else { format!(" {}", example.options) };
    let mut commands = vec![
        (format!("flowcell validate {flow}"), "checks the flow".to_owned()),
        (format!("flowcell run {flow}{options}"), "runs it".to_owned()),
    ];
    if let Some(test) = example.files.iter().find(|path| path.ends_with(".test.yaml")) {
        commands.push((format!("flowcell test {flow}"), format!("runs the cases of `{test}`, in virtual time")));
    }
    commands
}

fn command_list(example: &Example) -> String {
    commands(example).into_iter().map(|(command, purpose)| format!("- `{command}` {purpose}.\n")).collect()
}

fn readme(example: &Example) -> String {
    format!(
        "# {}\n\nThis flow {}.\n\n{}\n`flowcell help tutorial` explains how to write flows, and `flowcell nodes` lists the node types.\n",
        example.name,
        example.about,
        command_list(example)
    )
}

fn agents(example: &Example) -> String {
    include_str!("init/agents.md").replace("COMMANDS", &command_list(example))
}

fn next_steps(example: &Example, folder: &Path) -> String {
    let mut steps: Vec<_> = commands(example).into_iter().map(|(command, _)| command).collect();
    if folder != Path::new(".") {
        steps.insert(0, format!("cd {}", shell_word(&folder.display().to_string())));
    }
    format!("next: {}", steps.join("; "))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn every_flow_of_the_repository_is_an_example() {
        let mut known: Vec<_> =
            EXAMPLES.iter().map(|example| format!("{}/{}", example.folder, example.files[0])).collect();
        known.sort();
        // These flows need packs of their own or files of the user, so they are no examples to start from.
        let left_out = ["script/logo.flow.js"];
        let mut flows = Vec::new();
        for folder in ["agentic", "agents", "graph", "script"] {
            for file in FLOWS.get_dir(folder).unwrap().files() {
                let path = file.path().to_str().unwrap().to_owned();
                let is_flow = path.ends_with(".flow.js") || path.ends_with(".yaml");
                if is_flow && !path.ends_with(".test.yaml") && !path.ends_with("providers.yaml") {
                    flows.push(path);
                }
            }
        }
        flows.retain(|path| !left_out.contains(&path.as_str()));
        flows.sort();
        assert_eq!(known, flows);
    }

    #[test]
    fn the_printed_commands_are_words_of_a_shell() {
        for (folder, step) in
            [(".", "next: flowcell validate "), ("my flows; x", "next: cd 'my flows; x'; "), ("a/b", "next: cd a/b; ")]
        {
            let printed = next_steps(&EXAMPLES[0], Path::new(folder));
            assert!(printed.starts_with(step), "{printed}");
        }
    }

    #[test]
    fn every_file_of_an_example_is_compiled_in() {
        for example in EXAMPLES {
            for (path, text) in contents(example) {
                assert!(!text.is_empty(), "{}: {path}", example.name);
                assert!(!text.contains("flows/"), "{}: {path} names a folder of the repository", example.name);
            }
        }
    }
}
