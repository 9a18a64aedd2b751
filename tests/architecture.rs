//! Rules that the compiler does not check, such as the allowed dependencies of a crate and the tests of each attack.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Each crate with its forbidden dependencies. Dependencies of tests and benchmarks are not restricted.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("sdk/expr", &["tokio", "wasmtime", "wasmtime-wasi", "flowcell-contract", "flowcell-flow", "flowcell-runtime"]),
    ("sdk/rust", &["tokio", "wasmtime", "wasmtime-wasi", "flowcell-contract", "flowcell-flow", "flowcell-runtime"]),
    (
        "host/contract",
        &["tokio", "wasmtime", "wasmtime-wasi", "cap-std", "flowcell-flow", "flowcell-engine", "flowcell-runtime"],
    ),
    (
        "host/flow",
        &["tokio", "futures-util", "wasmtime", "wasmtime-wasi", "cap-std", "flowcell-engine", "flowcell-runtime"],
    ),
    (
        "host/assist",
        &[
            "tokio",
            "futures-util",
            "wasmtime",
            "cap-std",
            "lsp-server",
            "flowcell-engine",
            "flowcell-runtime",
            "flowcell-platform",
        ],
    ),
    (
        "host/schema",
        &["tokio", "wasmtime", "wasmtime-wasi", "cap-std", "flowcell-flow", "flowcell-engine", "flowcell-runtime"],
    ),
    ("host/engine", &["flowcell-flow", "flowcell-runtime", "flowcell", "rusqlite", "sqlx"]),
    ("host/runtime", &["wasmtime", "wasmtime-wasi", "restate-sdk", "flowcell-engine", "flowcell-restate", "flowcell"]),
    (
        "host/restate",
        &["wasmtime", "wasmtime-wasi", "rusqlite", "sqlx", "axum", "flowcell-engine", "flowcell-platform", "flowcell"],
    ),
    (
        "host/import",
        &[
            "tokio",
            "wasmtime",
            "wasmtime-wasi",
            "cap-std",
            "flowcell-engine",
            "flowcell-runtime",
            "flowcell-platform",
            "flowcell",
        ],
    ),
    (
        "host/platform",
        &[
            "wasmtime",
            "wasmtime-wasi",
            "rusqlite",
            "sqlx",
            "axum",
            "rmcp",
            "clap",
            "indicatif",
            "flowcell",
            "flowcell-server",
        ],
    ),
    (
        "host/server",
        &["wasmtime", "wasmtime-wasi", "rusqlite", "sqlx", "clap", "indicatif", "flowcell", "flowcell-console"],
    ),
    (
        "host/console",
        &[
            "tokio",
            "wasmtime",
            "rusqlite",
            "sqlx",
            "clap",
            "flowcell",
            "flowcell-engine",
            "flowcell-platform",
            "flowcell-runtime",
            "flowcell-services",
        ],
    ),
    ("host/cli", &["wasmtime", "wasmtime-wasi", "rusqlite", "sqlx", "axum", "rmcp", "utoipa", "flowcell-runtime"]),
];

/// Returns the names in the `[dependencies]` table of a manifest.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let table = text.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = table.take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| Some(line.split(['.', '=', ' ']).next()?.to_owned()))
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn crates_have_no_forbidden_dependencies() {
    for (folder, forbidden) in FORBIDDEN {
        let named = dependencies(&root().join(folder).join("Cargo.toml"));
        assert!(!named.is_empty(), "{folder} names nothing: is its manifest read rightly?");
        for name in *forbidden {
            assert!(!named.contains(*name), "{folder} may not depend on {name}");
        }
    }
}

/// Returns the lines of a table in a `Cargo.toml`, without empty lines.
fn table(manifest: &str, name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(manifest)).unwrap();
    let lines = text.lines().skip_while(|line| *line != name).skip(1).take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_sdk_copy_for_new_projects_has_the_dependencies_of_the_sdk() {
    let copy = "sdk/templates/rust/vendor/flowcell-sdk/Cargo.toml.template";
    assert_eq!(dependencies(&root().join(copy)), dependencies(&root().join("sdk/rust/Cargo.toml")));
    let shared = table("Cargo.toml", "[workspace.dependencies]");
    for dependency in table(copy, "[dependencies]") {
        assert!(shared.contains(&dependency), "{dependency}: the workspace has another version, or other features");
    }
}

