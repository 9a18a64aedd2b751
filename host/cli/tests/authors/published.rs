//! Tests the packages of the SDKs, as the registries take them: each is built, installed into a project without a copy of
//! the SDK, and a pack that is built with it runs in a flow.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    authors::language::{BUILD_FOLDER, Language, done, flowcell, npm_install, project},
    kit,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the folder with the packages and the documentation. They are built once for all tests. Returns `None` if a tool
/// is missing.
fn packages(test: &str) -> Option<&'static Path> {
    static BUILT: OnceLock<Option<TempDir>> = OnceLock::new();
    let has_tools = || {
        let modules = ["-c", "import build, pdoc"];
        let is_python_complete = Command::new("python3").args(modules).output().is_ok_and(|said| said.status.success());
        let paths = env::var_os("PATH").unwrap_or_default();
        let has = |tool: &str| env::split_paths(&paths).any(|folder| folder.join(tool).is_file());
        is_python_complete && ["npm", "typedoc", "componentize-py"].into_iter().all(has)
    };
    let built = BUILT.get_or_init(|| {
        if !has_tools() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut script = Command::new(kit::root().join("sdk/package"));
        done(script.arg(folder.path()));
        Some(folder)
    });
    if built.is_none() {
        assert!(env::var_os("FLOWCELL_TEST_TOOLCHAINS").is_none(), "{test} needs what `sdk/package` names");
        eprintln!("skipped: {test}: a tool of `sdk/package` is missing");
    }
    built.as_ref().map(TempDir::path)
}

/// Creates a project without the copy of the SDK that `flowcell node new` brings along.
fn without_sdk(language: Language) -> (TempDir, PathBuf) {
    let (folder, project) = project("shop", language);
    fs::remove_dir_all(project.join("vendor")).unwrap();
    (folder, project)
}

/// Replaces a text of a file, which has to have it.
fn edit(file: &Path, old: &str, new: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(old), "{text}");
    fs::write(file, text.replace(old, new)).unwrap();
}

/// Builds the project's pack, runs its cases, and runs the pack in a flow.
fn use_pack(project: &Path) {
    let tested = flowcell(project).args(["node", "test"]).output().unwrap();
    let told = kit::stderr(&tested);
    assert!(tested.status.success() && told.contains("6 cases, 0 failed"), "{told}");
    let flow = "flow: { name: greeting }\nnodes: [{ id: greet, type: shop.greet, input: { name: Ada } }]\n";
    fs::write(project.join("greeting.yaml"), flow).unwrap();
    let run = ["run", "--quiet", "--store", "memory:", "greeting.yaml", "--packs", "dist"];
    let said: Value = serde_json::from_str(&done(flowcell(project).args(run))).unwrap();
    assert_eq!(said, json!({ "greet": { "text": "Hello Ada" } }));
}

/// Unpacks an archive into a folder.
fn unpack(archive: &Path, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    done(Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(folder));
}

/// Returns the paths of the files in a folder, in order.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_crate_builds_a_pack_in_a_project_of_its_own() {
    let Some(packages) = packages("the crate") else { return };
    let (folder, project) = without_sdk(Language::Rust);
    unpack(&packages.join(format!("flowcell-sdk-{VERSION}.crate")), folder.path());
    // As if the registry had the crate.
    let manifest = project.join("Cargo.toml");
    edit(&manifest, r#"{ path = "vendor/flowcell-sdk" }"#, &format!("\"{VERSION}\""));
    edit(
        &manifest,
        "[workspace]\n",
        &format!("[workspace]\n\n[patch.crates-io]\nflowcell-sdk = {{ path = \"../flowcell-sdk-{VERSION}\" }}\n"),
    );
    use_pack(&project);
    // The documentation, as the registry makes it, for the target whose crates are compiled already.
    let mut document = Command::new(env!("CARGO"));
    document.current_dir(&project).args(["doc", "--quiet", "--release", "--offline", "--no-deps"]);
    document.args(["--package", "flowcell-sdk", "--target", "wasm32-wasip2"]);
    let like = flowcell(&project);
    let shared = like.get_envs().find_map(|(name, value)| value.filter(|_| name == BUILD_FOLDER)).unwrap();
    document
        .env(BUILD_FOLDER, shared)
        .env_remove("CARGO_TARGET_DIR")
        .env("RUSTDOCFLAGS", "--deny warnings")
        .env_remove("RUSTFLAGS");
    done(document.env_remove("CARGO_ENCODED_RUSTFLAGS"));
    let pages = project.join("target/wasm32-wasip2/doc/flowcell_sdk");
    let failure = fs::read_to_string(pages.join("struct.Failure.html")).unwrap();
    assert!(pages.join("macro.pack.html").is_file() && failure.contains("retry_after_ms"));
}

#[test]
fn the_package_of_npm_builds_a_pack_in_a_project_of_its_own() {
    let Some(packages) = packages("the package of npm") else { return };
    let (_folder, project) = without_sdk(Language::Js);
    fs::remove_dir_all(project.join("node_modules")).unwrap();
    let package = packages.join(format!("flowcell-sdk-{VERSION}.tgz"));
    edit(&project.join("package.json"), "file:vendor/flowcell-sdk", &format!("file:{}", package.display()));
    npm_install(&project);
    let installed = project.join("node_modules/flowcell-sdk");
    assert!(!installed.is_symlink() && installed.join("LICENSE-MIT").is_file(), "{:?}", files(&installed));
    use_pack(&project);
}

#[test]
fn the_packages_of_python_build_a_pack_in_a_project_of_its_own() {
    let Some(packages) = packages("the packages of Python") else { return };
    let (folder, project) = without_sdk(Language::Python);
    let install = |package: String, to: &Path| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target"]);
        done(pip.arg(to).arg(packages.join(package)));
    };
    install(format!("flowcell_sdk-{VERSION}-py3-none-any.whl"), &project.join("vendor"));
    let of_source = folder.path().join("source");
    install(format!("flowcell_sdk-{VERSION}.tar.gz"), &of_source);
    let modules = |folder: &Path| {
        let mut files = files(&folder.join("flowcell_sdk"));
        files.retain(|file| !file.contains("__pycache__"));
        files
    };
    assert_eq!(modules(&of_source), modules(&project.join("vendor")), "the wheel and the source differ");
    assert!(modules(&of_source).contains(&"py.typed".to_owned()));
    let described = files(&project.join("vendor"));
    assert!(described.iter().any(|file| file.ends_with("LICENSE-APACHE")), "{described:?}");
    use_pack(&project);
}

#[test]
fn the_documentation_of_javascript_and_python_has_the_public_names() {
    let Some(packages) = packages("the documentation of the SDKs") else { return };
    let page = |path: &str| {
        let read = fs::read_to_string(packages.join("docs").join(path));
        read.unwrap_or_else(|error| panic!("{path}: {error}: {:?}", files(&packages.join("docs"))))
    };
    for (path, expected) in [
        ("js/functions/http.send.html", "send"),
        ("js/classes/Failure.html", "snake_case"),
        ("python/flowcell_sdk.html", "Failure"),
        ("python/flowcell_sdk/http.html", "start_send"),
    ] {
        let page = page(path);
        assert!(page.contains(expected), "{path} has no {expected}");
    }
}
