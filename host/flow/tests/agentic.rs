//! Checks agentic flows: `agentic/invalid/*` against their diagnostics, `agentic/valid/*` against their graphs.
//! `BLESS=1` rewrites the expected files.

mod walk;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use flowcell_contract::{Catalog, Json};
use flowcell_flow::{CheckContext, Checked, Graph, Severity, Source, agentic, draw};
use proptest::prelude::*;

use crate::golden::{self, cases, compare, printed, source};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agentic").join(name)
}

fn catalog() -> Catalog {
    golden::catalog(&[folder("pack.yaml")])
}

/// A context with the agents in the test folder.
struct Agents;

impl CheckContext for Agents {
    fn read(&self, _path: &str) -> Result<String, String> {
        Err("file not found".into())
    }

    fn flow(&self, _name: &str) -> Option<Source> {
        None
    }

    fn agent(&self, name: &str) -> Option<Source> {
        let text = fs::read_to_string(folder("agents").join(format!("{name}.md"))).ok()?;
        Some(Source { name: format!("{name}.md"), text })
    }

    fn agents(&self) -> Option<Vec<String>> {
        Some(["writer", "retired", "broken"].map(str::to_owned).into())
    }
}

fn load(path: &Path) -> Checked {
    flowcell_flow::load(&source(path), &catalog(), &Agents)
}

/// Describes those parts of a graph that the dialect decides, for comparison with the expected file.
fn described(graph: &Graph) -> String {
    let mut text = draw::draw(graph, draw::Format::Text);
    let schema = graph.input_schema.clone().map(Json::from).unwrap_or_default();
    let label = Json::object(graph.labels.iter().map(|(key, label)| (key.as_str(), label.clone())));
    writeln!(text, "\n{} {:?}\ninputSchema {schema}\nlabels {label}", graph.name, graph.policy).unwrap();
    for edge in &graph.edges {
        let ids = (&graph.node(edge.from).id, &graph.node(edge.to).id);
        let reads: Vec<_> = edge.when.iter().flat_map(|when| when.expr.paths()).map(|path| path.to_string()).collect();
        writeln!(text, "{} -> {} {:?} {}", ids.0, ids.1, edge.on, reads.join(" ")).unwrap();
    }
    for node in &graph.nodes {
        writeln!(text, "\n{}: {} {:?}", node.id, node.node_type.name, node.join).unwrap();
        let references: Vec<_> = node.input.references.iter().map(|reference| format!("{reference:?}")).collect();
        writeln!(text, "  reads {}", references.join(" ")).unwrap();
        writeln!(text, "  timeoutMs {} {:?}", node.policy.timeout_ms, node.policy.retry).unwrap();
        writeln!(text, "  grants {}", serde_json::to_string(&node.grants).unwrap()).unwrap();
        writeln!(text, "  config {}", node.config.expr.render(&flowcell_expr::NoRoots).unwrap()).unwrap();
        for (key, label) in &node.labels {
            writeln!(text, "  label {key} {label}").unwrap();
        }
    }
    text
}

