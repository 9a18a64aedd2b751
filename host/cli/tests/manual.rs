//! Tests the manual: its commands run as printed, its flows are valid, and `flowcell help` prints its pages.

#![cfg(unix)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// Pages whose commands run in an empty folder. The commands of other pages run in a folder that has the folder `flows`
/// of the repository.
const FROM_NOTHING: [&str; 1] = ["tutorial"];
/// Prefix of build commands, which the test skips.
const BUILD: &str = "cargo ";
/// The page with a session against a server. `server/session.rs` runs it.
const SESSION: &str = "serve";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the topic and the text of every page.
fn pages() -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join("host/server/manual")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = entries
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .collect();
    pages.sort();
    pages
}

/// Returns the code blocks in a language, without the indentation of a list.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(indent) = line.strip_suffix(&format!("```{language}")) else { continue };
        let inside = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```"));
        blocks.push(inside.map(|line| format!("{}\n", line.strip_prefix(indent).unwrap_or(line))).collect());
    }
    blocks
}

fn flowcell(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowcell")).args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn commands_run_as_printed() {
    let program = Path::new(env!("CARGO_BIN_EXE_flowcell")).parent().unwrap();
    let path = format!("{}:{}", program.display(), env::var("PATH").unwrap());
    let mut count = 0;
    for (topic, text) in pages() {
        let folder = tempfile::tempdir().unwrap();
        if !FROM_NOTHING.contains(&&*topic) {
            std::os::unix::fs::symlink(root().join("flows"), folder.path().join("flows")).unwrap();
        }
        for block in blocks(&text, "sh") {
            if topic == SESSION || block.starts_with(BUILD) {
                continue;
            }
            count += 1;
            let mut shell = Command::new("sh");
            shell.args(["-e", "-c", &block]).current_dir(folder.path()).env("PATH", &path);
            let output = shell.stdin(Stdio::null()).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{topic}.md: {block}\n{stderr}");
        }
    }
    assert!(count >= 10, "only {count} blocks were run");
}

#[test]
fn flows_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    // The credential that the page about credentials grants.
    let mut set = Command::new(env!("CARGO_BIN_EXE_flowcell"));
    set.args(["credential", "set", "shop", "--kind", "bearer", "--for", "https://api.example.com"]);
    let set = set.args(["--from-env", "TOKEN"]).env("TOKEN", "a-token-of-the-shop").current_dir(folder.path());
    assert!(set.output().unwrap().status.success());
    let mut flows = Vec::new();
    for (topic, text) in pages() {
        let has = |block: &str, key: &str| block.lines().any(|line| line.starts_with(key));
        for block in blocks(&text, "yaml") {
            if !has(&block, "nodes:") || has(&block, "version:") {
                continue;
            }
            let flow = if has(&block, "flow:") { block } else { format!("flow: {{ name: part }}\n{block}") };
            let file = format!("{topic}-{}.yaml", flows.len());
            fs::write(folder.path().join(&file), &flow).unwrap();
            flows.push((file, flow));
        }
    }
    assert!(flows.len() >= 8, "only {} flows were checked", flows.len());
    let files: Vec<_> = flows.iter().map(|(file, _)| &**file).collect();
    let output = flowcell(folder.path(), &[&["validate", "--json"], &*files].concat());
    let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found.len(), flows.len());
    for ((file, flow), found) in flows.iter().zip(&found) {
        assert_eq!(found["valid"], true, "{file}: {flow}\n{}", found["diagnostics"]);
    }
}

#[test]
fn picture_of_the_readme_is_what_the_program_draws() {
    let output = flowcell(&root(), &["graph", "flows/graph/triage.yaml", "--format", "svg"]);
    let picture = fs::read_to_string(root().join("flows/graph/triage.svg")).unwrap();
    let drawn = String::from_utf8(output.stdout).unwrap();
    assert!(drawn == picture, "draw it again: flowcell graph flows/graph/triage.yaml --format svg");
}

#[test]
fn help_prints_pages_and_lists_topics() {
    let folder = tempfile::tempdir().unwrap();
    let text = |arguments: &[&str]| String::from_utf8(flowcell(folder.path(), arguments).stdout).unwrap();
    let topics = text(&["help", "topics"]);
    for (topic, page) in pages() {
        assert!(topics.contains(&format!("  {topic} ")), "`help topics` does not list {topic}");
        let title = page.lines().next().unwrap();
        assert!(text(&["help", &topic]).contains(title), "`help {topic}` does not print its page");
    }
    let run = text(&["help", "run"]);
    let (help, page) = (run.find("Usage: flowcell run").unwrap(), run.find("# Run a flow").unwrap());
    assert!(help < page, "the help of the command comes first");
    let found = text(&["help", "binding_error"]);
    assert!(found.contains("neither a command nor a topic") && found.contains("\nerrors: "), "{found}");
    let unknown = flowcell(folder.path(), &["help", "no-such-text"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("flowcell help topics"));
}
