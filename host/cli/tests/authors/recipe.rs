//! Tests the recipes for languages without an SDK, as their READMEs print them, in an empty folder.

use std::{env, fs, path::Path, process::Command};

use crate::{
    authors::language::{Language, done, flowcell, project},
    kit,
};

/// Returns the commands of a README: those that install tools, and the rest.
fn printed(language: Language) -> (Vec<String>, Vec<String>) {
    let readme = fs::read_to_string(kit::root().join("sdk").join(language.name()).join("README.md")).unwrap();
    let (_, block) = readme.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```\n").unwrap();
    block.lines().map(str::to_owned).partition(|line| line.contains(" install "))
}

#[test]
fn the_recipes_build_packs() {
    for language in Language::WITHOUT_SDK.into_iter().filter(|language| language.is_there("the recipe")) {
        let folder = tempfile::tempdir().unwrap();
        let (_, typed) = printed(language);
        assert!(typed.len() > 3, "the recipe is gone: {typed:?}");
        let told = follow(folder.path(), &typed.join("\n"));
        assert!(told.contains("6 cases, 0 failed"), "{language:?}: {told}");
        assert!(told.contains(r#""text": "Hello Ada""#), "{language:?}: {told}");
    }
}

/// The part of the bindings that a project in Zig declares has the layout of the generated bindings. Compiling the
/// translator takes minutes of a core, so only a long test does it.
#[test]
fn a_project_in_zig_declares_the_bindings_as_zig_translates_them() {
    if kit::scale() == 1 || !Language::Zig.is_there("the bindings in Zig") {
        return;
    }
    let (_folder, project) = project("shop", Language::Zig);
    let built = || {
        done(flowcell(&project).args(["node", "build"]));
        fs::read(project.join("dist/shop.wasm")).unwrap()
    };
    let declared = built();
    let header = ["translate-c", "-target", "wasm32-wasi", "-lc", "-I", "target", "target/pack.h"];
    let translated = Command::new("python-zig").current_dir(&project).args(header).output().unwrap();
    fs::write(project.join("pack.zig"), translated.stdout).unwrap();
    assert!(declared == built(), "the declarations in pack.zig differ from target/pack.h");
}

/// Runs commands in a shell with the program in `PATH`. Returns all output.
fn follow(folder: &Path, commands: &str) -> String {
    let like = flowcell(folder);
    let program = Path::new(like.get_program()).parent().unwrap().to_owned();
    let paths = env::var_os("PATH").unwrap_or_default();
    let paths = env::join_paths([program].into_iter().chain(env::split_paths(&paths))).unwrap();
    let mut shell = Command::new("sh");
    shell.current_dir(folder).args(["-e", "-c", commands]);
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.env("PATH", paths).output().unwrap();
    let told = kit::stdout(&output) + &kit::stderr(&output);
    assert!(output.status.success(), "{commands}\n{told}");
    told
}

#[test]
fn the_recipes_install_the_versions_of_the_tests() {
    let tools = fs::read_to_string(kit::root().join(".ci/tools")).unwrap();
    for language in Language::WITHOUT_SDK {
        let workflow = format!("sdk/templates/{}/.github/workflows/ci.yml", language.name());
        let workflow = fs::read_to_string(kit::root().join(workflow)).unwrap();
        let (installed, _) = printed(language);
        assert_eq!(installed.len(), 2, "{installed:?}");
        for line in installed {
            let pinned = line.split_whitespace().find(|word| word.contains("==") || word.contains('@')).unwrap();
            assert!(tools.contains(pinned) && workflow.contains(&line), "{language:?}: {line}");
        }
    }
}

#[test]
fn a_build_script_without_a_pack_gets_a_clear_error() {
    let (_folder, project) = project("shop", Language::C);
    let built = |script: &str| {
        fs::write(project.join("build.sh"), script).unwrap();
        let output = flowcell(&project).args(["node", "build"]).output().unwrap();
        (output.status.code(), kit::stderr(&output))
    };
    for (script, code, expected) in [
        ("echo 'nodes.c:1: no C'; exit 1", 1, "nodes.c:1: no C"),
        ("exit 0", 2, "`build.sh` wrote no component"),
        ("echo text > \"$1\"", 2, "cannot embed node.yaml in the component"),
    ] {
        let (ended, told) = built(script);
        assert_eq!(ended, Some(code), "{told}");
        assert!(told.contains(expected), "{told}");
    }
}
