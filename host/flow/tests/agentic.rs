//! Flows of the agentic dialect: `agentic/invalid/*` beside what is found in them, `agentic/valid/*` beside the graph
//! that they are lowered to. `BLESS=1` writes the goldens anew.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use flowcell_contract::{Catalog, Digest, Json, Manifest};
use flowcell_flow::{Begin, Checked, Diagnostic, Files, Graph, Severity, Source, agentic, draw, graph::NodeIx};
use proptest::prelude::*;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agentic").join(name)
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let manifest = fs::read_to_string(folder("pack.yaml")).unwrap();
    catalog.add(Manifest::parse(&manifest).unwrap(), &Digest("00".into()));
    catalog
}

/// The agents beside the cases.
struct Agents;

impl Files for Agents {
    fn read(&self, _path: &str) -> Result<String, String> {
        Err("there is no such file".into())
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

fn source(path: &Path) -> Source {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    Source { name, text: fs::read_to_string(path).unwrap() }
}

fn load(path: &Path) -> Checked {
    flowcell_flow::load(&source(path), &catalog(), &Agents)
}

fn cases(folder: &Path) -> Vec<PathBuf> {
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "yaml" || extension == "json"));
    cases.sort();
    cases
}

fn compare(golden: &Path, given: &str) -> Option<String> {
    if std::env::var_os("BLESS").is_some() {
        fs::write(golden, given).unwrap();
    }
    let expected = fs::read_to_string(golden).unwrap_or_default();
    (expected != given).then(|| format!("{}:\n{given}", golden.display()))
}

fn printed(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|finding| format!("{finding}\n\n")).collect()
}

