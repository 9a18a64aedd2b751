//! Tests the inputs that steps receive. A small simulation of the runtime walks through the graph.

use flowcell_contract::Json;
use flowcell_flow::{
    Begin, Graph, Source, agentic,
    graph::{NodeIx, On},
};
use proptest::prelude::*;

use crate::agentic::{Agents, catalog, folder, load, printed, source};

/// Walks through a graph as the runtime would. `script` gives the output or the error message of each step, by id.
/// Returns the inputs that the steps receive, in the order in which the steps start.
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
            let ends = (edge.on == On::Error) == done.is_err();
            let holds = edge.when.as_ref().is_none_or(|when| when.expr.evaluate(&roots).unwrap());
            if ends && holds {
                open.push((edge.to, brought.clone(), Json::object([(node.id.as_str(), brought.clone())])));
            }
        }
    }
    told
}

/// Simulates `agent.run`: returns the arguments with the members of the structured output merged into them.
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
    let checked = flowcell_flow::load_from(&source, &catalog(), &Agents, &begin.clone().into());
    assert!(checked.graph.is_some(), "{}", printed(&checked.diagnostics));
    checked.graph.unwrap()
}

fn ids(told: &[(String, Result<Json, String>)]) -> Vec<&str> {
    told.iter().map(|(id, _)| id.as_str()).collect()
}

#[test]
fn arguments_follow_the_path_that_fired() {
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

/// Edges and postponed rules decide alike: by the arguments that the step's output has made of those of its input.
#[test]
fn joined_predicates_choose_the_next_steps() {
    let graph = load(&folder("valid/predicates.yaml")).graph.unwrap();
    let label = agentic::step_label(&graph.nodes[0]).unwrap();
    let cases: [(&str, &[&str], bool); 6] = [
        (r#"{ "list": [1], "n": 3, "env": "dev" }"#, &["a", "b"], false),
        (r#"{ "list": [], "n": "3", "env": "prod", "ok": true }"#, &["a", "c"], true),
        (r#"{ "list": [1], "n": "10", "env": "staging", "ok": "true" }"#, &["a", "b", "c"], true),
        (r#"{ "list": [1], "n": 2, "env": "prod", "ok": false }"#, &["a"], true),
        // `ok` is missing, so `!= true` is false, and its negation holds.
        (r#"{ "env": "prod" }"#, &["a", "c"], false),
        ("{}", &["a"], false),
    ];
    for (found, steps, is_postponed) in cases {
        let told = walk(&graph, r#"{ "prompt": "P-1" }"#, &[("a", Ok(found))]);
        assert_eq!(ids(&told), steps, "{found}");
        let output = Json::object([("args", Json::parse(found).unwrap())]);
        let left = agentic::postponed(&label, &output, 1);
        assert_eq!(left.iter().map(|left| &*left.step).eq(["d"]), is_postponed, "{found}");
    }
}

/// Labels of earlier versions have the condition of a postponed rule as a text.
#[test]
fn stored_labels_go_on() {
    let stored = r#"{ "step": "a", "agent": "coder", "session": { "flow": "f", "step": "a", "fork": false, "sameAgent": [] },
        "postponed": [{ "then": "d", "when": "(args[\"k\"] != null) and ((args[\"k\"] | string) == \"v\")", "written": "x" }] }"#;
    let label: agentic::StepLabel = serde_json::from_str(stored).unwrap();
    let left = |args: &str| agentic::postponed(&label, &Json::object([("args", Json::parse(args).unwrap())]), 1).len();
    assert_eq!((left(r#"{ "k": "v" }"#), left(r#"{ "k": "w" }"#)), (1, 0));
}

#[test]
fn postponed_steps_run_in_the_next_run() {
    let path = folder("valid/resolve-issue.yaml");
    let graph = load(&path).graph.unwrap();
    let label = agentic::step_label(&graph.nodes[0]).unwrap();
    for (args, left) in [(r#"{ "priority": "low" }"#, 1), (r#"{ "priority": "high" }"#, 0), ("{}", 0)] {
        let output = Json::object([("args", Json::parse(args).unwrap())]);
        let postponed = agentic::postponed(&label, &output, 1);
        assert_eq!(postponed.len(), left, "{args}");
        assert!(postponed.iter().all(|left| left.step == "announce" && left.args.to_string() == args.replace(' ', "")));
    }
    let output = Json::parse(r#"{ "result": "said", "args": { "prompt": "P-1", "priority": "low" } }"#).unwrap();
    let left = agentic::postponed(&label, &output, 1);

    let begin = Begin::At(vec!["announce".into()]);
    let checked = flowcell_flow::load_from(&source(&path), &catalog(), &Agents, &begin.into());
    let graph = checked.graph.unwrap();
    let input = agentic::resume_input(&Json::object::<&str>([]), &left);
    let told = walk(&graph, &input.to_string(), &[]);
    assert_eq!(ids(&told), ["announce", "archive"]);
    assert_eq!(
        told[0].1.as_ref().unwrap().to_string(),
        r#"{"prompt":"Tell people about P-1","args":{"prompt":"P-1","priority":"low"},"previous":"said","from":"pick-workflow"}"#
    );
    assert_eq!(agentic::flow_label(&graph).unwrap().begin, ["announce"]);

    let nowhere = Begin::At(vec!["anounce".into()]);
    let checked = flowcell_flow::load_from(&source(&path), &catalog(), &Agents, &nowhere.into());
    assert_eq!(checked.diagnostics[0].code, "unknown_step");
}

#[test]
fn sessions_are_named_after_prefix_flow_and_step() {
    let graph = load(&folder("valid/resolve-issue.yaml")).graph.unwrap();
    let label = agentic::step_label(&graph.nodes[2]).unwrap();
    assert_eq!(label.session.id("proj123"), "proj123-resolve-issue-polish");
    assert_eq!((label.session.fork, label.session.same_agent), (true, vec!["implement".to_owned()]));
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    /// The inputs of a valid flow can be rendered up to the end of the flow, for any output of its agents.
    #[test]
    fn inputs_of_valid_flows_can_be_rendered(key in "[a-z]{1,3}", value in "\\PC{0,20}", prompt in "\\PC{0,60}") {
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
            if !prompt.contains("${args") {
                prop_assert_eq!(told[0].1.as_ref().unwrap().get("prompt"), Some(&Json::from(prompt)));
            }
        }
    }
}