#[test]
fn invalid_flows_give_the_expected_diagnostics() {
    let mut wrong = Vec::new();
    for case in cases(&folder("invalid")) {
        let checked = load(&case);
        assert!(!checked.diagnostics.is_empty(), "{} has no diagnostic", case.display());
        let errors = checked.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
        assert_eq!(checked.graph.is_none(), errors, "{}", case.display());
        wrong.extend(compare(&case.with_extension("err"), &printed(&checked.diagnostics)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn valid_flows_give_the_expected_graphs() {
    let mut wrong = Vec::new();
    for case in cases(&folder("valid")) {
        let checked = load(&case);
        assert_eq!(printed(&checked.diagnostics), "", "{}", case.display());
        wrong.extend(compare(&case.with_extension("txt"), &described(&checked.graph.unwrap())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn invalid_agents_give_the_expected_diagnostics() {
    let mut files: Vec<_> = fs::read_dir(folder("agent-files")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    let mut wrong = Vec::new();
    for file in files {
        let agentic::CheckedAgent { agent, diagnostics } = agentic::agent(&source(&file));
        let errors = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
        assert_eq!(agent.is_none(), errors, "{}", file.display());
        wrong.extend(compare(&file.with_extension("err"), &printed(&diagnostics)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_agent_file_gives_the_expected_definition() {
    let agent = agentic::agent(&source(&folder("agents/writer.md"))).agent.unwrap();
    let written = serde_json::to_string_pretty(&agent).unwrap() + "\n";
    assert_eq!(compare(&folder("agents/writer.json"), &written), None);
    assert_eq!(serde_json::from_str::<agentic::AgentDefinition>(&written).unwrap(), agent);
    let plain = Source { name: "agents/plain.md".into(), text: "You are plain.\n".into() };
    let agent = agentic::agent(&plain).agent.unwrap();
    assert_eq!((&*agent.id, &*agent.system), ("plain", "You are plain."));
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/agentic")
}

fn flows_in(folder: &Path) -> Vec<PathBuf> {
    cases(folder).into_iter().filter(|path| !path.ends_with("flow.schema.json")).collect()
}

#[test]
fn every_example_is_valid_without_a_warning() {
    let flows = flows_in(&examples());
    assert!(flows.len() >= 3, "only {} examples", flows.len());
    for flow in flows {
        assert_eq!(printed(&load(&flow).diagnostics), "", "{}", flow.display());
    }
}

/// Returns the first code block of a language in the page about the dialect.
fn block(page: &str, language: &str) -> String {
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_examples_in_the_page_are_valid() {
    let page = fs::read_to_string(examples().join("README.md")).unwrap();
    let flow = Source { name: ".flowcell/flows/resolve-issue.yaml".into(), text: block(&page, "yaml") };
    let checked = flowcell_flow::load(&flow, &catalog(), &Agents);
    assert_eq!(printed(&checked.diagnostics), "");
    let agent = agentic::agent(&Source { name: "writer.md".into(), text: block(&page, "markdown") });
    assert_eq!(printed(&agent.diagnostics), "");
}

/// The codes in the expected diagnostics of the test cases are those that the page about the dialect explains,
/// except `syntax`, `hidden_file`, `too_large` and `too_deep`.
#[test]
fn every_code_has_a_case_and_an_entry() {
    let page = fs::read_to_string(examples().join("README.md")).unwrap();
    let (_, told) = page.split_once("## What the checker tells").unwrap();
    let (told, _) = told.split_once("## Running").unwrap();
    let words =
        told.split('`').skip(1).step_by(2).filter(|word| word.contains('_') || ["convergence", "cycle"].contains(word));
    // Other tests cover these.
    let elsewhere = ["hidden_file", "too_large", "too_deep"];
    let explained: BTreeSet<_> = words.filter(|word| !elsewhere.contains(word)).map(str::to_owned).collect();
    let goldens = ["invalid", "agent-files"].map(|name| fs::read_dir(folder(name)).unwrap());
    let goldens = goldens.into_iter().flatten().map(|entry| entry.unwrap().path());
    let errors = goldens.filter(|path| path.extension().is_some_and(|extension| extension == "err"));
    let text: String = errors.map(|path| fs::read_to_string(path).unwrap()).collect();
    let heads = text.lines().filter_map(|line| line.strip_prefix("error[").or(line.strip_prefix("warning[")));
    let codes = heads.map(|rest| rest.split(']').next().unwrap().to_owned());
    let shown: BTreeSet<_> = codes.filter(|code| code != "syntax").collect();
    assert_eq!(shown, explained);
}

/// Valid flows match the schema that editors read, which stands beside the examples. `BLESS=1` rewrites the schema.
#[test]
fn valid_flows_match_the_schema_for_editors() {
    let schema = flowcell_flow::schema::agentic();
    let written = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    assert_eq!(compare(&examples().join("flow.schema.json"), &written), None);
    let validator = jsonschema::validator_for(&schema).unwrap();
    for flow in [flows_in(&examples()), flows_in(&folder("valid"))].concat() {
        let value: serde_json::Value = serde_yaml::from_str(&fs::read_to_string(&flow).unwrap()).unwrap();
        let errors: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", flow.display());
    }
    let fits = |name: &str| {
        let text = fs::read_to_string(folder("invalid").join(name)).unwrap();
        validator.is_valid(&serde_yaml::from_str::<serde_json::Value>(&text).unwrap())
    };
    assert!(["bad-keys.yaml", "bad-types.yaml", "bad-ids.yaml", "no-steps.yaml"].iter().all(|name| !fits(name)));
}

/// Flows at the size limit and beyond are checked in less than quadratic time.
#[test]
fn large_flows_are_checked() {
    let chain = |count: usize| -> String {
        let step = |n: usize| format!("  - {{ id: s{n}, prompt: go, rules: [{{ then: s{} }}] }}\n", n + 1);
        let steps: String = (0..count).map(step).collect();
        format!("flow:\n  steps:\n{steps}  - {{ id: s{count}, prompt: go }}\n")
    };
    let fan = |count: usize| -> String {
        let rules: String = (0..count).map(|n| format!("{{ if: \"${{args.k}} == {n}\", then: b }}, ")).collect();
        format!("flow:\n  steps:\n  - {{ id: a, prompt: go, rules: [{rules}] }}\n  - {{ id: b, prompt: go }}\n")
    };
    let prompt = |piece: &str| format!("flow: {{ steps: [{{ id: a, prompt: \"{}\" }}] }}", piece.repeat(100_000));
    let misspelt: String = (0..50_000).map(|n| format!("${{args.promt{n}}}")).collect();
    let nowhere: String = (0..40_000).map(|n| format!("{{ then: b{n} }}, ")).collect();
    let cases = [
        (chain(9_000), true),
        (chain(20_000), false),
        (fan(20_000), true),
        (fan(60_000), false),
        (prompt("${"), true),
        (prompt("{{ x"), true),
        (prompt("${args.a} "), true),
        (prompt("${args.} "), false),
        (format!("flow: {{ steps: [{{ id: a, prompt: \"{misspelt}\" }}] }}"), true),
        (format!("flow: {{ steps: [{{ id: a, prompt: go, rules: [{nowhere}] }}] }}"), false),
    ];
    for (text, sound) in cases {
        let checked = flowcell_flow::load(&Source { name: "large.yaml".into(), text }, &catalog(), &Agents);
        assert_eq!(checked.graph.is_some(), sound, "{}", printed(&checked.diagnostics));
    }
}

/// Returns a flow of steps with these numbers of iterations, and rules from one step to another. All rules but those to
/// later steps have a condition.
fn looping(max_iterations: &[Option<u32>], rules: &[(usize, usize)]) -> String {
    let rule = |(from, to): &(usize, usize)| match to > from {
        true => format!("{{ then: s{to} }}, "),
        false => format!("{{ if: \"${{args.k}} == {to}\", then: s{to} }}, "),
    };
    let step = |(step, max): (usize, &Option<u32>)| {
        let rules: String = rules.iter().filter(|(from, _)| *from == step).map(rule).collect();
        let max = max.map(|max| format!(", maxIterations: {max}")).unwrap_or_default();
        format!("  - {{ id: s{step}, prompt: go{max}, rules: [{rules}] }}\n")
    };
    format!("flow:\n  steps:\n{}", max_iterations.iter().enumerate().map(step).collect::<String>())
}

/// Returns the loops of a flow: the step at which each begins, its steps and its number of iterations; or the codes of its
/// errors.
fn loops(text: String) -> Result<Vec<(String, String, u32)>, Vec<String>> {
    let checked = flowcell_flow::load(&Source { name: "looping.yaml".into(), text }, &catalog(), &Agents);
    let errors = checked.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    let codes: Vec<_> = errors.map(|diagnostic| diagnostic.code.to_string()).collect();
    let graph = checked.graph.ok_or(codes)?;
    let id = |node: &flowcell_flow::graph::NodeIx| graph.node(*node).id.to_string();
    let found = graph.cycles.iter().map(|cycle| {
        let steps: Vec<_> = cycle.nodes.iter().map(id).collect();
        (id(&cycle.entry), steps.join(" "), cycle.max_passes)
    });
    Ok(found.collect())
}

#[test]
fn loops_begin_where_rules_enter_them() {
    let case = |max: &[Option<u32>], rules: &[(usize, usize)]| loops(looping(max, rules));
    let found = |list: &[(&str, &str, u32)]| -> Vec<(String, String, u32)> {
        list.iter().map(|(entry, steps, max)| ((*entry).to_owned(), (*steps).to_owned(), *max)).collect()
    };
    let back = [(0, 1), (1, 2), (2, 1)];
    assert_eq!(case(&[None, Some(3), None], &back), Ok(found(&[("s1", "s1 s2", 3)])));
    assert_eq!(case(&[None, None, Some(3)], &back), Ok(found(&[])), "the rule back is not marked");
    assert_eq!(case(&[None, Some(5), Some(3)], &back), Ok(found(&[("s1", "s1 s2", 3)])), "the smaller number counts");
    assert_eq!(case(&[Some(2)], &[(0, 0)]), Ok(found(&[("s0", "s0", 2)])));
    let nested = [(0, 1), (1, 2), (2, 1), (2, 0)];
    let both = found(&[("s0", "s0 s1 s2", 2), ("s1", "s1 s2", 3)]);
    assert_eq!(case(&[Some(2), Some(3), None], &nested), Ok(both));
    assert_eq!(
        case(&[Some(2), None, None], &nested),
        Ok(found(&[("s0", "s0 s1 s2", 2)])),
        "the inner rule has no mark"
    );
    assert_eq!(case(&[None, Some(3), None], &nested), Ok(found(&[("s1", "s1 s2", 3)])), "the outer rule has no mark");
    let entries = [(0, 1), (0, 2), (1, 2), (2, 1)];
    assert_eq!(case(&[None, Some(3), None], &entries).unwrap_err(), ["cycle"]);
    assert_eq!(case(&[None, None, None], &entries), Ok(found(&[])), "without a mark the first to arrive wins");
    let apart = [(0, 1), (0, 2), (1, 2), (2, 1), (0, 3), (3, 3)];
    assert_eq!(case(&[None, None, None, Some(2)], &apart), Ok(found(&[("s3", "s3", 2)])));
}

/// The edge from a step to itself never fires outside of loops, even if another part of the flow loops.
#[test]
fn only_steps_of_loops_lead_to_themselves() {
    let steps = |max: &str| {
        format!(
            "flow:\n  steps:\n  - {{ id: s0, prompt: go, rules: [{{ then: s1 }}, {{ then: s2 }}, {{ then: s3 }}] }}\n  \
             - {{ id: s1, prompt: go, rules: [{{ then: s2 }}], fallback: {{ to: s1 }} }}\n  \
             - {{ id: s2, prompt: go, rules: [{{ then: s1 }}] }}\n  \
             - {{ id: s3, prompt: go{max}, rules: [{{ if: \"${{args.k}} == 1\", then: s3 }}] }}\n"
        )
    };
    for (max, expected) in [("", &[] as &[&str]), (", maxIterations: 2", &["s3"])] {
        let source = Source { name: "looping.yaml".into(), text: steps(max) };
        let graph = flowcell_flow::load(&source, &catalog(), &Agents).graph.unwrap();
        let own = graph.edges.iter().filter(|edge| edge.from == edge.to);
        let own: Vec<_> = own.map(|edge| graph.node(edge.from).id.as_str()).collect();
        assert_eq!(own, expected, "{max}");
    }
}

#[test]
fn many_and_deep_loops_are_checked() {
    let nested = |count: usize| -> String {
        let ahead = (0..count).map(|step| (step, step + 1));
        let rules: Vec<_> = ahead.chain((0..count).map(|step| (count, step))).collect();
        looping(&vec![Some(2); count + 1], &rules)
    };
    assert_eq!(loops(nested(16)).unwrap().len(), 16);
    assert_eq!(loops(nested(17)).unwrap_err(), ["too_deep"]);
    assert_eq!(loops(nested(2_000)).unwrap_err()[0], "too_deep");
    let unmarked = nested(2_000).replace(", maxIterations: 2", "");
    assert_eq!(loops(unmarked), Ok(Vec::new()));
    let count = 5_000;
    let line: String = (0..count)
        .map(|step| {
            let (own, next) = (format!("{{ if: \"${{args.k}} == 1\", then: s{step} }}"), step + 1);
            format!("  - {{ id: s{step}, prompt: go, maxIterations: 2, rules: [{own}, {{ if: \"${{args.k}} != 1\", then: s{next} }}] }}\n")
        })
        .collect();
    assert_eq!(loops(format!("flow:\n  steps:\n{line}  - {{ id: s{count}, prompt: go }}\n")).unwrap().len(), count);
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_mutation_of_a_flow_makes_the_checker_panic(case in 0..16usize, at in any::<prop::sample::Index>(), with in "[a-zé${}\\[\\]:,\"'=~/. \t\r\n-]{0,6}") {
        let cases = [cases(&folder("valid")), cases(&folder("invalid"))].concat();
        let mut text: Vec<char> = fs::read_to_string(&cases[case % cases.len()]).unwrap().chars().collect();
        let at = at.index(text.len());
        text.splice(at..(at + 3).min(text.len()), with.chars());
        let source = Source { name: "mutated.yaml".into(), text: text.into_iter().collect() };
        let first = flowcell_flow::load(&source, &catalog(), &Agents);
        prop_assert_eq!(first.diagnostics, flowcell_flow::load(&source, &catalog(), &Agents).diagnostics);
    }

    #[test]
    fn no_text_makes_the_reader_of_agents_panic(text in "(---\n)?[a-z{}:,\"'* \n-]{0,120}(\n---\n)?[a-z ]{0,10}") {
        let source = Source { name: "any.md".into(), text };
        let checked = agentic::agent(&source);
        prop_assert!(checked.agent.is_some() || !checked.diagnostics.is_empty());
    }
}

/// The built-in agents are the same as the presets of the pack `agent`. The pack has the presets in its component. This
/// crate has them as agent files, which a user's file can override.
#[test]
fn built_in_agents_are_the_presets_of_the_pack() {
    let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../nodes/agent/src/presets");
    for name in agentic::built_in_agents() {
        let agent = agentic::built_in_agent(name).unwrap();
        let system = fs::read_to_string(presets.join(format!("{name}.md"))).unwrap();
        assert_eq!(agent.system, system.trim(), "{name}");
        let schema = fs::read_to_string(presets.join(format!("{name}.json"))).ok();
        let schema: Option<serde_json::Value> = schema.map(|schema| serde_json::from_str(&schema).unwrap());
        assert_eq!(agent.output, schema, "{name}");
    }
    let count =
        fs::read_dir(presets).unwrap().filter(|entry| entry.as_ref().unwrap().path().extension().unwrap() == "md");
    assert_eq!(count.count(), agentic::built_in_agents().count());
}