#[test]
fn all_sdks_have_the_version_of_the_workspace() {
    let version = |line: &String| line.starts_with("version = ").then(|| line.clone());
    let version = table("Cargo.toml", "[workspace.package]").iter().find_map(version).unwrap();
    for manifest in [
        "sdk/python/pyproject.toml",
        "sdk/js/package.json",
        "sdk/templates/rust/vendor/flowcell-sdk/Cargo.toml.template",
    ] {
        let text = fs::read_to_string(root().join(manifest)).unwrap().replace("\"version\": ", "version = ");
        assert!(text.contains(&version), "{manifest} has another version than {version}");
    }
}

/// Only `flowcell-schema` compiles and applies schemas within a budget, so no other crate of the host may depend
/// on `jsonschema`, except for its tests. Packs may, because the sandbox bounds them.
#[test]
fn only_the_schema_crate_builds_validators() {
    let folders = [
        "contract", "assist", "console", "engine", "flow", "import", "runtime", "services", "platform", "server", "cli",
    ]
    .map(|name| format!("host/{name}"));
    for folder in &folders {
        let named = dependencies(&root().join(folder).join("Cargo.toml"));
        assert!(!named.contains("jsonschema"), "{folder} depends on `jsonschema`; use `flowcell-schema`");
        for file in sources(&root().join(folder).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains("jsonschema::"), "{} names `jsonschema`", file.display());
        }
    }
    assert!(dependencies(&root().join("host/schema/Cargo.toml")).contains("jsonschema"));
}

/// A journal may have a gigabyte. Every tenant would wait if a request read a journal on a runtime thread, or if
/// hundreds of requests read journals at the same time. So all code of the server reads them inside its method
/// `reading`, which waits for a permit.
#[test]
fn requests_read_whole_journals_in_turn() {
    let readers = [
        "host.again(",
        "host.resume(",
        "Tree::before(",
        "Timeline::before(",
        "waiting::list_before(",
        "waiting::question(",
        "request.waiting(",
        "inbox.read(",
        "filter.read(",
        ".task_inputs(",
    ];
    let mut found = 0;
    for file in sources(&root().join("host/server/src")) {
        let text = fs::read_to_string(&file).unwrap();
        for (at, _) in readers.iter().flat_map(|reader| text.match_indices(reader)) {
            let lines: Vec<_> = text[..at].lines().rev().take(4).collect();
            let in_turn = lines.iter().any(|line| line.contains("reading("));
            assert!(in_turn, "{} reads a journal outside of `reading`: {}", file.display(), lines[0].trim());
            found += 1;
        }
    }
    assert!(found >= readers.len(), "the readers have other names now");
}

#[test]
fn only_the_engine_names_wasmtime() {
    for folder in [
        "host/contract",
        "host/assist",
        "host/flow",
        "host/runtime",
        "host/platform",
        "host/server",
        "host/console",
        "host/cli",
        "sdk/expr",
        "sdk/rust",
    ] {
        for file in sources(&root().join(folder).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains("wasmtime::"), "{} names wasmtime", file.display());
        }
    }
}

/// Files that list names of capabilities with another meaning: members of events in the first file, pages of the manual
/// in the second.
const NO_CAPABILITIES: [&str; 2] = ["host/runtime/src/publish/agents.rs", "host/server/src/manual.rs"];

/// The table in `host/contract/src/builtin.rs` is the only list of capabilities. Other code names a capability by its
/// variant.
#[test]
fn capabilities_are_listed_once() {
    let table = fs::read_to_string(root().join("host/contract/src/builtin.rs")).unwrap();
    let (_, rows) = table.split_once("\ntable! {").unwrap();
    let (rows, _) = rows.split_once("\n}\n").unwrap();
    let name = |row: &'_ str| Some(row.split_once(": \"")?.1.split('"').next()?.to_owned());
    let names: Vec<_> = rows.lines().filter_map(name).collect();
    assert!(names.len() >= 10, "the table has another form now: {names:?}");
    let mut found = BTreeSet::new();
    for folder in crates().iter().filter(|folder| !folder.ends_with("contract")) {
        for file in sources(&folder.join("src")).iter().filter(|file| !is_test(file)) {
            let text = fs::read_to_string(file).unwrap();
            let lines: Vec<_> = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).collect();
            let is_list = |lines: &[&str]| {
                let named = names.iter().filter(|name| lines.iter().any(|line| line.contains(&format!("\"{name}\""))));
                named.count() >= 3
            };
            if lines.windows(4).any(is_list) {
                found.insert(file.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/"));
            }
        }
    }
    assert_eq!(
        found,
        BTreeSet::from(NO_CAPABILITIES.map(str::to_owned)),
        "a list of capabilities: read the table instead"
    );
}

