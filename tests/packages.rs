//! Checks that the published crates have their metadata and files, and that all dependencies follow the lists of
//! `deny.toml`.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;

/// The published crates, each with files that its package must have.
const PUBLISHED: [(&str, &[&str]); 15] = [
    (
        "flowcell",
        &["carried/templates/rust/Cargo.toml.template", "carried/templates/js/.github/workflows/ci.yml", "src/main.rs"],
    ),
    ("flowcell-assist", &[]),
    ("flowcell-console", &["assets"]),
    ("flowcell-contract", &[]),
    ("flowcell-engine", &["wit/world.wit"]),
    ("flowcell-expr", &["build.rs"]),
    ("flowcell-flow", &["src/agentic/agents/plan.md"]),
    ("flowcell-import", &[]),
    ("flowcell-platform", &["build.rs"]),
    ("flowcell-restate", &[]),
    ("flowcell-runtime", &[]),
    ("flowcell-schema", &[]),
    ("flowcell-sdk", &["wit/world.wit"]),
    ("flowcell-server", &["manual/start.md", "manual/gaps.md", "alerts"]),
    ("flowcell-services", &["src/model/providers/built-in.yaml"]),
];
/// Files that each package must have.
const OF_EACH: [&str; 4] = ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "src/lib.rs"];
/// Parts of the paths of files that tools or examples write. They are in no package.
const WRITTEN: [&str; 4] = ["/node_modules/", "/__pycache__/", "/.flowcell/", "/flows/graph/data/out/"];
/// The limits of the registry for keywords.
const MAX_KEYWORDS: usize = 5;
const MAX_KEYWORD_CHARS: usize = 20;
const LICENCE: &str = "MIT OR Apache-2.0";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env::var_os("CARGO").unwrap()).current_dir(root()).args(arguments).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the packages of the workspace and all of their dependencies, on every system and with every feature.
fn packages() -> &'static [Value] {
    static PACKAGES: OnceLock<Vec<Value>> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let metadata = cargo(&["metadata", "--format-version", "1", "--locked", "--all-features"]);
        let mut metadata: Value = serde_json::from_str(&metadata).unwrap();
        serde_json::from_value(metadata["packages"].take()).unwrap()
    })
}

/// Returns the packages of this workspace that may be published, by name.
fn published() -> BTreeMap<&'static str, &'static Value> {
    let own = packages().iter().filter(|package| package["source"].is_null() && package["publish"].is_null());
    own.map(|package| (package["name"].as_str().unwrap(), package)).collect()
}

/// Returns the folder of a package of this workspace.
fn folder(package: &Value) -> PathBuf {
    Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// Returns the paths of the files that the package of a crate would have.
fn listed(name: &str) -> BTreeSet<String> {
    let list = cargo(&["package", "--list", "--allow-dirty", "--locked", "--package", name]);
    list.lines().map(str::to_owned).collect()
}

/// Adds all files in a folder and below it. Follows links, as cargo does.
fn add_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { add_files(&path, found) } else { found.push(path) }
    }
}

/// Returns the quoted texts that follow `before`.
fn quoted<'a>(text: &'a str, before: &str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

/// Resolves `.` and `..` of a path by its text, without following links.
fn normal(path: &Path) -> PathBuf {
    use std::path::Component;
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir => _ = done.pop(),
            Component::CurDir => {}
            _ => done.push(part),
        }
        done
    })
}

#[test]
fn published_crates_have_metadata_and_depend_on_published_crates() {
    let crates = published();
    assert_eq!(crates.keys().copied().collect::<Vec<_>>(), PUBLISHED.map(|(name, _)| name));
    for (name, package) in &crates {
        for field in ["description", "readme"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {field}");
        }
        assert_eq!(package["license"], LICENCE, "{name}");
        let keywords = package["keywords"].as_array().unwrap();
        assert!((1..=MAX_KEYWORDS).contains(&keywords.len()), "{name}: {keywords:?}");
        assert!(keywords.iter().all(|word| word.as_str().unwrap().len() <= MAX_KEYWORD_CHARS), "{name}: {keywords:?}");
        assert!(!package["categories"].as_array().unwrap().is_empty(), "{name} has no category");
        // A dependency of tests without a version is left out of the published manifest.
        let exact = Value::from(format!("={}", package["version"].as_str().unwrap()));
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            let (is_own, is_of_tests) = (dependency["path"].is_string(), dependency["kind"] == "dev");
            if is_own && !(is_of_tests && dependency["req"] == "*") {
                assert!(crates.contains_key(on), "{name} depends on {on}, which is not published");
                assert_eq!(dependency["req"], exact, "{name} depends on {on} in another version");
            }
        }
    }
}

