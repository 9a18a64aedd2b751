//! Checks flows: `invalid/*.yaml` against `*.err`, `valid/*.yaml` against `*.txt`, and flows with bodies against their
//! drawings. `BLESS=1` rewrites the expected files.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
};

use flowcell_contract::{Catalog, Json, SECRETS};
use flowcell_flow::{CheckContext, CheckMode, Checked, Diagnostic, Reach, Severity, Source, draw};
use proptest::prelude::*;

use crate::golden::{self, cases, compare, printed, source};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn catalog() -> Catalog {
    golden::catalog(
        &[
            "catalog.yaml",
            "another-pack.yaml",
            "http-pack.yaml",
            "control-pack.yaml",
            "data-pack.yaml",
            "old-pack.yaml",
        ]
        .map(folder),
    )
}

/// A context in which the test cases are the library of flows.
struct CasesAsLibrary(CheckMode);

impl CheckContext for CasesAsLibrary {
    fn mode(&self) -> CheckMode {
        self.0
    }

    fn read(&self, path: &str) -> Result<String, String> {
        match path {
            "prompt.md" => Ok("Say {{ flow.input.word }}".into()),
            "statement.md" => Ok("Say {% if flow.input.loud %}HELLO{% endif %}".into()),
            "broken.md" => Ok("Please say {{ flow.inputs.word }}".into()),
            _ => Err("file not found".into()),
        }
    }

    fn flow(&self, name: &str) -> Option<Source> {
        let text = fs::read_to_string(folder("invalid").join(format!("{name}.yaml"))).ok()?;
        Some(Source { name: format!("{name}.yaml"), text })
    }

    fn has_flow(&self, name: &str) -> bool {
        name == "build"
    }

    fn flow_names(&self, _: usize) -> Vec<String> {
        vec!["build".into()]
    }

    fn reach(&self, url: &str, grant: &Json) -> Option<Reach> {
        let host = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
        let origin = url[..url.find(host)? + host.len()].to_owned();
        let granted = grant.as_array()?.iter().filter_map(Json::as_str).collect::<Vec<_>>();
        let covers_origin = granted.iter().any(|granted| granted.starts_with(&origin));
        let covers_url = granted.iter().any(|granted| url.starts_with(granted));
        Some(Reach { origin, path: url.split(['?', '#']).next()?.to_owned(), covers_origin, covers_url })
    }

    fn check_grant(&self, capability: &str, item: &Json) -> Result<(), String> {
        match item.get("name").and_then(Json::as_str) {
            Some(name) if capability == SECRETS => self.check_signing_secret(name),
            _ => Ok(()),
        }
    }

    fn check_signing_secret(&self, name: &str) -> Result<(), String> {
        if name.starts_with("missing") { Err(format!("unknown secret `{name}`")) } else { Ok(()) }
    }
}

fn load(path: &Path) -> Checked {
    flowcell_flow::load(&source(path), &catalog(), &CasesAsLibrary(CheckMode::New))
}

