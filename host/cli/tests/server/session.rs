//! Runs the session with curl from the page `serve` of the manual.

use std::{path::Path, process::Command};

use regex_lite::Regex;

use crate::{
    kit::{has_program, root},
    server::process::{serve, stop},
};

/// Returns the session that the page prints: commands and their outputs.
fn printed_session() -> String {
    let page = std::fs::read_to_string(root().join("host/server/manual/serve.md")).unwrap();
    let (_, section) = page.split_once("\n## A session\n").unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split_once("```\n").unwrap().0.to_owned()
}

/// Splits the session into commands and their outputs. A command begins with `$ ` and includes its here-document.
fn steps(block: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => {
                inside = command.contains("<<'");
                steps.push((format!("{command}\n"), String::new()));
            }
            None => {
                let (command, output) = steps.last_mut().unwrap();
                let to = if inside { command } else { output };
                to.push_str(&format!("{line}\n"));
                inside &= line != "FLOW";
            }
        }
    }
    steps
}

fn redact(text: &str) -> String {
    let times = Regex::new(r#""(created|updated|ts)":\d+"#).unwrap();
    let digests = Regex::new(r#""digest":"[^"]*""#).unwrap();
    digests.replace_all(&times.replace_all(text, "\"$1\":0"), "\"digest\":\"…\"").trim_end().to_owned()
}

fn run(folder: &Path, command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_session_in_the_manual_works_as_printed() {
    if !has_program("curl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = serve(folder.path(), &[]);
    let steps = steps(&printed_session());
    assert!(steps.len() > 5, "the session is gone");
    for (command, expected) in steps {
        let came = run(folder.path(), &command.replace("localhost:7171", &address.to_string()));
        assert_eq!(redact(&came), redact(&expected), "{command}");
    }
    assert_eq!(stop(child), Some(0));
}
