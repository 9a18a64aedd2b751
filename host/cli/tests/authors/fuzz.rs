//! Tests `flowcell node fuzz`: it finds mistakes, makes their inputs small, and prints commands that repeat them.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::{
    authors::language::{Language, done, flowcell, project},
    guests, kit,
};

fn fuzz(folder: &Path, arguments: &[&str]) -> Output {
    flowcell(folder).args(["node", "fuzz"]).args(arguments).output().unwrap()
}

fn found(folder: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = fuzz(folder, &[arguments, &["--json"]].concat());
    let told = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", kit::stderr(&output)));
    (output.status.code(), told)
}

/// Runs a printed command in a shell. Returns its exit code and its standard error.
fn repeated(folder: &Path, command: &str) -> (Option<i32>, String) {
    let like = flowcell(folder);
    let program = Path::new(like.get_program()).parent().unwrap();
    let mut shell = Command::new("sh");
    shell.current_dir(folder).args(["-c", command]);
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let paths = std::env::var("PATH").unwrap();
    let output = shell.env("PATH", format!("{}:{paths}", program.display())).output().unwrap();
    (output.status.code(), kit::stderr(&output))
}

#[test]
fn a_mistake_is_found_made_small_and_repeated() {
    let (_folder, project) = project("shop", Language::Rust);
    let code = fs::read_to_string(project.join("src/lib.rs")).unwrap();
    // The mistake of an author who thinks that letters are bytes.
    let wrong = code.replace("Hello {}\", input.name)", "Hello {}\", &input.name[..input.name.len().min(1)])");
    assert_ne!(code, wrong);
    fs::write(project.join("src/lib.rs"), wrong).unwrap();
    done(flowcell(&project).args(["node", "build"]));
    let arguments = ["shop.greet", "--packs", "dist", "--seed", "7", "--rounds", "100"];
    let (exit, mut first) = found(&project, &arguments);
    assert_eq!(exit, Some(1), "{first}");
    let finding = &first["findings"][0];
    assert_eq!((&finding["code"], first["findings"].as_array().unwrap().len()), (&json!("trap"), 1), "{first}");
    let name = finding["input"]["name"].as_str().unwrap();
    assert!(name.chars().count() == 1 && !name.is_ascii(), "{finding}");
    assert!(first["outcomes"]["succeeded"].as_u64() > Some(20) && first["outcomes"]["nobody"].is_u64(), "{first}");
    let command = finding["command"].as_str().unwrap();
    assert!(command.is_ascii() && command.contains("\\u"), "{command}");
    let (code, told) = repeated(&project, command);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("trap"), "{told}");
    let (_, mut again) = found(&project, &arguments);
    for told in [&mut first, &mut again] {
        told.as_object_mut().unwrap().remove("seconds");
    }
    assert_eq!(first, again, "the same seed gives the same findings");
    let saved = fuzz(&project, &[&arguments[..], &["--save", "bad.json"]].concat());
    assert!(kit::stdout(&saved).contains("trap:"), "{}", kit::stdout(&saved));
    let ran = ["node", "run", "shop.greet", "--packs", "dist", "--input-file", "bad.json"];
    assert!(kit::stderr(&flowcell(&project).args(ran).output().unwrap()).contains("trap"));
}

#[test]
fn each_kind_of_mistake_has_one_small_input() {
    let folder = tempfile::tempdir().unwrap();
    let built = guests::build("hostile", "");
    let packs = built.to_str().unwrap();
    for (node, code, input) in [
        ("hostile.trap", "trap", json!({})),
        ("hostile.panic", "trap", json!({})),
        ("hostile.recurse", "stack_overflow", json!({})),
        ("hostile.hog", "out_of_memory", json!({})),
        ("hostile.huge", "output_too_large", json!({})),
        ("hostile.bad-json", "invalid_output", json!({})),
        ("hostile.typed", "invalid_output", json!({ "n": 0 })),
    ] {
        let (exit, told) = found(folder.path(), &[node, "--packs", packs, "--rounds", "6"]);
        assert_eq!(exit, Some(1), "{told}");
        let finding = &told["findings"][0];
        assert_eq!((&finding["code"], &finding["input"]), (&json!(code), &input), "{node}: {told}");
    }
}

#[test]
fn a_node_without_end_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let built = guests::build("hostile", "");
    let packs = built.to_str().unwrap();
    let arguments = ["hostile.spin", "--packs", packs, "--rounds", "2", "--timeout-ms", "100"];
    let (exit, told) = found(folder.path(), &arguments);
    assert_eq!(exit, Some(1));
    let finding = &told["findings"][0];
    assert_eq!((&finding["code"], &finding["input"]), (&json!("timeout"), &json!({})), "{told}");
    let (code, said) = repeated(folder.path(), finding["command"].as_str().unwrap());
    assert!(code == Some(1) && said.contains("timeout"), "{code:?} {said}");
}

#[test]
fn a_node_without_mistakes_passes() {
    let folder = tempfile::tempdir().unwrap();
    let built = guests::build("hostile", "");
    let passed = fuzz(folder.path(), &["hostile.echo", "--packs", built.to_str().unwrap(), "--rounds", "40"]);
    let told = kit::stdout(&passed);
    assert_eq!(passed.status.code(), Some(0), "{told}");
    assert!(told.contains("40 inputs of seed 0") && told.contains("no traps"), "{told}");
    for wrong in [["--rounds", "0"], ["--rounds", "100001"], ["--timeout-ms", "60001"]] {
        let refused = fuzz(folder.path(), &[&["control.noop"][..], &wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
    }
}