#[test]
fn invalid_flows_give_the_expected_diagnostics() {
    let cases = cases(&folder("invalid"));
    assert!(cases.len() >= 40, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let checked = load(&case);
        assert!(!checked.diagnostics.is_empty(), "{} has no diagnostic", case.display());
        let errors = checked.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
        assert_eq!(checked.graph.is_none(), errors, "{}", case.display());
        wrong.extend(compare(&case.with_extension("err"), &printed(&checked.diagnostics)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In a flow that a library already has, a violation of a newer rule is a warning at the same position as the error in
/// a new flow.
#[test]
fn stored_flows_get_warnings_from_newer_rules() {
    let mut kept = 0;
    for case in cases(&folder("invalid")) {
        let new = load(&case);
        let old = flowcell_flow::load(&source(&case), &catalog(), &CasesAsLibrary(CheckMode::Stored));
        let is_error = |diagnostic: &&Diagnostic| diagnostic.severity == Severity::Error;
        let newer: Vec<_> = new.diagnostics.iter().filter(|diagnostic| diagnostic.new_rule).collect();
        assert!(newer.iter().all(is_error), "{}", case.display());
        if newer.is_empty() || new.diagnostics.iter().filter(is_error).any(|diagnostic| !diagnostic.new_rule) {
            continue;
        }
        kept += 1;
        assert!(old.graph.is_some(), "{}: {}", case.display(), printed(&old.diagnostics));
        for diagnostic in newer {
            let same = |old: &&Diagnostic| (&old.location, old.code) == (&diagnostic.location, diagnostic.code);
            let old = old.diagnostics.iter().find(same).unwrap();
            assert_eq!(old.severity, Severity::Warning, "{old}");
            assert_eq!(old.message, format!("{}; a new version of this flow will be refused", diagnostic.message));
        }
    }
    assert!(kept >= 1, "no case breaks newer rules only");
}

/// A name in a trigger must exist when the flow is added to a library. In any other check a missing name is only a
/// warning.
#[test]
fn names_in_triggers_must_exist_in_a_library() {
    let case = folder("invalid").join("triggers-missing.yaml");
    for (rules, errors) in [(CheckMode::New, 0), (CheckMode::Adding, 2), (CheckMode::Stored, 0)] {
        let checked = flowcell_flow::load(&source(&case), &catalog(), &CasesAsLibrary(rules));
        let is_error = |diagnostic: &&Diagnostic| diagnostic.severity == Severity::Error;
        assert_eq!(checked.diagnostics.iter().filter(is_error).count(), errors, "{}", printed(&checked.diagnostics));
        assert_eq!(checked.diagnostics.len(), 3, "{}", printed(&checked.diagnostics));
    }
}

#[test]
fn valid_flows_have_no_diagnostics_and_the_expected_graph() {
    let mut wrong = Vec::new();
    for case in cases(&folder("valid")) {
        let checked = load(&case);
        assert_eq!(printed(&checked.diagnostics), "", "{}", case.display());
        let graph = checked.graph.unwrap();
        let mut shape = draw::draw(&graph, draw::Format::Text);
        shape += if graph.strict { "strict\n" } else { "" };
        for node in &graph.nodes {
            let references: Vec<_> = node.input.references.iter().map(|reference| format!("{reference:?}")).collect();
            shape += &format!("{}: {:?} {}\n", node.id, node.join, references.join(" "));
        }
        wrong.extend(compare(&case.with_extension("txt"), &shape));
        for (format, extension) in
            [(draw::Format::Mermaid, "mmd"), (draw::Format::Dot, "dot"), (draw::Format::Svg, "svg")]
        {
            let picture = draw::draw(&graph, format);
            assert!(picture.contains(graph.nodes[0].id.as_str()));
            // Drawings differ only in the way they show bodies.
            if graph.bodies.len() > 1 {
                wrong.extend(compare(&case.with_extension(extension), &picture));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Hostile documents (the attacks Y1 and Y2) get a diagnostic; they cause no panic and no endless wait.
#[test]
fn y1_y2_hostile_documents_are_refused() {
    let laughs: String = (1..20).map(|n| format!("l{n}: &l{n} [*l{0}, *l{0}, *l{0}]\n", n - 1)).collect();
    let documents = [
        format!("l0: &l0 [lol]\n{laughs}"),
        "[".repeat(100_000),
        "{a: ".repeat(1_000),
        "- ".repeat(5_000),
        "---\na: 1\n".repeat(10_000),
        format!("flow: {{ name: big }}\nnodes:\n{}", "  - { id: a, type: test.noop }\n".repeat(20_000)),
        "x".repeat(5 << 20),
        "flow: !!python/object:os.system { name: x }\nnodes: []".into(),
        "\u{0}\u{1}".into(),
        "flow: { name: x }\nnodes: []\nnodes: []".into(),
    ];
    let catalog = catalog();
    for text in documents {
        let head: String = text.chars().take(40).collect();
        let checked = flowcell_flow::load(
            &Source { name: "hostile.yaml".into(), text },
            &catalog,
            &CasesAsLibrary(CheckMode::New),
        );
        assert!(checked.graph.is_none(), "{head}");
        assert!(!checked.diagnostics.is_empty(), "{head}");
    }
}

fn numbered(count: usize, edges: impl Iterator<Item = (usize, usize)>) -> String {
    let nodes: String = (0..count).map(|n| format!("- {{ id: n{n}, type: test.noop }}\n")).collect();
    let edges: String = edges.map(|(from, to)| format!("- {{ from: n{from}, to: n{to} }}\n")).collect();
    format!("flow: {{ name: large }}\nnodes:\n{nodes}edges:\n{edges}")
}

/// Returns a flow with a cycle of half of the nodes. From each of them an edge leads to one of the other nodes, which all read
/// many outputs of the cycle.
fn readers(count: usize) -> String {
    let half = count / 2;
    let reads: String = (0..40).map(|n| format!("{{{{ n{n} }}}}")).collect();
    let node = |n: usize| match n < half {
        true => format!("- {{ id: n{n}, type: test.noop }}\n"),
        false => format!("- {{ id: n{n}, type: test.noop, input: {{ value: \"{reads}\" }} }}\n"),
    };
    let edges = (0..half)
        .map(|n| format!("- n{n} -> n{}\n- n{n} -> n{}\n- n{} -> n{half}\n", (n + 1) % half, half + n, half + n));
    let (nodes, edges): (String, String) = ((0..count).map(node).collect(), edges.collect());
    format!("flow: {{ name: large }}\nnodes:\n{nodes}edges:\n{edges}")
}

/// Flows at the size limit and beyond are checked in less than quadratic time.
#[test]
fn large_flows_are_checked() {
    let chain = |count: usize| (1..count).map(|n| (n - 1, n));
    let ring = |count: usize| (0..count).map(move |n| (n, (n + 1) % count));
    let rings = (0..50_000usize).map(|n| (n * 7919 % 10_000, n * 104_729 % 10_000));
    let dense = (0..50_000usize).map(|n| (n * 7919 % 10_000, (n * n + n / 10_000) % 10_000));
    let cases = [
        ("chain", numbered(10_000, chain(10_000)), true),
        ("ring", numbered(10_000, ring(10_000)), true),
        ("readers behind a cycle", readers(4_000), false),
        ("many rings", numbered(10_000, rings), true),
        ("dense", numbered(10_000, dense), false),
        ("too many nodes", numbered(40_000, ring(40_000)), false),
        ("too many edges", numbered(100, (0..60_000).map(|n| (n % 100, n / 100 % 100))), false),
    ];
    for (name, text, sound) in cases {
        let checked = flowcell_flow::load(
            &Source { name: "large.yaml".into(), text },
            &catalog(),
            &CasesAsLibrary(CheckMode::New),
        );
        assert_eq!(checked.graph.is_some(), sound, "{name}: {}", printed(&checked.diagnostics));
        assert!(printed(&checked.diagnostics).len() < 500_000, "{name}");
    }
}

#[test]
fn y9_a_fan_out_to_a_hundred_thousand_nodes_is_refused() {
    let check = |text: String| {
        let source = Source { name: "wide.json".into(), text };
        flowcell_flow::load(&source, &catalog(), &CasesAsLibrary(CheckMode::New))
    };
    let checked = check(numbered(100_001, (1..100_001).map(|n| (0, n))));
    assert!(checked.graph.is_none());
    // The text alone exceeds its limit.
    assert_eq!(checked.diagnostics[0].code, "syntax", "{}", printed(&checked.diagnostics));
    // Fan-outs whose text is short enough reach the limits of nodes and of edges.
    for (text, message) in [
        (numbered(40_001, (1..40_001).map(|n| (0, n))), "the flow has 40001 nodes and 40000 edges"),
        (numbered(10_000, (0..50_001).map(|n| (0, 1 + n % 9_999))), "the flow has 10000 nodes and 50001 or more edges"),
    ] {
        let checked = check(text);
        assert!(checked.graph.is_none());
        let found = &checked.diagnostics[0];
        assert_eq!((found.code, &*found.message), ("too_large", message), "{}", printed(&checked.diagnostics));
    }
}

/// The printed output stays short regardless of the number of diagnostics and the length of the lines.
#[test]
fn diagnostics_beyond_the_limit_are_counted() {
    let nodes: Vec<_> = (0..3_000).map(|n| format!(r#"{{"id":"n{n}","type":"test.noop","typ":1}}"#)).collect();
    let text = format!(r#"{{"flow":{{"name":"many"}},"nodes":[{}]}}"#, nodes.join(","));
    let checked =
        flowcell_flow::load(&Source { name: "many.json".into(), text }, &catalog(), &CasesAsLibrary(CheckMode::New));
    let last = checked.diagnostics.last().unwrap();
    assert_eq!((last.code, &*last.message), ("too_many_findings", "2800 more diagnostics are not shown"));
    assert!(printed(&checked.diagnostics).len() < 100_000);
}

/// A reason of an import is cut after 300 characters.
#[test]
fn long_reasons_of_an_import_are_cut() {
    for (length, shown) in [(300, "é".repeat(300)), (301, "é".repeat(300) + "…")] {
        let node = format!("{{ id: a, type: test.noop, approximated: {} }}", "é".repeat(length));
        let source = Source { name: "reason.yaml".into(), text: format!("flow: {{ name: r }}\nnodes: [{node}]") };
        let checked = flowcell_flow::load(&source, &catalog(), &CasesAsLibrary(CheckMode::New));
        assert_eq!(checked.diagnostics[0].message, format!("`a` is approximated: {shown}"));
    }
}

#[test]
fn a_flow_that_calls_itself_is_recursive_before_it_is_stored() {
    let text = "flow: { name: newcomer }\nnodes:\n  - { id: a, type: test.call, input: { name: newcomer } }\n";
    let source = Source { name: "newcomer.yaml".into(), text: text.into() };
    let checked = flowcell_flow::load(&source, &catalog(), &CasesAsLibrary(CheckMode::New));
    let found = &checked.diagnostics[0];
    assert_eq!((found.code, found.location.line), ("flow_recursion", 3), "{found}");
    assert!(found.message.contains("newcomer -> newcomer"), "{found}");
}

/// A library of flows with more than 4 MiB each. `broken` cannot run, and `gone` does not exist.
#[derive(Default)]
struct LargeFlows {
    read: Cell<usize>,
    looked_for: Cell<usize>,
    listed: Cell<usize>,
}

impl CheckContext for LargeFlows {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("file not found".into())
    }

    fn flow(&self, name: &str) -> Option<Source> {
        self.read.set(self.read.get() + 1);
        Some(Source { name: format!("{name}.yaml"), text: "x".repeat((4 << 20) + 1) })
    }

    fn has_flow(&self, name: &str) -> bool {
        self.looked_for.set(self.looked_for.get() + 1);
        name != "gone"
    }

    fn flow_names(&self, _: usize) -> Vec<String> {
        self.listed.set(self.listed.get() + 1);
        Vec::new()
    }

    fn unusable_flow(&self, name: &str) -> Option<String> {
        (name == "broken").then(|| "line 1: it is broken".into())
    }

    fn advise_flow(&self, name: &str) -> String {
        format!("store `{name}`")
    }
}

#[test]
fn a_check_reads_a_bounded_part_of_the_called_flows() {
    let names = [&["broken", "a", "b", "c", "d", "e", "broken", "gone"][..], &["a", "e"].repeat(100)].concat();
    let calls = names
        .iter()
        .enumerate()
        .map(|(at, name)| format!("{{ id: n{at}, type: test.call, input: {{ name: {name} }} }}"));
    let text = format!("flow: {{ name: x }}\nnodes:\n  - {}\n", calls.collect::<Vec<_>>().join("\n  - "));
    let context = LargeFlows::default();
    let checked = flowcell_flow::load(&Source { name: "x.yaml".into(), text }, &catalog(), &context);
    assert_eq!(context.read.get(), 2, "the others only have to exist");
    assert_eq!(context.looked_for.get(), 5, "each is looked for once, however many nodes call it");
    let found: Vec<_> = checked.diagnostics.iter().map(|found| (found.code, found.location.line)).collect();
    assert_eq!(found, [("unusable_flow", 3), ("unusable_flow", 9), ("unknown_flow", 10)]);
    assert_eq!(checked.diagnostics[0].message, "the flow `broken` cannot run: line 1: it is broken");
    assert_eq!(checked.diagnostics[2].help.as_deref(), Some("store `gone`"));
    assert_eq!(context.listed.get(), 1);
}

/// A library with flows of these names.
struct NamedFlows {
    names: Vec<String>,
    listed: Cell<usize>,
}

impl CheckContext for NamedFlows {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("file not found".into())
    }

    fn flow(&self, name: &str) -> Option<Source> {
        let text = "flow: {}\nnodes: [{ id: a, type: test.noop }]\n";
        self.has_flow(name).then(|| Source { name: format!("{name}.yaml"), text: text.into() })
    }

    fn has_flow(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    fn flow_names(&self, most: usize) -> Vec<String> {
        self.listed.set(self.listed.get() + 1);
        self.names.iter().take(most).cloned().collect()
    }

    fn advise_flow(&self, name: &str) -> String {
        format!("store `{name}`")
    }
}

/// Checks a flow `x` that calls flows, in a library. Returns the diagnostics, and how often the names were listed.
fn calling(called: &[&str], names: Vec<String>) -> (Vec<Diagnostic>, usize) {
    let calls = called.iter().enumerate();
    let calls = calls.map(|(at, name)| format!("  - {{ id: n{at}, type: test.call, input: {{ name: {name} }} }}\n"));
    let text = format!("flow: {{ name: x }}\nnodes:\n{}", calls.collect::<String>());
    let context = NamedFlows { names, listed: Cell::default() };
    let checked = flowcell_flow::load(&Source { name: "x.yaml".into(), text }, &catalog(), &context);
    (checked.diagnostics, context.listed.get())
}

fn helps(found: &[Diagnostic]) -> Vec<&str> {
    found.iter().map(|found| found.help.as_deref().unwrap()).collect()
}

#[test]
fn the_name_of_an_unknown_flow_is_replaced_by_a_similar_one() {
    let names = || ["gone-a", "goner", "other", "x"].map(str::to_owned).to_vec();
    let (found, listed) = calling(&["gone", "gone_a", "gone-far-away", "gone", "other"], names());
    let meant = "did you mean `goner`?";
    assert_eq!(helps(&found), [meant, "did you mean `gone-a`?", "store `gone-far-away`", meant]);
    assert_eq!(listed, 1, "the names are listed once");
    let fix = found[0].fix.as_ref().unwrap();
    assert_eq!((fix.line, fix.column, fix.len, fix.text.as_str()), (3, 47, 4, "goner"));
    assert!(found[2].fix.is_none());
    // Without an unknown name nothing is listed, and a flow is not advised to call itself.
    assert_eq!(calling(&["other"], names()), (Vec::new(), 0));
    assert_eq!(helps(&calling(&["y"], names()).0), ["store `y`"]);
}

#[test]
fn the_names_of_many_flows_are_compared_once() {
    let many = (0..20_000).map(|at| if at == 9_999 { "goner".into() } else { format!("f{at}") });
    let (found, listed) = calling(&["gone", "gone"], many.collect());
    assert_eq!((helps(&found), listed), (vec!["did you mean `goner`?", "store `gone`"], 1));
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_text_makes_the_checker_panic(text in "[a-zé0{}\\[\\]:,\"'\\\\#&*!|>%@ \t\r\n-]{0,200}") {
        let source = Source { name: "random.yaml".into(), text };
        let first = flowcell_flow::load(&source, &Catalog::default(), &CasesAsLibrary(CheckMode::New));
        let again = flowcell_flow::load(&source, &Catalog::default(), &CasesAsLibrary(CheckMode::New));
        prop_assert_eq!(first.diagnostics, again.diagnostics);
    }

    #[test]
    fn no_mutation_of_a_flow_makes_the_checker_panic(case in 0..5usize, at in any::<prop::sample::Index>(), with in "[a-zé{}\\[\\]:,\"' \t\r\n-]{0,6}") {
        let cases = cases(&folder("valid"));
        let mut text: Vec<char> = fs::read_to_string(&cases[case % cases.len()]).unwrap().chars().collect();
        let at = at.index(text.len());
        text.splice(at..(at + 3).min(text.len()), with.chars());
        let source = Source { name: "mutated.yaml".into(), text: text.into_iter().collect() };
        let first = flowcell_flow::load(&source, &catalog(), &CasesAsLibrary(CheckMode::New));
        let again = flowcell_flow::load(&source, &catalog(), &CasesAsLibrary(CheckMode::New));
        prop_assert_eq!(first.diagnostics, again.diagnostics);
    }
}