/// Returns whether a source file is a test module.
fn is_test(file: &Path) -> bool {
    file.components().any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name))
}

/// Returns the Rust files of a folder, without those of installed and built packages.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !["target", "node_modules"].iter().any(|name| path.ends_with(name)) {
                found.extend(sources(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn crates() -> Vec<PathBuf> {
    let mut folders: Vec<_> = fs::read_dir(root().join("host")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.extend(["sdk/expr", "sdk/rust"].map(|folder| root().join(folder)));
    folders.retain(|folder| folder.join("src").is_dir());
    folders
}

/// The modules that every store has, in the order of their documentation.
const STORE_MODULES: [&str; 8] = ["units", "runs", "state", "blobs", "inbox", "documents", "sessions", "sweep"];

#[test]
fn all_stores_have_the_modules_of_their_ports() {
    for store in ["ports", "memory", "sqlite", "sql"] {
        let room = root().join("host/runtime/src").join(store);
        let text = fs::read_to_string(room.with_extension("rs")).unwrap();
        for name in STORE_MODULES {
            assert!(room.join(format!("{name}.rs")).is_file(), "{store} has no `{name}.rs`");
            assert!(text.contains(&format!("\nmod {name};")), "{store} does not declare `{name}`");
        }
        let rows: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("//! | `")).collect();
        let listed = rows.iter().filter_map(|row| row.split('`').next()).filter(|name| STORE_MODULES.contains(name));
        assert!(listed.eq(STORE_MODULES), "{store} documents its modules in another order");
    }
}

/// Returns the single ids in a cell of the table of attacks, such as `N3 to N10, N14`.
fn ids(cell: &str) -> Vec<String> {
    let one = |range: &str| {
        let (first, last) = range.split_once(" to ").unwrap_or((range, range));
        let kind = &first[..1];
        let number = |id: &str| id[1..].parse::<u32>().unwrap();
        (number(first)..=number(last)).map(|number| format!("{kind}{number}")).collect::<Vec<_>>()
    };
    cell.split(", ").flat_map(one).collect()
}

/// Appends to `text` the names of all files in a folder and below it, and the contents of its Rust files.
fn tests(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["target", "node_modules"].contains(&&*name) {
            tests(&path, text);
        }
        text.push_str(&format!("\n{name}\n"));
        if path.is_file() && name.ends_with(".rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// The table of attacks has no gaps, and a test names each attack.
#[test]
fn every_attack_has_a_test_that_names_it() {
    let page = fs::read_to_string(root().join("tests/README.md")).unwrap();
    let (_, table) = page.split_once("\n## Attacks\n").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    let rows: Vec<(Vec<String>, &str)> = rows.map(|row| (ids(row.split(" |").next().unwrap()), row)).collect();
    let named: BTreeSet<&str> = rows.iter().flat_map(|(ids, _)| ids).map(String::as_str).collect();
    for (kind, last) in [("Y", 16), ("R", 34), ("N", 32), ("H", 18), ("T", 12)] {
        for number in 1..=last {
            assert!(named.contains(&*format!("{kind}{number}")), "no row for {kind}{number}");
        }
    }
    let mut text = String::new();
    ["host", "nodes", "sdk"].into_iter().for_each(|folder| tests(&root().join(folder), &mut text));
    let words: BTreeSet<&str> = text.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
    for id in named {
        assert!(words.contains(id) || words.contains(&*id.to_lowercase()), "no test names {id}");
    }
    for (_, row) in &rows {
        let paths = row.rsplit_once(" | ").unwrap().1.split('`').skip(1).step_by(2);
        for path in paths {
            assert!(!path.starts_with("host/") || root().join(path).exists(), "{path} is not there: {row}");
        }
    }
}

#[test]
fn every_source_file_begins_with_module_docs() {
    for folder in crates() {
        for file in sources(&folder.join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.starts_with("//!"), "{} has no `//!` at its top", file.display());
        }
    }
}

/// Returns the texts of the doc comments in a source file, each with the number of its first line.
fn docs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_start())) {
        let Some(doc) = line.strip_prefix("///") else { continue };
        match found.last_mut() {
            Some((_, text)) if last + 1 == number => *text += doc,
            _ => found.push((number, doc.to_owned())),
        }
        last = number;
    }
    found
}