#[test]
fn packages_have_their_licences_and_every_file_that_the_code_embeds() {
    let crates = published();
    let mut embedded = 0;
    for (name, required) in PUBLISHED {
        let (folder, listed) = (folder(crates[name]), listed(name));
        for file in OF_EACH.iter().chain(required) {
            let is_there =
                listed.contains(*file) || listed.iter().any(|listed| listed.starts_with(&format!("{file}/")));
            assert!(is_there, "the package of {name} lacks {file}: {listed:#?}");
        }
        let mut files = Vec::new();
        add_files(&folder.join("src"), &mut files);
        for source in files.iter().filter(|file| file.extension().is_some_and(|it| it == "rs")) {
            let text = fs::read_to_string(source).unwrap();
            // Tests are not part of the published program. They read files of the whole repository.
            let text = text.split("#[cfg(test)]").next().unwrap();
            if source.components().any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name)) {
                continue;
            }
            let beside = ["include_str!(", "include_bytes!("].into_iter().flat_map(|name| quoted(text, name));
            let mut needed: Vec<PathBuf> = beside.map(|path| normal(&source.with_file_name("").join(path))).collect();
            for path in quoted(text, "include_dir!(") {
                let path = path.strip_prefix("$CARGO_MANIFEST_DIR/").unwrap();
                add_files(&folder.join(path), &mut needed);
            }
            for file in needed {
                let shown = file.display();
                let inside =
                    file.strip_prefix(&folder).unwrap_or_else(|_| panic!("{name} embeds {shown} from outside"));
                let inside = inside.to_str().unwrap();
                if !WRITTEN.iter().any(|part| format!("/{inside}").contains(part)) {
                    assert!(listed.contains(inside), "the package of {name} lacks {inside}, which it embeds");
                    embedded += 1;
                }
            }
        }
        let foreign = |file: &&String| file.contains("/node_modules/") || file.starts_with("tests/");
        assert_eq!(listed.iter().find(foreign), None, "the package of {name} has files that no user needs");
    }
    assert!(embedded > 100, "only {embedded} embedded files were found");
}

/// Returns the texts in a list of `deny.toml`. Fails if the list is empty.
fn rules(table: &str, list: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let (_, rest) = text.split_once(&format!("[{table}]\n")).unwrap();
    let (_, rest) = rest.split_once(&format!("\n{list} = [")).unwrap();
    let end = rest.find("]\n").unwrap();
    let lines = rest[..end].lines().map(|line| line.split('#').next().unwrap());
    let found: Vec<String> = lines.flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned)).collect();
    assert!(!found.is_empty(), "deny.toml has no {table}.{list}");
    found
}

/// Returns whether a licence of a package can be met with the allowed ones.
fn is_allowed(licence: &str, allowed: &[spdx::Licensee]) -> bool {
    let parsed = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX).unwrap();
    parsed.evaluate(|required| allowed.iter().any(|allowed| allowed.satisfies(required)))
}

fn allowed_licences() -> Vec<spdx::Licensee> {
    rules("licenses", "allow").iter().map(|name| spdx::Licensee::parse(name).unwrap()).collect()
}

#[test]
fn licences_of_all_dependencies_are_allowed() {
    let allowed = allowed_licences();
    let mut count = 0;
    for package in packages() {
        let licence = package["license"].as_str();
        let is_met = licence.is_some_and(|licence| is_allowed(licence, &allowed));
        assert!(is_met, "the licence of {} is {licence:?}: deny.toml does not allow it", package["id"]);
        count += 1;
    }
    assert!(count > 300, "only {count} packages were found");
}

#[test]
fn a_licence_needs_all_of_its_parts_or_one_of_its_choices() {
    let allowed = allowed_licences();
    for (licence, expected) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only AND MIT", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
    ] {
        assert_eq!(is_allowed(licence, &allowed), expected, "{licence}");
    }
}

#[test]
fn dependencies_come_from_the_registry_and_none_is_banned() {
    let banned = rules("bans", "deny");
    assert!(banned.contains(&"openssl-sys".to_owned()), "{banned:?}");
    let mut sources = BTreeSet::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        assert!(!banned.iter().any(|banned| banned == name), "{name} is banned by deny.toml");
        let Some(source) = package["source"].as_str() else { continue };
        assert!(source.starts_with("registry+"), "{name} comes from {source}");
        sources.insert(source);
    }
    assert_eq!(sources.len(), 1, "dependencies come from several registries: {sources:?}");
}
