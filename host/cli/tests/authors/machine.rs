//! Tests that a pack contains no files of the author's machine but those of the project, and no paths of the machine.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use crate::{
    authors::language::{Language, done, flowcell, project},
    kit,
};

/// Builds a project that has to be refused. Returns the message.
#[track_caller]
fn refused(project: &Path, more: &[&str]) -> String {
    let _ = fs::remove_dir_all(project.join("dist"));
    let built = flowcell(project).args(["node", "build"]).args(more).output().unwrap();
    let told = kit::stderr(&built);
    assert!(!built.status.success() && !project.join("dist").exists(), "{told}");
    told
}

fn has(pack: &[u8], text: &str) -> bool {
    pack.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn packs_contain_no_paths_of_the_machine() {
    for language in Language::ALL.into_iter().filter(|language| language.is_there("paths in packs")) {
        let (folder, project) = project("shop", language);
        let temporary = folder.path().join("temporary");
        fs::create_dir(&temporary).unwrap();
        // `node new` created the folder, whose name is random, so it occurs nowhere else.
        let telling = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut build = flowcell(&project);
        let built = build.args(["node", "build"]).env("TMPDIR", &temporary).output().unwrap();
        let told = kit::stderr(&built);
        assert!(built.status.success() && !told.contains("of this machine"), "{language:?}: {told}");
        let pack = fs::read(project.join("dist/shop.wasm")).unwrap();
        assert!(!has(&pack, &telling), "the pack in {language:?} contains the path of its project");
        if language == Language::Go {
            let go = done(Command::new("go").args(["env", "GOROOT"]));
            assert!(!has(&pack, go.trim()), "the pack contains the path of Go");
        }
    }
}

/// The author's own build can put paths into the pack. This is a text in C, since it needs no other tools.
#[test]
fn a_path_of_the_machine_in_a_pack_is_told() {
    if !Language::C.is_there("a path in a pack") {
        return;
    }
    let (_folder, project) = project("shop", Language::C);
    let code = fs::read_to_string(project.join("nodes.c")).unwrap();
    let path = project.canonicalize().unwrap();
    let secret = format!("\n__attribute__((used)) const char built_in[] = \"{}/nodes.c\";\n", path.display());
    fs::write(project.join("nodes.c"), code + &secret).unwrap();
    let built = flowcell(&project).args(["node", "build"]).output().unwrap();
    let told = kit::stderr(&built);
    let warned = told.contains(&format!("warning: the pack contains the path {} of this machine", path.display()));
    assert!(built.status.success() && warned, "{told}");
}

#[test]
fn a_bundle_contains_no_files_outside_of_the_project() {
    if !Language::Js.is_there("files outside of the project") {
        return;
    }
    let (folder, project) = project("shop", Language::Js);
    let private = folder.path().join("private");
    fs::create_dir_all(private.join("package")).unwrap();
    fs::write(private.join("key.json"), "{ \"key\": \"private-4711\" }").unwrap();
    fs::write(private.join("key.txt"), "private-4711").unwrap();
    fs::write(private.join("package/package.json"), "{ \"name\": \"package\", \"main\": \"main.js\" }").unwrap();
    fs::write(private.join("package/main.js"), "export const key = \"private-4711\";\n").unwrap();
    let link = |target: &str, name: &str| symlink(target, project.join(name)).unwrap();
    link("../private/key.json", "linked.json");
    link("../private", "folder");
    link("../../private/package", "node_modules/package");
    let code = fs::read_to_string(project.join("nodes.js")).unwrap();
    for (import, told) in [
        ("import key from \"../private/key.json\";", "private/key.json, which is outside of the project; nodes.js"),
        ("import key from \"../private/key.txt?raw\";", "private/key.txt, which is outside"),
        ("import key from \"./linked.json\";", "private/key.json, which is outside"),
        (
            "import key from \"./__virtual__/x/1/private/key.json\";",
            "__virtual__/x/1/private/key.json, which is outside",
        ),
        ("import key from \"./folder/key.json\";", "private/key.json, which is outside"),
        ("import { key } from \"package\";", "private/package/main.js, which is outside"),
        ("const { key } = require(\"../private/key.json\");", "private/key.json, which is outside"),
        ("const key = import(\"../private/package/main.js\");", "private/package/main.js, which is outside"),
    ] {
        fs::write(project.join("nodes.js"), format!("{import}\nglobalThis.key = key;\n{code}")).unwrap();
        let said = refused(&project, &[]);
        assert!(said.contains(told) && said.contains("`--root DIR`"), "{import}: {said}");
    }
    // The folder that is named on purpose.
    let import = "import { key } from \"../private/package/main.js\";\nglobalThis.key = key;\n";
    fs::write(project.join("nodes.js"), format!("{import}{code}")).unwrap();
    done(flowcell(&project).args(["node", "build", "--root", ".."]));
    let pack = fs::read(project.join("dist/shop.wasm")).unwrap();
    assert!(has(&pack, "private-4711") && !has(&pack, "../private"), "the name of the folder is in the pack");
    // A link in place of the pack is replaced.
    fs::write(project.join("nodes.js"), &code).unwrap();
    fs::remove_file(project.join("dist/shop.wasm")).unwrap();
    link("../../private/key.txt", "dist/shop.wasm");
    done(flowcell(&project).args(["node", "build"]));
    assert_eq!(fs::read_to_string(private.join("key.txt")).unwrap(), "private-4711");
    // The file with the code itself.
    let package = fs::read_to_string(project.join("package.json")).unwrap();
    let main = |name: &str| {
        let package = package.replace("\"main\": \"nodes.js\"", &format!("\"main\": \"{name}\""));
        fs::write(project.join("package.json"), package).unwrap();
    };
    main("../private/package/main.js");
    assert!(
        refused(&project, &[]).contains("`main` in `package.json` is \"../private/package/main.js\", which leads out")
    );
    main("folder/package/main.js");
    assert!(refused(&project, &[]).contains("folder/package/main.js is a link that leads out of"));
    // An option of esbuild is the name of a file here.
    main("--outfile=stolen.js");
    assert!(refused(&project, &[]).contains("esbuild reads no file with `=`") && !project.join("stolen.js").exists());
    main("--version");
    assert!(refused(&project, &[]).contains("./--version"));
    main("nodes.js");
    fs::remove_file(project.join("nodes.js")).unwrap();
    link("../private/package/main.js", "nodes.js");
    assert!(refused(&project, &[]).contains("nodes.js is a link that leads out of"));
    // Packages in a folder of someone else.
    fs::remove_file(project.join("nodes.js")).unwrap();
    fs::write(project.join("nodes.js"), format!("import {{ key }} from \"package\";\nglobalThis.key = key;\n{code}"))
        .unwrap();
    fs::remove_file(project.join("node_modules/package")).unwrap();
    fs::rename(project.join("node_modules"), private.join("node_modules")).unwrap();
    fs::rename(private.join("package"), private.join("node_modules/package")).unwrap();
    link("../private/node_modules", "node_modules");
    assert!(refused(&project, &[]).contains("private/node_modules/package/main.js, which is outside"));
}