#[test]
fn no_doc_comment_is_one_word() {
    assert_eq!(docs("/// A\n/// b.\nfn x() {}\n/// C.").len(), 2);
    let mut found = Vec::new();
    let mut count = 0;
    for file in source_folders().iter().flat_map(|folder| sources(folder)).filter(|file| !is_test(file)) {
        for (line, doc) in docs(&fs::read_to_string(&file).unwrap()) {
            count += 1;
            if doc.split_whitespace().count() < 2 {
                found.push(format!("{}:{line}:{doc}", file.display()));
            }
        }
    }
    assert!(count > 7_000, "only {count} doc comments were found");
    assert!(found.is_empty(), "these say no more than a name; delete them or say more:\n{}", found.join("\n"));
}

/// Returns the source folders of the workspace: `host/*/src`, `sdk/*/src`, `nodes/*/src`.
fn source_folders() -> Vec<PathBuf> {
    let rooms = ["host", "sdk", "nodes"].map(|room| fs::read_dir(root().join(room)).unwrap());
    let folders = rooms.into_iter().flatten().map(|entry| entry.unwrap().path().join("src"));
    folders.filter(|folder| folder.is_dir()).collect()
}

#[test]
fn no_rust_file_is_longer_than_500_lines() {
    let files: Vec<_> = ["host", "sdk", "nodes", "tests"].iter().flat_map(|room| sources(&root().join(room))).collect();
    assert!(files.len() >= 700, "the sources have moved: found {} files", files.len());
    for file in files {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 500, "{} has {lines} lines: split it", file.display());
    }
}

/// Returns whether a Rust source prints a command with a value.
fn prints_a_command(source: &str) -> bool {
    let code = source.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let code = code.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let has_value = |command: &str| command.split(['`', '"']).next().is_some_and(|command| command.contains('{'));
    ["`flowcell ", "`chmod ", "`rm "].iter().any(|start| code.split(start).skip(1).any(has_value))
}

#[test]
fn values_in_printed_commands_are_quoted() {
    assert!(prints_a_command("format!(\"run `flowcell x {name}`\")") && !prints_a_command("\"`flowcell x` {name}\""));
    assert!(!prints_a_command("// `flowcell x {name}`") && !prints_a_command("#[cfg(test)]\n\"`rm {x}`\""));
    let mut printing = 0;
    for file in crates().iter().flat_map(|folder| sources(&folder.join("src"))).filter(|file| !is_test(file)) {
        let text = fs::read_to_string(&file).unwrap();
        if prints_a_command(&text) {
            printing += 1;
            let name = file.display();
            assert!(text.contains("shell_word("), "{name} prints a command with a value: use `shell_word`");
        }
    }
    assert!(printing > 10, "commands have another form now");
}

/// Returns the name of the type if a line opens an inherent `impl` block; `None` for any other line.
fn inherent_impl_type(line: &str) -> Option<&str> {
    let head = line.strip_prefix("impl")?.strip_suffix(" {")?;
    if head.contains(" for ") {
        return None;
    }
    let name = head.rsplit_once("> ").map_or(head, |(_, name)| name).trim();
    name.split('<').next()
}

/// Files that define a type of this name count together as one file, because several types may have the same name.
#[test]
fn methods_of_a_type_stand_in_at_most_two_files() {
    for folder in source_folders() {
        let mut found: BTreeMap<String, (bool, BTreeSet<PathBuf>)> = BTreeMap::new();
        for file in sources(&folder) {
            let text = fs::read_to_string(&file).unwrap();
            let words: Vec<_> = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
            let defined = words.windows(2).filter(|pair| matches!(pair[0], "struct" | "enum")).map(|pair| pair[1]);
            let defined: BTreeSet<&str> = defined.collect();
            for name in text.lines().filter_map(inherent_impl_type) {
                let (at_definition, elsewhere) = found.entry(name.to_owned()).or_default();
                match defined.contains(name) {
                    true => *at_definition = true,
                    false => _ = elsewhere.insert(file.clone()),
                }
            }
        }
        let scattered = |files: &(bool, BTreeSet<PathBuf>)| usize::from(files.0) + files.1.len() > 2;
        let scattered: Vec<_> = found.iter().filter(|(_, files)| scattered(files)).map(|(name, _)| &**name).collect();
        assert!(scattered.is_empty(), "{}: methods in more than two files: {scattered:?}", folder.display());
    }
}

#[test]
fn inherent_impls_are_distinguished_from_impls_of_traits() {
    let lines = ["impl Driver {", "impl Caller<'_> {", "impl<'s> Printer<'s> {", "impl<T: Into<Json>> Place<T> {"];
    assert_eq!(lines.map(inherent_impl_type), ["Driver", "Caller", "Printer", "Place"].map(Some));
    assert_eq!(
        ["impl Drop for Child {", "impl<T> From<T> for Child {", "    impl Inner {"].map(inherent_impl_type),
        [None; 3]
    );
}
