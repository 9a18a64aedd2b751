//! Checks the documents of the repository: their links must work, and their pages must not be too long. The manual must
//! have an entry for each code, capability, node type and metric.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const MANUAL: &str = "host/server/manual";
/// The maximum number of lines of a handwritten page.
const PAGE_LINES: usize = 200;
/// Pages that consist of tables. Their length is not limited.
const TABLES: [&str; 2] = ["functions.md", "limits.md"];
/// Documents with their own maximum number of lines.
const BOUNDED: [(&str, usize); 2] = [("README.md", 200), ("host/README.md", 300)];
/// Folders that contain no documents of the repository.
const SKIPPED: [&str; 6] = ["target", ".git", "node_modules", "dist", "vendor", ".venv"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn page(topic: &str) -> String {
    read(&format!("{MANUAL}/{topic}.md"))
}

/// Returns the files with this extension in a folder and below it.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && !SKIPPED.contains(&&*name) {
            found.extend(files(&path, extension));
        } else if kind.is_file() && path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// Returns the anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
        })
        .collect()
}

/// Returns the text without its code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// Returns the targets of the links of a document.
fn links(text: &str) -> Vec<String> {
    let lines: Vec<String> = prose(text).map(without_code).collect();
    let text = lines.join("\n");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

#[test]
fn links_of_documents_lead_somewhere() {
    let repository = root().canonicalize().unwrap();
    let documents = files(&repository, "md");
    let texts: BTreeMap<PathBuf, String> =
        documents.iter().map(|path| (path.canonicalize().unwrap(), fs::read_to_string(path).unwrap())).collect();
    let (mut broken, mut count, mut upward) = (Vec::new(), 0, 0);
    for (path, text) in &texts {
        for link in links(text).iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            count += 1;
            upward += usize::from(link.starts_with("../"));
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            // A target outside the repository exists only on the machine of its author.
            let known =
                target.canonicalize().ok().filter(|target| target.starts_with(&repository)).is_some_and(|target| {
                    anchor.is_empty() || texts.get(&target).is_some_and(|text| anchors(text).contains(anchor))
                });
            if !known {
                broken.push(format!("{}: {link}", path.strip_prefix(&repository).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
    assert!(count > 100 && upward > 40, "only {count} links were found, {upward} of them to `../`");
}

#[test]
fn pages_are_short_and_listed() {
    let list = read("host/server/src/manual.rs");
    for path in files(&root().join(MANUAL), "md") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let topic = name.strip_suffix(".md").unwrap();
        assert!(list.contains(&format!("\"{topic}\"")), "host/server/src/manual.rs does not list {name}");
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        assert!(lines <= PAGE_LINES || TABLES.contains(&name), "{name} has {lines} lines");
        assert!(text.starts_with("# "), "{name} has no title");
    }
    for (path, bound) in BOUNDED {
        let lines = read(path).lines().count();
        assert!(lines <= bound, "{path} has {lines} lines");
    }
}

/// Returns the texts of all code spans in the tables of a page.
fn entries(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    rows.flat_map(|row| row.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Returns all quoted texts that follow `before` in the text.
fn quoted<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next()).collect()
}

/// Returns true if a text has the form of a code: lower-case words joined by `_`. Returns false for a code of a
/// single word, because it could also be a member or an argument; so the tests require no entries for such codes.
fn is_code(text: &str) -> bool {
    text.contains('_') && text.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}

fn require(page: &str, entries: &BTreeSet<String>, names: impl IntoIterator<Item = String>) -> usize {
    let names: BTreeSet<String> = names.into_iter().collect();
    let missing: Vec<_> = names.difference(entries).collect();
    assert!(missing.is_empty(), "{MANUAL}/{page}.md has no entry for {missing:?}");
    names.len()
}

#[test]
fn page_errors_has_every_code_of_failures_and_answers() {
    let entries = entries(&page("errors"));
    let mut codes = Vec::new();
    for file in ["host/contract/src/failure.rs", "host/services/src/code.rs"] {
        let text = read(file);
        codes.extend(quoted(&text, ": &str =").into_iter().filter(|code| is_code(code)).map(str::to_owned));
    }
    for path in files(&root().join("host/server/src"), "rs") {
        let text = fs::read_to_string(path).unwrap();
        for before in ["Fault::not_found(", "Fault::busy(", "conflict("] {
            codes.extend(quoted(&text, before).into_iter().filter(|code| is_code(code)).map(str::to_owned));
        }
        for rest in text.split("StatusCode::").skip(1) {
            let code = rest
                .split_once(", \"")
                .filter(|(status, _)| status.chars().all(|it| it.is_ascii_uppercase() || it == '_'));
            codes.extend(
                code.and_then(|(_, rest)| rest.split('"').next()).filter(|code| is_code(code)).map(str::to_owned),
            );
        }
    }
    let count = require("errors", &entries, codes);
    assert!(count > 60, "only {count} codes were found");
}

#[test]
fn page_errors_or_node_types_explain_codes_of_nodes() {
    let known = entries(&page("errors"));
    for path in files(&root().join("nodes"), "yaml") {
        let text = fs::read_to_string(&path).unwrap();
        if !path.ends_with("node.yaml") || path.starts_with(root().join("nodes/examples")) {
            continue;
        }
        let codes = text.lines().filter_map(|line| {
            line.trim_start().trim_start_matches("- ").trim_start_matches("{ ").strip_prefix("code: ")
        });
        let codes =
            codes.filter_map(|rest| rest.split([',', ' ']).next()).filter(|code| is_code(code) && *code != "failed");
        require("errors", &known, codes.map(str::to_owned));
    }
}

#[test]
fn page_diagnostics_has_every_code_of_a_check() {
    let entries = entries(&page("diagnostics"));
    let mut codes = Vec::new();
    for path in files(&root().join("host/flow/src"), "rs") {
        let text = fs::read_to_string(path).unwrap();
        for before in [".error(", ".warning(", ".new_rule("] {
            codes.extend(quoted(&text, before).into_iter().filter(|code| is_code(code)).map(str::to_owned));
        }
    }
    // Those whose code is computed, as the tests of the checks show them.
    for path in files(&root().join("host/flow/tests"), "err") {
        let text = fs::read_to_string(path).unwrap();
        for before in ["error[", "warning["] {
            let shown = text.split(before).skip(1).filter_map(|rest| rest.split(']').next());
            codes.extend(shown.filter(|code| is_code(code)).map(str::to_owned));
        }
    }
    let count = require("diagnostics", &entries, codes);
    assert!(count > 60, "only {count} codes were found");
}

#[test]
fn page_grants_has_every_capability() {
    let entries = entries(&page("grants"));
    let mut interfaces = Vec::new();
    for path in files(&root().join("wit/deps/flowcell-host"), "wit") {
        let text = fs::read_to_string(path).unwrap();
        let names =
            text.lines().filter_map(|line| line.strip_prefix("interface ")?.split(' ').next().map(str::to_owned));
        interfaces.extend(names);
    }
    // Every node has the types of calls, the queue of answers and the writer of files.
    interfaces.retain(|name| !["calls", "queue", "file-writer"].contains(&&**name));
    let count = require("grants", &entries, interfaces);
    assert!(count >= 10, "only {count} capabilities were found");
}

#[test]
fn page_catalog_has_every_node_type() {
    let entries = entries(&page("catalog"));
    let mut types = Vec::new();
    for pack in ["agent", "control", "data", "file", "http", "query", "script", "system"] {
        let text = read(&format!("nodes/{pack}/node.yaml"));
        types
            .extend(text.lines().filter_map(|line| line.strip_prefix("  - type: ")).map(|name| name.trim().to_owned()));
    }
    let count = require("catalog", &entries, types);
    assert!(count > 30, "only {count} types were found");
}

#[test]
fn page_monitor_has_every_metric() {
    let page = page("monitor");
    let registered = ["metrics.rs", "metrics/fleet.rs"].map(|file| read(&format!("host/platform/src/observe/{file}")));
    let registered = registered.concat();
    let names =
        ["register(", "register_with_unit("].map(|before| quoted(&registered, &format!("registry.{before}"))).concat();
    assert!(names.len() >= 10, "only {} metrics were found", names.len());
    for name in names {
        let ends = ["`", "_total`", "_seconds`", "_seconds_total`", "_usd_total`"];
        let is_named = ends.iter().any(|end| page.contains(&format!("`flowcell_{name}{end}")));
        assert!(is_named, "{MANUAL}/monitor.md has no entry for {name}");
    }
}

/// Returns the value of a constant, given the text of its expression: a number, a product or a shift of numbers, or a
/// duration in seconds, which is converted to milliseconds. Returns `None` for other expressions.
fn parse_constant(written: &str) -> Option<u64> {
    if let Some(seconds) = written.strip_prefix("Duration::from_secs(") {
        return Some(parse_constant(seconds.strip_suffix(')')?)? * 1_000);
    }
    if let Some((number, shift)) = written.split_once(" << ") {
        return Some(parse_constant(number)? << parse_constant(shift)?);
    }
    written.split(" * ").map(|factor| factor.replace('_', "").parse::<u64>().ok()).product()
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the spellings with which the page `limits` may write a number of bytes, milliseconds or items.
fn spellings(name: &str, number: u64) -> Vec<String> {
    let units: &[(u64, &str)] = if name.ends_with("_MS") || name.ends_with("TIME") || name == "HEARTBEAT" {
        &[(86_400_000, " days"), (3_600_000, " h"), (60_000, " min"), (1_000, " s"), (1, " ms")]
    } else {
        &[(1 << 30, " GiB"), (1 << 20, " MiB"), (1 << 10, " KiB"), (1, "")]
    };
    let fits = units.iter().filter(|(unit, _)| number.is_multiple_of(*unit) && number >= *unit);
    fits.map(|(unit, name)| format!("{}{name}", with_commas(number / unit))).collect()
}

#[test]
fn page_limits_has_each_constant() {
    let page = page("limits");
    let rows: Vec<(&str, &str)> = page.lines().filter_map(|row| row.strip_suffix(" |")?.rsplit_once(" | ")).collect();
    let (mut missing, mut count) = (Vec::new(), 0);
    for (room, path) in [
        ("flow", "host/flow/src/limits.rs"),
        ("runtime", "host/runtime/src/limits.rs"),
        ("server", "host/server/src/http/limits.rs"),
        ("engine", "host/engine/src/limits.rs"),
    ] {
        let text = read(path);
        let constants = text.lines().filter_map(|line| {
            let (name, rest) = line.split_once("const ")?.1.split_once(": ")?;
            Some((name, rest.split_once(" = ")?.1.strip_suffix(';')?))
        });
        let defaults = text.split_once("-> Limits {").map_or("", |(_, defaults)| defaults);
        let fields = defaults.lines().filter_map(|line| line.trim().strip_suffix(',')?.split_once(": "));
        for (name, written) in constants.chain(fields) {
            let Some(number) = parse_constant(written) else { continue };
            count += 1;
            let spellings = spellings(name, number);
            let says = |row: &str| {
                let words = |text: &str| {
                    row.split(text).skip(1).any(|after| !after.starts_with(|it: char| it.is_ascii_digit()))
                };
                spellings.iter().any(|text| words(text))
            };
            if !rows.iter().any(|(row, places)| places.contains(room) && says(row)) {
                missing.push(format!("{path}: {name} = {written}"));
            }
        }
    }
    assert!(missing.is_empty(), "{MANUAL}/limits.md lacks the numbers of\n{}", missing.join("\n"));
    assert!(count > 70, "only {count} constants were found");
}

/// Returns the ids in the table of attacks of `tests/README.md`, in lower case, such as `h8`.
fn attacks() -> BTreeSet<String> {
    let page = read("tests/README.md");
    let (_, table) = page.split_once("\n## Attacks\n").unwrap();
    let mut ids = BTreeSet::new();
    for cell in table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()) {
        for part in cell.to_lowercase().split(", ") {
            let number = |id: &str| id[1..].parse::<u32>().ok();
            match part.split_once(" to ") {
                Some((from, to)) => {
                    let numbers = number(from).unwrap()..=number(to).unwrap();
                    ids.extend(numbers.map(|number| format!("{}{number}", &from[..1])));
                }
                None if part.len() > 1 && number(part).is_some() => _ = ids.insert(part.to_owned()),
                None => {}
            }
        }
    }
    ids
}

/// Checks that the name of a test contains the id of each attack, so that `cargo test h8_` runs the tests of the attack
/// H8. Attacks of the language are samples such as `y8-cycle.yaml` instead.
#[test]
fn every_attack_has_a_test_that_is_named_by_its_id() {
    let mut names = String::new();
    for folder in ["host", "nodes", "sdk", "tests"] {
        for file in files(&root().join(folder), "rs") {
            let text = fs::read_to_string(&file).unwrap();
            names.extend(text.lines().filter_map(|line| line.split_once("fn ")).map(|(_, name)| format!("_{name}\n")));
        }
    }
    let samples = files(&root().join("host/flow/tests/invalid"), "yaml");
    names.extend(samples.iter().map(|path| format!("_{}\n", path.file_name().unwrap().display())));
    let ids = attacks();
    assert!(ids.len() > 110, "only {} attacks: {ids:?}", ids.len());
    let is_named = |id: &&String| names.contains(&format!("_{id}_")) || names.contains(&format!("_{id}-"));
    let lost: Vec<_> = ids.iter().filter(|id| !is_named(id)).collect();
    assert!(lost.is_empty(), "no test is named by {lost:?}");
}