/// Everything of a graph that the dialect decides.
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
fn bad_flows_are_told_what_is_wrong() {
    let mut wrong = Vec::new();
    for case in cases(&folder("invalid")) {
        let checked = load(&case);
        assert!(!checked.diagnostics.is_empty(), "{} has no finding", case.display());
        let errors = checked.diagnostics.iter().any(|finding| finding.severity == Severity::Error);
        assert_eq!(checked.graph.is_none(), errors, "{}", case.display());
        wrong.extend(compare(&case.with_extension("err"), &printed(&checked.diagnostics)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn good_flows_become_these_graphs() {
    let mut wrong = Vec::new();
    for case in cases(&folder("valid")) {
        let checked = load(&case);
        assert_eq!(printed(&checked.diagnostics), "", "{}", case.display());
        wrong.extend(compare(&case.with_extension("txt"), &described(&checked.graph.unwrap())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bad_agents_are_told_what_is_wrong() {
    let mut files: Vec<_> = fs::read_dir(folder("agent-files")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    let mut wrong = Vec::new();
    for file in files {
        let agentic::CheckedAgent { agent, diagnostics } = agentic::agent(&source(&file));
        let errors = diagnostics.iter().any(|finding| finding.severity == Severity::Error);
        assert_eq!(agent.is_none(), errors, "{}", file.display());
        wrong.extend(compare(&file.with_extension("err"), &printed(&diagnostics)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_agent_is_what_its_file_says() {
    let agent = agentic::agent(&source(&folder("agents/writer.md"))).agent.unwrap();
    let written = serde_json::to_string_pretty(&agent).unwrap() + "\n";
    assert_eq!(compare(&folder("agents/writer.json"), &written), None);
    assert_eq!(serde_json::from_str::<agentic::AgentDefinition>(&written).unwrap(), agent);
    let plain = Source { name: "agents/plain.md".into(), text: "You are plain.\n".into() };
    let agent = agentic::agent(&plain).agent.unwrap();
    assert_eq!((&*agent.id, &*agent.system), ("plain", "You are plain."));
}

/// Runs a graph as the runtime would, with agents that give what `script` says: the outputs of steps by id, or the
/// message of a failure. Answers what every step was given, in order.
fn walk(graph: &Graph, input: &str, script: &[(&str, Result<&str, &str>)]) -> Vec<(String, Result<Json, String>)> {
    let flow = Json::object([("input", Json::parse(input).unwrap())]);
    let empty = Json::object::<&str>([]);
    let mut outputs: Vec<(String, Json)> = Vec::new();
    let mut seen: Vec<NodeIx> = Vec::new();
    let mut told = Vec::new();
    let mut open: Vec<_> = graph.bodies[0].starts.iter().map(|start| (*start, Json::Null, empty.clone())).collect();
    open.reverse();
    while let Some((at, inbound, inbounds)) = open.pop() {
        if seen.contains(&at) {
            continue;
        }
        seen.push(at);
        let node = graph.node(at);
        let roots = Json::object([("flow", flow.clone()), ("inbound", inbound), ("inbounds", inbounds)]);
        let input = node.input.expr.render(&roots).map_err(|error| error.message);
        told.push((node.id.to_string(), input.clone()));
        let done = match &input {
            Ok(input) => agent(input, script.iter().find(|(id, _)| *id == node.id.as_str()).map(|(_, done)| *done)),
            Err(message) => Err(message.clone()),
        };
        let brought = match &done {
            Ok(output) => output.clone(),
            Err(message) => Json::object([
                ("failed", Json::from(true)),
                ("error", Json::object([("message", Json::from(message.as_str()))])),
                ("input", input.unwrap_or_default()),
            ]),
        };
        outputs.push((node.id.to_string(), brought.clone()));
        let roots =
            Json::object([("nodes", Json::object(outputs.iter().map(|(id, output)| (id.as_str(), output.clone()))))]);
        for edge in node.outgoing.iter().rev().map(|edge| graph.edge(*edge)) {
            let ends = (edge.on == flowcell_flow::graph::On::Error) == done.is_err();
            let holds = edge.when.as_ref().is_none_or(|when| when.expr.evaluate(&roots).unwrap());
            if ends && holds {
                open.push((edge.to, brought.clone(), Json::object([(node.id.as_str(), brought.clone())])));
            }
        }
    }
    told
}

/// What `agent.run` promises: arguments go on, with the structured output merged in.
fn agent(input: &Json, done: Option<Result<&str, &str>>) -> Result<Json, String> {
    let structured = match done {
        Some(Ok(structured)) => Json::parse(structured).unwrap(),
        Some(Err(message)) => return Err(message.to_owned()),
        None => Json::Null,
    };
    let args = [input.get("args").unwrap(), &structured].into_iter().filter_map(Json::as_object).flatten();
    let args = Json::object(args.map(|(key, value)| (key.clone(), value.clone())));
    let mut output = vec![("result", Json::from("all is well")), ("args", args)];
    if !structured.is_null() {
        output.push(("structuredOutput", structured));
    }
    Ok(Json::object(output))
}

fn graph_of(text: &str, begin: &Begin) -> Graph {
    let source = Source { name: "walk.yaml".into(), text: text.into() };
    let checked = flowcell_flow::load_from(&source, &catalog(), &Agents, begin);
    assert!(checked.graph.is_some(), "{}", printed(&checked.diagnostics));
    checked.graph.unwrap()
}

fn ids(told: &[(String, Result<Json, String>)]) -> Vec<&str> {
    told.iter().map(|(id, _)| id.as_str()).collect()
}

#[test]
fn arguments_travel_along_the_path_that_fired() {
    let graph = load(&folder("valid/resolve-issue.yaml")).graph.unwrap();
    let implementation = ("pick-workflow", Ok(r#"{ "workflow": "IMPLEMENTATION" }"#));

    let told = walk(&graph, r#"{ "prompt": "P-1" }"#, &[implementation]);
    assert_eq!(ids(&told), ["pick-workflow", "implement", "polish"]);
    let given = told[1].1.as_ref().unwrap();
    assert_eq!(
        given.to_string(),
        r#"{"prompt":"Do the IMPLEMENTATION of P-1. All that is known: {\"prompt\":\"P-1\",\"workflow\":\"IMPLEMENTATION\"}","args":{"prompt":"P-1","workflow":"IMPLEMENTATION"},"previous":"{\"workflow\":\"IMPLEMENTATION\"}","from":"pick-workflow"}"#
    );
    assert_eq!(told[2].1.as_ref().unwrap().get("previous"), Some(&Json::from("all is well")));

    let told = walk(&graph, r#"{ "prompt": "P-1" }"#, &[("pick-workflow", Ok(r#"{ "workflow": "REVIEW" }"#))]);
    assert_eq!(ids(&told), ["pick-workflow", "review"]);
    let prompt = told[1].1.as_ref().unwrap().get("prompt").unwrap().clone();
    assert_eq!(prompt, Json::from("Review {{ this }} ${HOME} {% literally %} P-1"));

    let told = walk(&graph, r#"{ "prompt": "P-1" }"#, &[implementation, ("implement", Err("no model"))]);
    assert_eq!(ids(&told), ["pick-workflow", "implement", "give-up"]);
    let given = told[2].1.as_ref().unwrap();
    assert_eq!(given.get("previous"), Some(&Json::from("The step before failed: no model")));
    assert_eq!(given.get("args").unwrap().to_string(), r#"{"prompt":"P-1","workflow":"IMPLEMENTATION"}"#);
    assert_eq!(given.get("from"), Some(&Json::from("implement")));
}

#[test]
fn a_missing_argument_fails_its_step_by_name() {
    let graph = load(&folder("valid/resolve-issue.yaml")).graph.unwrap();
    let told = walk(&graph, "{}", &[]);
    assert_eq!(ids(&told), ["pick-workflow", "give-up"]);
    let message = told[0].1.as_ref().unwrap_err();
    assert!(message.contains("`args.prompt` is required"), "{message}");
}

#[test]
fn forks_have_their_own_arguments_and_the_first_to_arrive_wins() {
    let text = "flow:\n  steps:\n    - { id: a, prompt: go, rules: [{ then: b }, { then: c }] }\n    \
                - { id: b, prompt: go, rules: [{ then: d }] }\n    - { id: c, prompt: go, rules: [{ then: d }] }\n    \
                - { id: d, prompt: go, rules: [{ then: a }, { then: d }] }\n";
    let graph = graph_of(text, &Begin::First);
    let told = walk(&graph, "{}", &[("b", Ok(r#"{ "by": "b" }"#)), ("c", Ok(r#"{ "by": "c" }"#))]);
    assert_eq!(ids(&told), ["a", "b", "d", "c"]);
    assert_eq!(told[2].1.as_ref().unwrap().get("args").unwrap().to_string(), r#"{"by":"b"}"#);
    assert_eq!(told[3].1.as_ref().unwrap().get("args").unwrap().to_string(), "{}");
}

#[test]
fn postponed_steps_are_left_to_the_next_run() {
    let path = folder("valid/resolve-issue.yaml");
    let graph = load(&path).graph.unwrap();
    let label = agentic::step_label(&graph.nodes[0]).unwrap();
    for (args, left) in [(r#"{ "priority": "low" }"#, 1), (r#"{ "priority": "high" }"#, 0), ("{}", 0)] {
        let output = Json::object([("args", Json::parse(args).unwrap())]);
        let postponed = agentic::postponed(&label, &output);
        assert_eq!(postponed.len(), left, "{args}");
        assert!(postponed.iter().all(|left| left.step == "announce" && left.args.to_string() == args.replace(' ', "")));
    }
    let output = Json::parse(r#"{ "result": "said", "args": { "prompt": "P-1", "priority": "low" } }"#).unwrap();
    let left = agentic::postponed(&label, &output);

    let begin = Begin::At(vec!["announce".into()]);
    let checked = flowcell_flow::load_from(&source(&path), &catalog(), &Agents, &begin);
    let graph = checked.graph.unwrap();
    let input = agentic::input_of(&Json::object::<&str>([]), &left);
    let told = walk(&graph, &input.to_string(), &[]);
    assert_eq!(ids(&told), ["announce", "archive"]);
    assert_eq!(
        told[0].1.as_ref().unwrap().to_string(),
        r#"{"prompt":"Tell people about P-1","args":{"prompt":"P-1","priority":"low"},"previous":"said","from":"pick-workflow"}"#
    );
    assert_eq!(agentic::flow_label(&graph).unwrap().begin, ["announce"]);

    let nowhere = Begin::At(vec!["anounce".into()]);
    let checked = flowcell_flow::load_from(&source(&path), &catalog(), &Agents, &nowhere);
    assert_eq!(checked.diagnostics[0].code, "unknown_step");
}

#[test]
fn sessions_are_named_after_prefix_flow_and_step() {
    let graph = load(&folder("valid/resolve-issue.yaml")).graph.unwrap();
    let label = agentic::step_label(&graph.nodes[2]).unwrap();
    assert_eq!(label.session.id("proj123"), "proj123-resolve-issue-polish");
    assert_eq!((label.session.fork, label.session.same_agent), (true, vec!["implement".to_owned()]));
}

/// The largest flows there may be, and larger ones, are checked in a time that does not grow with the square of them.
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
    for (text, sound) in [(chain(9_000), true), (chain(20_000), false), (fan(20_000), true), (fan(60_000), false)] {
        let checked = flowcell_flow::load(&Source { name: "large.yaml".into(), text }, &catalog(), &Agents);
        assert_eq!(checked.graph.is_some(), sound, "{}", printed(&checked.diagnostics));
    }
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

    /// A flow that was found sound runs to its end, whatever the agents give.
    #[test]
    fn what_was_lowered_can_be_rendered(key in "[a-z]{1,3}", value in "\\PC{0,20}", prompt in "\\PC{0,60}") {
        let quoted = |text: &str| Json::from(text).to_string();
        let rule = quoted(&format!("${{args.{key}}} == {value}"));
        let text = format!("flow:\n  steps:\n  - {{ id: a, prompt: {}, rules: [{{ if: {rule}, then: b }}] }}\n  - {{ id: b, prompt: go }}\n", quoted(&prompt));
        let source = Source { name: "any.yaml".into(), text };
        if let Some(graph) = flowcell_flow::load(&source, &catalog(), &Agents).graph {
            let structured = Json::object([(key.as_str(), Json::from(value.trim()))]).to_string();
            let told = walk(&graph, "{}", &[("a", Ok(&structured))]);
            if told[0].1.is_ok() {
                prop_assert_eq!(ids(&told), ["a", "b"]);
            }
            if !prompt.contains("${") {
                prop_assert_eq!(told[0].1.as_ref().unwrap().get("prompt"), Some(&Json::from(prompt)));
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_of_agents_panic(text in "(---\n)?[a-z{}:,\"'* \n-]{0,120}(\n---\n)?[a-z ]{0,10}") {
        let source = Source { name: "any.md".into(), text };
        let checked = agentic::agent(&source);
        prop_assert!(checked.agent.is_some() || !checked.diagnostics.is_empty());
    }
}
